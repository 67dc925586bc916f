"""Which files make one shard?

Most shards are one file. Some formats spread a shard over several, by their names: the first holds the content and
names the shard, the others are its companions, in the order of `companion_paths`. Whatever a shard is asked for (its
size, its digest, whether it changed) covers all of its files (shard_file.py); nobody else knows that they are several.

A file belongs to a pair where

1. its partner lies beside it, and one of the two is what the format says (a ``.bin`` that no format knows, or an
   ``.idx`` that begins as one), or
2. it alone shows that a partner is missing: an ``.idx`` that begins as one; a ``.bin`` that is called as Megatron
   calls its own, or that lies in a source with other pairs. Its shard is then excluded, with the partner's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dataguard.corpus.storage import Root

__all__ = ["Pair", "companion_paths", "pairs_among"]

_COMPANIONS = {"megatron": (".bin", ".idx")}
"""Format -> endings of its files, the one that names the shard first."""
_UNTOLD = ("", "raw")
"""Formats of a file whose own bytes do not tell what it is."""
_MEGATRON_NAME = re.compile(r"_(document|sentence)\.bin$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two files that are one shard."""

    path: str
    """Of the file that names the shard, whether it is there or not."""
    format: str
    companions: tuple[str, ...]
    size_bytes: int
    """Of those files that are there."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of its files, in order."""
        return (self.path, *self.companions)


def companion_paths(format_name: str, path: str) -> tuple[str, ...]:
    """The other files of the shard that a path names, in the order in which size and digest take them.

    >>> companion_paths("megatron", "a/x_document.bin"), companion_paths("npy", "a/x.npy")
    (('a/x_document.idx',), ())
    """
    endings = _COMPANIONS.get(format_name)
    if endings is None:
        return ()
    return tuple(path.removesuffix(endings[0]) + ending for ending in endings[1:])


def pairs_among(root: Root, formats: Mapping[str, str], format_name: str = "") -> tuple[Pair, ...]:
    """The pairs of a source.

    Parameters
    ----------
    root
        Where the files lie. It is asked for partners that were not among those looked at (a pattern may leave them
        out).
    formats
        Path -> format by a file's own first bytes, empty where no format knows it.
    format_name
        The only format that is wanted, empty for any.
    """
    pairs: dict[str, Pair] = {}
    lone: list[str] = []
    for name, (first, second) in _COMPANIONS.items():
        if format_name not in ("", name):
            continue
        for path, kind in formats.items():
            if path.endswith(second):
                main = path.removesuffix(second) + first
                unknown = formats[main] in _UNTOLD if main in formats else _size(root, main) is not None
                if kind == name or (not kind and unknown):
                    pairs[main] = _pair(root, name, main)
            elif path.endswith(first) and kind in _UNTOLD and path not in pairs:
                if _size(root, *companion_paths(name, path)) is not None:
                    pairs[path] = _pair(root, name, path)
                elif not kind:
                    lone.append(path)
        for path in lone:
            if pairs or _MEGATRON_NAME.search(path):
                pairs[path] = _pair(root, name, path)
    return tuple(pairs.values())


def _pair(root: Root, name: str, path: str) -> Pair:
    companions = companion_paths(name, path)
    size_bytes = sum(_size(root, part) or 0 for part in (path, *companions))
    return Pair(path=path, format=name, companions=companions, size_bytes=size_bytes)


def _size(root: Root, path: str) -> int | None:
    """The size of a file, None where there is none; 0 where the storage does not say, for its scan will."""
    try:
        return root.size_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return 0
