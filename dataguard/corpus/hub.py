"""Which files is a dataset of the Hugging Face hub, and how are they read?

- ``hf://datasets/OWNER/NAME[@REVISION][#CONFIG[/SPLIT]]`` is a dataset by name: the `datasets` library says which files
  of the repository are its data (from the card's configurations, or the usual names), and those files are shards like
  any other, read through fsspec piece by piece. Where there are several configurations or splits, one must be named.
- ``hf://datasets/OWNER/NAME[@REVISION]/PATH`` is a file, folder or pattern in the repository.

Either way the revision is resolved once to the hash of its commit, and the source's root names that hash: what a branch
points to later changes nothing. The hash stands in the manifest file beside the root. It is no part of the manifest's
digest, which covers the bytes of every shard already: the same files give the same digest from the hub, from another
commit that did not touch them, and from a local copy.

Whatever the hub's client raises is an OSError here, so that reading is tried again and told like any other storage.
"""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from dataguard.corpus.storage import Entry, RemoteRoot
from dataguard.errors import DataguardError, EnvironmentFailed, UsageError

__all__ = ["HubDataset", "HubRoot", "find_dataset", "is_hub", "revision_of"]

T = TypeVar("T")

_PREFIX = "hf://datasets/"
_REVISION = r"refs/(?:convert|pr)/[^/#]+|[^/#]+"
_NAMED = re.compile(
    rf"(?P<name>[^/@#]+(?:/[^/@#]+)?)(?:@(?P<revision>{_REVISION}))?(?:#(?P<config>[^/]*)(?:/(?P<split>.+))?)?"
)
_INSIDE = re.compile(rf"(?P<name>[^/@#]+/[^/@#]+)(?:@(?P<revision>{_REVISION}))?/(?P<path>.+)")
_PINNED = re.compile(r"hf://datasets/[^@]+@([0-9a-f]{40})(?:/|$)")
_HOW = "hf://datasets/OWNER/NAME[@REVISION][#CONFIG[/SPLIT]], or hf://datasets/OWNER/NAME[@REVISION]/PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubDataset:
    """What was asked for, with its revision pinned."""

    root: str
    """``hf://datasets/OWNER/NAME@HASH``."""
    files: tuple[str, ...] = ()
    """The dataset's data files, relative to the root; empty where a path in the repository was given."""
    path: str = ""
    """A path or pattern in the repository; empty where the dataset itself was asked for."""


def is_hub(where: str) -> bool:
    """Whether a URL names a dataset of the hub, or something in one.

    >>> is_hub("hf://datasets/org/web@main#en/train"), is_hub("hf://buckets/org/web"), is_hub("s3://bucket/web")
    (True, False, False)
    """
    return where.startswith(_PREFIX)


def revision_of(root: str) -> str:
    """The hash of the commit that a root is pinned to, empty where it is none of the hub.

    >>> revision_of(f"hf://datasets/org/web@{'0a' * 20}/data"), revision_of("/data/web")
    ('0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a', '')
    """
    found = _PINNED.match(root)
    return found[1] if found else ""


def find_dataset(where: str) -> HubDataset:
    """Ask the hub what a URL means.

    Raises
    ------
    UsageError
        No such dataset, revision, configuration or split; several of them and none named; no data files.
    EnvironmentFailed
        The hub cannot be reached, or an optional library is missing.
    """
    asked = where.removeprefix(_PREFIX)
    named, inside = _NAMED.fullmatch(asked), _INSIDE.fullmatch(asked)
    found = named or inside
    if found is None:
        raise UsageError(f"{where} cannot be understood", allowed=_HOW)
    name, commit = _asked(where, lambda: _commit(found["name"], found["revision"]))
    root = f"{_PREFIX}{name}@{commit}"
    if named is None:
        assert inside is not None
        return HubDataset(root=root, path=inside["path"])
    files = _asked(where, lambda: _data_files(where, name, commit, named["config"] or "", named["split"] or ""))
    outside = [file for file in files if not file.startswith(root + "/")]
    if outside:
        raise UsageError(f"{where} has data files in other places", found=", ".join(outside[:4]))
    return HubDataset(root=root, files=tuple(file.removeprefix(root + "/") for file in files))


