"""Do the shards still hold the bytes that the manifest was built over?

Every shard is hashed again, whole; sizes and times are never trusted, so a touched or copied file is no finding and a
changed one always is. Shards that could not be read when the manifest was built have no digest, and are told as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from dataguard.corpus.corpus import Corpus
from dataguard.corpus.shard_file import ByteCounter, StoredShard, shard_digest
from dataguard.corpus.storage import open_root

__all__ = ["ShardCheck", "ShardState", "verify_shards"]

ShardState = Literal["same", "changed", "missing", "unreadable", "no-digest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCheck:
    """What became of one shard."""

    shard: str
    """``SOURCE/path``."""
    state: ShardState
    where: str
    """The file that was looked for."""
    expected_digest: str
    found_digest: str | None
    """None where it could not be read."""
    expected_bytes: int
    found_bytes: int | None
    detail: str = ""


def verify_shards(
    corpus: Corpus, *, threads: int = 4, progress: Callable[[int, int], None] | None = None
) -> Iterator[ShardCheck]:
    """Hash every shard again, in the manifest's order.

    Parameters
    ----------
    corpus
        The manifest and where its shards lie.
    threads
        Shards that are hashed at once.
    progress
        Called with (shards done, bytes done) after each shard.
    """
    manifest = corpus.manifest
    roots = {name: open_root(root) for name, root in corpus.roots.items()}

    def check(number: int) -> ShardCheck:
        entry = manifest.shards[number]
        stored = StoredShard(
            roots[manifest.sources[entry.source].name],
            name=manifest.shard_name(number),
            path=entry.path,
            size_bytes=entry.size_bytes,
            compression="none",
            counter=ByteCounter(),
            format_name=entry.format,
        )
        digest, size_bytes, detail, where = None, None, "", stored.where
        try:
            digest, size_bytes = shard_digest(stored)
            state: ShardState = "same" if digest == entry.digest else "changed"
        except (FileNotFoundError, NotADirectoryError) as error:
            state, detail = "missing", error.strerror or str(error)
            where = error.filename or where  # of several files, the one
        except OSError as error:
            state, detail = "unreadable", error.strerror or str(error) or type(error).__name__
        if not entry.digest and state in {"same", "changed"}:
            state, detail = "no-digest", "it could not be read when the manifest was built"
        return ShardCheck(
            shard=stored.name,
            state=state,
            where=where,
            expected_digest=entry.digest,
            found_digest=digest,
            expected_bytes=entry.size_bytes,
            found_bytes=size_bytes,
            detail=detail,
        )

    done_bytes = 0
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="dataguard-verify") as pool:
        for number, result in enumerate(pool.map(check, range(len(manifest.shards)))):
            done_bytes += result.found_bytes or 0
            if progress:
                progress(number + 1, done_bytes)
            yield result
