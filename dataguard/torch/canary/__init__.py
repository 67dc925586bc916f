"""Does every host, device and rank compute the same? One microbatch, bit by bit (row A6).

In come a run, a step and the user's functions; out come `CanaryRecord`s, files that can be carried from host to host,
and what comparing them says. `comparing` is arithmetic alone and needs no torch. Its names are imported when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.torch.canary.answers import CanaryComparison as CanaryComparison
    from dataguard.torch.canary.answers import CanaryRecord as CanaryRecord
    from dataguard.torch.canary.comparing import compare as compare
    from dataguard.torch.canary.keeping import keep_record as keep_record
    from dataguard.torch.canary.keeping import kept_records as kept_records
    from dataguard.torch.canary.keeping import note_comparison as note_comparison
    from dataguard.torch.canary.keeping import read_records as read_records
    from dataguard.torch.canary.ranks import compare_ranks as compare_ranks
    from dataguard.torch.canary.taking import take as take

__all__ = [
    "CanaryComparison",
    "CanaryRecord",
    "compare",
    "compare_ranks",
    "keep_record",
    "kept_records",
    "note_comparison",
    "read_records",
    "take",
]

_HOMES = {
    "CanaryComparison": "answers",
    "CanaryRecord": "answers",
    "compare": "comparing",
    "compare_ranks": "ranks",
    "keep_record": "keeping",
    "kept_records": "keeping",
    "note_comparison": "keeping",
    "read_records": "keeping",
    "take": "taking",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
