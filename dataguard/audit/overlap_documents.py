"""What does an audit answer where it was held against evaluation data? Part of ``summary.json``.

``overlap.parquet`` has every record of both sides; here stand counts by source.
"""

from __future__ import annotations

import msgspec

__all__ = ["EvaluationSource", "Overlap", "OverlapOf", "UnreadEvaluation"]


class EvaluationSource(msgspec.Struct, frozen=True, kw_only=True):
    """One source of evaluation data: ``records = compared + blank + rejected + unreadable``, or none is compared."""

    against: str
    """What was named with ``--against``."""
    source: str
    kind: str
    """``text`` or ``tokens``."""
    records: int
    """Records; of token shards, windows."""
    compared: int
    """Not blank, and of a kind that the audited corpus has too."""
    blank: int
    """Without a word (windows without a token): that two are empty is no overlap."""
    rejected: int
    unreadable: int
    overlapping: int
    """Of the compared, those that are in the audited corpus, byte for byte."""
    share_of_records: float
    share_of_bytes: float


class OverlapOf(msgspec.Struct, frozen=True, kw_only=True):
    """What a source of the audited corpus and one of the evaluation data have in common."""

    source: str
    against: str
    evaluation_source: str
    records: int
    """Of the audited source, those that are in the evaluation source."""
    evaluation_records: int
    """Of the evaluation source, those that are in the audited source."""


class UnreadEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of the evaluation data that is not what it should be, or a path that was not reached."""

    against: str
    shard: str
    reason: str
    effect: str


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Exact duplicates between the audited corpus and evaluation data."""

    compared: str
    """What is compared, in words."""
    contents: int
    """Different contents that are on both sides."""
    records: int
    """Records of the audited corpus that are in the evaluation data."""
    share_of_records: float
    """Of those scored and not blank."""
    share_of_bytes: float
    evaluation_records: int
    """Records of the evaluation data that are in the audited corpus."""
    evaluation: tuple[EvaluationSource, ...]
    by_source: tuple[OverlapOf, ...]
    """Pairs that have anything in common, in the order of the sources."""
    unread: tuple[UnreadEvaluation, ...]
