"""Which events does a whole log hold, and what is the least that it could have shown?

`detect` puts the rows of a log, one a step (of points logged again the later counts), through a `Detector`, or through
the rule of another profile, and says beside the events: at which steps something changed by intention (told, or seen in
the learning rate); the smallest lasting shift that is more than this log's own wander; and what could not be judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.errors import NotInRun
from dataguard.run.logs import TrainingLog, telemetry_names
from dataguard.triage.detect.changes import ChangePoint, changes_in
from dataguard.triage.detect.detector import Detector
from dataguard.triage.detect.drift import ATTENTION_LOGITS
from dataguard.triage.detect.faults import LOSS_SCALES
from dataguard.triage.detect.hearing import Hearing, hearing_of
from dataguard.triage.detect.profiles import DEFAULT, rule_of
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.tracker import LEAST_POINTS

__all__ = ["ChangePoint", "Detection", "detect", "judged_log", "smallest_visible_shift"]

_LEAST_BLOCKS = 16
"""Of fewer, most lie where a log falls steeply, and a scale of so few says little."""
_LEAST_BLOCK = 10
_EITHER_SIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What was found in one log."""

    profile: str
    events: tuple[SpikeEvent, ...]
    """In order of their start."""
    smallest_shift_nats: float | None
    """The least lasting shift of the loss that this log can show; None where it is too short to tell."""
    shift_block_points: int | None
    """Points of the means that it was taken from."""
    hearing: Hearing | None = field(default=None, compare=False, repr=False)
    """What each point would have had to do to make an event; None where the rule is not the default."""
    num_points: int
    """Steps with a point of the loss."""
    num_judged: int
    """Finite ones among them that had enough before them to be judged by the default."""
    changes: tuple[ChangePoint, ...]
    """Told, or seen in the log itself, in order of their steps."""
    notes: tuple[str, ...]
    """What could not be judged or taken as it is, for people."""


def detect(
    log: TrainingLog,
    *,
    profile: str = DEFAULT,
    changes: Iterable[int | ChangePoint] = (),
    settings: DetectorSettings | None = None,
    begun: Collection[int] = (),
) -> Detection:
    """The events of a log.

    Parameters
    ----------
    log
        Its names may be those of any trainer (`telemetry_names`).
    profile
        A name of `PROFILES`. Rules of others than the default know no classes: what they find is a `transient_spike`.
    changes
        Steps, in the log's labels, from which on things are otherwise by intention.
    settings
        Of the default profile.
    begun
        First steps of later attempts, in the log's labels: the pause before one is no stall.

    Raises
    ------
    NotInRun
        The log holds no loss.
    UsageError
        There is no such profile.

    Examples
    --------
    >>> from dataguard.run.logs.log import LogRows
    >>> rows = LogRows()
    >>> for step in range(300):
    ...     rows.add(step, {"loss": 3.0 + 0.01 * (-1) ** step + (0.5 if step == 200 else 0.0)})
    >>> [(each.event_class.value, each.start) for each in detect(rows.finish("a", "csv")).events]
    [('hard_batch', 200)]
    """
    found = judged_log(log)
    told = tuple(each if isinstance(each, ChangePoint) else ChangePoint(step=each) for each in changes)
    seen = changes_in(found)
    points = tuple(sorted({each.step: each for each in (*seen, *told)}.values(), key=lambda each: each.step))
    steps, loss = found.series("loss")
    hearing = None
    notes = [str(problem) for problem in log.problems]
    if profile == DEFAULT:
        detector = Detector(settings, changes=[each.step for each in points if each.moves_level])
        all_events, smallest = _walked(detector, found)
        events = _without_pauses(all_events, begun)
        hearing = hearing_of(steps, loss, smallest, all_events, detector.settings)
        if detector.num_forgotten:
            notes.append(f"{detector.num_forgotten:,} older events are counted, and not listed")
        for step, nats in detector.settled_changes():
            notes.append(f"from step {step:,} on the loss lies {nats:+.3g} nats off, after a change: no event")
    else:
        events = _ruled(found, profile)
    shift, block = smallest_visible_shift(loss, settings or DetectorSettings())
    return Detection(
        profile=profile,
        events=events,
        smallest_shift_nats=shift,
        shift_block_points=block,
        hearing=hearing,
        num_points=len(loss),
        num_judged=max(0, int(np.isfinite(loss).sum()) - LEAST_POINTS),
        changes=points,
        notes=tuple(notes),
    )


def _without_pauses(events: Iterable[SpikeEvent], begun: Collection[int]) -> tuple[SpikeEvent, ...]:
    """Events without the stalls that end where an attempt begins: nothing trained in between, so nothing stood still.

    Parameters
    ----------
    begun
        First steps of attempts, in the trainer's labels.

    Examples
    --------
    >>> stall = SpikeEvent(event_class=EventClass.STALL, start=7, stop=8, peak=6, size_nats=None, sigmas=None)
    >>> _without_pauses([stall], {7}), _without_pauses([stall], {9}) == (stall,)
    ((), True)
    """
    return tuple(event for event in events if event.event_class is not EventClass.STALL or event.start not in begun)


