"""Which rows of a manifest are samples, and how are they counted through?

A source's samples are numbered 0..N-1 in manifest order, block by block; blocks without samples do not appear.

- Form ``document``: the samples of a block are its deliverable rows. Rejected rows are passed over but keep their
  row number.
- Form ``window``: a shard of N tokens has ``N // seq_len`` windows (its tail is cut); window w is tokens
  ``w * seq_len : (w + 1) * seq_len`` and belongs to the block in which its first token lies, so a block of tokens
  ``first : stop`` holds windows ``ceil(first / seq_len) : min(ceil(stop / seq_len), N // seq_len)``. A window's row
  number is w.
- Form ``given``: the samples of a block are its rows; which stands where, somebody else decides.

Excluded shards have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest
from dataguard.errors import NotInRun, PlanError
from dataguard.plan.document import Form

__all__ = ["SourceTable", "num_samples", "samples_of_blocks"]


def samples_of_blocks(manifest: Manifest, form: Form, seq_len: int | None) -> NDArray[np.int64]:
    """Samples of every block of a manifest, shape (blocks,), 0 where the source's kind does not fit the form."""
    kinds = np.array(
        [source.kind == ("text" if form == "document" else "tokens") for source in manifest.sources], dtype=bool
    )
    owners = np.array([shard.source for shard in manifest.shards], dtype=np.int64)
    if not len(owners):
        return np.zeros(0, dtype=np.int64)
    fits = kinds[owners][manifest.blocks["shard"]]
    if form != "window":
        return np.where(fits, manifest.num_deliverable, 0)
    first, stop = _windows(manifest, slice(0, len(manifest.blocks)), _checked(seq_len))
    return np.where(fits, np.maximum(stop - first, 0), 0)


