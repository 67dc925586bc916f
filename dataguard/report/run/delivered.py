"""What was delivered on a lineage, counted: signals over time, what was withheld, and the mixture against the plan?

One pass over the record. Whatever is counted is counted into tables of a fixed size (stretches of steps by source, by
status, by the 256 values of a byte), so memory does not grow with the run.

1. Signals over time are of samples that were delivered as planned: what stands beside a substitute was measured of the
   row that it replaces.
2. A quantile is the least value that so many samples do not exceed. Signals are kept in a byte a sample, so a quantile
   is right to the resolution that its curve names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.plan.attempts import in_force
from dataguard.plan.slots import SlotStatus
from dataguard.report.run.curves import rounded
from dataguard.report.run.facts import SignalCurve, SourceShare, WithheldOfSource
from dataguard.report.run.lineage import Lineage, Owned
from dataguard.report.run.parts import Columns, columns_of_record
from dataguard.run.headline import decode, encode, scale_of
from dataguard.run.policies import policy_of
from dataguard.run.records import HEADLINE_PREFIX
from dataguard.score.registry import HEADLINE, spec_of

__all__ = ["MOST_STRETCHES", "NOTHING", "DeliveredFacts", "delivered_facts", "quantile"]

MOST_STRETCHES = 200
_LEAST_SAMPLES = 64  # of a stretch: quantiles of fewer say more of chance than of the data
_LENGTH = "length_bytes"
_LENGTH_SCALE = "length_tokens"
"""A scale from 1 on whose levels lie 8 % apart: fit for lengths of any kind."""
_QUANTILES = (0.05, 0.5, 0.95)
_STATUSES = tuple(SlotStatus)
_COLUMNS = ("step", "source", "status", "rules", "length")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredFacts:
    """What is on the page of it."""

    num_steps: int
    """Complete steps of which anything was recorded."""
    num_samples: int
    """Delivered, substitutes among them."""
    signals: tuple[SignalCurve, ...]
    withheld: tuple[WithheldOfSource, ...]
    mixture: tuple[SourceShare, ...]
    stretches: tuple[int, ...]
    """First step of each, in the trainer's labels."""


NOTHING = DeliveredFacts(num_steps=0, num_samples=0, signals=(), withheld=(), mixture=(), stretches=())
"""Of a run that has delivered nothing, or of which nothing can be read."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Tally:
    """Tables that are counted into."""

    first: int
    """First step, from 0."""
    width: int
    """Steps of a stretch."""
    num: int
    """Stretches."""
    names: tuple[str, ...]
    """Sources, in the order of their bytes."""
    steps: NDArray[np.bool_]
    slots: NDArray[np.int64]
    """Shape (sources, statuses)."""
    delivered: NDArray[np.int64]
    """Shape (sources, stretches)."""
    lengths: NDArray[np.int64]
    """Sum by source."""
    bytes_: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """By signal: how many samples of a stretch have a byte; shape (stretches, 256)."""
    rules: dict[str, Counter[str]] = field(default_factory=dict)
    """By source and rule."""

    def add(self, columns: Columns, sources: NDArray[np.int64], rules: dict[int, str], *, with_length: bool) -> None:
        """Count records; `sources` gives the place among `names` of the attempt's own numbers."""
        source, status = sources[columns["source"].astype(np.int64)], columns["status"].astype(np.int64)
        at = columns["step"].astype(np.int64) - self.first
        self.steps[at] = True
        stretch = at // self.width
        num_statuses, num_sources = len(_STATUSES), len(self.names)
        keys = source * num_statuses + status
        self.slots += np.bincount(keys, minlength=self.slots.size).reshape(self.slots.shape)
        out = (status == SlotStatus.LIVE) | (status == SlotStatus.SUBSTITUTED)
        places = source[out] * self.num + stretch[out]
        self.delivered += np.bincount(places, minlength=self.delivered.size).reshape(self.delivered.shape)
        length = columns["length"].astype(np.int64)
        np.add.at(self.lengths, source[out], length[out])
        live = np.flatnonzero(status == SlotStatus.LIVE)
        if with_length:
            self._count(_LENGTH, stretch[live], encode(_LENGTH_SCALE, length[live]))
        for name, values in columns.items():
            if name.startswith(HEADLINE_PREFIX):
                self._count(name[len(HEADLINE_PREFIX) :], stretch[live], values[live])
        fired = np.flatnonzero(columns["rules"])
        bits = columns["rules"][fired].astype(np.uint64)
        every = int(np.bitwise_or.reduce(bits)) if len(bits) else 0
        for bit in range(every.bit_length()):
            mine = source[fired[(bits >> np.uint64(bit)) & np.uint64(1) > 0]]
            for place, count in enumerate(np.bincount(mine, minlength=num_sources).tolist()):
                if count:
                    self.rules.setdefault(self.names[place], Counter())[rules.get(bit, f"rule {bit}")] += count

    def _count(self, signal: str, stretch: NDArray[np.int64], bytes_: NDArray[np.uint8]) -> None:
        table = self.bytes_.setdefault(signal, np.zeros((self.num, 256), np.int64))
        table += np.bincount(stretch * 256 + bytes_, minlength=table.size).reshape(table.shape)


