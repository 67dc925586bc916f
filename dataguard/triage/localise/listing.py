"""How are microbatches and samples put in order, worst first, and said why?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.gate.verdict import Verdict
from dataguard.replay.answers import Delivered as DeliveredRow
from dataguard.triage.localise.answers import LocalisedMicrobatch, LocalisedSample, SampleSignal, finite
from dataguard.triage.localise.chances import location_scale
from dataguard.triage.localise.copies import Copies
from dataguard.triage.localise.history import Delivered, Names
from dataguard.triage.localise.sample_losses import SampleLosses
from dataguard.triage.localise.signals import Deviation

__all__ = ["Standing", "microbatches", "samples_worst_first"]

_MOST_SIGNALS = 8
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """What is known of each sample searched; arrays of shape (n,)."""

    losses: SampleLosses
    by_loss: NDArray[np.bool_]
    """Those whose loss stands out, of all samples searched."""
    beyond: NDArray[np.bool_]
    """Those beyond the bound of a signal that stands out."""
    copied: NDArray[np.bool_]
    """Those that are copies, where copies stand out."""
    deviations: Sequence[tuple[Deviation, Mapping[int, int]]]
    """Measures, and the place of each sample in them."""
    values: Mapping[tuple[str, int], float]
    """Of measure and sample."""
    out_signals: Mapping[int, tuple[str, ...]]
    """Signals that stand out, by sample that lies beyond their bound."""
    copies: Copies
    falls: bool
    """Whether the loss of the event fell: then small losses are the worst."""
    bar: float
    """Chance below which one measure of one sample is worth telling."""

    @property
    def outlying(self) -> NDArray[np.bool_]:
        """Whether a sample stands out, by whatever."""
        outlying: NDArray[np.bool_] = self.by_loss | self.beyond | self.copied
        return outlying


def microbatches(
    samples: Delivered, standing: Standing, before: Delivered, first_label: int, most: int
) -> tuple[LocalisedMicrobatch, ...]:
    """Microbatches of the steps searched, worst first."""
    usual, scale = _usual_means(before, standing.losses.excess_before)
    keys = np.stack([samples.step, samples.rank, samples.microbatch], axis=1)
    known, places = np.unique(keys, axis=0, return_inverse=True)
    places = places.reshape(-1)
    means, excess = (_means(places, len(known), each) for each in (standing.losses.loss, standing.losses.excess))
    outlying = np.bincount(places[standing.outlying], minlength=len(known))
    sizes = np.bincount(places, minlength=len(known))
    z = (excess - usual) / scale if scale > 0 else np.full(len(known), np.nan)
    away = np.where(np.isnan(z), -np.inf, -z if standing.falls else z)
    order = np.lexsort((known[:, 1], known[:, 0], -away, -outlying))
    return tuple(
        LocalisedMicrobatch(
            step=int(known[i, 0]) + first_label,
            rank=int(known[i, 1]),
            microbatch=int(known[i, 2]),
            num_samples=int(sizes[i]),
            loss=finite(float(means[i])),
            loss_z=finite(float(z[i])),
            num_outlying_samples=int(outlying[i]),
        )
        for i in order[:most].tolist()
    )


def _means(places: NDArray[np.intp], num_groups: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each group's values that are known; NaN where none is."""
    known = ~np.isnan(values)
    counts = np.bincount(places[known], minlength=num_groups)
    sums = np.bincount(places[known], weights=values[known], minlength=num_groups)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _usual_means(before: Delivered, excess: NDArray[np.float64]) -> tuple[float, float]:
    """Median and spread of the mean excess of a microbatch of the background."""
    known = ~np.isnan(excess)
    if not known.any():
        return 0.0, 0.0
    keys = np.stack([before.step[known], before.rank[known], before.microbatch[known]], axis=1)
    groups, places = np.unique(keys, axis=0, return_inverse=True)
    return location_scale(_means(places.reshape(-1), len(groups), excess[known]))


