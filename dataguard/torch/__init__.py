"""The only room that imports torch: the loader under a trainer, and what stands beside it.

In come runs, plans and the user's own functions; out come microbatches of tensors, each on record. `loader` is what a
trainer is given, `guarding` a loader that exists already, `ranks` process groups and replicas, `monitoring` and
`watching` what is logged by step. Its names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.torch.describing import describe as describe
    from dataguard.torch.guarding.guard import guard as guard
    from dataguard.torch.guarding.guarded import Guarded as Guarded
    from dataguard.torch.loader import GuardedLoader as GuardedLoader
    from dataguard.torch.microbatch import TensorMicrobatch as TensorMicrobatch
    from dataguard.torch.monitoring.monitor import Monitor as Monitor
    from dataguard.torch.ranks.announced import together as together
    from dataguard.torch.record import Record as Record
    from dataguard.torch.replaying import rebuild_tensors as rebuild_tensors
    from dataguard.torch.transforms import ByteTransform as ByteTransform
    from dataguard.torch.transforms import WindowTransform as WindowTransform

__all__ = [
    "ByteTransform",
    "Guarded",
    "GuardedLoader",
    "Monitor",
    "Record",
    "TensorMicrobatch",
    "WindowTransform",
    "describe",
    "guard",
    "rebuild_tensors",
    "together",
]

_HOMES = {
    "ByteTransform": "transforms",
    "Guarded": "guarding.guarded",
    "GuardedLoader": "loader",
    "Monitor": "monitoring.monitor",
    "Record": "record",
    "TensorMicrobatch": "microbatch",
    "WindowTransform": "transforms",
    "describe": "describing",
    "guard": "guarding.guard",
    "rebuild_tensors": "replaying",
    "together": "ranks.announced",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
