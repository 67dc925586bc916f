"""What does row A16 say, cell by cell: six signals, and what each of three causes would show there?

Each of the eighteen cells is a `Sign`, a pure predicate over the facts; `cell` gives it, `SIGNATURE` all of them. Two
cells of the printed table say the same thing: of data, that the replay "disappears from a different checkpoint", of
hardware, that it "does not reproduce on a healthy node". A replay that shows nothing is predicted by both, and so
counts for neither; the *other node* tells them apart: the batch that shows it from this checkpoint wherever it is fed,
or the node that shows it with inputs for which another shows nothing.

Where the printed table is too strong, the cell has few points: a rank that stands out once counts little (of 512 ranks
one is above four sigmas at 1.6 % of the steps, by chance; `rates.chance_of_outlier`), and a mitigation that helped says
what helped, not what was wrong: a skip of several hundred batches passes by much else.
"""

from __future__ import annotations

from enum import StrEnum

from dataguard.core.evidence import Evidence, GradNorm, HardwareLog, Mitigation, RankPattern, Replay, Told
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose.signs import Condition, Hypothesis, Sign, all_events_but, when

__all__ = ["CAUSES", "SIGNATURE", "Signal", "cell", "signature"]


class Signal(StrEnum):
    """The rows of the table."""

    LOSS_SHAPE = "loss_shape"
    GRAD_NORM = "grad_norm"
    RANKS = "ranks"
    REPLAY = "replay"
    LOGS = "logs"
    MITIGATION = "mitigation"


DATA = Hypothesis.DATA
OPTIMIZER = Hypothesis.OPTIMIZER_OR_NUMERICS
HARDWARE = Hypothesis.HARDWARE

CAUSES = (DATA, OPTIMIZER, HARDWARE)
"""The columns of the table."""

_TRACED = all_events_but(EventClass.STALL, EventClass.HARD_BATCH)
"""Events of which the optimizer keeps a trace: a stall has no update, and a hard batch leaves no damage."""


def _cell(signal: Signal, cause: Hypothesis, points: int, condition: Condition, says: str, *, reason: str = "") -> Sign:
    return Sign(
        name=f"{signal}.{cause}", hypothesis=cause, points=points, condition=condition, says=says, reason=reason
    )