def samples_worst_first(
    samples: Delivered, standing: Standing, names: tuple[Names, Names], first_label: int, most: int
) -> tuple[LocalisedSample, ...]:
    """Samples of the steps searched, worst first: those that stand out, by how unlikely they are."""
    n = len(samples)
    least = np.ones(n)
    for deviation, places in standing.deviations:
        for sample, place in places.items():
            least[sample] = min(least[sample], float(deviation.chance[place]))
    by_loss = np.where(np.isnan(standing.losses.chance), 1.0, standing.losses.chance)
    with np.errstate(divide="ignore"):
        odd = np.minimum(-np.log10(least), 300.0) + np.minimum(-np.log10(by_loss), 300.0)
    how_many = standing.by_loss.astype(int) + standing.beyond + standing.copied
    excess = np.where(np.isnan(standing.losses.excess), 0.0, standing.losses.excess)
    excess = -excess if standing.falls else excess
    order = np.lexsort((samples.slot, samples.step, -excess, -odd, -how_many))
    return tuple(_sample(samples, standing, names, first_label, i) for i in order[:most].tolist())


def _sample(
    samples: Delivered, standing: Standing, names: tuple[Names, Names], first_label: int, i: int
) -> LocalisedSample:
    sources, shards = names
    signals = _signals(standing, i)
    loss, copies = standing.losses, standing.copies
    first_seen = int(copies.first_seen[i])
    planned = (shards.names[int(samples.planned_shard[i])], int(samples.planned_row[i]))
    row = (shards.names[int(samples.shard[i])], int(samples.row[i]))
    judged = bool(samples.judged[i])
    return LocalisedSample(
        step=int(samples.step[i]) + first_label,
        rank=int(samples.rank[i]),
        microbatch=int(samples.microbatch[i]),
        slot=int(samples.slot[i]),
        position=int(samples.position[i]),
        source=sources.names[int(samples.source[i])],
        shard=planned[0],
        row=planned[1],
        delivered=None if row == planned else DeliveredRow(shard=row[0], row=row[1]),
        digest=int(samples.digest[i]).to_bytes(8, "little").hex(),
        loss=finite(float(loss.loss[i])),
        loss_z=finite(float(loss.z[i])),
        is_finite=not math.isinf(loss.loss[i]),
        verdict=Verdict(int(samples.verdict[i])).name.lower() if judged else None,
        signals=signals,
        num_copies=int(copies.num_copies[i]),
        num_seen_before=int(copies.num_seen[i]),
        first_seen_step=first_seen + first_label if first_seen >= 0 else None,
        outlying=bool(standing.outlying[i]),
        why=_why(samples, standing, i),
    )


def _signals(standing: Standing, i: int) -> tuple[SampleSignal, ...]:
    found = []
    for deviation, places in standing.deviations:
        if i not in places:
            continue
        place = places[i]
        chance = float(deviation.chance[place])
        told = deviation.measure in standing.out_signals.get(i, ())
        # Of what stands out by anything, whatever is further than all of the background is worth telling.
        odd = bool(standing.outlying[i] and deviation.beyond_all[place])
        if told or chance < standing.bar or odd:
            z = float(deviation.z[place])
            found.append(
                (
                    not told,
                    chance,
                    SampleSignal(
                        signal=deviation.measure,
                        value=standing.values[deviation.measure, i],
                        usual=float(deviation.usual[place]),
                        z=finite(z),
                    ),
                )
            )
    out = standing.out_signals.get(i, ())
    found.sort(key=lambda each: (each[0], out.index(each[2].signal) if each[2].signal in out else len(out), each[1]))
    return tuple(each[2] for each in found[: max(_MOST_SIGNALS, len(out))])


def _why(samples: Delivered, standing: Standing, i: int) -> tuple[str, ...]:
    why = []
    losses = standing.losses
    if standing.by_loss[i]:
        if math.isinf(losses.loss[i]):
            why.append("its loss is not finite")
        else:
            z = f" (z {losses.z[i]:+.1f})" if math.isfinite(losses.z[i]) else ""
            why.append(f"loss {losses.loss[i]:.3f}, {losses.excess[i]:+.3f} nats from the trend of its source{z}")
    names = standing.out_signals.get(i, ())
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        why.append(f"beyond the background: {', '.join(names[:_MOST_NAMES])}{more}")
    if standing.copied[i]:
        why.append(f"{int(standing.copies.num_copies[i]):,} other rows hold the same")
    if samples.judged[i] and samples.verdict[i] > Verdict.FLAG:
        why.append(f"the gate said {Verdict(int(samples.verdict[i])).name.lower()}")
    return tuple(why)
