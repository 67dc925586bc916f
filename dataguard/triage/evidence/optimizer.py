"""Do the optimizer's traces show signs of an unstable configuration at an event?

What is looked at, each by itself, with what makes it a sign:

1. **Repeated events** (A10). Published runs of healthy configuration spiked about once in 12,750 steps; so many
   damaging events within a stretch that their Poisson chance at that rate is below 1 in 10,000.
2. **Climbing** attention logits, gradient norm or log Z ahead of the event (A2 to A4, up to 2,000 steps). A rank test
   of trend (Mann-Kendall) on the medians of ten blocks, below 1 in 1,000 over all series together; the last block at
   least twice the first (twice the logits are the square of the odds); and no levelling off, the second half adds at
   least three quarters of what the first did: a growth that slows down is what every young model shows.
3. **Update ratios** (A12): the rms over a block of parameters lies above (1 - beta1) / sqrt(1 - beta2), what one
   outlier gradient can give a coordinate: then a whole block moves in one direction. Under noise it is
   sqrt((1 - beta1) / (1 + beta1)). Not looked at in the first 1 / (1 - beta2) steps, in which every ratio is near one.
4. **Second moments at the epsilon floor** (A15): the median coordinate of a block has sqrt(v) below ten epsilon. Of
   embeddings and heads it is told and no sign: it follows which tokens occur, and grows in healthy runs as well.
5. **The learning rate near its peak**: at half of it or more, and no longer after the end of the warm-up than the
   warm-up lasted.
6. **A short warm-up** (C21): below 1 % of all steps, and the event within the 300 steps after it in which second
   moments adapt.
7. **Spikes that grow**: each of the last five larger than the one before, by chance once in 120.

Hard batches and dips are no damage and count nowhere here. The answer is *no* only where something inside the model or
the optimizer was logged (logits, update ratios, second moments) and shows nothing; a gradient norm and a rate alone
that show nothing are *unknown*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Told
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.run.logs import TrainingLog

__all__ = ["STEPS_PER_SPIKE", "OptimizerSign", "SignKind", "climbs", "optimizer_signs", "signs_found"]

STEPS_PER_SPIKE = 12_750
"""Steps a spike of a run that was published as stable: about 20 in about 255,000 (PaLM, 2022, section 5.1)."""
_REPEATED_CHANCE = 1e-4
_STRETCH_STEPS = 2_000
_NUM_BLOCKS = 10
_TREND_CHANCE = 1e-3
_LEAST_GROWTH = 2.0
_KEEPS_GROWING = 0.75
_MOST_FLOOR_SHARE = 0.5
_SHORT_WARMUP = 0.01
_MOMENTS_ADAPT_STEPS = 300
_NUM_GROWING = 5

_DAMAGING = frozenset(EventClass) - {EventClass.HARD_BATCH, EventClass.LOSS_DIP, EventClass.STALL}
_CLIMBING = ("attention_logit_max", "log_z", "grad_norm")
_INSIDE = ("attention_logit_max", "update_ratio_rms", "epsilon_floor_share")
_EMBEDDINGS = ("emb", "wte", "wpe", "tok", "head")


class SignKind(StrEnum):
    """What a sign is of, so that what answers it can be named."""

    REPEATED = "repeated"
    CLIMBING_ATTENTION_LOGITS = "climbing_attention_logits"
    CLIMBING_LOG_Z = "climbing_log_z"
    CLIMBING_GRAD_NORM = "climbing_grad_norm"
    UPDATE_RATIO = "update_ratio"
    EPSILON_FLOOR = "epsilon_floor"
    NEAR_PEAK = "near_peak"
    SHORT_WARMUP = "short_warmup"
    GROWING = "growing"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSign:
    """One sign that was found."""

    kind: SignKind
    text: str
    """With its block, head, step and numbers."""


_CLIMBS_OF = {
    "attention_logit_max": SignKind.CLIMBING_ATTENTION_LOGITS,
    "log_z": SignKind.CLIMBING_LOG_Z,
    "grad_norm": SignKind.CLIMBING_GRAD_NORM,
}


@dataclass(slots=True)
class _Looked:
    """What was found, and what was looked at."""

    signs: list[OptimizerSign]
    quiet: list[str]
    inside: bool = False


def optimizer_signs(
    log: TrainingLog,
    event: SpikeEvent | None,
    events: Sequence[SpikeEvent],
    facts: TrainerFacts,
) -> tuple[Told, tuple[str, ...]]:
    """Signs of the optimizer at an event.

    Parameters
    ----------
    log
        Of one rank, under the names of telemetry; steps in the trainer's labels.
    event
        None: nothing is asked.
    events
        All events of the log, the asked one among them.
    facts
        What the trainer said; what it did not say is not assumed.

    Returns
    -------
    tuple
        Yes, where there is a sign; no, where the inside of model or optimizer was logged and shows none; else unknown.
        And texts: each sign with its block, head, step and numbers; where there is none, what was looked at.
    """
    told, signs, quiet = signs_found(log, event, events, facts)
    return told, tuple(sign.text for sign in signs) or quiet


def signs_found(
    log: TrainingLog,
    event: SpikeEvent | None,
    events: Sequence[SpikeEvent],
    facts: TrainerFacts,
) -> tuple[Told, tuple[OptimizerSign, ...], tuple[str, ...]]:
    """The same, each sign with what it is of; and, where there is none, texts of what was looked at."""
    if event is None:
        return Told.UNKNOWN, (), ()
    wide = log.wide()
    looked = _Looked(signs=[], quiet=[])
    begin = event.start if event.onset is None else min(event.onset, event.start)
    for kind, text in (
        (SignKind.REPEATED, _repeated(event, events)),
        (SignKind.GROWING, _growing(event, events)),
        *_climbing(wide, event, begin, looked),
        *((SignKind.UPDATE_RATIO, text) for text in _update_ratios(wide, event, begin, facts, looked)),
        *((SignKind.EPSILON_FLOOR, text) for text in _floors(wide, event, looked)),
        (SignKind.NEAR_PEAK, _near_peak(wide, begin, facts, looked)),
        (SignKind.SHORT_WARMUP, _short_warmup(begin, facts, looked)),
    ):
        if text is not None:
            looked.signs.append(OptimizerSign(kind=kind, text=text))
    if looked.signs:
        return Told.YES, tuple(looked.signs), ()
    if looked.inside:
        return Told.NO, (), tuple(looked.quiet)
    nothing = "no attention logits, update ratios or second moments were logged there"
    return Told.UNKNOWN, (), (*looked.quiet, nothing)


def climbs(values: NDArray[np.float64], *, chance: float) -> tuple[float, float] | None:
    """Whether a series climbs to its end: the medians of its first and last block, or None where it does not.

    Parameters
    ----------
    values
        Shape (n,), in order of their steps; those that are not finite or not above 0 are left out.
    chance
        How often a series without a trend may be taken for one that climbs.

    Examples
    --------
    >>> steps = np.arange(100)
    >>> climbs(1.0 + steps, chance=1e-3)
    (5.5, 95.5)
    >>> climbs(np.sqrt(steps + 1.0), chance=1e-3) is None  # it levels off
    True
    """
    good = np.isfinite(values) & (values > 0)
    values = values[good]
    if len(values) < _NUM_BLOCKS:
        return None
    medians = np.array([float(np.median(part)) for part in np.array_split(values, _NUM_BLOCKS)])
    pairs = np.sign(medians[None, :] - medians[:, None])
    if _trend_chance(int(np.triu(pairs, 1).sum()), _NUM_BLOCKS) > chance:
        return None
    first, last = float(medians[0]), float(medians[-1])
    middle = float(medians[_NUM_BLOCKS // 2 - 1] + medians[_NUM_BLOCKS // 2]) / 2
    if last < first * _LEAST_GROWTH or last - middle < (middle - first) * _KEEPS_GROWING:
        return None
    return first, last


@cache
def _trend_chance(concordant: int, count: int) -> float:
    """The chance of Kendall's S of at least `concordant` without a trend, exactly, by the number of inversions."""
    ways = [1]
    for size in range(2, count + 1):
        longer = [0] * (len(ways) + size - 1)
        for inversions, number in enumerate(ways):
            for more in range(size):
                longer[inversions + more] += number
        ways = longer
    most = count * (count - 1) // 2
    inversions = (most - concordant) // 2
    return sum(ways[: inversions + 1]) / math.factorial(count)