SIGNATURE: tuple[Sign, ...] = (
    _cell(
        Signal.LOSS_SHAPE,
        DATA,
        1,
        when(event=(EventClass.TRANSIENT_SPIKE, EventClass.HARD_BATCH, EventClass.LOSS_DIP)),
        "the loss leaves its trend for a short while and comes back",
    ),
    _cell(
        Signal.LOSS_SHAPE,
        OPTIMIZER,
        1,
        when(event=(EventClass.ABSORBING_SHIFT, EventClass.CREEPING_DRIFT)),
        "it does not come back, or climbs slowly",
    ),
    _cell(
        Signal.LOSS_SHAPE,
        HARDWARE,
        1,
        when(event=(EventClass.HARD_FAULT, EventClass.STALL)),
        "NaN or infinity at once, or no row arrives",
    ),
    _cell(
        Signal.GRAD_NORM,
        DATA,
        1,
        when(event=all_events_but(EventClass.STALL, EventClass.HARD_FAULT), grad_norm=GradNorm.BURST),
        "the gradient norm has one narrow burst",
    ),
    _cell(
        Signal.GRAD_NORM,
        OPTIMIZER,
        1,
        when(event=_TRACED, grad_norm=GradNorm.CLIMBING),
        "the gradient norm climbed for a long while before",
    ),
    _cell(
        Signal.GRAD_NORM,
        HARDWARE,
        1,
        when(event=all_events_but(EventClass.STALL), grad_norm=(GradNorm.NONFINITE, GradNorm.ZERO_ON_ONE_RANK)),
        "the gradient norm jumps to infinity, or is exactly zero on one rank",
    ),
    _cell(
        Signal.RANKS,
        DATA,
        1,
        when(event=all_events_but(EventClass.STALL), ranks=RankPattern.WITH_DATA),
        "the ranks that held the samples that stand out are the ranks that stand out",
    ),
    _cell(
        Signal.RANKS,
        OPTIMIZER,
        1,
        when(event=_TRACED, ranks=RankPattern.NONE),
        "no rank stands out: the cause is shared, as the update is",
    ),
    _cell(
        Signal.RANKS,
        HARDWARE,
        1,
        when(ranks=(RankPattern.ONE_RANK, RankPattern.PERSISTENT)) + when(canary=Told.YES),
        "one rank or host stands out, or a canary differs",
        reason="an outlier at one event happens by chance; what persists, and a canary, have points of their own",
    ),
    _cell(
        Signal.REPLAY,
        DATA,
        9,
        when(
            event=all_events_but(EventClass.STALL, EventClass.HARD_FAULT),
            replay=(Replay.BATCH, Replay.BATCH_FROM_THIS_STATE),
        ),
        "the batch shows it again from the same checkpoint, and a placebo batch does not",
        reason="the only proof against data (A8); of NaN it is none, since sound arithmetic makes none of any text",
    ),
    _cell(
        Signal.REPLAY,
        OPTIMIZER,
        6,
        when(event=_TRACED - {EventClass.HARD_FAULT}, replay=Replay.STATE, canary=(Told.NO, Told.UNKNOWN))
        + when(event=EventClass.HARD_BATCH, replay=Replay.STATE, canary=(Told.NO, Told.UNKNOWN)),
        "any batch shows it from this state: it lies in the state, or in the configuration",
        reason="six, not nine: hardware that computes wrongly damages the state too, and where a canary says that it "
        "does, the state says nothing more",
    ),
    _cell(
        Signal.REPLAY,
        HARDWARE,
        9,
        when(replay=Replay.NODE),
        "with equal inputs this node shows it and another does not",
        reason="the other node was asked; a replay that shows nothing would not tell hardware from data",
    ),
    _cell(
        Signal.LOGS,
        DATA,
        2,
        when(event=all_events_but(EventClass.STALL), data=Told.YES),
        "samples of the event stand out by signals, duplicates or shard, beyond the run's background",
    ),
    _cell(
        Signal.LOGS,
        OPTIMIZER,
        3,
        when(event=_TRACED, optimizer=Told.YES),
        "the optimizer's traces show it: logits, update ratios, second moments, rate or warm-up",
    ),
    _cell(
        Signal.LOGS,
        HARDWARE,
        4,
        when(event=all_events_but(), hardware_log=HardwareLog.HARDWARE),
        "a log line that means hardware matches the node and the time",
        reason="only with an event, whose node and time it can match",
    ),
    _cell(
        Signal.MITIGATION,
        DATA,
        3,
        when(event=all_events_but(EventClass.STALL), mitigation=Mitigation.SKIP),
        "it did not come again after a rewind and a skip",
    ),
    _cell(
        Signal.MITIGATION,
        OPTIMIZER,
        3,
        when(event=_TRACED, mitigation=Mitigation.CONFIGURATION),
        "it did not come again under another configuration",
    ),
    _cell(
        Signal.MITIGATION,
        HARDWARE,
        3,
        when(event=all_events_but(), mitigation=Mitigation.HOST),
        "it did not come again on another host, from the same checkpoint",
    ),
)
"""The eighteen cells, by row."""


def cell(signal: Signal, cause: Hypothesis) -> Sign:
    """One cell of the table.

    >>> cell(Signal.REPLAY, Hypothesis.HARDWARE).holds(Evidence(event=EventClass.HARD_FAULT, replay=Replay.NODE))
    True
    """
    return next(sign for sign in SIGNATURE if sign.name == f"{signal}.{cause}")


def signature(evidence: Evidence) -> dict[Signal, tuple[Hypothesis, ...]]:
    """Of each signal, the causes whose cell holds; none where nobody looked or where it fits none of them.

    >>> signature(Evidence(event=EventClass.TRANSIENT_SPIKE))[Signal.LOSS_SHAPE]
    (<Hypothesis.DATA: 'data'>,)
    """
    return {signal: tuple(cause for cause in CAUSES if cell(signal, cause).holds(evidence)) for signal in Signal}
