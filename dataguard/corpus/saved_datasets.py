"""Which of the files found belong to a dataset that Hugging Face ``save_to_disk`` wrote, and in which order?

A folder with ``state.json`` and ``dataset_info.json`` is such a dataset. Its shards are the files that ``_data_files``
of the state lists, in that order; whatever else lies beside them (``cache-*.arrow`` of maps and filters above all) is
ignored with the reason. A file that is listed and not there is told, and so is a split that ``dataset_dict.json`` of
the folder above lists and that is not there: the corpus is then incomplete.

A cache of the library itself (no state, files by the name of the dataset) has ``cache-*.arrow`` beside its shards too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dataguard.corpus.storage import Entry, Root, readable

__all__ = ["Arranged", "Told", "arrange"]

_STATE = "state.json"
_INFO = "dataset_info.json"
_SPLITS = "dataset_dict.json"
_MOST_BYTES = 1 << 26
_CACHE = re.compile(r"cache-[0-9a-zA-Z]+(_\d+_of_\d+)?\.arrow")
_IS_CACHE = "cache of a Hugging Face dataset"


class _DataFile(msgspec.Struct, frozen=True):
    filename: str


class _State(msgspec.Struct, frozen=True):
    files: list[_DataFile] = msgspec.field(name="_data_files")
    indices: list[_DataFile] | None = msgspec.field(name="_indices_data_files", default=None)


class _Splits(msgspec.Struct, frozen=True):
    splits: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A path that is no shard, and why not."""

    path: str
    reason: str
    is_serious: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """What remains."""

    entries: tuple[Entry, ...]
    """The shards of each saved dataset in the order of its state, in the places that they had among all others."""
    told: tuple[Told, ...]


def arrange(
    root: Root, entries: Sequence[Entry], *, met: Mapping[str, Collection[str]], named: Collection[str]
) -> Arranged:
    """Leave out what belongs to no dataset, and put the rest in order.

    Parameters
    ----------
    root
        Where the entries lie.
    entries
        Possible shards, in byte order of their paths.
    met
        Names of all files that were met, by folder.
    named
        Paths that were named on the command line: they are taken at their word.
    """
    mine: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        mine.setdefault(entry.path.rpartition("/")[0], []).append(place)
    candidates = {folder for folder, places in mine.items() if any(entries[i].path.endswith(".arrow") for i in places)}
    candidates |= {folder for folder, names in met.items() if {_STATE, _INFO} <= set(names)}
    arranged: list[Entry | None] = list(entries)
    told: list[Told] = []
    for folder in sorted(candidates):
        places = mine.get(folder, [])
        state = _state_of(root, folder, told)
        if state is None:
            caches = _INFO in met.get(folder, ())
            strays = {i for i in places if caches and _CACHE.fullmatch(_name(entries[i]))}
            ordered = [entries[i] for i in places if i not in strays or entries[i].path in named]
        else:
            by_path = {entries[i].path: entries[i] for i in places}
            listed = dict.fromkeys(_inside(folder, file.filename) for file in state.files)
            told += _missing(root, folder, listed, by_path, met.get(folder, ()))
            extra = [entry for path, entry in by_path.items() if path in named and path not in listed]
            ordered = [*(by_path[path] for path in listed if path in by_path), *extra]
            if state.indices:
                reason = "the dataset is a selection through a file of indices: save it again with flatten_indices()"
                told.append(Told(path=readable(_inside(folder, _STATE)), reason=reason, is_serious=True))
        kept = {entry.path for entry in ordered}
        for i in places:
            if entries[i].path not in kept:
                told.append(Told(path=entries[i].path, reason=_why_stray(entries[i], is_saved=state is not None)))
        filled = iter(ordered)
        for i in places:
            arranged[i] = next(filled, None)
    for folder, names in met.items():
        if _SPLITS in names:
            told += _missing_splits(root, folder, met)
    return Arranged(entries=tuple(entry for entry in arranged if entry is not None), told=tuple(told))


def _why_stray(entry: Entry, *, is_saved: bool) -> str:
    return _IS_CACHE if not is_saved or _CACHE.fullmatch(_name(entry)) else "not in the state.json of its dataset"


def _state_of(root: Root, folder: str, told: list[Told]) -> _State | None:
    """The state of the dataset in a folder, None where there is none, or none that can be read (which is told)."""
    path = _inside(folder, _STATE)
    try:
        root.size_bytes(_inside(folder, _INFO))
        content = _content(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        told.append(Told(path=readable(path), reason=f"unreadable ({error.strerror or error})", is_serious=True))
        return None
    try:
        return msgspec.json.decode(content, type=_State)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told.append(Told(path=readable(path), reason=f"no state of a dataset ({error})", is_serious=True))
        return None


def _missing(
    root: Root, folder: str, listed: Collection[str], there: Mapping[str, Entry], met: Collection[str]
) -> list[Told]:
    """Files that a state lists and that are not there."""
    told: list[Told] = []
    for path in listed:
        if path in there or path.rpartition("/")[2] in met:
            continue  # a shard, or met and told by another rule
        if path.removeprefix(folder).count("/") != bool(folder):
            told.append(Told(path=readable(path), reason="listed in a state.json of another folder", is_serious=True))
            continue
        try:
            root.size_bytes(path)  # it may be there, and not be what was asked for
        except OSError as error:
            why = "not there" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
            reason = f"listed in the state.json of its dataset, and {why}"
            told.append(Told(path=readable(path), reason=reason, is_serious=True))
    return told


def _missing_splits(root: Root, folder: str, met: Mapping[str, Collection[str]]) -> list[Told]:
    """Splits that are listed and that are not there."""
    path = _inside(folder, _SPLITS)
    try:
        splits = msgspec.json.decode(_content(root, path), type=_Splits).splits
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        return [Told(path=readable(path), reason=f"no list of splits ({error})", is_serious=True)]
    inside = [_inside(folder, split) for split in splits]
    reason = f"listed in {_SPLITS}, and not there"
    return [
        Told(path=readable(split), reason=reason, is_serious=True)
        for split in inside
        if _STATE not in met.get(split, ())
    ]


def _content(root: Root, path: str) -> bytes:
    with root.open(path) as file:
        parts = []
        size = 0
        while size <= _MOST_BYTES and (part := file.read(_MOST_BYTES)):
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def _inside(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]
