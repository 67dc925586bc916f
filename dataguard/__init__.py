"""dataguard: the flight recorder and the gate for training data.

The public names are imported when they are first used, so that ``import dataguard`` costs a few milliseconds and pulls
in neither pyarrow nor numba:

>>> from dataguard import Geometry
>>> Geometry(world_size=4, microbatch_size=2).num_microbatches(16)
2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered
from dataguard.version import __version__

if TYPE_CHECKING:
    from dataguard.core.address import Address as Address
    from dataguard.core.address import Geometry as Geometry
    from dataguard.core.manifest import Manifest as Manifest
    from dataguard.corpus.corpus import Corpus as Corpus
    from dataguard.errors import DataguardError as DataguardError
    from dataguard.gate.policy import Policy as Policy
    from dataguard.loader.loader import Loader as Loader
    from dataguard.plan.plan import Plan as Plan
    from dataguard.run.run import Run as Run
    from dataguard.score.text import score_text as score_text
    from dataguard.score.tokens import score_tokens as score_tokens

__all__ = [
    "Address",
    "Corpus",
    "DataguardError",
    "Geometry",
    "Loader",
    "Manifest",
    "Plan",
    "Policy",
    "Run",
    "__version__",
    "score_text",
    "score_tokens",
]

_HOMES = {
    "Address": "core.address",
    "Corpus": "corpus.corpus",
    "DataguardError": "errors",
    "Geometry": "core.address",
    "Loader": "loader.loader",
    "Manifest": "core.manifest",
    "Plan": "plan.plan",
    "Policy": "gate.policy",
    "Run": "run.run",
    "score_text": "score.text",
    "score_tokens": "score.tokens",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