def num_samples(manifest: Manifest, form: Form, seq_len: int | None) -> dict[str, int]:
    """Samples of each source by name: what weights default to. Sources that do not fit the form have 0."""
    counts = samples_of_blocks(manifest, form, seq_len)
    found = {}
    for i, source in enumerate(manifest.sources):
        blocks = manifest.blocks_of(i)
        found[source.name] = int(counts[blocks.start : blocks.stop].sum())
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceTable:
    """The samples of one source in manifest order. Memory is proportional to its blocks."""

    manifest: Manifest
    source: int
    """Index into ``manifest.sources``."""
    seq_len: int | None
    """Tokens of a window; None for documents."""
    blocks: NDArray[np.int64]
    """Manifest's numbers of the blocks that have samples, rising, shape (num_blocks,)."""
    starts: NDArray[np.int64]
    """First sample of each of them and, last, N: shape (num_blocks + 1,)."""
    first_rows: NDArray[np.int64]
    """Row number (window number) a block's samples count from, shape (num_blocks,)."""
    rejected_keys: NDArray[np.int64]
    """For `_live_row`: see there. Empty where no row is rejected."""
    rejected_starts: NDArray[np.int64]
    """First entry of each block in `rejected_keys` and, last, their number: shape (num_blocks + 1,)."""
    stride: int
    """More than the rows of any block."""

    @classmethod
    def of(cls, manifest: Manifest, name: str, form: Form, seq_len: int | None) -> SourceTable:
        """The table of one source, by name.

        Raises
        ------
        PlanError
            If the manifest has no such source, its kind does not fit the form, or it has no sample.
        """
        names = [source.name for source in manifest.sources]
        if name not in names:
            raise PlanError(
                f"source {name!r} is not in the manifest", found=", ".join(names), todo="weigh only sources it has"
            )
        source = names.index(name)
        kind = manifest.sources[source].kind
        if form == "document" and kind == "tokens":
            raise PlanError(
                f"source {name!r} holds tokens, of which form document makes no samples",
                todo="give --form window --seq-len N, or leave the source out by its weight",
            )
        if form == "window" and kind == "text":
            raise PlanError(
                f"source {name!r} holds text, which form window cannot cut",
                todo="give --form document, or tokenize the source first",
            )
        span = manifest.blocks_of(source)
        counts = samples_of_blocks(manifest, form, seq_len)[span.start : span.stop]
        keep = np.flatnonzero(counts)
        if not len(keep):
            num_rows = int(manifest.blocks["num_rows"][span.start : span.stop].sum())
            what = "row" if form == "document" else f"window of {seq_len:,} tokens"
            raise PlanError(
                f"source {name!r} has no deliverable {what}",
                found=f"{len(manifest.shards_of(source)):,} shards of {num_rows:,} rows",
                todo="leave the source out, or see why with: dataguard manifest show",
            )
        blocks = keep + span.start
        starts = np.concatenate([[0], np.cumsum(counts[keep])]).astype(np.int64)
        if form == "window":
            first_rows, _ = _windows(manifest, blocks, _checked(seq_len))
            return cls(
                manifest=manifest, source=source, seq_len=seq_len, blocks=blocks, starts=starts, first_rows=first_rows,
                rejected_keys=np.zeros(0, np.int64), rejected_starts=np.zeros(len(blocks) + 1, np.int64), stride=1,
            )  # fmt: skip
        first_rows = manifest.blocks["first_row"][blocks].astype(np.int64)
        stride = int(manifest.blocks["num_rows"][blocks].max()) + 1
        keys, rejected_starts = _rejected_keys(manifest, blocks, first_rows, stride)
        return cls(
            manifest=manifest, source=source, seq_len=None, blocks=blocks, starts=starts, first_rows=first_rows,
            rejected_keys=keys, rejected_starts=rejected_starts, stride=stride,
        )  # fmt: skip

    @property
    def num_blocks(self) -> int:
        """Blocks with samples."""
        return len(self.blocks)

    @property
    def num_samples(self) -> int:
        """N, the samples of the source."""
        return int(self.starts[-1])

    def rows(
        self, ordinals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Where samples lie: manifest's (block, shard, row), each shape (n,).

        Parameters
        ----------
        ordinals
            Place of the block in `blocks`, int64, shape (n,).
        offsets
            0-based sample within the block, int64, shape (n,).
        """
        blocks = self.blocks[ordinals]
        rows = offsets
        if len(self.rejected_keys):
            # Each rejected row counts as (its offset in the block less the rejected rows before it): sample k of the
            # block has as many rejected rows before it as there are entries up to k.
            reached = np.searchsorted(self.rejected_keys, ordinals * self.stride + offsets, side="right")
            rows = offsets + reached - self.rejected_starts[ordinals]
        return blocks, self.manifest.blocks["shard"][blocks].astype(np.int64), self.first_rows[ordinals] + rows

    def samples(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(block, shard, row) of samples by their number in manifest order, int64 in 0:N."""
        ordinals = np.searchsorted(self.starts, numbers, side="right") - 1
        return self.rows(ordinals, numbers - self.starts[ordinals])

    def find(self, shard: int, row: int) -> tuple[int, int] | None:
        """The inverse of `rows`: (ordinal of the block, offset in it), or None where that row is no sample.

        Parameters
        ----------
        shard
            Shard of this manifest.
        row
            Stored row, or window number.

        Raises
        ------
        NotInRun
            If the shard never had such a row.
        """
        num_rows = self.manifest.shards[shard].num_rows
        if self.seq_len is not None:
            num_windows = num_rows // self.seq_len
            if not 0 <= row < num_windows:
                raise NotInRun(
                    f"window {row:,} is not in shard {self.manifest.shard_name(shard)}",
                    found=f"{num_rows:,} tokens, windows of {self.seq_len:,}",
                    allowed=f"0:{num_windows:,}",
                )
        block = self.manifest.block_of(shard, row if self.seq_len is None else row * self.seq_len)
        ordinal = int(np.searchsorted(self.blocks, block))
        if ordinal == len(self.blocks) or self.blocks[ordinal] != block:
            return None
        offset = row - int(self.first_rows[ordinal])
        lo, hi = int(self.rejected_starts[ordinal]), int(self.rejected_starts[ordinal + 1])
        rejected = self.rejected_keys[lo:hi] - ordinal * self.stride + np.arange(hi - lo)
        before = int(np.searchsorted(rejected, offset))
        if before < hi - lo and rejected[before] == offset:
            return None
        return ordinal, offset - before


def _checked(seq_len: int | None) -> int:
    if seq_len is None or seq_len < 1:
        raise PlanError(f"windows of {seq_len} tokens cannot be", todo="give --seq-len N")
    return seq_len


def _windows(
    manifest: Manifest, blocks: NDArray[np.int64] | slice, seq_len: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First window of each block and one past its last; the latter may lie below the former."""
    entries = manifest.blocks[blocks]
    tokens = np.array([0 if s.effect == "excluded" else s.num_rows for s in manifest.shards], dtype=np.int64)
    first = -(-entries["first_row"].astype(np.int64) // seq_len)
    stop = -(-(entries["first_row"] + entries["num_rows"]).astype(np.int64) // seq_len)
    return first, np.minimum(stop, tokens[entries["shard"]] // seq_len)


def _rejected_keys(
    manifest: Manifest, blocks: NDArray[np.int64], first_rows: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts = np.zeros(len(blocks) + 1, dtype=np.int64)
    np.cumsum(manifest.blocks["num_rejected"][blocks], out=starts[1:])
    if not starts[-1]:
        return np.zeros(0, dtype=np.int64), starts
    mine = manifest.rejected[np.isin(manifest.rejected["block"], blocks)]
    ordinals = np.searchsorted(blocks, mine["block"])
    before = np.arange(len(mine)) - starts[ordinals]
    return ordinals * stride + (mine["row"] - first_rows[ordinals] - before), starts
