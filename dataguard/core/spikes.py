"""What can go wrong with a training curve, as values: the classes of events, and one event.

An event is a stretch of steps, half-open, in the trainer's labels, in which the loss (or the gradient norm, or the
clock) does something that its own past does not explain. What it was is told by a class; whose fault it was is not
told here (`dataguard.core.evidence`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["EventClass", "SpikeEvent"]


class EventClass(StrEnum):
    """What an event is, by its shape alone."""

    HARD_BATCH = "hard_batch"
    """The loss of one step (or a few) stands out and is back on trend at the next; gradient norm and loss afterwards
    are what they were. It belongs to the data and leaves no damage."""
    TRANSIENT_SPIKE = "transient_spike"
    """The loss rises, stays up for a while, and comes back."""
    ABSORBING_SHIFT = "absorbing_shift"
    """The loss rises and settles above its trend, by more than this log's noise."""
    CREEPING_DRIFT = "creeping_drift"
    """Gradient norm, attention logits or loss climb slowly over many steps."""
    HARD_FAULT = "hard_fault"
    """NaN or infinity."""
    STALL = "stall"
    """No row arrives."""
    GRAD_NORM_ONLY = "grad_norm_only"
    """The gradient norm stands out, and the loss does not."""
    LOSS_DIP = "loss_dip"
    """The loss falls below its trend: a repeated batch is easy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeEvent:
    """One event of a training curve.

    >>> event = SpikeEvent(event_class=EventClass.HARD_BATCH, start=12, stop=13, peak=12, size_nats=1.5, sigmas=20.0)
    >>> event.num_steps, event.rank is None
    (1, True)
    """

    event_class: EventClass
    start: int
    """First step, in the trainer's labels."""
    stop: int
    """One past the last step; of an event that goes on to the end of the log, one past the last step logged."""
    peak: int
    """The step that stands out most; of a hard fault its first non-finite step, of a stall the last step that came."""
    size_nats: float | None
    """Largest excess of the loss over its baseline, in nats (below zero for a dip); None where the loss has none."""
    sigmas: float | None
    """The same in robust standard deviations of what came before; None where there is none."""
    aftermath_nats: float | None = None
    """Median excess of the loss over its trend in the steps after `stop`; None where too few came."""
    grad_norm_ratio: float | None = None
    """Largest gradient norm from the search window's begin to `stop`, over the baseline; None where it is not
    logged."""
    onset: int | None = None
    """First step that stands out when one looks back from `start` with a lower threshold (the gradient norm may rise
    before the loss does); None where nothing does."""
    is_open: bool = False
    """Whether it goes on at the end of the log."""
    signal: str = "loss"
    """Name of what showed it: ``loss``, ``grad_norm``, ``attention_logit_max/blocks.3`` ..."""
    rank: int | None = None
    """The one rank that shows it; None where all do, or where the log is of one."""

    @property
    def num_steps(self) -> int:
        """Steps that it lasts, counted by their labels."""
        return self.stop - self.start
