"""Can a GuardedLoader be what it is asked to be?"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any, get_args

import torch

from dataguard.errors import UsageError
from dataguard.run.run import Run
from dataguard.torch.making import Transform
from dataguard.torch.transforms import WindowTransform
from dataguard.torch.workers import StartMethod

__all__ = [
    "check_at_least",
    "check_settings",
    "has_accelerator",
    "refuse_while_a_worker_starts",
    "transform_of",
]

_OWN = {
    "reading": "num_workers",
    "num_threads": "num_workers",
    "prefetch": "prefetch_factor",
    "peers": "data_parallel_group",
    "told": "steps_per_epoch",
}


def check_settings(settings: Mapping[str, Any], start_method: str, worker_timeout_seconds: float) -> None:
    """Settings that GuardedLoader has names of its own for, and what cannot be."""
    for name, ours in _OWN.items():
        if name in settings:
            raise UsageError(f"GuardedLoader takes no {name}", todo=f"give {ours}")
    if start_method not in get_args(StartMethod):
        raise UsageError(f"start_method {start_method!r} cannot be", allowed=" or ".join(get_args(StartMethod)))
    if not worker_timeout_seconds > 0:
        raise UsageError(f"worker_timeout_seconds {worker_timeout_seconds} cannot be", allowed="more than 0")


def refuse_while_a_worker_starts() -> None:
    """A worker that starts imports the main script; what that does outside its guard would be done again there."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "a worker process has come by a GuardedLoader of its own as it started",
            found="a main script that does its work as it is imported",
            todo="put its work under if __name__ == '__main__':, or give start_method='fork'",
        )


def check_at_least(**numbers: tuple[int, int]) -> None:
    """Whole numbers, each with the least it may be."""
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} {value!r} cannot be", allowed=f"an integer of at least {least}")


def transform_of(run: Run, transform: Transform | None, ignore_index: int) -> Transform:
    """What makes tensors of the samples of a run: the one given, else the one for windows."""
    if transform is not None:
        if not callable(transform):
            raise UsageError(f"a transform of type {type(transform).__name__} cannot be called")
        return transform
    if run.plan_document().root.form == "window":
        return WindowTransform(ignore_index=ignore_index)
    raise UsageError(
        "documents have to be made into tensors, and no transform is given",
        allowed="transform=FUNCTION, from a Record to a dict of tensors",
        todo="give your tokenizer's, or dataguard.torch.ByteTransform(seq_len)",
    )


def has_accelerator() -> bool:
    """Whether there is a device to which page-locked memory is of use."""
    there = getattr(torch, "accelerator", None)
    return bool(there.is_available()) if there is not None else torch.cuda.is_available()
