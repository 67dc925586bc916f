"""What is to be scored, and of which rows and blocks is a task made?

A `Job` is all that scoring depends on: two equal jobs give equal parts, on any machine, in any order. It can be
pickled, so that a task can be done in another process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.sample import Sample
from dataguard.audit.tasks import Task, windows_of_block
from dataguard.core.manifest import SourceKind
from dataguard.corpus.corpus import Corpus
from dataguard.score.registry import TEXT_SIGNALS, TOKEN_SIGNALS

__all__ = ["Job", "Segment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What a task has to do with one shard."""

    shard: int
    kind: SourceKind
    chosen: tuple[int, ...]
    """Blocks whose samples are scored, ascending."""
    needed: tuple[int, ...]
    """Blocks that have to be read for it: those, and of token shards the ones that their last windows reach into."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """What is to be scored."""

    corpus: Corpus
    sample: Sample
    seq_len: int
    """Tokens of a window, the sample of a token shard."""
    vocab_size: int | None = None
    """Without it the signals that need it are not computed."""
    digests_only: bool = False
    """Of evaluation data: no signal but the one that tells whether a sample is blank."""

    @property
    def kinds(self) -> tuple[SourceKind, ...]:
        """The kinds of sources that there are, ``text`` first."""
        present = {source.kind for source in self.corpus.manifest.sources}
        every: tuple[SourceKind, ...] = ("text", "tokens")
        return tuple(kind for kind in every if kind in present)

    def signals(self, kind: SourceKind) -> tuple[str, ...]:
        """The signals that are computed for samples of a kind: all that need nothing an audit does not have.

        A reference profile is needed for `length_outlier` alone, which the second half of an audit adds.
        """
        if self.digests_only:
            return ("length_words",) if kind == "text" else ("length_tokens",)
        have = {"vocab_size"} if self.vocab_size is not None else set()
        specs = TEXT_SIGNALS if kind == "text" else TOKEN_SIGNALS
        return tuple(spec.name for spec in specs if have.issuperset(spec.needs))

    def segments(self, task: Task) -> list[Segment]:
        """What a task is made of, by shard, in order; shards of which it needs nothing are left out."""
        manifest = self.corpus.manifest
        by_shard: dict[int, list[int]] = {}
        for block in self.sample.blocks(manifest, task.start, task.stop):
            if manifest.blocks["num_rows"][block]:
                by_shard.setdefault(int(manifest.blocks["shard"][block]), []).append(block)
        segments = []
        for shard, blocks in by_shard.items():
            kind = manifest.sources[manifest.shards[shard].source].kind
            needed = blocks
            if kind == "tokens":
                blocks = [block for block in blocks if self.windows(block)]
                needed = sorted({each for block in blocks for each in self.blocks_of_windows(block)})
            if blocks:
                segments.append(Segment(shard=shard, kind=kind, chosen=tuple(blocks), needed=tuple(needed)))
        return segments

    def windows(self, block: int) -> range:
        """The windows that begin in a block of a token shard."""
        entry = self.corpus.manifest.blocks[block]
        return windows_of_block(int(entry["first_row"]), int(entry["num_rows"]), self.seq_len)

    def blocks_of_windows(self, block: int) -> range:
        """The blocks, that one first, which hold the windows that begin in it."""
        manifest = self.corpus.manifest
        shard = int(manifest.blocks["shard"][block])
        end = min(self.windows(block).stop * self.seq_len, manifest.shards[shard].num_rows)
        last = int(manifest.block_starts[shard + 1])
        beyond = int(np.searchsorted(manifest.blocks["first_row"][block:last], end, side="left"))
        return range(block, block + max(beyond, 1))

    def rows(self, segment: Segment, block: int) -> NDArray[np.int64]:
        """The samples of a block that are looked at, as row (or window) numbers of its shard, ascending."""
        manifest = self.corpus.manifest
        entry = manifest.blocks[block]
        first = int(entry["first_row"])
        span = self.windows(block) if segment.kind == "tokens" else range(first, first + int(entry["num_rows"]))
        return self.sample.rows(manifest.shard_name(segment.shard), first, span.start, span.stop)

    def rejected(self, block: int) -> NDArray[np.int64]:
        """The rows of a block that its manifest has as rejected."""
        manifest = self.corpus.manifest
        starts = manifest.rejected_starts
        rows: NDArray[np.int64] = manifest.rejected["row"][int(starts[block]) : int(starts[block + 1])]
        return rows
