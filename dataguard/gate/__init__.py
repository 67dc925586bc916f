"""What is to be done about a sample? Policies: rules over signals, the verdicts they give, and their account.

Data goes `document` (policy.toml as written, every misspelling told) -> `checking` (every rule that cannot mean
anything told) -> `rules` (the `Policy`, with a digest) -> `fitting` (against the sources there are) -> `gate` (signals
to verdicts). `policy` offers the way in, `account`, `batches` and `shards` what is said of many samples together.
Names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.gate.gate import Gate
    from dataguard.gate.policy import Policy, load_policy, read_policy

__all__ = [
    "Gate",
    "Policy",
    "load_policy",
    "read_policy",
]

_HOMES = {
    "Gate": "gate",
    "Policy": "policy",
    "load_policy": "policy",
    "read_policy": "policy",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
