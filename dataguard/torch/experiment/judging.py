"""Does a cell of the experiment show the event? Arithmetic on what was measured, nothing else.

A batch is held against ordinary batches from the very same state. With K placebo batches, of median m and scale
s = 1.4826 MAD, it stands out where it lies more than c(K) s above m. c(K) is the quantile of (x - m) / s, for x and
the K batches normal, that is exceeded once in a thousand times (computed by drawing 4 million sets; a loss is a mean
over thousands of tokens, so normal is what theory expects): eight cells together alarm falsely less than once in a
hundred experiments. Where the size of the event is known, a cell shows it where its excess is nearer to it, as a
ratio, than to what barely stands out (beyond the square root of their product): from another state the same batch has
another size. A cell that could not have shown the event, since batches differ by more, is unknown and not a no.

Each replay is repeated over the same horizon. What one batch ranges over the repeats, the cell's own or the median of
all batches, is what the run differs from itself. Where that is as big as what is to be told, the cell is unknown; so it
is where nothing shows, no size is known, and batches differ from each other by no more than each from itself.

A batch shows an event of the loss also where its loss is ordinary and its update raises the loss of other batches
(`damage_of`), by what would stand out or by half of the event: the loss of a step is that from before its update.

The *placebo* cell asks whether this state does it to anything: the same placebo batches are held against where they
are ordinary, on the other node, and for what rises on the earlier checkpoint (loss falls in training). Where all states
are in it, none of them is ordinary: so the batches are held against the *level* that the run logged before the event,
too. It counts where every one of them lies above it, for then they share what makes the event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Told
from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.torch.experiment.answers import CellResult, Measured, Signal, StateResult, number, spelled

__all__ = [
    "Asked",
    "Judged",
    "damage_of",
    "judge",
    "ordinary_of",
    "ordinary_threshold",
    "stands_out_factor",
    "value_of",
]

_FACTORS = {4: 36.1, 5: 32.8, 6: 14.6, 7: 14.0, 8: 9.47, 10: 7.43, 12: 6.38, 16: 5.26, 24: 4.39, 32: 3.99}
_MEDIAN_RANGES = {2: 0.954, 3: 1.588, 4: 1.978, 5: 2.257}  # of so many normal numbers, in standard deviations
_LEAST_SCALE = 1e-12  # relative: placebos that are all alike to the last bit

FloatArray = NDArray[np.float64]


def stands_out_factor(num_placebos: int) -> float:
    """c(K): robust standard deviations that one batch in a thousand exceeds by chance.

    >>> stands_out_factor(16), stands_out_factor(20)
    (5.26, 5.26)
    """
    return _FACTORS[max(each for each in _FACTORS if each <= num_placebos)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a cell is to show."""

    signal: Signal
    sign: int
    """1 where it rises, -1 where it falls."""
    effect: float | None
    """How far, above zero: nats, or natural logarithm of a ratio of gradient norms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Told of one cell, with its numbers (in the direction that was asked for)."""

    spikes: Told
    excess: float
    threshold: float
    spread: float
    text: str

    def cell(self, checkpoint: str, batch: str, node: str, sign: int) -> CellResult:
        """As the report has it."""
        return CellResult(
            checkpoint=checkpoint,  # type: ignore[arg-type]
            batch=batch,  # type: ignore[arg-type]
            node=node,  # type: ignore[arg-type]
            spikes=self.spikes,
            excess=spelled(sign * self.excess),
            threshold=spelled(sign * self.threshold),
            spread=spelled(self.spread),
            text=self.text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """One state as numbers, in the direction that was asked for; what is not finite is infinitely far."""

    batch: FloatArray
    """(R,)"""
    placebos: FloatArray
    """(R, K)"""

    @classmethod
    def of(cls, state: StateResult, asked: Asked) -> _State:
        return cls(
            batch=np.array([value_of(each.batch, asked) for each in state.repeats]),
            placebos=np.array([[value_of(placebo, asked) for placebo in each.placebos] for each in state.repeats]),
        )

    @property
    def baseline(self) -> float:
        """What a batch ranges over the repeats: the median of all batches."""
        ranges = np.append(_range(self.placebos), _range(self.batch))
        return float(_median(ranges))

    def differs_from_itself(self, scale: float) -> bool:
        """Whether batches, of this robust standard deviation, differ by no more than one does from itself.

        What was measured R times varies by s^2 = b^2 + n^2 / R, of b from batch to batch and n from repeat to repeat;
        it is told where b < n.
        """
        num_repeats = len(self.batch)
        noise = self.baseline / _MEDIAN_RANGES.get(num_repeats, _MEDIAN_RANGES[5])
        return bool(scale**2 < noise**2 * (1 + 1 / num_repeats))

    @property
    def ordinary(self) -> FloatArray:
        """Each placebo batch, median over the repeats: (K,)."""
        return _median(self.placebos, axis=0)


def value_of(measured: Measured, asked: Asked) -> float:
    """What is looked at, in the direction that was asked for; what is not finite is infinitely far."""
    loss, grad_norm = number(measured.loss), number(measured.grad_norm)
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        return math.inf
    return asked.sign * (loss if asked.signal == "loss" else math.log(max(grad_norm, 1e-300)))


def _range(values: FloatArray) -> FloatArray:
    """Over the repeats, the first axis; infinite where some are, and none where all are."""
    low, high = values.min(axis=0), values.max(axis=0)
    same = np.isinf(low) & np.isinf(high)
    return np.asarray(np.where(same, 0.0, high - np.where(same, 0.0, low)))


def _median(values: FloatArray, axis: int | None = None) -> FloatArray:
    """Of values that may be infinite; the lower of two that differ infinitely."""
    return np.asarray(np.quantile(values, 0.5, axis=axis, method="lower" if np.isinf(values).any() else "linear"))


def judge(
    states: Sequence[StateResult], asked: Asked, levels: Mapping[str, float] | None = None
) -> dict[tuple[str, str, str], Judged]:
    """What every cell that was measured shows, by (checkpoint, batch, name of the node).

    Parameters
    ----------
    states
        Of all nodes; each of at least two repeats and four placebo batches, the same ones everywhere.
    levels
        By checkpoint: what the run logged of ordinary batches before the event, in nats, where that can be compared.
    """
    results = {(each.checkpoint, each.node): each for each in states}
    known = {key: _State.of(each, asked) for key, each in results.items()}
    judged: dict[tuple[str, str, str], Judged] = {}
    for (checkpoint, node), state in known.items():
        like = [other for (c, _), other in known.items() if c == checkpoint]
        before = [other for (c, _), other in known.items() if c == "earlier"] if checkpoint == "before" else []
        # What falls in training anyhow may be lower now than earlier, and that shows nothing.
        reference = min([state, *like, *(before if asked.sign > 0 else [])], key=lambda each: _middle(each.ordinary))
        batch = _of_batch(state, reference, asked)
        judged[(checkpoint, "event", node)] = _with_damage(batch, results[(checkpoint, node)], reference, asked)
        judged[(checkpoint, "placebo", node)] = _of_placebos(state, reference, asked)
        if levels and checkpoint in levels and asked.signal == "loss" and asked.sign > 0:
            shared = _shared(state, reference, asked, levels[checkpoint])
            if shared is not None and judged[(checkpoint, "placebo", node)].spikes is not Told.YES:
                judged[(checkpoint, "event", node)], judged[(checkpoint, "placebo", node)] = shared
    return judged


def _middle(ordinary: FloatArray) -> float:
    return float(_median(ordinary))


def _scale(ordinary: FloatArray) -> float:
    """Robust standard deviation of ordinary batches; infinity where there are too few."""
    finite = ordinary[np.isfinite(ordinary)]
    if len(finite) < 4:
        return math.inf
    middle = float(np.median(finite))
    return max(MAD_TO_SIGMA * float(np.median(np.abs(finite - middle))), _LEAST_SCALE * max(1.0, abs(middle)))


def _threshold(ordinary: FloatArray) -> float:
    scale = _scale(ordinary)
    return math.inf if math.isinf(scale) else stands_out_factor(int(np.isfinite(ordinary).sum())) * scale


def _of_batch(state: _State, reference: _State, asked: Asked) -> Judged:
    ordinary = reference.ordinary
    middle = _middle(ordinary)
    excesses = state.batch - middle if math.isfinite(middle) else np.where(np.isinf(state.batch), math.inf, 0.0)
    return _told(excesses, state, reference, asked, what=f"the batch, against {ordinary.size} placebo batches")


def _with_damage(batch: Judged, result: StateResult, reference: _State, asked: Asked) -> Judged:
    """What a batch shows at once, or by its update."""
    if batch.spikes is Told.YES or asked.signal != "loss" or asked.sign < 0:
        return batch
    told, size = damage_of(result)
    needed = _threshold(reference.ordinary) if asked.effect is None else asked.effect / 2
    if told is not Told.YES or (size is not None and size <= needed):
        return batch
    by = "to what is not finite" if size is None else f"by {size:.4g} nats (has to exceed {needed:.4g})"
    return replace(batch, spikes=Told.YES, text=f"{batch.text}; its update raises the loss of other batches {by}")


def _of_placebos(state: _State, reference: _State, asked: Asked) -> Judged:
    if not np.isfinite(reference.ordinary).any():
        excesses = np.where(np.isinf(state.placebos).all(axis=1), math.inf, 0.0)
    else:
        comparable = np.isfinite(reference.ordinary)
        excesses = np.array(
            [float(_median(row[comparable] - reference.ordinary[comparable])) for row in state.placebos]
        )
    what = "placebo batches, against themselves where they are lowest" if state is not reference else "placebo batches"
    return _told(excesses, state, reference, asked, what=what)


def _shared(state: _State, reference: _State, asked: Asked, level: float) -> tuple[Judged, Judged] | None:
    """The batch and the placebo batches against the level from before the event, where all of them lie above it."""
    if not (np.isfinite(state.placebos).all() and (state.placebos > level).all() and np.isfinite(state.batch).all()):
        return None
    where = f"against {level:.4g}, which the run logged before the event"
    batch = _told(state.batch - level, state, reference, asked, what=f"the batch, {where}")
    excesses = np.asarray(_median(state.placebos, axis=1)) - level
    placebo = _told(excesses, state, reference, asked, what=f"placebo batches, {where}")
    return (batch, placebo) if batch.spikes is placebo.spikes is Told.YES else None


def _told(excesses: FloatArray, state: _State, reference: _State, asked: Asked, *, what: str) -> Judged:
    """One cell of R repeats."""
    threshold, baseline = _threshold(reference.ordinary), state.baseline
    unit = "nats" if asked.signal == "loss" else "in log gradient norm"
    if np.isinf(excesses).any():
        everywhere = bool(np.isinf(excesses).all())
        return Judged(
            spikes=Told.YES if everywhere else Told.UNKNOWN,
            excess=math.inf,
            threshold=threshold,
            spread=0.0 if everywhere else math.inf,
            text=f"{what}: not finite in {int(np.isinf(excesses).sum())} of {len(excesses)} repeats",
        )
    needed = threshold if asked.effect is None else max(threshold, math.sqrt(threshold * asked.effect))
    excess, spread = float(np.median(excesses)), max(float(np.ptp(excesses)), baseline)
    text = f"{what}: {asked.sign * excess:+.4g} {unit} (has to exceed {needed:.4g}), {spread:.2g} between repeats"
    hits = excesses > needed
    if hits.all() and spread < excess:
        told = Told.YES
    elif (
        hits.any()
        or spread >= (needed if asked.effect is None else asked.effect)
        or (asked.effect is None and state.differs_from_itself(_scale(reference.ordinary)))
    ):
        told, text = Told.UNKNOWN, f"{text}: the replay differs from itself by as much"
    elif asked.effect is not None and threshold >= asked.effect:
        told, text = Told.UNKNOWN, f"{text}: an event of {asked.effect:.4g} would not be told from ordinary batches"
    else:
        told = Told.NO
    return Judged(spikes=told, excess=excess, threshold=needed, spread=spread, text=text)


def ordinary_of(state: StateResult, asked: Asked) -> float:
    """Median of the placebo batches, in the direction that was asked for."""
    return _middle(_State.of(state, asked).ordinary)


def ordinary_threshold(state: StateResult) -> float:
    """What a batch of this state has to exceed to stand out, in nats; infinity where nothing is ordinary."""
    return _threshold(_State.of(state, Asked(signal="loss", sign=1, effect=None)).ordinary)


def damage_of(state: StateResult) -> tuple[Told, float | None]:
    """Whether the update of the batch leaves the losses of other batches higher than an ordinary update does.

    The same placebo batches are measured before the updates and after each: damage is where every one of them rose, and
    rose more than after the ordinary update, in every repeat, and where most of the rise is the batch's own (an update
    by anything may raise the loss where the rate is too high). Of K batches that rise or fall by chance all rise once
    in 2^K times, so fewer than seven tell nothing. The second number is the median of the difference, in nats.
    """
    rose, more, ordinary = [], [], []
    for each in state.repeats:
        before = np.array([number(p.loss) for p in each.placebos[: len(each.after_batch)]])
        after, control = (np.array([number(v) for v in values]) for values in (each.after_batch, each.after_placebo))
        if len(after) < 7 or len(control) != len(after):
            return Told.UNKNOWN, None
        if not np.isfinite(before).all() or not np.isfinite(control).all():
            return Told.UNKNOWN, None
        after = np.where(np.isfinite(after), after, math.inf)
        rose.append(after - before)
        more.append(after - control)
        ordinary.append(control - before)
    risen, differences = np.array(rose), np.array(more)
    size = float(_median(differences.ravel()))
    spread = float(np.ptp(_median(differences, axis=1))) if np.isfinite(differences).all() else 0.0
    most = size > max(0.0, float(np.median(np.array(ordinary))))
    if (risen > 0).all() and (differences > 0).all() and size > spread and most:
        return Told.YES, size if math.isfinite(size) else None
    if math.isfinite(size) and spread >= abs(size) > 0:
        return Told.UNKNOWN, size
    return Told.NO, size if math.isfinite(size) else None
