"""The only room that imports torch: the loader under a trainer, and what stands beside it.

In come runs, plans and the user's own functions; out come microbatches of tensors, each on record. `loader` is what a
trainer is given, `guarding` a loader that exists already, `ranks` process groups and replicas, `monitoring` and
`watching` what is logged by step. Its names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "ByteTransform": "dataguard.torch.transforms",
    "Guarded": "dataguard.torch.guarding.guarded",
    "GuardedLoader": "dataguard.torch.loader",
    "Monitor": "dataguard.torch.monitoring.monitor",
    "Record": "dataguard.torch.record",
    "TensorMicrobatch": "dataguard.torch.microbatch",
    "WindowTransform": "dataguard.torch.transforms",
    "guard": "dataguard.torch.guarding.guard",
    "rebuild_tensors": "dataguard.torch.replaying",
    "together": "dataguard.torch.ranks.announced",
}

__all__ = [
    "ByteTransform",
    "Guarded",
    "GuardedLoader",
    "Monitor",
    "Record",
    "TensorMicrobatch",
    "WindowTransform",
    "guard",
    "rebuild_tensors",
    "together",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dataguard.torch' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
