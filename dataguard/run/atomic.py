"""How does a file come to stand under its final name whole, or not at all?

No final name is ever opened for writing. A writer

1. writes a temporary in ``RUN/tmp/`` (same file system, a name nobody else has),
2. makes it durable: fsync, then close, each checked for errors,
3. lets the caller read it back (``check``),
4. gives it its name: ``rename`` (`publish`, the newest wins) or ``link`` (`publish_new`, the first wins),
5. makes the name durable: fsync of the folder.

Whatever fails, the temporary is removed and the file that stood there before still stands. Failures of the operating
system end as `WriteFailed` (exit code 4) with the path, the system's words and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from dataguard.errors import WriteFailed

__all__ = [
    "Content",
    "fsync_folder",
    "make_folders",
    "publish",
    "publish_new",
    "remove_durably",
    "sweep_temporaries",
    "write_failed",
]

Content = bytes | Callable[[BinaryIO], None]
"""What to write: the bytes themselves, or a function that writes them to an open binary file."""

_TODO = {
    errno.ENOSPC: "free space on that file system, then run the command again",
    errno.EDQUOT: "the disk quota is used up: free space or raise the quota, then run the command again",
    errno.EACCES: "give this user write permission there",
    errno.EPERM: "give this user write permission there, or use a file system that allows the operation",
    errno.EROFS: "the file system is mounted read-only: choose another folder",
    errno.ENOTDIR: "a part of the path is a file: choose another folder",
    errno.EEXIST: "something that is no folder stands in the way: choose another folder",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or use another file system",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "the disk reports errors: check the device before writing anything else to it",
}


def write_failed(path: Path, error: OSError, *, doing: str = "write") -> WriteFailed:
    """`WriteFailed` for an error of the operating system, saying what was being done to which path.

    >>> print(write_failed(Path("run/a"), OSError(errno.ENOSPC, "No space left on device")))
    cannot write run/a: No space left on device
      next: free space on that file system, then run the command again
    """
    words = error.strerror or str(error) or type(error).__name__
    number = error.errno if error.errno is not None else errno.EIO
    failure = WriteFailed(
        f"cannot {doing} {path}: {words}",
        todo=_TODO.get(number, "see that the folder exists and can be written, then run the command again"),
    )
    failure.errno, failure.strerror, failure.filename = number, words, os.fspath(path)
    return failure


@contextlib.contextmanager
def _named(path: Path, doing: str) -> Iterator[None]:
    """Turn what the operating system says into `WriteFailed`; errors that already speak for themselves pass."""
    try:
        yield
    except WriteFailed:
        raise
    except OSError as error:
        if type(error).__module__.startswith("dataguard"):
            raise
        raise write_failed(path, error, doing=doing) from error


def publish(path: Path, content: Content, *, tmp: Path, check: Callable[[Path], None] | None = None) -> None:
    """Write ``content`` and give it the name ``path``, whole or not at all; a file of that name is replaced.

    Parameters
    ----------
    path
        The final name. Its folder is made where it is missing.
    content
        Bytes, or a function that writes them to an open binary file.
    tmp
        The run's folder of temporaries, on the same file system.
    check
        Called with the durable temporary before it gets its name; whatever it raises stops the publication.

    Raises
    ------
    WriteFailed
        Nothing was changed, or (only where the very last fsync failed) the new file stands but may not be durable.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> publish(folder / "a/b/plan.json", b"{}", tmp=folder / "tmp")
    >>> (folder / "a/b/plan.json").read_bytes(), list((folder / "tmp").iterdir())
    (b'{}', [])
    """
    with _temporary(path, content, tmp, check) as temporary, _named(path, "write"):
        temporary.rename(path)
        fsync_folder(path.parent)


def publish_new(path: Path, content: Content, *, tmp: Path, check: Callable[[Path], None] | None = None) -> bool:
    """Write ``content`` under the name ``path`` if nobody has that name yet: of many writers exactly one wins.

    Returns
    -------
    bool
        True when the file that stands there is ours; False when somebody else's was there first (nothing was changed).

    Raises
    ------
    WriteFailed
        The operating system failed; see `publish`.
    """
    with _temporary(path, content, tmp, check) as temporary, _named(path, "write"):
        try:
            os.link(temporary, path)
        except OSError as error:
            # A network file system may do the link, lose the answer, and report EEXIST to its own second try. The
            # link count of the temporary, whose name nobody else knows, tells the two apart.
            if temporary.stat().st_nlink != 2:
                if error.errno == errno.EEXIST:
                    return False
                raise
        fsync_folder(path.parent)
        return True


@contextlib.contextmanager
def _temporary(path: Path, content: Content, tmp: Path, check: Callable[[Path], None] | None) -> Iterator[Path]:
    """A durable temporary with that content; it is gone when the block ends, however it ends."""
    if path.exists() and not path.is_file():
        # A rename would put the file in the place of a device or a pipe: `-o /dev/null` as root, and it is gone.
        raise WriteFailed(f"cannot write {path}: it is there, and is no file", todo="name another place")
    make_folders(tmp)
    make_folders(path.parent)
    temporary = tmp / f"{path.name}.{uuid.uuid4().hex}"
    try:
        with _named(path, "write"), temporary.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        yield temporary
    finally:
        # Renamed away: nothing is left to remove. A failing removal must not hide what went wrong before it.
        with contextlib.suppress(OSError):
            temporary.unlink()


def make_folders(path: Path) -> None:
    """Make a folder and whatever is missing above it; any number of processes may do so at once.

    Raises
    ------
    WriteFailed
        A part of the path is no folder, or the operating system refused.
    """
    if path.is_dir():
        return
    with _named(path, "make the folder"):
        missing = []
        level = path
        while not level.is_dir():
            missing.append(level)
            if level.parent == level:
                break
            level = level.parent
        for level in reversed(missing):
            try:
                level.mkdir()
            except FileExistsError:
                # Somebody else was faster, which is as good; a file in the way is not.
                if not level.is_dir():
                    raise
            fsync_folder(level.parent)


def sweep_temporaries(tmp: Path, *, before_ns: int) -> list[Path]:
    """Remove temporaries that killed processes left; those changed since ``before_ns`` may still be written.

    Parameters
    ----------
    tmp
        The run's folder of temporaries.
    before_ns
        Unix time in nanoseconds; a day before now is safe on any file system.

    Returns
    -------
    list
        What was removed, in order of names.

    Raises
    ------
    WriteFailed
        The operating system refused.
    """
    removed = []
    with _named(tmp, "sweep"):
        for path in sorted(tmp.iterdir()) if tmp.is_dir() else []:
            # Somebody else may sweep at the same time.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime_ns < before_ns:
                    path.unlink()
                    removed.append(path)
    return removed


def remove_durably(path: Path) -> bool:
    """Remove a file and make its absence durable; False when it was not there.

    Raises
    ------
    WriteFailed
        The operating system refused.
    """
    with _named(path, "remove"):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        fsync_folder(path.parent)
    return True


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable.

    Raises
    ------
    OSError
        The system's own error; callers name the file they were about.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems keep names durable by themselves and say so by refusing the call.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)
