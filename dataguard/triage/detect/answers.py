"""What does ``dataguard spikes --json`` answer, of one log and of two?

The keys of `SpikesAnswer` are frozen: scripts rely on them, and new ones come last. What more is known (onset, signal,
changes, the smallest visible shift) is in `Detection`, and in what people are told.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "ComparedLogs",
    "Comparison",
    "FoundSpike",
    "LoggedSteps",
    "ProfileRate",
    "SharedSpike",
    "SmallestSpikes",
    "SpikesAnswer",
    "UnheardSpike",
]


class LoggedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a log, in the trainer's labels."""

    first: int
    """The first step with a point of the loss."""
    last: int
    """The last one: not one past it."""
    logged: int
    """How many steps have one."""


class FoundSpike(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as `SpikeEvent` has it."""

    event_class: str = msgspec.field(name="class")
    start: int
    stop: int
    peak: int
    size_nats: float | None
    sigmas: float | None
    aftermath_nats: float | None
    grad_norm_ratio: float | None


class ProfileRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often a rule alarmed on this log."""

    profile: str
    alarms: int
    """Steps on which it alarmed; of the default profile, which alarms once an event, its events."""
    per_1000: float
    """The same for each 1,000 logged steps."""


class SmallestSpikes(msgspec.Struct, frozen=True, kw_only=True):
    """How high a spike had to be to show, in nats above what was expected of the loss."""

    typical_nats: float
    """The median over all steps that were judged."""
    hardest_step: int
    """Where a spike needed most."""
    hardest_nats: float


class UnheardSpike(msgspec.Struct, frozen=True, kw_only=True):
    """Steps whose loss stands above those before them where the detector was deaf: maybe a spike, and no event."""

    start: int
    stop: int
    size_nats: float
    """Above the median of the points before."""
    sigmas: float
    """The same in the scale of such differences."""
    smallest_spike_nats: float
    """What would have shown there."""


class SpikesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one log."""

    log: str
    steps: LoggedSteps
    events: tuple[FoundSpike, ...]
    profiles: tuple[ProfileRate, ...]
    smallest_spike: SmallestSpikes | None
    """Of the default profile; None of others, and where no step was judged."""
    unheard: tuple[UnheardSpike, ...]
    """Of the default profile."""


class SharedSpike(msgspec.Struct, frozen=True, kw_only=True):
    """A step on which both logs stand out, and at least one of them has an event."""

    step: int
    size_nats: tuple[float, float]
    """Above the neighbours' median, in the first and the second log."""
    sigmas: tuple[float, float]
    is_event: tuple[bool, bool]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two logs held against each other."""

    num_common_steps: int
    """Steps on which both have a finite loss."""
    num_spikes: tuple[int, int]
    """Steps among these on which each has an event with a loss above its trend."""
    num_recurring: tuple[int, int]
    """How many of them stand out in the other log as well."""
    expected_by_chance: tuple[float, float]
    """How many would, were the two unrelated."""
    log10_chance: tuple[float, float]
    """Decimal logarithm of the chance that so many or more would."""
    correlation: float | None
    """Of what both logs do from step to step (rank correlation of the moves between the two steps of a pair); None
    where too few steps are common."""
    correlation_sigmas: float | None
    """The same in standard errors of unrelated logs."""
    one_data_order: bool | None
    """Whether both were fed the same batches in the same order; None where that cannot be told."""
    shared: tuple[SharedSpike, ...]
    """Where one data order is what they share, these are hard batches."""


class ComparedLogs(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dataguard spikes A B --json`` answers."""

    logs: tuple[SpikesAnswer, SpikesAnswer]
    comparison: Comparison
