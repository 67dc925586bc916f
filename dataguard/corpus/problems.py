"""What may be wrong with a row that was asked for, and how often is that tried again?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ProblemKind", "Retry", "RowProblem"]

ProblemKind = Literal["missing", "unreadable", "damaged", "changed", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """Why a row cannot be delivered as the manifest has it.

    >>> print(RowProblem(kind="missing", shard="web/a.jsonl", row=3, detail="no such file"))
    row 3 of shard web/a.jsonl is missing: no such file
    """

    kind: ProblemKind
    """``missing``: the shard's file is gone. ``unreadable``: the storage failed, retries included. ``damaged``: the
    shard's bytes are those of the manifest, and cannot be decoded. ``changed``: the shard holds other bytes than the
    manifest was built over. ``rejected``: the manifest has the row as rejected."""
    shard: str
    """``SOURCE/path``."""
    row: int
    """Stored row that was asked for; of a window its first token."""
    detail: str
    """One line: what was expected and found."""
    expected_digest: str | None = None
    """Of the block, hexadecimal, by the manifest."""
    found_digest: str | None = None
    """Of the block as it was read; None where it could not be decoded."""
    expected_shard_digest: str | None = None
    found_shard_digest: str | None = None
    content: bytes | None = field(default=None, repr=False)
    """With ``verify="tell"``: what a changed shard holds in this row now, None where it has no such row."""

    def __str__(self) -> str:
        return f"row {self.row:,} of shard {self.shard} is {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a storage that fails is asked again.

    Between attempts a reader sleeps `first_seconds`, then `factor` times as long each time. A shard that failed after
    all of them is asked only once at a time, without sleeping, for `pause_seconds`: one lost disk must not slow each
    read from it.
    """

    attempts: int = 4
    first_seconds: float = 0.1
    factor: float = 4.0
    pause_seconds: float = 30.0

    def __post_init__(self) -> None:
        assert self.attempts >= 1
        assert min(self.first_seconds, self.factor, self.pause_seconds) >= 0

    def pauses(self) -> list[float]:
        """Seconds to sleep before each further attempt.

        >>> Retry(attempts=3).pauses()
        [0.1, 0.4]
        """
        return [self.first_seconds * self.factor**i for i in range(self.attempts - 1)]
