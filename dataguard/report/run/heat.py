"""What is in a heat map: one number for each rank and step, of what was logged and of what was recorded?

1. A rank's own loss is what it logged, unless all ranks logged one and the same: that was reduced, and says nothing of
   a rank. Then it is the mean of its samples' losses, where these were logged; else the reduced loss, called so.
2. Whatever else ranks logged each by itself and not all alike is shown as it was logged. Parts of a gradient norm
   (``local_grad_norm/part``) are one norm.
3. What was recorded gives the share of slots that were flagged, and withheld, and the longest sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.report.run.curves import rounded
from dataguard.report.run.facts import Measure
from dataguard.triage.localise.ranks import RankTable, is_reduced

__all__ = ["MOST_MEASURES", "logged_measures", "recorded_measures", "standing_out", "table_of"]

MOST_MEASURES = 12
_LOSS, _NORM = b"loss", b"local_grad_norm"
_PADDING = [int(status) for status in PADDING]

Values = NDArray[np.float64]
"""Shape (ranks, steps), NaN where there is none."""


def table_of(rows: NDArray[np.void], steps: NDArray[np.int64], ranks: NDArray[np.int64]) -> tuple[Values, Values]:
    """Values of rows (of one name, each rank and step once at most), and 1 where one is not finite; else 0."""
    values, odd = np.full((len(ranks), len(steps)), np.nan), np.zeros((len(ranks), len(steps)))
    at, rank = np.searchsorted(steps, rows["step"].astype(np.int64)), np.searchsorted(ranks, rows["rank"])
    inside = (at < len(steps)) & (rank < len(ranks))
    at, rank, rows = at[inside], rank[inside], rows[inside]
    hit = (steps[at] == rows["step"]) & (ranks[rank] == rows["rank"])
    values[rank[hit], at[hit]] = rows["value"][hit]
    odd[rank[hit], at[hit]] = ~np.isfinite(rows["value"][hit])
    return values, odd


def logged_measures(
    rows: NDArray[np.void], steps: NDArray[np.int64], ranks: NDArray[np.int64], limits: list[str]
) -> list[Measure]:
    """Measures of what ranks logged.

    Parameters
    ----------
    rows
        TELEMETRY_ROW of these steps, of all ranks, each value once.
    limits
        What cannot be told of single ranks is added.
    """
    inside = rows[np.isin(rows["step"], steps)]
    whole, of_samples = inside[inside["slot"] < 0], inside[(inside["slot"] >= 0) & (inside["name"] == _LOSS)]
    measures = [*_losses(whole[whole["name"] == _LOSS], of_samples, steps, ranks, limits)]
    norm = whole[(whole["name"] == _NORM) | np.char.startswith(whole["name"], _NORM + b"/")]
    if len(norm):
        measures.append(_norm(norm, steps, ranks))
    others = sorted(set(np.unique(whole["name"]).tolist()) - {_LOSS, *np.unique(norm["name"]).tolist()})
    others.sort(key=lambda name: name != b"grad_norm")
    for name in others:
        if len(measures) == MOST_MEASURES:
            limits.append(f"ranks logged more than {MOST_MEASURES} numbers each; no more are in the heat maps")
            break
        mine = whole[whole["name"] == name]
        if _differs(mine):
            text = name.decode("utf-8", "replace")
            measures.append(_measure(text, f"{text.replace('_', ' ')}, as each rank logged it", mine, steps, ranks))
    return measures


def _losses(
    whole: NDArray[np.void],
    of_samples: NDArray[np.void],
    steps: NDArray[np.int64],
    ranks: NDArray[np.int64],
    limits: list[str],
) -> list[Measure]:
    measures = []
    is_own = len(whole) > 0 and not _is_reduced(whole)
    if is_own:
        measures.append(_measure("loss", "loss of the rank, nats", whole, steps, ranks))
    if len(of_samples):
        keys = of_samples[["step", "rank"]]
        begins = np.flatnonzero(np.append([True], keys[1:] != keys[:-1]))
        with np.errstate(invalid="ignore"):
            most = of_samples[begins]
            most["value"] = np.maximum.reduceat(of_samples["value"], begins)
            mean = most.copy()
            mean["value"] = np.add.reduceat(of_samples["value"], begins) / np.diff(np.append(begins, len(of_samples)))
        if not is_own:
            measures.append(_measure("loss", "loss of the rank: mean of its samples, nats", mean, steps, ranks))
        measures.append(_measure("sample_loss", "highest loss of a sample, nats", most, steps, ranks))
    elif len(whole) and not is_own:
        limits.append("all ranks logged one and the same loss, reduced over them: of a single rank it says nothing")
        measures.append(_measure("loss_reduced", "loss, reduced over all ranks, nats", whole, steps, ranks))
    return measures


def _is_reduced(rows: NDArray[np.void]) -> bool:
    steps, ranks = np.unique(rows["step"].astype(np.int64)), np.unique(rows["rank"].astype(np.int64))
    values, _ = table_of(rows, steps, ranks)
    return is_reduced(RankTable(steps, ranks, np.where(np.isinf(values), np.nan, values).T))


def _differs(rows: NDArray[np.void]) -> bool:
    """Whether several ranks logged it, and not all one number."""
    return len(np.unique(rows["rank"])) > 1 and not _is_reduced(rows)


def _norm(rows: NDArray[np.void], steps: NDArray[np.int64], ranks: NDArray[np.int64]) -> Measure:
    plain = rows[rows["name"] == _NORM]
    if not len(plain):
        squares = rows.copy()
        with np.errstate(over="ignore"):
            squares["value"] = rows["value"] ** 2
        keys = squares[["step", "rank"]]
        begins = np.flatnonzero(np.append([True], keys[1:] != keys[:-1]))
        plain = squares[begins]
        plain["value"] = np.sqrt(np.add.reduceat(squares["value"], begins))
    return _measure("local_grad_norm", "gradient norm of the rank, before reduction", plain, steps, ranks)


def _measure(
    name: str, title: str, rows: NDArray[np.void], steps: NDArray[np.int64], ranks: NDArray[np.int64]
) -> Measure:
    return _of_values(name, title, *table_of(rows, steps, ranks))


def _of_values(name: str, title: str, values: Values, odd: Values | None = None) -> Measure:
    return Measure(
        name=name,
        title=title,
        values=tuple(rounded(row) for row in values.tolist()),
        not_finite=() if odd is None else tuple((int(r), int(s)) for r, s in np.argwhere(odd > 0)),
    )


def recorded_measures(
    records: NDArray[np.void],
    steps: NDArray[np.int64],
    ranks: NDArray[np.int64],
    *,
    is_judged: bool,
    unit: str | None,
) -> list[Measure]:
    """Measures of what was recorded.

    Parameters
    ----------
    records
        Index records of these steps and ranks.
    is_judged
        Whether a policy judged any of them.
    unit
        Of the length of a sample; None where all are of one length.
    """
    shape = (len(ranks), len(steps))
    cell = np.searchsorted(ranks, records["rank"]) * len(steps) + np.searchsorted(steps, records["step"])
    planned = ~np.isin(records["status"], _PADDING)
    size = shape[0] * shape[1]
    num_planned = np.bincount(cell[planned], minlength=size).astype(np.float64)

    def share(chosen: NDArray[np.bool_]) -> Values:
        with np.errstate(invalid="ignore", divide="ignore"):
            return (np.bincount(cell[chosen & planned], minlength=size) / num_planned).reshape(shape)

    measures = []
    if is_judged:
        measures.append(_of_values("flagged", "share of samples on which a rule fired", share(records["verdict"] > 0)))
    withheld = records["status"] != SlotStatus.LIVE
    measures.append(_of_values("withheld", "share of slots that were withheld", share(withheld)))
    if unit is not None:
        longest = np.zeros(size)
        np.maximum.at(longest, cell[planned], records["length"][planned].astype(np.float64))
        longest[num_planned == 0] = np.nan
        measures.append(_of_values("longest", f"longest sample, {unit}", longest.reshape(shape)))
    return measures


def standing_out(rows: NDArray[np.void], steps: Sequence[int]) -> list[int]:
    """Ranks by how far their loss lies from the median of all ranks at some of these steps, the furthest first."""
    mine = rows[(rows["slot"] < 0) & (rows["name"] == _LOSS) & np.isin(rows["step"], steps)]
    if not len(mine):
        return []
    at, ranks = np.unique(mine["step"].astype(np.int64)), np.unique(mine["rank"].astype(np.int64))
    values, odd = table_of(mine, at, ranks)
    values[~np.isfinite(values)] = np.nan
    centre = np.array(
        [np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else 0.0 for column in values.T]
    )
    distance = np.nan_to_num(np.abs(values - centre), nan=0.0).max(axis=1)
    distance[odd.any(axis=1)] = np.inf
    order = np.argsort(-distance, kind="stable")
    return [int(ranks[i]) for i in order if distance[i] > 0]
