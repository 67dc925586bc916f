"""What is known about an event, as values: the facts that a verdict follows from, and the verdicts.

Every fact is small and closed, `UNKNOWN` where nobody looked, so that all combinations can be enumerated and each of
them has exactly one verdict (`dataguard.triage.diagnose`). How a fact was found, and with which numbers, is a text
beside it: nothing is decided from texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dataguard.core.spikes import EventClass

__all__ = [
    "Evidence",
    "Finite",
    "GradNorm",
    "HardwareLog",
    "Mitigation",
    "RankPattern",
    "Replay",
    "Told",
    "Verdict",
]


class Verdict(StrEnum):
    """What is to blame: the diagnosis verdict."""

    BAD_DATA = "bad_data"
    """The batch spikes from both checkpoints and nodes, and a placebo batch does not."""
    DATA_AND_STATE = "data_and_state"
    """The batch spikes from this checkpoint, and not from an earlier one."""
    HARD_BATCH = "hard_batch"
    """Loss of the data without aftermath: nothing to rewind."""
    OPTIMIZER_OR_NUMERICS = "optimizer_or_numerics"
    HARDWARE = "hardware"
    APPLICATION = "application"
    PLANNED_CHANGE = "planned_change"
    NO_INCIDENT = "no_incident"
    INCONCLUSIVE = "inconclusive"


class Told(StrEnum):
    """A question with three answers."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Finite(StrEnum):
    """Where NaN or infinity stood at the event, of what each rank saw before anything was reduced."""

    EVERYWHERE = "finite"
    """No rank saw any."""
    ONE_RANK = "nonfinite_on_one_rank"
    SEVERAL_RANKS = "nonfinite_on_several_ranks"
    UNKNOWN = "unknown"


class GradNorm(StrEnum):
    """What the gradient norm did around the event (row A16)."""

    UNKNOWN = "unknown"
    ORDINARY = "ordinary"
    """It is what it was."""
    BURST = "burst"
    """One narrow burst of a few steps."""
    CLIMBING = "climbing"
    """It has climbed for a long while ahead of the event."""
    NONFINITE = "nonfinite"
    """It jumps to infinity or NaN."""
    ZERO_ON_ONE_RANK = "zero_on_one_rank"
    """Exactly zero on one rank, before anything was reduced."""


class Mitigation(StrEnum):
    """What was tried first, after which the event did not come again over as many steps (row A16)."""

    NOT_TRIED = "not_tried"
    """Nothing was, or nothing of it helped."""
    SKIP = "skip"
    """Rewinding and skipping batches."""
    CONFIGURATION = "configuration"
    """Another configuration: a lower rate, a longer warm-up, a part that stabilises."""
    HOST = "host"
    """Another host, from the same checkpoint."""


class RankPattern(StrEnum):
    """Which ranks stood out at the event."""

    NONE = "none"
    """None of them: the cause is shared by all, or there is nothing."""
    WITH_DATA = "with_data"
    """Those that held samples which stand out."""
    ONE_RANK = "one_rank"
    """One rank stood out at this event, and is no outlier on other data."""
    PERSISTENT = "persistent"
    """One rank (or device) stands out again and again, over different data."""
    UNKNOWN = "unknown"


class Replay(StrEnum):
    """What the replay experiment showed (row A8), as one word for its eight cells."""

    NOT_RUN = "not_run"
    BATCH = "batch"
    """The batch reproduces it from both checkpoints, and the placebo from neither."""
    BATCH_FROM_THIS_STATE = "batch_from_this_state"
    """The batch reproduces it from the checkpoint before, not from an earlier one; the placebo from neither."""
    STATE = "state"
    """The placebo batch shows it as well: whatever is fed, this state (or this configuration) does it."""
    NODE = "node"
    """It is reproduced on this node and not on another, with equal inputs, beyond the baseline."""
    NOT_REPRODUCED = "not_reproduced"
    """Nothing reproduces it. Alone it proves nothing: the state may have been damaged already."""
    INCONCLUSIVE = "inconclusive"
    """Cells are missing, or they differ by no more than the run differs from itself."""


class HardwareLog(StrEnum):
    """What imported logs of machines say about the node and the time of the event."""

    NOT_GIVEN = "not_given"
    CLEAN = "clean"
    """They cover the node and the time, and say nothing."""
    HARDWARE = "hardware"
    """A line that means hardware, matching the outlier's node and time."""
    APPLICATION = "application"
    """Lines that usually mean the application."""
    AMBIGUOUS = "ambiguous"
    """Lines that match, and may mean hardware, a driver or the application."""
    CONSEQUENCE = "consequence"
    """Collective libraries alone complain: a consequence of something that is not in these logs."""
    ELSEWHERE = "elsewhere"
    """Hardware lines, of another node or another time: somewhere something always breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a verdict may be drawn from.

    >>> Evidence(event=None).replay is Replay.NOT_RUN
    True
    """

    event: EventClass | None
    """None where nothing was detected."""
    planned_change: Told = Told.UNKNOWN
    """The event begins at a change that was planned: a stage, a batch size, an attempt, a learning-rate step; the end
    of a warm-up is none of these (it is a sign of the optimizer)."""
    finite: Finite = Finite.UNKNOWN
    ranks: RankPattern = RankPattern.UNKNOWN
    optimizer: Told = Told.UNKNOWN
    """Signs in the optimizer's traces: repeated events, climbing logits or gradient norm ahead of it, update ratios,
    second moments at the epsilon floor, the learning rate at its peak or warm-up too short."""
    data: Told = Told.UNKNOWN
    """Samples of the event stand out by their signals, by duplicates or by their shard, beyond the run's background."""
    replay: Replay = Replay.NOT_RUN
    canary: Told = Told.UNKNOWN
    """A host or device differs from another on one batch, beyond the run's own non-determinism."""
    hardware_log: HardwareLog = HardwareLog.NOT_GIVEN
    number_type: Told = Told.UNKNOWN
    """It happens in the run's number type, and not in float32 on the same inputs: overflow, or lost precision."""
    grad_norm: GradNorm = GradNorm.UNKNOWN
    mitigation: Mitigation = Mitigation.NOT_TRIED
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each field by name: what was found there, with its numbers, for people."""
