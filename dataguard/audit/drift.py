"""Is this corpus still like the one that was audited before?

For each source and signal that both profiles hold, the population stability index over the deciles of the baseline,
``sum (now - then) ln(now / then)`` over their shares: by common practice 0.1 is a shift and 0.25 a large one. What
chance alone would give, about (bins - 1) (1 / records then + 1 / records now), is told from a shift by a factor of 3.

And for each source its share of all records and their number: a source of which two fifths are gone since last time is
told, whatever its records look like, and also where it is nearly all there is, so that its share hardly moves. That
there are more records is growth and no drift, as long as the shares stay.
"""

from __future__ import annotations

from fractions import Fraction
from math import log, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.documents import Drift, DriftedSignal, DriftedSource
from dataguard.score.profile import Profile, SignalProfile

__all__ = ["DRIFTED_CHANGE", "DRIFTED_PSI", "MOVED_CHANGE", "MOVED_PSI", "drift_of", "drift_told", "psi_of"]

MOVED_PSI, DRIFTED_PSI = 0.1, 0.25
MOVED_CHANGE, DRIFTED_CHANGE = 0.1, 0.25
_NUM_BINS = 10
_LEAST_SHARE = 1e-4
"""An empty bin counts as this much, so that the index stays finite."""
_BEYOND_CHANCE = 3
_FEW = 3
_COUNTED_BY = {"text": "length_bytes", "tokens": "length_tokens"}


def drift_of(now: Profile, then: Profile, *, sample: Fraction = Fraction(1)) -> Drift:
    """How far a profile is from an earlier one.

    Parameters
    ----------
    now, then
        Both profiles.
    sample
        The share of the corpus that `now` was made of: so many times more records are taken to be there.
    """
    signals: list[DriftedSignal] = []
    num_compared = 0
    for source in now.sources:
        for signal in source.signals:
            before = then.signal(source.name, signal.signal)
            if before is None or before.version != signal.version:
                continue
            num_compared += 1
            psi, state = _moved(signal, before)
            if state != "same":
                signals.append(
                    DriftedSignal(
                        source=source.name,
                        signal=signal.signal,
                        psi=round(psi, 6),
                        median_then=before.median,
                        median_now=signal.median,
                        state=state,
                    )
                )
    sources = _sources(now, then, sample)
    signals.sort(key=lambda entry: (-entry.psi, entry.source.encode(), entry.signal))
    return Drift(
        baseline=then.digest,
        num_compared=num_compared,
        moved_psi=MOVED_PSI,
        drifted_psi=DRIFTED_PSI,
        moved_change=MOVED_CHANGE,
        drifted_change=DRIFTED_CHANGE,
        drifted=any(entry.state == "drifted" for entry in signals)
        or any(entry.state in {"drifted", "new", "gone"} for entry in sources),
        sources=sources,
        signals=tuple(signals),
    )


def drift_told(drift: Drift) -> list[str]:
    """What nobody may overlook, in words: sources that are new, gone or drifted, and signals that drifted."""
    told = [
        f"drift: source {source.source} is {source.state}: {source.records_then:,} records then and "
        f"{source.records_now:,} now, {source.share_then:.1%} of all then and {source.share_now:.1%} now"
        for source in drift.sources
        if source.state in {"drifted", "gone", "new"}
    ]
    drifted = [signal for signal in drift.signals if signal.state == "drifted"]
    if drifted:
        named = ", ".join(f"{signal.signal} of {signal.source}" for signal in drifted[:_FEW])
        more = f" and {len(drifted) - _FEW:,} more" if len(drifted) > _FEW else ""
        told.append(f"drift: {len(drifted):,} signals of {drift.num_compared:,} have drifted: {named}{more}")
    return told


def psi_of(now: SignalProfile, then: SignalProfile) -> tuple[float, int]:
    """The population stability index of a signal over the deciles of `then`, and the number of bins."""
    keys_then, counts_then = _buckets(then)
    keys_now, counts_now = _buckets(now)
    ranks = np.cumsum(counts_then)
    cuts = np.searchsorted(ranks, ranks[-1] * np.arange(1, _NUM_BINS) / _NUM_BINS, side="left")
    # a bin ends with the bucket at its edge; a bucket that several deciles lie in is one edge
    edges = np.unique(keys_then[cuts])
    shares = []
    for keys, counts in ((keys_then, counts_then), (keys_now, counts_now)):
        bins = np.searchsorted(edges, keys, side="left")
        share = np.bincount(bins, counts, minlength=len(edges) + 1) / counts.sum()
        shares.append(np.maximum(share, _LEAST_SHARE))
    psi = sum((b - a) * log(b / a) for a, b in zip(*(share.tolist() for share in shares), strict=True))
    return psi, len(edges) + 1


def _moved(now: SignalProfile, then: SignalProfile) -> tuple[float, Literal["same", "moved", "drifted"]]:
    psi, num_bins = psi_of(now, then)
    if psi < _BEYOND_CHANCE * (num_bins - 1) * (1 / now.count + 1 / then.count):
        return psi, "same"
    return psi, "drifted" if psi >= DRIFTED_PSI else "moved" if psi >= MOVED_PSI else "same"


def _buckets(signal: SignalProfile) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.cumsum(np.array(signal.steps, np.int64)), np.array(signal.counts, np.int64)


def _sources(now: Profile, then: Profile, sample: Fraction) -> tuple[DriftedSource, ...]:
    counts_now, counts_then = _records(now), _records(then)
    all_now, all_then = sum(counts_now.values()), sum(counts_then.values())
    entries = []
    for name in sorted({*counts_now, *counts_then}, key=str.encode):
        records_now, records_then = counts_now.get(name, 0), counts_then.get(name, 0)
        share_now = records_now / all_now if all_now else 0.0
        share_then = records_then / all_then if all_then else 0.0
        change = share_now / share_then - 1 if share_then else 0.0
        state: Literal["same", "moved", "drifted", "new", "gone"] = "same"
        if not records_then or not records_now:
            state = "gone" if records_then else "new"
        else:
            lost = 1 - float(records_now / sample) / records_then
            # the number of records in a sample is known but for chance
            moved = max(abs(change), lost if sample == 1 or lost > _BEYOND_CHANCE / sqrt(records_now) else 0)
            state = "drifted" if moved >= DRIFTED_CHANGE else "moved" if moved >= MOVED_CHANGE else "same"
        entries.append(
            DriftedSource(
                source=name,
                records_then=records_then,
                records_now=records_now,
                share_then=share_then,
                share_now=share_now,
                change=change,
                state=state,
            )
        )
    return tuple(entries)


def _records(profile: Profile) -> dict[str, int]:
    """Scored records of each source: what its length was taken of."""
    return {
        source.name: next(
            (signal.count for signal in source.signals if signal.signal in _COUNTED_BY.values()),
            max((signal.count for signal in source.signals), default=0),
        )
        for source in profile.sources
    }
