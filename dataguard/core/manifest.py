"""What data is there, as values: sources, shards, blocks, and the rows that may not be delivered.

A manifest is an immutable list: sources in byte order of their names, the shards of a source in the order in which they
were found (byte order of their paths, unless the data itself says another), each name once, the blocks of a shard in
the order of their rows. Everything that decides which sample stands where (the plan) reads these arrays and nothing
else; everything that touches bytes (the corpus) reads the same arrays. The digest covers the order.

Every shard has at least one block: an empty or excluded shard has one block of no rows, so no shard is ever missing
from the account. ``rows`` are records as the writer stored them, rejected ones included, so that an address
(shard, row) never moves; for token shards a row is one token of the flattened array, and windows of ``seq_len`` rows
are cut by the plan.

The digest (FORMATS.md) is SHA-256 over ``dataguard-manifest-1`` and everything below in canonical order, without
paths of this machine and without time: equal data gives an equal digest wherever and whenever it is scanned.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import ManifestDamaged, NotInRun

__all__ = ["BLOCK_DTYPE", "REJECTED_DTYPE", "Effect", "Manifest", "ManifestSet", "Shard", "Source", "SourceKind"]

SourceKind = Literal["text", "tokens"]
Effect = Literal["clean", "flagged", "excluded"]

_MAGIC = b"dataguard-manifest-1"

BLOCK_DTYPE = np.dtype(
    [
        ("shard", "<i8"),  # index into Manifest.shards
        ("first_row", "<i8"),  # first stored row (text) or token (tokens)
        ("num_rows", "<i8"),  # stored rows, rejected ones included
        ("num_rejected", "<i8"),
        ("offset_bytes", "<i8"),  # byte range in the (decoded) stream, -1 where rows are reached through `group`
        ("size_bytes", "<i8"),
        ("group", "<i8"),  # row group or record batch; of tokens, documents that begin in the block; -1 for none
        ("content_bytes", "<i8"),  # bytes of all deliverable content (text bytes, or tokens * item size)
        ("digest", "V16"),  # xxh3-128 of the content, see core.digests.block_digest
    ]
)
"""One block: the rows of a shard that are read together."""

REJECTED_DTYPE = np.dtype([("block", "<i8"), ("row", "<i8"), ("code", "<u2")])
"""One rejected row: its block, its stored row number in the shard, and its reason as an index into Manifest.codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A named set of shards, mixed as one stream."""

    name: str
    """Unique; no '/' in it."""
    kind: SourceKind
    """``text`` (records of bytes) or ``tokens`` (runs of ids)."""
    text_field: str
    """The column or field that holds the text; empty for tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One immutable data file; the unit of quarantine."""

    source: int
    """Index into Manifest.sources."""
    path: str
    """Relative to the source's root, '/'-separated."""
    format: str
    """Name of the format that reads it, e.g. ``jsonl``, ``parquet``, ``npy``; empty where none could."""
    compression: str
    """``none``, ``gzip`` or ``zstd``."""
    item_type: str
    """NumPy dtype string of the ids as stored (``<u2``, ``>u2``), empty for text."""
    size_bytes: int
    digest: str
    """xxh3-128 of the bytes of its file (or files), hexadecimal."""
    num_rows: int
    """Stored rows, rejected ones included."""
    effect: Effect
    """``excluded`` shards deliver nothing."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Manifest:
    """Sources, shards and blocks as one immutable value with a digest. Two manifests are equal when digests are."""

    sources: tuple[Source, ...]
    shards: tuple[Shard, ...]
    blocks: NDArray[np.void]
    """BLOCK_DTYPE, ordered by (shard, first_row)."""
    rejected: NDArray[np.void]
    """REJECTED_DTYPE, ordered by (block, row)."""
    codes: tuple[str, ...]
    """Reason codes that `rejected` refers to, sorted."""
    _index: dict[str, int] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.blocks.dtype != BLOCK_DTYPE or self.rejected.dtype != REJECTED_DTYPE:
            raise TypeError("blocks and rejected must have BLOCK_DTYPE and REJECTED_DTYPE")
        names = [source.name for source in self.sources]
        if names != sorted(set(names), key=lambda name: name.encode()):
            raise ManifestDamaged(f"sources are not in byte order, or not unique: {names}")
        if any(a.source > b.source for a, b in pairwise(self.shards)):
            raise ManifestDamaged("shards are not grouped by source")
        present = np.unique(self.blocks["shard"])
        if len(present) != len(self.shards) or (len(present) and present[-1] != len(self.shards) - 1):
            raise ManifestDamaged("every shard has at least one block, and every block a shard")
        counts = np.bincount(self.rejected["block"], minlength=len(self.blocks))
        if not np.array_equal(counts, self.blocks["num_rejected"]):
            raise ManifestDamaged("rejected rows and the counts of their blocks differ")
        for i, shard in enumerate(self.shards):
            self._index[f"{self.sources[shard.source].name}/{shard.path}"] = i
        if len(self._index) != len(self.shards):
            raise ManifestDamaged("two shards have one name")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        from dataguard.core.manifest_shown import manifest_text

        return manifest_text(self)

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from dataguard.core.manifest_shown import manifest_html
        from dataguard.core.notebook import guarded

        return guarded(repr(self), lambda: manifest_html(self))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._index)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the canonical bytes, hexadecimal."""
        sha = hashlib.sha256()
        for piece in self._canonical():
            sha.update(piece)
        return sha.hexdigest()

    def _canonical(self) -> Iterator[bytes]:
        yield _MAGIC
        yield struct.pack(
            "<QQQQQ", len(self.sources), len(self.shards), len(self.blocks), len(self.rejected), len(self.codes)
        )
        for source in self.sources:
            yield _strings(source.name, source.kind, source.text_field)
        for shard in self.shards:
            yield struct.pack("<QQQ", shard.source, shard.size_bytes, shard.num_rows)
            yield _strings(shard.path, shard.format, shard.compression, shard.item_type, shard.digest, shard.effect)
        yield self.blocks.tobytes()
        yield self.rejected.tobytes()
        yield _strings(*self.codes)

    @cached_property
    def num_deliverable(self) -> NDArray[np.int64]:
        """Deliverable rows of every block, shape (blocks,): stored less rejected, 0 where the shard is excluded."""
        excluded = np.array([shard.effect == "excluded" for shard in self.shards], dtype=bool)
        live = self.blocks["num_rows"] - self.blocks["num_rejected"]
        return np.where(excluded[self.blocks["shard"]], 0, live) if len(self.blocks) else live

    @cached_property
    def block_starts(self) -> NDArray[np.int64]:
        """First block of every shard and, last, the number of blocks: shape (shards + 1,)."""
        return np.searchsorted(self.blocks["shard"], np.arange(len(self.shards) + 1))

    @cached_property
    def rejected_starts(self) -> NDArray[np.int64]:
        """First entry in `rejected` of every block and, last, their number: shape (blocks + 1,)."""
        return np.searchsorted(self.rejected["block"], np.arange(len(self.blocks) + 1))

    def shards_of(self, source: int) -> range:
        """The shards (half-open) of one source."""
        owners = [shard.source for shard in self.shards]
        return range(int(np.searchsorted(owners, source)), int(np.searchsorted(owners, source + 1)))

    def blocks_of(self, source: int) -> range:
        """The blocks (half-open) of one source."""
        shards = self.shards_of(source)
        return range(int(self.block_starts[shards.start]), int(self.block_starts[shards.stop]))

    def shard_name(self, shard: int) -> str:
        """``SOURCE/path``, the name a shard goes by everywhere."""
        return self._names[shard]

    def find_shard(self, name: str) -> int:
        """The shard called `name` (``SOURCE/path``, or a path or file name that only one shard has)."""
        if name in self._index:
            return self._index[name]
        ends = [i for key, i in self._index.items() if key.endswith("/" + name)]
        if len(ends) == 1:
            return ends[0]
        if ends:
            shown = ", ".join(self.shard_name(i) for i in ends[:4])
            raise NotInRun(f"{len(ends)} shards are called {name!r}", found=shown, todo="name it as SOURCE/path")
        import difflib

        near = difflib.get_close_matches(name, list(self._index), n=3, cutoff=0.4)
        raise NotInRun(
            f"no shard is called {name!r}",
            found=f"{len(self.shards):,} shards" + (f", the nearest {', '.join(near)}" if near else ""),
            todo="list them with: dataguard manifest show M --shards",
        )

    def block_of(self, shard: int, row: int) -> int:
        """The block that holds stored row `row` of a shard."""
        if not 0 <= row < self.shards[shard].num_rows:
            raise NotInRun(
                f"row {row:,} is not in shard {self.shard_name(shard)}", allowed=f"0:{self.shards[shard].num_rows:,}"
            )
        lo, hi = int(self.block_starts[shard]), int(self.block_starts[shard + 1])
        return lo + int(np.searchsorted(self.blocks["first_row"][lo:hi], row, side="right")) - 1