def _repeated(event: SpikeEvent, events: Sequence[SpikeEvent]) -> str | None:
    """The stretch that ends with the event and holds so many others that chance hardly gives them."""
    damaging = {each.start for each in events if each.event_class in _DAMAGING and each.start <= event.start}
    before = sorted(damaging | {event.start})
    if event.event_class not in _DAMAGING or len(before) < 2:
        return None
    for first in before[:-1]:
        count, steps = sum(start >= first for start in before), event.start - first + 1
        if steps <= _STRETCH_STEPS and _poisson_tail(count, steps / STEPS_PER_SPIKE) < _REPEATED_CHANCE:
            return (
                f"{count:,} damaging events within {steps:,} steps, up to step {event.start:,}; a stable run has one "
                f"in {STEPS_PER_SPIKE:,}"
            )
    return None


def _poisson_tail(count: int, mean: float) -> float:
    below = sum(math.exp(-mean + each * math.log(mean) - math.lgamma(each + 1)) for each in range(count))
    return max(0.0, 1.0 - below)


def _growing(event: SpikeEvent, events: Sequence[SpikeEvent]) -> str | None:
    sized = sorted(
        (each.start, each.size_nats)
        for each in events
        if each.event_class in _DAMAGING and each.start <= event.start and each.size_nats is not None
    )
    last = [size for _, size in sized[-_NUM_GROWING:]]
    if len(last) < _NUM_GROWING or any(after <= before for before, after in pairwise(last)):
        return None
    return (
        f"each of the last {_NUM_GROWING} events was larger than the one before: {last[0]:.2g} to {last[-1]:.2g} nats"
    )


