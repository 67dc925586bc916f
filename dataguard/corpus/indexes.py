"""What do the ``index.json`` files of MDS datasets say of the shards beside and below them?

An index is no shard and no part of one: it says things about shards, which a scan compares with what they hold
(formats/mds_declared.py), so that a dataset may grow without any of its shards changing. It is ignored as a marker,
once what it says is known:

1. which shards there should be: one that is listed and not there is told, in neither of its forms, raw or compressed;
2. which of two forms is meant: the compressed copy of a shard that lies there raw is no second shard;
3. what it says of each. Of several indexes (one in each folder, and one merged from them above) the nearest counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from dataguard.corpus.formats.mds_declared import IndexedFile, IndexedShard
from dataguard.corpus.formats.protocol import Declared
from dataguard.corpus.storage import Root

__all__ = ["Indexed", "read_indexes"]

_NAME = "index.json"
_MOST_BYTES = 1 << 28
_READABLE = frozenset({"zstd", "gz"})
_FORMATS = frozenset({"mds", "mds-tokens"})


_OTHER = IndexedShard(raw_data=IndexedFile(basename="", bytes=0), format="other")


class _Index(msgspec.Struct, frozen=True):
    version: int
    shards: list[msgspec.Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """What all indexes of a source say."""

    ignored: Mapping[str, str] = field(default_factory=dict)
    """Path of a file that is no shard -> why not."""
    declared: Mapping[str, Declared] = field(default_factory=dict)
    """Path of an MDS shard -> what is said of it."""
    troubled: Mapping[str, str] = field(default_factory=dict)
    """Path of a shard that is listed and cannot be read -> why not."""


def read_indexes(root: Root, formats: Mapping[str, str], *, named: Collection[str]) -> Indexed:
    """Read every index among the files of a source, and those beside its MDS shards.

    Parameters
    ----------
    root
        Where the files lie.
    formats
        Path -> format by a file's own first bytes, empty where no format knows it.
    named
        Paths that were named on the command line: such a file is a shard whatever an index says of it.
    """
    shards = [path for path, kind in formats.items() if kind in _FORMATS]
    mine = {path for path in formats if path.rpartition("/")[2] == _NAME}
    beside = {_inside(folder, _NAME) for path in shards for folder in _above(path)}
    ignored: dict[str, str] = {}
    declared: dict[str, Declared] = {}
    troubled: dict[str, str] = {}
    damaged: dict[str, str] = {}  # folder -> what is wrong with its index
    for path in sorted(mine | beside, key=lambda path: (-path.count("/"), path)):  # the nearest first
        folder = path.rpartition("/")[0]
        index = _read(root, path)
        if isinstance(index, str):
            if index and path in beside:
                damaged[folder] = f"{path} cannot be read: {index}"
                if path in mine:
                    ignored[path] = "marker"
            continue
        if index is None:
            continue
        if path in mine:
            ignored[path] = "marker"
        for raw in index.shards:
            entry = _entry(raw)
            if entry is None:
                damaged[folder] = f"{path} lists a shard in words that make no sense"
            elif entry.format == "mds":
                _declare(
                    root, formats, path, entry, bytes(raw),
                    is_whole=path in mine, named=named, declared=declared, ignored=ignored, troubled=troubled,
                )  # fmt: skip
    for path in shards:
        if path not in declared:
            told = [damaged[folder] for folder in _above(path) if folder in damaged]
            nearest = next((i for i in (_inside(folder, _NAME) for folder in _above(path)) if i in ignored), "")
            none = f"{nearest} does not list it" if nearest else f"there is no {_NAME} beside it"
            declared[path] = Declared(index=nearest, trouble=told[0] if told else none)
    return Indexed(ignored=ignored, declared=declared, troubled=troubled)


def _declare(
    root: Root,
    formats: Mapping[str, str],
    index: str,
    entry: IndexedShard,
    words: bytes,
    *,
    is_whole: bool,
    named: Collection[str],
    declared: dict[str, Declared],
    ignored: dict[str, str],
    troubled: dict[str, str],
) -> None:
    """Take what one entry of an index says."""
    folder = index.rpartition("/")[0]
    raw = _inside(folder, entry.raw_data.basename)
    packed = _inside(folder, entry.zip_data.basename) if entry.zip_data else ""
    said = Declared(index=index, entry=words.decode())
    for path in (raw, packed):
        if path and formats.get(path) in _FORMATS:
            declared.setdefault(path, said)
    if not is_whole:
        return  # a part of the dataset was asked for
    if raw in formats:
        if packed in formats and packed not in named:
            ignored[packed] = f"compressed copy of {raw}"
    elif packed in formats:
        kind = (entry.compression or "").partition(":")[0]
        if kind not in _READABLE:
            troubled[packed] = f"it is compressed by {kind or 'something unknown'}, readable are zstd and gz"
    elif not any(path and _is_there(root, path) for path in (raw, packed)):
        troubled.setdefault(raw, f"{index} lists it, and it is not there")


def _read(root: Root, path: str) -> _Index | str | None:
    """An index; None where the file is none, else what is wrong with it (nothing where there is no file)."""
    try:
        with root.open(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    if len(content) > _MOST_BYTES:
        return f"it has more than {_MOST_BYTES:,} bytes"
    try:
        return msgspec.json.decode(content, type=_Index)
    except msgspec.ValidationError:
        return None  # JSON, and something else
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)


def _entry(raw: msgspec.Raw) -> IndexedShard | None:
    try:
        kind = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get("format")
        if kind is not None and msgspec.json.decode(kind) != "mds":  # JSON lines or CSV of the same library
            return _OTHER
        return msgspec.json.decode(raw, type=IndexedShard)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_there(root: Root, path: str) -> bool:
    try:
        root.size_bytes(path)
    except OSError:
        return False
    return True


def _above(path: str) -> list[str]:
    """The folders that a path lies in, the nearest first, the root last.

    >>> _above("a/b/x.mds"), _above("x.mds")
    (['a/b', 'a', ''], [''])
    """
    folders, folder = [], path
    while folder:
        folder = folder.rpartition("/")[0]
        folders.append(folder)
    return folders


def _inside(folder: str, name: str) -> str:
    """The path of a name in a folder, without detours.

    >>> _inside("a", "b/../x"), _inside("", "./x")
    ('a/x', 'x')
    """
    parts: list[str] = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", ".", ".."):
            parts.append(part)
    return "/".join(parts)
