"""Where do a source's bytes lie?

A `Root` is one place that shard paths are relative to: a local folder, or anything that fsspec opens by URL (imported
only then). It lists what lies below it and opens a path as a seekable binary file.

Paths are the same everywhere: their bytes read as UTF-8, whatever encoding the locale has (bytes that are no UTF-8 as
surrogates). `canonical` gives that spelling of what the operating system says, `native` the way back.

Nothing here keeps a handle or a connection across a fork: local files are opened for each call, and a remote file
system is built anew in a process that did not build it.
"""

# Names of any bytes, by the hundred thousand: os.path keeps them as they are.
# ruff: noqa: PTH100, PTH116, PTH118, PTH123

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, Protocol, cast

from dataguard.corpus.remote_file import RemoteFile, storage_errors
from dataguard.errors import EnvironmentFailed, UsageError

__all__ = [
    "Compression",
    "Entry",
    "LocalRoot",
    "RemoteRoot",
    "Root",
    "canonical",
    "is_url",
    "native",
    "open_root",
    "readable",
]

Compression = Literal["none", "gzip", "zstd"]

_IS_UTF8 = sys.getfilesystemencoding().lower() in {"utf-8", "utf8"}
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*(::|://)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that lies below a root."""

    path: str
    """Relative, '/'-separated, canonical."""
    size_bytes: int = 0
    identity: str = ""
    """The same for two spellings of one file (a symbolic link and its target), empty where it cannot be known."""
    is_link: bool = False
    """Reached through a symbolic link."""
    trouble: str = ""
    """Why this cannot be a shard (a broken link, a fifo, ...); empty for a regular file."""
    is_serious: bool = False
    """Whether the trouble may hide data, so that the corpus may be incomplete."""


class Root(Protocol):
    """A place that the paths of a source's shards are relative to."""

    url: str
    """The absolute path or URL, enough to open the root again in another process."""

    def walk(self, enter: Callable[[str], bool] | None = None) -> Iterator[Entry]:
        """Everything below, in no promised order; only of folders whose relative path `enter` wants."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A seekable file, uncounted and unbuffered. FileNotFoundError or another OSError where it cannot be."""
        ...

    def size_bytes(self, path: str) -> int:
        """The file's size. FileNotFoundError or another OSError where it cannot be known."""
        ...

    def stamp(self, path: str) -> str:
        """What changes whenever the file is written to, empty where the storage promises no such thing."""
        ...

    def changed_ns(self, path: str) -> int | None:
        """When the file was last written to or touched, in ns; None where a stamp needs no time to settle."""
        ...

    def local_path(self, path: str) -> str | None:
        """A path of this machine, None for remote storage."""
        ...


def canonical(path: str) -> str:
    """A path as Python spells it in this locale -> its bytes as UTF-8, undecodable ones as surrogates."""
    return path if _IS_UTF8 else os.fsencode(path).decode("utf-8", "surrogateescape")


def native(path: str) -> str:
    """The way back from `canonical`: what Python opens in this locale."""
    return path if _IS_UTF8 else os.fsdecode(path.encode("utf-8", "surrogateescape"))


def readable(path: str) -> str:
    r"""A canonical path with bytes that are no UTF-8 spelled out.

    >>> readable("caf\udce9.jsonl"), readable("café.jsonl")
    ('caf\\xe9.jsonl', 'café.jsonl')
    """
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_url(where: str) -> bool:
    """Whether `where` is a URL for fsspec and no path of this machine.

    >>> is_url("s3://bucket/web"), is_url("/data/web"), is_url("date=3/part")
    (True, False, False)
    """
    return bool(_URL.match(where))


def open_root(where: str | os.PathLike[str]) -> Root:
    """The root at a path or URL; ``file://`` is a path like any other."""
    text = os.fspath(where)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if text.startswith("hf://"):
        from dataguard.corpus.hub import HubRoot

        return HubRoot(text)
    return RemoteRoot(text) if is_url(text) else LocalRoot(text)


class LocalRoot:
    """A folder of this machine."""

    def __init__(self, folder: str) -> None:
        self.url = canonical(os.path.abspath(native(folder)))

    def walk(self, enter: Callable[[str], bool] | None = None) -> Iterator[Entry]:
        """See `Root`."""
        yield from self._walk(
            "", os.path.realpath(native(self.url)), (), linked=False, enter=enter or (lambda _path: True)
        )

    def _walk(
        self, prefix: str, real: str, above: tuple[tuple[int, int], ...], *, linked: bool, enter: Callable[[str], bool]
    ) -> Iterator[Entry]:
        here = self._native(prefix)
        try:
            status = os.stat(here)
            with os.scandir(here) as listing:
                entries = list(listing)
        except OSError as error:
            yield Entry(path=prefix, trouble=f"unreadable folder ({_why(error)})", is_serious=True)
            return
        above = (*above, (status.st_dev, status.st_ino))
        for entry in entries:
            name = canonical(entry.name)
            path = f"{prefix}/{name}" if prefix else name
            link = linked or entry.is_symlink()
            try:
                status = os.stat(entry.path)
            except OSError as error:
                broken = entry.is_symlink() and error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
                trouble = "broken symbolic link" if broken else f"unreadable ({_why(error)})"
                yield Entry(path=path, trouble=trouble, is_link=link, is_serious=True)
                continue
            target = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real, entry.name)
            if stat.S_ISDIR(status.st_mode):
                if (status.st_dev, status.st_ino) in above:
                    yield Entry(path=path, trouble="a link to a folder above it", is_link=link)
                elif enter(path):
                    yield from self._walk(path, target, above, linked=link, enter=enter)
            elif stat.S_ISREG(status.st_mode):
                yield Entry(path=path, size_bytes=status.st_size, identity=target, is_link=link)
            else:
                yield Entry(path=path, trouble=f"no regular file but a {_kind(status.st_mode)}", is_link=link)

    def open(self, path: str) -> BinaryIO:
        """See `Root`."""
        return cast("BinaryIO", open(self._native(path), "rb", buffering=0))

    def size_bytes(self, path: str) -> int:
        """See `Root`."""
        return os.stat(self._native(path)).st_size

    def stamp(self, path: str) -> str:
        """See `Root`."""
        # ctime moves with every write and cannot be set back, as mtime can.
        status = os.stat(self._native(path))
        return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"

    def changed_ns(self, path: str) -> int | None:
        """See `Root`."""
        return os.stat(self._native(path)).st_ctime_ns

    def local_path(self, path: str) -> str | None:
        """See `Root`."""
        return self._native(path)

    def _native(self, path: str) -> str:
        return os.path.join(native(self.url), native(path))