def _climbing(wide: TrainingLog, event: SpikeEvent, begin: int, looked: _Looked) -> Iterator[tuple[SignKind, str]]:
    series = [
        (name, steps, values)
        for name, steps, values in _named(wide, _CLIMBING, begin - _STRETCH_STEPS, begin)
        if len(values) >= _NUM_BLOCKS
    ]
    for name, steps, values in series:
        looked.inside |= name.startswith("attention_logit_max")
        found = climbs(values, chance=_TREND_CHANCE / len(series))
        if found is None:
            looked.quiet.append(f"{name} does not climb in steps {steps[0]:,}:{begin:,}")
        else:
            yield (
                _CLIMBS_OF[name.partition("/")[0]],
                f"{name} climbs from {found[0]:.3g} to {found[1]:.3g} in steps {steps[0]:,}:{begin:,}",
            )
    drifting = event.signal.partition("/")[0]
    if event.event_class is EventClass.CREEPING_DRIFT and drifting in _CLIMBING:
        yield _CLIMBS_OF[drifting], f"the drift itself is of {event.signal}, from step {event.start:,} on"


def _update_ratios(
    wide: TrainingLog, event: SpikeEvent, begin: int, facts: TrainerFacts, looked: _Looked
) -> Iterator[str]:
    beta1, beta2 = facts.optimizer.beta1, facts.optimizer.beta2
    if beta1 is None or beta2 is None or not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        return
    bound = (1 - beta1) / math.sqrt(1 - beta2)
    first = int(wide.steps[0]) if len(wide.steps) else 0
    young = first + math.ceil(1 / (1 - beta2))
    # An update that blows up does so at the event's begin or the step before; a sampled log may hold neither.
    for name, steps, values in _named(wide, ("update_ratio_rms",), max(young, begin - _reach(wide)), event.stop):
        looked.inside = True
        place = int(np.argmax(values))
        if values[place] > bound:
            yield (
                f"{name} is {values[place]:.3g} at step {steps[place]:,}, above {bound:.3g}, what one outlier gradient "
                f"can give; noise gives {math.sqrt((1 - beta1) / (1 + beta1)):.2g}"
            )
        else:
            looked.quiet.append(f"{name} is at most {values[place]:.3g}, and may be {bound:.3g}")


