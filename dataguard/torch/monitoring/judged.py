"""Which numbers of a step do ranks show each other, and what do they come to over all ranks?

A row is eight numbers, and one for each watched block on sampled steps:

====== ==========================================================================================
place  number
====== ==========================================================================================
0      the step's label: ranks that log different steps are told apart
1      which of loss, gradient norm and loss scale the rank has (bits 1, 2 and 4)
2 to 4 loss, gradient norm, loss scale
5      seconds of training on the rank's own clock
6, 7   which names it watches (48 bits of a digest), and every how many steps it samples them
8 on   the largest attention logit of each of these names, NaN where it was not sampled
====== ==========================================================================================

Rows must have one length on all ranks, so names are sent only from the step after the one at which all ranks said the
same 6 and 7: all of them know by then, and none had to ask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RanksDisagree

__all__ = ["LOSS_SCALE", "Layout", "Seen", "reduced", "row_of"]

LOSS_SCALE = "loss_scale"
_LOSS, _GRAD_NORM, _SCALE = 1, 2, 4
_NUM_FIXED = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Names that are sampled every so many steps."""

    names: tuple[str, ...] = ()
    every: int = 1

    @property
    def mark(self) -> float:
        """48 bits that tell the names from others; 0 for none."""
        if not self.names:
            return 0.0
        digest = hashlib.sha256("\0".join(self.names).encode()).digest()
        return float(int.from_bytes(digest[:6], "big") or 1)

    def names_at(self, label: int) -> tuple[str, ...]:
        """Those that are sent with a step."""
        return self.names if label % self.every == 0 else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What all ranks logged of a step, over all ranks."""

    loss: Floats
    """Of each rank, NaN where it has none; shape (num_ranks,)."""
    grad_norm: Floats
    mean_loss: float | None
    """None where no rank has one; NaN or infinite where one is."""
    mean_grad_norm: float | None
    more: dict[str, float]
    """The loss scale, and the largest attention logit of each block over all ranks."""
    seconds: float
    """Of the rank that is furthest."""
    nonfinite: tuple[int, ...]
    """Ranks whose loss or gradient norm is not finite."""
    nonfinite_losses: tuple[int, ...]
    agree_on_names: bool
    """Whether all ranks watch the same names in the same rhythm."""


def row_of(
    label: int,
    values: Mapping[str, float],
    *,
    seconds: float,
    watched: Layout,
    agreed: Layout,
    sampled: Mapping[str, float],
) -> Floats:
    """What one rank shows the others.

    >>> row = row_of(7, {"loss": 2.5}, seconds=1.0, watched=Layout(), agreed=Layout(), sampled={})
    >>> row.tolist()
    [7.0, 1.0, 2.5, nan, nan, 1.0, 0.0, 1.0]
    """
    told = [values.get(name) for name in ("loss", "grad_norm", LOSS_SCALE)]
    has = sum(bit for bit, value in zip((_LOSS, _GRAD_NORM, _SCALE), told, strict=True) if value is not None)
    numbers = [np.nan if value is None else value for value in told]
    more = [sampled.get(name, np.nan) for name in agreed.names_at(label)]
    return np.array([label, has, *numbers, seconds, watched.mark, watched.every, *more], np.float64)


def reduced(label: int, rows: Floats, agreed: Layout) -> Seen:
    """What the rows of all ranks, shape (num_ranks, n), come to.

    Raises
    ------
    RanksDisagree
        They are of different steps.
    """
    _check_steps(label, rows)
    has = rows[:, 1].astype(np.int64)
    loss = np.where(has & _LOSS, rows[:, 2], np.nan)
    norm = np.where(has & _GRAD_NORM, rows[:, 3], np.nan)
    bad_loss = (has & _LOSS != 0) & ~np.isfinite(rows[:, 2])
    bad_norm = (has & _GRAD_NORM != 0) & ~np.isfinite(rows[:, 3])
    more: dict[str, float] = {}
    scales = rows[has & _SCALE != 0, 4]
    if len(scales):
        more[LOSS_SCALE] = float(scales.min())
    for column, name in enumerate(agreed.names_at(label), start=_NUM_FIXED):
        known = _largest(rows[:, column])
        if known is not None:
            more[name] = known
    return Seen(
        loss=loss,
        grad_norm=norm,
        mean_loss=_mean(rows[has & _LOSS != 0, 2]),
        mean_grad_norm=_mean(rows[has & _GRAD_NORM != 0, 3]),
        more=more,
        seconds=float(rows[:, 5].max()),
        nonfinite=_ranks(bad_loss | bad_norm),
        nonfinite_losses=_ranks(bad_loss),
        agree_on_names=bool((rows[:, 6:8] == rows[0, 6:8]).all()),
    )


def _check_steps(label: int, rows: Floats) -> None:
    if (rows[:, 0] == label).all():
        return
    steps: dict[int, list[int]] = {}
    for rank, step in enumerate(rows[:, 0].astype(np.int64).tolist()):
        steps.setdefault(step, []).append(rank)
    shown = "; ".join(f"step {step:,}: rank {_shown(ranks)}" for step, ranks in sorted(steps.items())[:4])
    raise RanksDisagree(
        f"step {label:,} was logged, and other ranks log other steps",
        found=shown,
        allowed="with a detector, every rank logs the loss of the same steps, once each",
        todo="log NaN where a rank has no loss, or leave the step out on all ranks",
    )


def _shown(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8:,} more" if len(ranks) > 8 else "")


def _ranks(which: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(which).tolist())


def _mean(values: Floats) -> float | None:
    if not len(values):
        return None
    if np.isfinite(values).all():
        return float(values.mean())
    return (
        float("nan")
        if np.isnan(values).any() or len(set(np.sign(values[np.isinf(values)]))) > 1
        else float(values[np.isinf(values)][0])
    )


def _largest(values: Floats) -> float | None:
    """Over ranks that sampled it.

    What is NaN on a rank that did cannot be told from what was not sampled there, so it is left to the loss, which is
    NaN as well then.
    """
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None