class HubRoot(RemoteRoot):
    """A folder of a repository, at one commit."""

    _failed = "the hub cannot be read"

    def is_file(self) -> bool:
        """See `RemoteRoot`."""
        return _translated(super().is_file)

    def walk(self, enter: Callable[[str], bool] | None = None) -> Iterator[Entry]:
        """See `Root`."""
        yield from _translated(lambda: list(super(HubRoot, self).walk(enter)))

    def open(self, path: str) -> BinaryIO:
        """See `Root`."""
        return cast("BinaryIO", _HubFile(_translated(lambda: super(HubRoot, self).open(path))))

    def size_bytes(self, path: str) -> int:
        """See `Root`."""
        return _translated(lambda: super(HubRoot, self).size_bytes(path))

    def stamp(self, path: str) -> str:
        """See `Root`: a commit never changes, so its hash and the file's own are enough."""
        return f"{self.size_bytes(path)}:{revision_of(self.url)}"

    def __reduce__(self) -> tuple[type[HubRoot], tuple[str]]:
        return (HubRoot, (self.url,))


class _HubFile(io.RawIOBase):
    """An open file whose troubles are the storage's."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = _translated(lambda: self._file.read(len(buffer)))
        buffer[: len(part)] = part
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _translated(ask: Callable[[], T]) -> T:
    """What the hub's client answers; its errors as those of storage."""
    try:
        return ask()
    except (OSError, DataguardError):
        raise
    except Exception as error:  # the client's own kinds change from version to version
        raise OSError(errno.EIO, f"the hub cannot be read ({_first_line(error)})") from error


def _asked(where: str, ask: Callable[[], T]) -> T:
    """What the hub's client answers; what it refuses as the user's trouble, anything else as the environment's."""
    try:
        from huggingface_hub.errors import (
            GatedRepoError,
            HFValidationError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise EnvironmentFailed(f"{where} cannot be opened", found=str(error), todo="pip install datasets") from error
    try:
        return ask()
    except DataguardError:
        raise
    except (GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UsageError(
            f"{where} cannot be had",
            found=_first_line(error),
            allowed=_HOW,
            todo="see whether name and revision are right; for what is private or gated, log in (HF_TOKEN)",
        ) from error
    except Exception as error:
        raise EnvironmentFailed(
            f"the hub cannot be asked for {where}",
            found=_first_line(error),
            todo="see whether this machine reaches the hub, or copy the dataset to a folder and give that",
        ) from error


def _commit(name: str, revision: str | None) -> tuple[str, str]:
    """(full name, hash of the commit)."""
    from huggingface_hub import HfApi

    info = HfApi().dataset_info(name, revision=revision)
    assert info.sha is not None, "the hub names a commit"
    return info.id, info.sha


def _data_files(where: str, name: str, commit: str, config: str, split: str) -> list[str]:
    """The URLs of a dataset's data files, in the library's order."""
    import datasets

    configs = datasets.get_dataset_config_names(name, revision=commit)
    if not config and len(configs) == 1:
        config = configs[0]
    if config not in configs:
        raise _choose(where, "configuration", config, configs, f"{_PREFIX}{name}#CONFIG")
    try:
        builder = datasets.load_dataset_builder(name, config, revision=commit)
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(
            f"{where} has no data files that are known",
            found=_first_line(error),
            todo=f"name them by a path: {_PREFIX}{name}@{commit}/PATH",
        ) from error
    by_split = builder.config.data_files or {}
    splits = [str(key) for key in by_split]
    if not split and len(splits) == 1:
        split = splits[0]
    if split not in splits:
        raise _choose(where, "split", split, splits, f"{_PREFIX}{name}#{config}/SPLIT")
    return [str(file) for file in by_split[split]]


def _choose(where: str, what: str, asked: str, there: list[str], how: str) -> UsageError:
    shown = ", ".join(sorted(there)[:20]) + (", ..." if len(there) > 20 else "")
    if asked:
        return UsageError(f"{where} has no {what} {asked!r}", found=shown or "none", todo=f"give one of them: {how}")
    return UsageError(f"{where} has {len(there):,} {what}s", found=shown or "none", todo=f"name one of them: {how}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