def delivered_facts(lineage: Lineage) -> DeliveredFacts:
    """Count the complete steps of a lineage."""
    steps = lineage.steps
    if steps is None:
        return NOTHING
    run = lineage.run
    own = [each for each in lineage.owned if each.first < each.stop]
    streams = {each.attempt.number: run.stream_of(each.attempt.number) for each in own}
    names = sorted({name for stream in streams.values() for name in stream.source_names}, key=str.encode)
    size = run.steps_of(own[0].attempt.number, lineage.read).size_of(steps[0])
    width = max(-(-(steps[1] - steps[0]) // MOST_STRETCHES), -(-_LEAST_SAMPLES // size))
    num = -(-(steps[1] - steps[0]) // width)
    tally = _Tally(
        first=steps[0],
        width=width,
        num=num,
        names=tuple(names),
        steps=np.zeros(steps[1] - steps[0], np.bool_),
        slots=np.zeros((len(names), len(_STATUSES)), np.int64),
        delivered=np.zeros((len(names), num), np.int64),
        lengths=np.zeros(len(names), np.int64),
    )
    form = run.plan_document().root.form
    headline = HEADLINE["text" if form == "document" else "tokens"]
    wanted = (*_COLUMNS, *(HEADLINE_PREFIX + name for name in headline))
    for each in own:
        places = np.array([names.index(name) for name in streams[each.attempt.number].source_names], np.int64)
        rules = _rule_names(lineage, each.attempt.number)
        for columns in columns_of_record(lineage, each, wanted):
            tally.add(columns, places, rules, with_length=form == "document")
    firsts = [steps[0] + k * width for k in range(num)]
    return DeliveredFacts(
        num_steps=int(np.count_nonzero(tally.steps)),
        num_samples=int(tally.delivered.sum()),
        signals=_signals(tally, (_LENGTH, *headline), [run.label(step) for step in firsts]),
        withheld=_withheld(tally),
        mixture=_mixture(lineage, own, tally, firsts, is_bytes=form == "document"),
        stretches=tuple(run.label(step) for step in firsts),
    )


def _rule_names(lineage: Lineage, attempt: int) -> dict[int, str]:
    try:
        policy = policy_of(lineage.run, attempt)
    except RunDamaged as error:
        lineage.damage.append(f"rules of attempt {attempt} are told by number: {str(error).splitlines()[0]}")
        return {}
    return {} if policy is None else {rule.bit: rule.name for rule in policy.rules}


def quantile(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """The byte that a share of the samples of each stretch does not exceed; 0 where there are none.

    Parameters
    ----------
    counts
        Shape (stretches, 256); byte 0 says that there is no value, and does not count.

    >>> table = np.zeros((2, 256), np.int64)
    >>> table[0, [0, 7, 9]] = 5, 3, 1
    >>> quantile(table, 0.5).tolist(), quantile(table, 0.95).tolist()
    ([7, 0], [9, 0])
    """
    known = counts.copy()
    known[:, 0] = 0
    below = known.cumsum(axis=1)
    needed = np.maximum(np.ceil(share * below[:, -1] - 1e-9), 1)
    return np.where(below[:, -1] > 0, (below >= needed[:, None]).argmax(axis=1), 0)


def _signals(tally: _Tally, order: Sequence[str], labels: Sequence[int]) -> tuple[SignalCurve, ...]:
    curves = []
    for name in order:
        counts = tally.bytes_.get(name)
        if counts is None or not counts[:, 1:].any():
            continue
        scale = _LENGTH_SCALE if name == _LENGTH else name
        low, median, high = (
            rounded(decode(scale, quantile(counts, share).astype(np.uint8)).tolist()) for share in _QUANTILES
        )
        unit = spec_of(name).unit
        curves.append(
            SignalCurve(
                name=name,
                unit=unit,
                steps=tuple(labels),
                low=low,
                median=median,
                high=high,
                num_samples=tuple(counts[:, 1:].sum(axis=1).tolist()),
                note=f"told in {scale_of(scale).resolution}" if name != _LENGTH else "told in steps of 8 %",
            )
        )
    return tuple(curves)


def _withheld(tally: _Tally) -> tuple[WithheldOfSource, ...]:
    kept = (SlotStatus.LIVE, SlotStatus.ENDED)
    told = []
    for name, counts in zip(tally.names, tally.slots.tolist(), strict=True):
        num_slots = sum(count for status, count in zip(_STATUSES, counts, strict=True) if status != SlotStatus.ENDED)
        told.append(
            WithheldOfSource(
                source=name,
                num_slots=num_slots,
                by_status={
                    status.name.lower(): count
                    for status, count in zip(_STATUSES, counts, strict=True)
                    if count and status not in kept
                },
                by_rule=dict(tally.rules.get(name, Counter()).most_common()),
            )
        )
    return tuple(told)


def _mixture(
    lineage: Lineage, own: Sequence[Owned], tally: _Tally, firsts: Sequence[int], *, is_bytes: bool
) -> tuple[SourceShare, ...]:
    asked, over_time = _asked(lineage, own, firsts)
    total, by_stretch = int(tally.delivered.sum()), tally.delivered.sum(axis=0)
    shares = []
    for place, name in enumerate(tally.names):
        counts = tally.delivered[place]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = counts / by_stretch
        shares.append(
            SourceShare(
                source=name,
                asked=None if asked is None else rounded([asked.get(name, 0.0)])[0],
                asked_over_time=rounded([each.get(name, 0.0) for each in over_time]),
                delivered=int(counts.sum()) / total if total else None,
                num_delivered=int(counts.sum()),
                over_time=rounded(share.tolist()),
                num_bytes=int(tally.lengths[place]) if is_bytes else None,
            )
        )
    return tuple(shares)


def _asked(
    lineage: Lineage, own: Sequence[Owned], firsts: Sequence[int]
) -> tuple[dict[str, float] | None, list[dict[str, float]]]:
    """The shares that the plan asks for: over all stages where they are one, and at the first step of each stretch."""
    assert lineage.leaf is not None
    steps = lineage.run.steps_of(lineage.leaf, lineage.read)
    stages = []
    for each in own:
        begin, end = steps.start_of(each.first), steps.start_of(each.stop)
        stages += [stage for stage in in_force(each.attempt.mixtures, begin) if stage.start < end]
    shares = [_shares(stage.weights) for stage in stages]
    over_time = []
    for first in firsts:
        owner = lineage.owner(first)
        assert owner is not None, "a stretch begins in a step of the lineage"
        over_time.append(_shares(in_force(owner.attempt.mixtures, steps.start_of(first))[0].weights))
    return (shares[0] if all(each == shares[0] for each in shares) else None), over_time


def _shares(weights: dict[str, int]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()} if total else {}
