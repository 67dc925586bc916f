"""What does a skip of steps or batches mean in positions, and what does it answer when asked for?

People name steps (or batches); what is written down are positions, since those never move. A `SkipRange` is the
translation, with everything that is echoed before and after it is written. `SkippedBy` is the answer for whatever lies
inside: by which events, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dataguard.core.spans import Span
from dataguard.plan.attempts import Skip

__all__ = ["SkipRange", "SkippedBy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedBy:
    """The positions asked for are not delivered in an attempt: its skips hold them.

    >>> str(SkippedBy(attempt=2, positions=(672, 688), skips=(Skip(start=640, stop=720, event=3, reason="spike"),)))
    'positions 672:688 skipped in attempt 2 by event 3, because: spike'
    """

    attempt: int
    """The attempt on the lineage that would have delivered them."""
    positions: Span
    """Half-open; what was asked for."""
    skips: tuple[Skip, ...]
    """Every skip that holds one of them, in the order of events."""

    @property
    def events(self) -> tuple[int, ...]:
        """Numbers of the journal events, rising."""
        return tuple(dict.fromkeys(skip.event for skip in self.skips))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reason of each of `events`."""
        return tuple({skip.event: skip.reason for skip in self.skips}.values())

    @property
    def because(self) -> str:
        """``event N, because: ...`` for each event."""
        return "; ".join(f"event {event}, because: {why}" for event, why in zip(self.events, self.reasons, strict=True))

    def __str__(self) -> str:
        start, stop = self.positions
        what = f"position {start:,}" if stop == start + 1 else f"positions {start:,}:{stop:,}"
        return f"{what} skipped in attempt {self.attempt} by {self.because}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRange:
    """A range not to be trained on, as steps and batches of one lineage and as positions. All ranges are half-open."""

    attempt: int
    """The leaf of the lineage whose steps these are."""
    steps: Span | None
    """Steps that hold any of the positions; None where earlier skips hold them all already."""
    batches: Span
    """Batches of the grid that ignores skips."""
    positions: Span
    """What is written down."""
    later_mixtures: tuple[int, ...] = ()
    """Starts of mixtures inside the range: it reaches past where the sources, their weights or their order change."""

    def effect_from(self, start_position: int) -> Literal["all", "part", "none"]:
        """How much of the range an attempt passes over that begins at a position: what lies before has no effect."""
        start, stop = self.positions
        if start_position <= start:
            return "all"
        return "part" if start_position < stop else "none"