def judged_log(log: TrainingLog) -> TrainingLog:
    """One row a step, with ``loss``, ``grad_norm`` and ``lr`` by these names.

    Raises
    ------
    NotInRun
        The log holds no loss.
    """
    naming = telemetry_names(log.names)
    named = log.renamed(naming.names) if naming.names else log
    if "loss" not in named.names or not len(named.points["loss"]):
        undecided = naming.undecided.get("loss")
        raise NotInRun(
            f"{log.source} holds no loss, so nothing was judged",
            found=", ".join(undecided or log.names[:20]) or "nothing that was logged",
            todo="which of them is it? Leave one" if undecided else "name the one to judge: spikes LOG --loss NAME",
        )
    return named.wide()


def smallest_visible_shift(loss: NDArray[np.float64], settings: DetectorSettings) -> tuple[float | None, int | None]:
    """The least lasting shift that a log can show, and the points of the means it is taken from.

    `shift_factor` robust standard deviations of the difference of two neighbouring means of `num_aftermath` points (of
    fewer, where the log is shorter), so that wander counts that is slower than a point. The trend is no shift: of each
    difference the median of the two before and the two after it is taken away. Near the steep begin of a log that is
    too little, but the scale is robust.

    >>> falling = 8 - 0.001 * np.arange(4000) + 0.01 * np.random.default_rng(0).standard_normal(4000)
    >>> shift, points = smallest_visible_shift(falling, DetectorSettings())
    >>> points, shift < 0.01  # of white noise 4 x 0.01 x sqrt(2 / 200) = 0.004
    (200, True)
    """
    values = loss[np.isfinite(loss)]
    block = min(settings.num_aftermath, len(values) // _LEAST_BLOCKS)
    if block < _LEAST_BLOCK:
        return None, None
    whole = len(values) // block * block
    means = values[len(values) - whole :].reshape(-1, block).mean(axis=1)  # blocks x points
    steps = np.diff(means)
    windows = np.lib.stride_tricks.sliding_window_view(steps, 2 * _EITHER_SIDE + 1)  # windows x differences
    which = np.clip(np.arange(len(steps)) - _EITHER_SIDE, 0, len(windows) - 1)
    around = windows[which].copy()
    around[np.arange(len(steps)), np.arange(len(steps)) - which] = np.nan
    deviation = MAD_TO_SIGMA * float(np.median(np.abs(steps - np.nanmedian(around, axis=1))))
    return settings.shift_factor * deviation, block


def _walked(detector: Detector, log: TrainingLog) -> tuple[tuple[SpikeEvent, ...], NDArray[np.float64]]:
    """All rows of the log through the detector; and what each loss needed to begin an event, NaN where not judged."""
    smallest: list[float] = []
    looked_at = [name for name in log.names if name.startswith(ATTENTION_LOGITS) or name in LOSS_SCALES]
    columns: dict[str, list[float | None]] = {}
    for name in ("loss", "grad_norm", *looked_at):
        if name in log.names:
            missing = log.missing[name]
            columns[name] = [
                None if absent else value
                for value, absent in zip(log.values[name].tolist(), missing.tolist(), strict=True)
            ]
    empty: list[float | None] = [None] * len(log.steps)
    times = [None if time != time else time for time in log.times.tolist()]
    losses, grads = columns.get("loss", empty), columns.get("grad_norm", empty)
    others = [columns[name] for name in looked_at]
    observe = detector.observe
    for i, step in enumerate(log.steps.tolist()):
        loss, grad = losses[i], grads[i]
        if loss is not None:
            needed = detector.smallest_spike_nats if isfinite(loss) else None
            smallest.append(nan if needed is None else needed)
        more = {name: value for name, column in zip(looked_at, others, strict=True) if (value := column[i]) is not None}
        if loss is not None or grad is not None or more:
            observe(step, loss=loss, grad_norm=grad, time=times[i], more=more)
    return detector.finish(), np.array(smallest)


def _ruled(log: TrainingLog, profile: str) -> tuple[SpikeEvent, ...]:
    """Each stretch of alarms of a rule as an event."""
    steps, loss = log.series("loss")
    alarms = rule_of(profile)(loss)
    edges = np.flatnonzero(np.diff(np.r_[False, alarms, False].astype(np.int8)))
    events = []
    for first, stop in edges.reshape(-1, 2).tolist():  # stretches x (first, stop)
        part = loss[first:stop]
        finite = np.isfinite(part)
        before = loss[max(0, first - 100) : first]
        before = before[np.isfinite(before)]
        peak = first + (int(np.nanargmax(np.where(finite, part, np.nan))) if finite.any() else 0)
        size = float(loss[peak] - np.median(before)) if finite.any() and len(before) else None
        scale = MAD_TO_SIGMA * float(np.median(np.abs(before - np.median(before)))) if len(before) else 0.0
        events.append(
            SpikeEvent(
                event_class=EventClass.TRANSIENT_SPIKE,
                start=int(steps[first]),
                stop=int(steps[stop - 1]) + 1,
                peak=int(steps[peak]),
                size_nats=size,
                sigmas=size / scale if size is not None and scale else None,
                is_open=stop == len(loss),
            )
        )
    return tuple(events)
