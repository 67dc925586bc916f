"""Which blocks and rows does an audit of a sample look at?

A sample of f is drawn in two stages, so that little more than f of the corpus has to be read: blocks are chosen with
the square root of f, and in each of them rows with what is left. Where a corpus has few blocks the first stage chooses
more of them, all of them below 256, and the second makes up for it. Every choice is keyed by the shard's name and the
block's first row, and by nothing else: not by the rest of the corpus, not by the order of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.core.manifest import Manifest
from dataguard.core.parse import exact_number
from dataguard.errors import UsageError

__all__ = ["Sample", "parse_sample"]

_FEW_BLOCKS = 256
_WHOLE = 1 << 64
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A share of the rows of a corpus. ``Sample(fraction="1")`` is all of them."""

    fraction: str = "1"
    """As an exact fraction: ``1/100``."""
    block_threshold: int = _WHOLE
    """A block is chosen whose hash is below it; 2^64 chooses all."""
    row_threshold: int = _WHOLE
    """Likewise of the rows of a chosen block."""

    @classmethod
    def of(cls, fraction: Fraction, *, num_blocks: int) -> Sample:
        """The two stages of a sample of a corpus of so many blocks.

        >>> Sample.of(Fraction(1), num_blocks=10).is_all, Sample.of(Fraction(1, 100), num_blocks=10).is_all
        (True, False)
        """
        assert 0 < fraction <= 1
        blocks = min(Fraction(1), max(Fraction(sqrt(fraction)), fraction, Fraction(_FEW_BLOCKS, max(num_blocks, 1))))
        return cls(
            fraction=str(fraction),
            block_threshold=int(blocks * _WHOLE),
            row_threshold=int(min(Fraction(1), fraction / blocks) * _WHOLE),
        )

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.block_threshold == _WHOLE == self.row_threshold

    def takes_block(self, shard_name: str, first_row: int) -> bool:
        """Whether any row of a block is looked at."""
        if self.block_threshold == _WHOLE:
            return True
        return derive_key("audit-sample-block", shard_name, first_row) < self.block_threshold

    def rows(self, shard_name: str, first_row: int, start: int, stop: int) -> NDArray[np.int64]:
        """The chosen ones of the samples ``start:stop`` (rows, or windows) of a chosen block, ascending."""
        every = np.arange(start, stop, dtype=np.int64)
        if self.row_threshold == _WHOLE:
            return every
        key = np.uint64(derive_key("audit-sample-row", shard_name, first_row))
        return every[_mixed(key + every.astype(np.uint64) * _GOLDEN) < np.uint64(self.row_threshold)]

    def blocks(self, manifest: Manifest, start: int, stop: int) -> list[int]:
        """The chosen ones of the blocks ``start:stop`` of a manifest."""
        if self.block_threshold == _WHOLE:
            return list(range(start, stop))
        entries = manifest.blocks[start:stop]
        pairs = zip(entries["shard"].tolist(), entries["first_row"].tolist(), strict=True)
        return [
            start + i for i, (shard, first) in enumerate(pairs) if self.takes_block(manifest.shard_name(shard), first)
        ]


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def parse_sample(text: str) -> Fraction:
    """A share as it is typed, exact.

    >>> parse_sample("1%"), parse_sample("0.25"), parse_sample("1/3"), parse_sample("100 %")
    (Fraction(1, 100), Fraction(1, 4), Fraction(1, 3), Fraction(1, 1))
    """
    number = text.strip()
    share = (exact_number(number.removesuffix("%").strip()) or 0) / Fraction(100 if number.endswith("%") else 1)
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text!r} is no share of a corpus", allowed="more than 0 up to 100%: 1%, 0.05, 1/3")
    return share
