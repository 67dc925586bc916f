"""Which data files lie beside the shards of a manifest, and are none of them?

A manifest is immutable, and data that was added since is in no plan: that is as it should be, and still worth knowing.
Files are found as a build finds them (discovery.py), in those folders alone that hold shards of the manifest; what a
build would ignore is ignored here too. Which files were left out on purpose, by a pattern say, nobody remembers: they
are told as well.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from dataguard.corpus.companions import companion_paths
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.discovery import FoundSource, discover
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.storage import Root
from dataguard.errors import InputError, UsageError

__all__ = ["files_beside"]


def files_beside(corpus: Corpus, *, manifest_path: str | os.PathLike[str]) -> tuple[str, ...]:
    """``SOURCE/path`` of data files beside the shards that the manifest does not have, in byte order.

    Parameters
    ----------
    corpus
        The manifest and where its shards lie. Datasets of the hub are pinned to a revision, and not looked through.
    manifest_path
        The manifest's own file, which may lie there too.
    """
    manifest = corpus.manifest
    own = Path(manifest_path).absolute()
    found: list[str] = []
    for where in sorted(set(corpus.roots.values())):
        if where.startswith("hf://"):
            continue
        sources = [i for i, source in enumerate(manifest.sources) if corpus.roots[source.name] == where]
        shards = [manifest.shards[i] for source in sources for i in manifest.shards_of(source)]
        known = {path for shard in shards for path in (shard.path, *companion_paths(shard.format, shard.path))}
        folders = {path.rpartition("/")[0] for path in known}
        kinds = {manifest.sources[i].kind: manifest.sources[i].name for i in reversed(sources)}
        first = manifest.sources[sources[0]].name
        for source in _found(where, folders, _options(corpus, [manifest.sources[i].name for i in sources]), own):
            name = kinds.get(source.kind, first)
            found += [f"{name}/{shard.path}" for shard in source.shards if shard.path not in known]
    return tuple(sorted(found, key=lambda name: name.encode("utf-8", "surrogateescape")))


def _found(where: str, folders: set[str], options: ScanOptions, own: Path) -> tuple[FoundSource, ...]:
    def leave_out(root: Root, path: str) -> bool:
        local = root.local_path(path)
        return path.rpartition("/")[0] not in folders or (local is not None and Path(local) == own)

    try:
        return discover([where], options=options, leave_out=leave_out).sources
    except (InputError, UsageError):
        return ()  # nothing that could be a shard is there any more, which is told shard by shard


def _options(corpus: Corpus, names: list[str]) -> ScanOptions:
    """What a file is told by: the type of ids without a header, where one was given for any of these sources."""
    dtype = next((corpus.options[name].dtype for name in names if corpus.options[name].dtype), "")
    return dataclasses.replace(ScanOptions(), dtype=dtype)
