"""Which pattern do the ranks make, and how is it said?

A sick rank raises the loss of all of its samples; bad data raises the rank that holds it. So a rank that stands out is
put down to its samples only where some of them stand out by what they are, or where a minority of them alone carries
its loss.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dataguard.core.evidence import RankPattern
from dataguard.triage.localise.answers import LocalisedRank, finite
from dataguard.triage.localise.ranks import MANY_RANKS, JudgedRanks

__all__ = ["RankFindings", "answer_of_ranks", "pattern_of"]

_FEW_OF = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankFindings:
    """What is known of the ranks."""

    loss: JudgedRanks | None
    grad_norm: JudgedRanks | None
    num_ranks: int
    is_reduced: bool
    """Whether the losses that ranks logged are one and the same."""
    from_samples: bool = False
    """Whether losses of ranks are means over the losses of their samples."""


def _column(judged: JudgedRanks | None, rank: int) -> int | None:
    if judged is None:
        return None
    found = np.flatnonzero(judged.ranks == rank)
    return int(found[0]) if len(found) and judged.step[found[0]] >= 0 else None


def answer_of_ranks(
    found: RankFindings, num_outlying: Mapping[int, int], first_label: int
) -> tuple[LocalisedRank, ...]:
    """Every rank of which anything is known, worst first."""
    parts = [part for part in (found.loss, found.grad_norm) if part is not None]
    ranks = sorted({rank for part in parts for rank in part.ranks.tolist()} | set(num_outlying))
    answers = [_rank(found, rank, num_outlying.get(rank, 0), first_label) for rank in ranks]
    return tuple(
        sorted(
            answers,
            key=lambda each: (
                not (each.outlying or each.persistent),
                each.is_finite,
                -max(abs(each.loss_z or 0.0), abs(each.grad_norm_z or 0.0)),
                -each.num_outlying_samples,
                each.rank,
            ),
        )
    )


def _rank(found: RankFindings, rank: int, num_outlying: int, first_label: int) -> LocalisedRank:
    loss, norm = (_column(part, rank) for part in (found.loss, found.grad_norm))
    steps, outlying, persistent, num_out, num_looked = [], False, False, 0, 0
    against = "none"
    for part, place in ((found.loss, loss), (found.grad_norm, norm)):
        if part is None or place is None:
            continue
        steps.append((-abs(float(part.z[place])), int(part.step[place])))
        outlying |= bool(part.outlying[place])
        persistent |= bool(part.persistent[place])
        if int(part.num_out[place]) > num_out or not num_looked:
            num_out, num_looked = int(part.num_out[place]), int(part.num_looked[place])
        against = part.against
    told: dict[str, float | None] = {}
    gone = False
    for name, part, place in (("loss", found.loss, loss), ("grad_norm", found.grad_norm, norm)):
        if part is not None and place is not None:
            value, z = float(part.value[place]), float(part.z[place])
            gone |= math.isinf(value)
            told |= {name: finite(value), f"{name}_z": finite(z)}
    return LocalisedRank(
        rank=rank,
        step=min(steps)[1] + first_label if steps else None,
        **told,
        is_finite=not gone,
        against=against,  # type: ignore[arg-type]
        outlying=outlying,
        persistent=persistent,
        num_outlying_samples=num_outlying,
        num_steps_out=num_out if num_looked else None,
        num_steps_looked=num_looked,
    )


def pattern_of(
    found: RankFindings, ranks: Sequence[LocalisedRank], held_by: Collection[int]
) -> tuple[RankPattern, tuple[str, ...]]:
    """The pattern, and what to say of it.

    Parameters
    ----------
    held_by
        Ranks that held samples which stand out by what they are, or whose loss a minority of their samples carries.
    """
    if found.loss is None and found.grad_norm is None:
        return RankPattern.UNKNOWN, (_why_unknown(found),)
    texts = []
    if found.is_reduced:
        texts.append("ranks: the losses logged are one and the same on all ranks, so they say nothing of any of them")
    out = [rank for rank in ranks if rank.outlying]
    few = max(1, found.num_ranks // _FEW_OF)
    again = [rank for rank in ranks if rank.persistent and (rank.outlying or not out)]
    told = "; ".join(_told(rank) for rank in (again or out)[:3])
    how = "each against the others" if found.num_ranks >= MANY_RANKS else "each against its own past"
    compared = f"{found.num_ranks:,} ranks, {how}"
    if again and len(again) <= few:
        return RankPattern.PERSISTENT, (*texts, f"ranks: {told} ({compared}); it stood out before, over other data")
    if not out:
        worst = f"; furthest: {_told(ranks[0])}" if ranks else ""
        return RankPattern.NONE, (*texts, f"ranks: none stands out of {compared}{worst}")
    if all(rank.rank in held_by for rank in out):
        return RankPattern.WITH_DATA, (
            *texts,
            f"ranks: {told} ({compared}); {'it holds' if len(out) == 1 else 'they hold'} samples that stand out",
        )
    if len(out) <= few:
        return RankPattern.ONE_RANK, (*texts, f"ranks: {told} ({compared}), and not by the samples that it holds")
    return RankPattern.NONE, (*texts, f"ranks: {len(out):,} of {compared} stand out, so it is no single rank: {told}")


def _told(rank: LocalisedRank) -> str:
    if rank.step is None:
        return f"rank {rank.rank}"
    parts = [] if rank.is_finite else ["not finite"]
    for what, value, z in (("loss", rank.loss, rank.loss_z), ("own gradient norm", rank.grad_norm, rank.grad_norm_z)):
        if value is not None:
            parts.append(f"{what} {value:.4g}" + ("" if z is None else f" (z {z:+.1f})"))
    past = ""
    if rank.num_steps_out is not None:
        past = f", out at {rank.num_steps_out:,} of {rank.num_steps_looked:,} steps before"
    return f"rank {rank.rank} at step {rank.step:,}: {', '.join(parts)}{past}"


def _why_unknown(found: RankFindings) -> str:
    if found.num_ranks == 1:
        return "ranks: there is one, so nothing to hold it against"
    if found.is_reduced:
        return (
            "ranks: not known; the losses logged are one and the same on all ranks, so they were reduced before they "
            "were logged; log each rank's own loss, or Monitor.watch"
        )
    return "ranks: not known; not enough was logged by rank: each rank's own loss (Monitor.log), or Monitor.watch"
