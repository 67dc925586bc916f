"""Processes that die where a test wants them to, without any chance to clean up."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["deaths", "in_a_child", "memory_folder"]

_CALLS = ((os, "fsync"), (os, "link"), (os, "pwrite"), (os, "ftruncate"), (Path, "rename"), (Path, "unlink"))
DIED = 77


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A fresh folder in memory where there is one: what a process leaves does not depend on the disk, time does."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="dataguard-test-", dir=memory if usable else None) as folder:
        yield Path(folder)


def in_a_child(work: Callable[[], object]) -> int:
    """Run work in a fork; its exit code (0, or 1 where it raised)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def deaths(
    work: Callable[[Path], object], folder: Path, *, after: bool, prepare: Callable[[Path], object] | None = None
) -> Iterator[Path]:
    """Run ``work(fresh folder)`` again and again, dying at its first, second, ... call that changes the disk.

    The process ends just before the call or just after it. ``prepare`` fills each folder beforehand. Yields the folder
    each death left behind; ends when work comes through.
    """
    for count in range(1, 10_000):
        root = folder / f"death-{count}"
        if prepare is not None:
            prepare(root)

        def dying(count: int = count, root: Path = root) -> None:
            left = [count]

            def wrap(real: Callable[..., object]) -> Callable[..., object]:
                def call(*args: object, **kwargs: object) -> object:
                    left[0] -= 1
                    if left[0] == 0 and not after:
                        os._exit(DIED)
                    try:
                        return real(*args, **kwargs)
                    finally:
                        if left[0] == 0:
                            os._exit(DIED)

                return call

            for owner, name in _CALLS:
                setattr(owner, name, wrap(getattr(owner, name)))
            work(root)

        code = in_a_child(dying)
        if code == 0:
            return
        assert code == DIED, f"the work itself failed at call {count}"
        yield root
    raise AssertionError("the work never ends")
