"""Can this file system keep a run directory?

The journal and the ranks' records stand on three promises: of many that create a name exclusively one wins, a name is
linked only where none stands, and a rename replaces whole files. All three are tried with temporaries in ``RUN/tmp``
before a run is created or continued; what a file system does not keep is named, with what to use instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from dataguard.errors import UnfitFileSystem
from dataguard.run.atomic import make_folders, write_failed

__all__ = ["probe"]

_INSTEAD = (
    "put the run directory on a file system that has it and give a far or slow one a local spool (spool = DIR), "
    "or use an object store with create-if-absent"
)


def probe(tmp: Path) -> None:
    """Try exclusive create, link and rename in a folder, which is made where it is missing; nothing is left behind.

    Raises
    ------
    UnfitFileSystem
        One of the three is missing, or does not do what it promises.
    WriteFailed
        Nothing can be written there at all: no permission, no space, read-only.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> probe(folder / "tmp"), list((folder / "tmp").iterdir())
    (None, [])
    """
    make_folders(tmp)
    stem = f"probe.{uuid.uuid4().hex}"
    first, second, third = (tmp / f"{stem}.{part}" for part in ("a", "b", "c"))
    try:
        _create(first, b"first")
        _create(third, b"third")
        _expect_taken(lambda: _create(first, b"again"), first, "exclusive create")
        _link(first, second)
        _expect_taken(lambda: os.link(third, second), second, "link")
        _rename(third, second)
    finally:
        for path in (first, second, third):
            with contextlib.suppress(OSError):
                path.unlink()


def _create(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise
    except OSError as error:
        raise write_failed(path, error) from error


def _expect_taken(operate: Callable[[], None], path: Path, operation: str) -> None:
    try:
        operate()
    except FileExistsError:
        return
    except OSError as error:
        raise _unfit(path, operation, f"it fails with {_words(error)} where the name is taken") from error
    raise _unfit(path, operation, "it succeeds where the name is taken")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
        count = source.stat().st_nlink
    except OSError as error:
        raise _unfit(target, "link", _words(error)) from error
    if count != 2 or target.read_bytes() != b"first":
        raise _unfit(target, "link", f"it makes no second name of the same file (link count {count}, not 2)")


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
        content = target.read_bytes()
    except OSError as error:
        raise _unfit(target, "rename", _words(error)) from error
    if content != b"third" or source.exists():
        raise _unfit(target, "rename", "it does not put the new file in the place of the old")


def _words(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "an unknown error")
    return f"{name} ({error.strerror or error})"


def _unfit(path: Path, operation: str, found: str) -> UnfitFileSystem:
    return UnfitFileSystem(
        f"the file system of {path.parent.parent} has no working {operation}",
        found=found,
        allowed="a file system with link, exclusive create and rename",
        todo=_INSTEAD,
    )