class ManifestSet:
    """Several manifests addressed as one: shards and blocks numbered through, in the order the plan names them.

    A run whose sources grow reads several manifests; the numbers in its index count through all of them, so one
    integer names a shard for the whole attempt.
    """

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self.manifests = tuple(manifests)
        self.shard_starts = np.cumsum([0, *(len(m.shards) for m in self.manifests)])
        self._shard_starts: list[int] = self.shard_starts.tolist()
        self.block_starts = np.cumsum([0, *(len(m.blocks) for m in self.manifests)])
        self._block_starts: list[int] = self.block_starts.tolist()

    @property
    def num_shards(self) -> int:
        """Shards of all manifests, each counted where it stands."""
        return int(self.shard_starts[-1])

    def split_shard(self, shard: int) -> tuple[int, int]:
        """(manifest ordinal, shard within it) of a shard numbered through."""
        which = bisect_right(self._shard_starts, shard) - 1
        return which, shard - self._shard_starts[which]

    def split_block(self, block: int) -> tuple[int, int]:
        """(manifest ordinal, block within it) of a block numbered through."""
        which = bisect_right(self._block_starts, block) - 1
        return which, block - self._block_starts[which]

    def shard_name(self, shard: int) -> str:
        """``SOURCE/path`` of a shard numbered through."""
        which, local = self.split_shard(shard)
        return self.manifests[which].shard_name(local)

    def source_name(self, shard: int) -> str:
        """Name of the source of a shard numbered through."""
        which, local = self.split_shard(shard)
        manifest = self.manifests[which]
        return manifest.sources[manifest.shards[local].source].name

    def find_shards(self, name: str) -> list[int]:
        """Every shard of that name, one a manifest that holds it, numbered through; at least one."""
        found, problem = [], None
        for which, manifest in enumerate(self.manifests):
            try:
                found.append(int(self.shard_starts[which]) + manifest.find_shard(name))
            except NotInRun as error:
                problem = problem or error
        if not found:
            raise problem or NotInRun(f"no shard is called {name!r}")
        return found


def _strings(*values: str) -> bytes:
    parts = []
    for value in values:
        data = value.encode()
        parts.append(struct.pack("<Q", len(data)) + data)
    return b"".join(parts)
