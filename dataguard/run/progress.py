"""How far has each rank of this process come?

Kept in memory, on the `Run` object that a loader and a monitor share: what was handed over last, and how long the
trainer waited for it. It is written nowhere; the index says what was delivered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Progress"]

_MOST_SHORT = 1_024


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where a rank of an attempt stands."""

    attempt: int
    records: bool = True
    """Whether this process records for the rank; False where another one of its replica does."""
    step: int | None = None
    """The newest step of which something was handed over, counted from 0; None before the first."""
    num_microbatches: int = 0
    """Handed over of that step."""
    waited_seconds: float = 0.0
    """How long the trainer waited for microbatches of that step."""
    short: dict[tuple[int, int], int] = field(default_factory=dict)
    """By step and microbatch: how many samples came where there were fewer than slots, as in the last batch of a
    trainer's own loader; the newest such."""

    def handed_over(self, step: int, waited_seconds: float, *, num_samples: int | None = None) -> None:
        """Note one microbatch, and how many samples it has where those are fewer than its slots."""
        if step != self.step:
            self.step, self.num_microbatches, self.waited_seconds = step, 0, 0.0
        if num_samples is not None:
            self.short[step, self.num_microbatches] = num_samples
            if len(self.short) > _MOST_SHORT:
                del self.short[next(iter(self.short))]
        self.num_microbatches += 1
        self.waited_seconds += waited_seconds