def _floors(wide: TrainingLog, event: SpikeEvent, looked: _Looked) -> Iterator[str]:
    for name, steps, values in _named(wide, ("epsilon_floor_share",), 0, event.stop):
        looked.inside = True
        share = float(values[-1])
        part = name.partition("/")[2].lower()
        said = f"{share:.0%} of second moments lie at the epsilon floor at step {steps[-1]:,}"
        if any(each in part for each in _EMBEDDINGS):
            looked.quiet.append(f"{name}: {said}, as rows of tokens that hardly occur do")
        elif share >= _MOST_FLOOR_SHARE:
            yield f"{name}: {said}"
        else:
            looked.quiet.append(f"{name} is {share:.0%} at step {steps[-1]:,}")


def _near_peak(wide: TrainingLog, begin: int, facts: TrainerFacts, looked: _Looked) -> str | None:
    rates = next((each for each in _named(wide, ("lr",), 0, None) if each[0] == "lr" and len(each[2])), None)
    warmup = facts.schedule.warmup_steps
    if rates is None:
        return None
    _, steps, values = rates
    peak = float(values.max())
    end = int(steps[int(np.argmax(values >= peak * (1 - 1e-9)))])
    lasted = warmup if warmup is not None else end - int(steps[0])
    before = values[steps <= begin]
    if lasted < 1 or not len(before) or peak <= 0:
        return None
    rate = float(before[-1])
    # The largest rate so far is no peak while the log ends in the warm-up, unless the trainer says how long that is.
    is_climbing = end == int(steps[-1]) and (warmup is None or end - int(steps[0]) < warmup)
    if rate >= peak / 2 and begin <= end + lasted and not is_climbing:
        return (
            f"at step {begin:,} the learning rate is {rate:.3g}, {rate / peak:.0%} of its peak, which it reaches at "
            f"step {end:,} after {lasted:,} steps of warm-up"
        )
    looked.quiet.append(f"the learning rate is {rate / peak:.0%} of its peak of step {end:,}")
    return None


def _short_warmup(begin: int, facts: TrainerFacts, looked: _Looked) -> str | None:
    warmup, total = facts.schedule.warmup_steps, facts.schedule.total_steps
    if warmup is None or total is None:
        return None
    share = warmup / total
    if share >= _SHORT_WARMUP:
        looked.quiet.append(f"warm-up is {share:.2%} of all steps")
        return None
    if begin > warmup + _MOMENTS_ADAPT_STEPS:
        looked.quiet.append(f"warm-up is {share:.2%} of all steps, and ended {begin - warmup:,} steps before")
        return None
    return f"warm-up is {share:.2%} of all steps ({warmup:,} of {total:,}), below {_SHORT_WARMUP:.0%}"


def _reach(wide: TrainingLog) -> int:
    """Steps to look back so that a value that is sampled every so often is met once."""
    spans = [int(np.median(np.diff(wide.steps[points.rows]))) for points in wide.points.values() if len(points) > 1]
    return max(spans, default=1)


def _named(
    wide: TrainingLog, metrics: Sequence[str], start: int, stop: int | None
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.float64]]]:
    """Series of some metrics, of each part, in ``start:stop``, without what is not finite; never one without points."""
    for name in wide.names:
        if name.partition("/")[0] in metrics:
            steps, values = wide.series(name)
            inside = (steps >= start) & np.isfinite(values)
            if stop is not None:
                inside &= steps < stop
            if inside.any():
                yield name, steps[inside], values[inside]
