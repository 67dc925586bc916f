"""How many points has each hypothesis, and which facts can convict it?

Beside the table of row A16 (`signature`) stand the signs that it leaves out: what speaks *against* a hypothesis, the
cells of the experiment (A8), the canary (A6), number types, logs, and changes that were planned. `SIGNS` is all of
them; `scores` sums the points of those that hold. `CAN_CONVICT` says which facts a hypothesis needs, whatever its
points: data only by a replay, or by leaving no damage; hardware never by one outlier or by a replay that shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataguard.core.evidence import Evidence, Finite, HardwareLog, RankPattern, Replay, Told
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose.signature import SIGNATURE
from dataguard.triage.diagnose.signs import Condition, Hypothesis, Sign, all_events_but, when

__all__ = ["CAN_CONVICT", "OTHER_SIGNS", "SIGNS", "can_convict", "scores"]

DATA = Hypothesis.DATA
OPTIMIZER = Hypothesis.OPTIMIZER_OR_NUMERICS
HARDWARE = Hypothesis.HARDWARE
APPLICATION = Hypothesis.APPLICATION

_BY_LOSS = all_events_but(EventClass.STALL)
_TRACED = all_events_but(EventClass.STALL, EventClass.HARD_BATCH)
_CURVES = all_events_but(EventClass.STALL, EventClass.HARD_FAULT)
_LEVELS = frozenset({EventClass.ABSORBING_SHIFT, EventClass.CREEPING_DRIFT})
_OF_THE_BATCH = (Replay.BATCH, Replay.BATCH_FROM_THIS_STATE)

_ONE_RANK_ALONE = when(event=EventClass.HARD_FAULT, finite=Finite.ONE_RANK, replay=Replay.NOT_REPRODUCED)

OTHER_SIGNS: tuple[Sign, ...] = (
    Sign(
        name="no_damage",
        hypothesis=DATA,
        points=5,
        condition=when(event=EventClass.HARD_BATCH),
        says="the loss is back at once, and so is the gradient norm where it was logged: nothing was damaged",
        reason="with the shape's own point six: the shape defines the class, and runs of one data order share it",
    ),
    Sign(
        name="drift",
        hypothesis=OPTIMIZER,
        points=1,
        condition=when(event=EventClass.CREEPING_DRIFT),
        says="a drift over many steps has no one batch",
    ),
    Sign(
        name="samples_are_ordinary.data",
        hypothesis=DATA,
        points=-1,
        condition=when(event=_BY_LOSS, data=Told.NO),
        says="no sample of the event stands out",
    ),
    Sign(
        name="samples_are_ordinary.optimizer",
        hypothesis=OPTIMIZER,
        points=1,
        condition=when(event=_TRACED, data=Told.NO),
        says="no sample of the event stands out",
    ),
    Sign(
        name="traces_are_quiet",
        hypothesis=OPTIMIZER,
        points=-2,
        condition=when(event=_BY_LOSS, optimizer=Told.NO),
        says="the optimizer's traces show nothing",
    ),
    Sign(
        name="planned.data",
        hypothesis=DATA,
        points=-1,
        condition=when(event=_CURVES, planned_change=Told.YES),
        says="it begins at a change that was planned",
    ),
    Sign(
        name="planned.optimizer",
        hypothesis=OPTIMIZER,
        points=-3,
        condition=when(event=_CURVES, planned_change=Told.YES),
        says="it begins at a change that was planned, which moves the optimizer's traces as well",
        reason="takes from traces what traces give, and leaves the experiment its say",
    ),
    Sign(
        name="reproduced.optimizer",
        hypothesis=OPTIMIZER,
        points=-3,
        condition=when(event=_CURVES, replay=_OF_THE_BATCH),
        says="a placebo batch does not show it from the same state",
    ),
    Sign(
        name="reproduced.hardware",
        hypothesis=HARDWARE,
        points=-6,
        condition=when(event=_BY_LOSS, replay=_OF_THE_BATCH),
        says="it is reproduced by the batch, and not by a placebo batch on the same node",
    ),
    Sign(
        name="fault_reproduced.optimizer",
        hypothesis=OPTIMIZER,
        points=9,
        condition=when(event=EventClass.HARD_FAULT, replay=_OF_THE_BATCH)
        + when(event=EventClass.HARD_FAULT, replay=Replay.STATE, canary=(Told.NO, Told.UNKNOWN)),
        says="NaN or infinity comes again with the same inputs",
        reason="of whatever text, sound arithmetic gives finite numbers: what makes NaN again is the arithmetic",
    ),
    Sign(
        name="state_shows_it.data",
        hypothesis=DATA,
        points=-6,
        condition=when(event=_BY_LOSS, replay=Replay.STATE),
        says="a placebo batch shows it as well",
    ),
    Sign(
        name="other_node.data",
        hypothesis=DATA,
        points=-6,
        condition=when(replay=Replay.NODE),
        says="another node does not show it with the same batch",
    ),
    Sign(
        name="other_node.optimizer",
        hypothesis=OPTIMIZER,
        points=-6,
        condition=when(replay=Replay.NODE),
        says="another node does not show it with the same state and configuration",
    ),
    Sign(
        name="not_reproduced.data",
        hypothesis=DATA,
        points=-3,
        condition=when(event=_BY_LOSS, replay=Replay.NOT_REPRODUCED),
        says="the batch does not show it again",
    ),
    Sign(
        name="not_reproduced.optimizer",
        hypothesis=OPTIMIZER,
        points=-3,
        condition=when(event=_BY_LOSS - _LEVELS, replay=Replay.NOT_REPRODUCED),
        says="it does not come again from the same state and configuration",
        reason="a level that stays, or climbs, raises ordinary batches as much as this one: there nothing could show",
    ),
    Sign(
        name="not_reproduced.hardware",
        hypothesis=HARDWARE,
        points=1,
        condition=when(event=_BY_LOSS, replay=Replay.NOT_REPRODUCED),
        says="it does not come again, as a fault of hardware would not; alone that proves nothing",
    ),
    Sign(
        name="one_rank_not_reproduced.hardware",
        hypothesis=HARDWARE,
        points=6,
        condition=_ONE_RANK_ALONE,
        says="NaN or infinity stood on one rank alone, and that rank's own microbatch is finite where it is replayed, "
        "from weights that all ranks had",
        reason="not alone, as row A8 has it: the other ranks show that the state was sound, the replay that the inputs "
        "were; six, since a race in the program would do the same",
    ),
    Sign(
        name="canary_differs.hardware",
        hypothesis=HARDWARE,
        points=8,
        condition=when(canary=Told.YES),
        says="on one batch, a device computes something else than another, beyond the run's own non-determinism",
        reason="with the point of its cell in the table nine",
    ),
    Sign(
        name="canary_differs.optimizer",
        hypothesis=OPTIMIZER,
        points=-3,
        condition=when(event=_BY_LOSS, canary=Told.YES),
        says="a device that computes wrongly moves the optimizer's traces as well",
    ),
    Sign(
        name="canary_agrees",
        hypothesis=HARDWARE,
        points=-2,
        condition=when(canary=Told.NO),
        says="devices agree on one batch",
    ),
    Sign(
        name="persistent",
        hypothesis=HARDWARE,
        points=4,
        condition=when(ranks=RankPattern.PERSISTENT),
        says="one rank stands out again and again, over different data",
    ),
    Sign(
        name="logs_clean.hardware",
        hypothesis=HARDWARE,
        points=-1,
        condition=when(event=all_events_but(), hardware_log=HardwareLog.CLEAN),
        says="logs of the machines cover node and time, and say nothing",
        reason="little: what corrupts silently writes no line",
    ),
    Sign(
        name="logs_clean.application",
        hypothesis=APPLICATION,
        points=-1,
        condition=when(event=all_events_but(), hardware_log=HardwareLog.CLEAN),
        says="logs of the machines cover node and time, and say nothing",
    ),
    Sign(
        name="logs_application.stall",
        hypothesis=APPLICATION,
        points=4,
        condition=when(event=EventClass.STALL, hardware_log=HardwareLog.APPLICATION),
        says="lines of the machine's log that usually mean the application match the node and the time",
    ),
    Sign(
        name="logs_application.other",
        hypothesis=APPLICATION,
        points=2,
        condition=when(event=_BY_LOSS, hardware_log=HardwareLog.APPLICATION),
        says="lines of the machine's log that usually mean the application match the node and the time",
        reason="such an error ends or hangs a process, it does not move a loss",
    ),
    Sign(
        name="stall.application",
        hypothesis=APPLICATION,
        points=1,
        condition=when(event=EventClass.STALL),
        says="a program that waits for ever makes no rows either",
    ),
    Sign(
        name="number_type.optimizer",
        hypothesis=OPTIMIZER,
        points=9,
        condition=when(event=_BY_LOSS, number_type=Told.YES),
        says="in float32 it does not happen on the same inputs: the number type does it",
    ),
    Sign(
        name="number_type.data",
        hypothesis=DATA,
        points=-6,
        condition=when(event=_BY_LOSS, number_type=Told.YES),
        says="in float32 the same batch does not show it",
    ),
    Sign(
        name="number_type.hardware",
        hypothesis=HARDWARE,
        points=-3,
        condition=when(event=_BY_LOSS, number_type=Told.YES),
        says="in float32 the same device does not show it",
    ),
    Sign(
        name="several_ranks.optimizer",
        hypothesis=OPTIMIZER,
        points=1,
        condition=when(event=EventClass.HARD_FAULT, finite=Finite.SEVERAL_RANKS),
        says="NaN or infinity stood on several ranks before anything was reduced",
    ),
    Sign(
        name="several_ranks.hardware",
        hypothesis=HARDWARE,
        points=-1,
        condition=when(event=EventClass.HARD_FAULT, finite=Finite.SEVERAL_RANKS),
        says="several ranks at once are no one device",
    ),
    Sign(
        name="one_rank.hardware",
        hypothesis=HARDWARE,
        points=1,
        condition=when(event=EventClass.HARD_FAULT, finite=Finite.ONE_RANK),
        says="NaN or infinity stood on one rank before anything was reduced",
        reason="that rank's samples, fed to that rank alone, would show the same: the other node tells",
    ),
)
"""Beside the eighteen cells of A16."""

SIGNS: tuple[Sign, ...] = SIGNATURE + OTHER_SIGNS
"""All contributions."""

_NOT_ONE_RANK = frozenset(Finite) - {Finite.ONE_RANK}

CAN_CONVICT: Mapping[Hypothesis, Condition] = {
    DATA: when(event=EventClass.HARD_BATCH) + when(event=_CURVES, replay=_OF_THE_BATCH),
    OPTIMIZER: when(event=_BY_LOSS, number_type=Told.YES)
    + when(event=_BY_LOSS, replay=Replay.STATE)
    + when(event=EventClass.HARD_FAULT, replay=_OF_THE_BATCH)
    + when(event=_TRACED - {EventClass.HARD_FAULT}, optimizer=Told.YES)
    + when(event=EventClass.HARD_FAULT, optimizer=Told.YES, finite=_NOT_ONE_RANK),
    HARDWARE: when(replay=Replay.NODE)
    + _ONE_RANK_ALONE
    + when(canary=Told.YES)
    + when(ranks=RankPattern.PERSISTENT)
    + when(event=all_events_but(), hardware_log=HardwareLog.HARDWARE),
    APPLICATION: when(event=EventClass.STALL, hardware_log=HardwareLog.APPLICATION),
}
"""Facts without one of which a hypothesis is never convicted, however many points it has."""


def can_convict(hypothesis: Hypothesis, evidence: Evidence) -> bool:
    """Whether there is a fact that may convict the hypothesis.

    >>> can_convict(Hypothesis.DATA, Evidence(event=EventClass.TRANSIENT_SPIKE, data=Told.YES))
    False
    """
    return any(
        all(getattr(evidence, name) in allowed for name, allowed in clause.items())
        for clause in CAN_CONVICT[hypothesis]
    )


def scores(evidence: Evidence) -> dict[Hypothesis, int]:
    """The points of each hypothesis.

    >>> scores(Evidence(event=EventClass.HARD_BATCH))[Hypothesis.DATA]
    6
    """
    points = dict.fromkeys(Hypothesis, 0)
    for sign in SIGNS:
        if sign.holds(evidence):
            points[sign.hypothesis] += sign.points
    return points
