"""How are worker processes brought up, and what does it mean when one ends?

A worker is forked, or started anew and given all it needs by pickling; a fork server imports the heavy modules once, so
that workers forked from it begin in a fraction of a second, and stays without threads. What cannot be brought to a
worker is said before one is started.
"""

from __future__ import annotations

import pickle
import signal
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Literal

from dataguard.errors import UsageError
from dataguard.torch.making import Recipe, message_of
from dataguard.torch.transform import name_of

__all__ = [
    "StartMethod",
    "Workers",
    "how_it_ended",
    "leave_signals_alone",
    "often_because",
    "pickled_recipe",
    "preload",
]

StartMethod = Literal["forkserver", "spawn", "fork"]

_PRELOADED = [
    "dataguard.torch.feeding",
    "dataguard.core.permute_kernels",
    "dataguard.gate.gate",
    "dataguard.score.text",
    "dataguard.score.tokens",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many processes read ahead, and how."""

    number: int
    prefetch_factor: int
    """Microbatches that each of them is ahead."""
    start_method: StartMethod
    pin_memory: bool
    timeout_seconds: float
    """How long the parent waits for one microbatch, once a worker has started."""


def pickled_recipe(recipe: Recipe) -> bytes:
    """What workers that inherit nothing are given.

    Raises
    ------
    UsageError
        It cannot be pickled, or would not be found again when it is unpickled; or the main script, which a worker
        imports as it starts, is no file.
    """
    script = _missing_script()
    if script is not None:
        raise UsageError(
            "worker processes cannot be started: they import the main script, and no file holds it",
            found=script,
            todo="save it to a file and run that, or give start_method='fork' or num_workers=0",
        )
    for function in (recipe.transform, recipe.collate):
        if function is None:
            continue
        todo = "define it at the top level of a module, or give start_method='fork' or num_workers=0"
        try:
            ForkingPickler.dumps(function)
        except Exception as error:
            raise UsageError(
                f"{name_of(function)} cannot be brought to worker processes: it cannot be pickled",
                found=f"{type(error).__name__}: {message_of(error)}",
                todo=todo,
            ) from error
        if name_of(function).startswith("__main__:") and not _main_can_be_imported():
            raise UsageError(
                f"{name_of(function)} cannot be brought to worker processes: it was typed in, no file holds it",
                todo=todo,
            )
    return pickle.dumps(recipe, protocol=pickle.HIGHEST_PROTOCOL)


def _main_can_be_imported() -> bool:
    import __main__

    return hasattr(__main__, "__file__") or getattr(__main__, "__spec__", None) is not None


def _missing_script() -> str | None:
    """Where a worker would look for the main script in vain, as for one that was piped to the interpreter."""
    told: dict[str, Any] = spawn.get_preparation_data("")
    path = told.get("init_main_from_path")
    return path if path is not None and not Path(path).exists() else None


def how_it_ended(code: int | None) -> str:
    """An exit code of `multiprocessing` in words.

    >>> how_it_ended(-9), how_it_ended(3)
    ('was ended by SIGKILL', 'ended by itself, with exit code 3')
    """
    if code is None:
        return "is gone"
    if code >= 0:
        return f"ended by itself, with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def often_because(code: int | None, *, imported: bool) -> str:
    """What often ends a worker like that; `imported` says that it imports the main script and has answered nothing."""
    if code == -signal.SIGKILL:
        return "; who is killed from outside often had too little memory"
    if code == -signal.SIGBUS:
        return "; shared memory (/dev/shm) may be full"
    if code == 1 and imported:
        return (
            "; a worker that ends as it starts has said why on standard error: often the script does its work as it is "
            "imported, and needs an if __name__ == '__main__': around it"
        )
    return ""


def preload(context: Any) -> None:
    """Have the fork server import what workers need, once; unless somebody told it otherwise, or it runs already."""
    from multiprocessing import forkserver

    server = getattr(forkserver, "_forkserver", None)
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        # Not the main module: what it imports may start threads, and a fork server has to stay without.
        context.set_forkserver_preload(_PRELOADED)


def leave_signals_alone(answers: Any) -> None:
    """Keep the DataLoader from raising in the middle of the trainer's own code when a worker ends.

    It does so from a handler of SIGCHLD, without an address; here dead workers are found when a microbatch is due.
    """
    from torch.utils.data._utils import signal_handling

    if getattr(answers, "_worker_pids_set", False):
        signal_handling._remove_worker_pids(id(answers))  # type: ignore[attr-defined]
        answers._worker_pids_set = False