class RemoteRoot:
    """A folder behind a URL, opened through fsspec."""

    _failed = ""
    """What is said before a library's own words for its failure."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") if not url.endswith("://") else url
        self._pid = 0
        self._fs: Any = None
        self._base = ""

    def _system(self) -> Any:
        if self._pid != os.getpid():
            fsspec = _fsspec()
            if self._pid:  # forked: locks and event loops of the parent do not work here
                fsspec.asyn.reset_lock()
            try:
                # Listings that were kept would name versions of objects that are there no more.
                plain = {} if "::" in self.url else {"use_listings_cache": False}
                self._fs, base = fsspec.core.url_to_fs(self.url, skip_instance_cache=bool(self._pid), **plain)
            except ImportError as error:
                scheme = self.url.split(":", 1)[0]
                extra = "dataguard[s3]" if scheme in {"s3", "s3a"} else "the fsspec driver named above"
                raise UsageError(
                    f"{self.url} cannot be opened", found=str(error), todo=f"pip install '{extra}'"
                ) from error
            except ValueError as error:
                raise UsageError(f"{self.url} cannot be opened", found=str(error)) from error
            self._base = base.rstrip("/")
            self._pid = os.getpid()
        return self._fs

    def is_file(self) -> bool:
        """Whether the URL names a file and no folder."""
        system = self._system()
        with storage_errors(self._failed):
            return bool(system.isfile(self._base))

    def walk(self, enter: Callable[[str], bool] | None = None) -> Iterator[Entry]:  # noqa: ARG002 - listed by prefix
        """See `Root`."""
        system = self._system()
        try:
            with storage_errors(self._failed):
                found = system.find(self._base, withdirs=False, detail=True)
        except FileNotFoundError:
            return
        start = f"{self._base}/" if self._base else ""
        for full, info in found.items():
            path = full.removeprefix(start).lstrip("/")
            if path and not path.endswith("/"):
                yield Entry(path=path, size_bytes=int(info.get("size") or 0), identity=full)

    def _full(self, path: str) -> str:
        return f"{self._base}/{path}" if self._base else path

    def open(self, path: str) -> BinaryIO:
        """See `Root`."""
        system = self._system()
        with storage_errors(self._failed):
            return cast("BinaryIO", RemoteFile(system.open(self._full(path), "rb", cache_type="none"), self._failed))

    def size_bytes(self, path: str) -> int:
        """See `Root`."""
        system = self._system()
        system.invalidate_cache()
        with storage_errors(self._failed):
            return int(system.info(self._full(path))["size"])

    def stamp(self, path: str) -> str:
        """See `Root`: what the storage itself says of the content."""
        system = self._system()
        with storage_errors(self._failed):
            info = system.info(self._full(path))
        tag = (
            info.get("ETag")
            or info.get("etag")
            or info.get("md5Hash")
            or info.get("versionId")
            or info.get("generation")
        )
        return f"{info.get('size')}:{tag}" if tag else ""

    def changed_ns(self, path: str) -> int | None:  # noqa: ARG002 - the storage's own tags need no time to settle
        """See `Root`."""
        return None

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - never
        """See `Root`."""
        return None

    def __reduce__(self) -> tuple[type[RemoteRoot], tuple[str]]:
        return (RemoteRoot, (self.url,))


def _fsspec() -> Any:
    try:
        import fsspec
        import fsspec.asyn
        import fsspec.core
    except ImportError as error:
        raise EnvironmentFailed("fsspec is not installed", todo="pip install fsspec") from error
    return fsspec


def _why(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _kind(mode: int) -> str:
    for test, word in (
        (stat.S_ISFIFO, "fifo"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
    ):
        if test(mode):
            return word
    return "special file"
