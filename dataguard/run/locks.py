"""Who may finish another's files?

The one writer of a rank holds an flock on its seals file for as long as it lives; the system lets it go when the
process ends, however it ends. A later command that wants to seal or compact takes the same lock, so it can never work
beside a living writer, nor two commands beside each other. Locks need no files of their own and leave none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dataguard.errors import NotInRun, WriterConflict
from dataguard.run.atomic import write_failed

__all__ = ["hold", "try_lock"]


def try_lock(descriptor: int, path: Path) -> bool:
    """Lock an open file for this process; False when somebody else holds it.

    Raises
    ------
    WriteFailed
        The file system has no locks, or the call failed otherwise.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise write_failed(path, error, doing="lock") from error
    return True


@contextlib.contextmanager
def hold(path: Path, *, what: str) -> Iterator[None]:
    """Hold the lock of a file that exists.

    Parameters
    ----------
    path
        The file whose lock says who may work.
    what
        What it guards, for the message: ``"rank 3 of attempt 1"``.

    Raises
    ------
    WriterConflict
        Somebody else holds it.
    NotInRun
        There is no such file.
    """
    try:
        # A network file system gives an exclusive lock only to a file open for writing; nothing is written.
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotInRun(f"{what} has never been written: there is no {path}") from error
    except OSError as error:
        raise write_failed(path, error, doing="lock") from error
    try:
        if not try_lock(descriptor, path):
            raise WriterConflict(
                f"{what} is still being written",
                found=f"another process holds the lock of {path}",
                todo="wait until that process has ended, then run the command again",
            )
        yield
    finally:
        os.close(descriptor)
