"""How far has each rank of this process come?

Kept in memory, on the `Run` object that a loader and a monitor share: what was handed over last, and how long the
trainer waited for it. It is written nowhere; the index says what was delivered.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


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

    def handed_over(self, step: int, waited_seconds: float) -> None:
        """Note one microbatch."""
        if step != self.step:
            self.step, self.num_microbatches, self.waited_seconds = step, 0, 0.0
        self.num_microbatches += 1
        self.waited_seconds += waited_seconds
