"""Where did NaN or infinity stand when it came first, of what each rank saw before anything was reduced?

One rank is enough to make every rank's numbers NaN one update later, and the reduced loss at once. So only what a rank
sees by itself counts (its own loss, activations, logits, the gradient of its own microbatches), at the first step at
which any of it is not finite.

A loss that is the same number on all ranks at every step was reduced before it was logged: then it says nothing about
ranks. Ranks that logged nothing there are told, and where one of them could have been the odd one, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Finite
from dataguard.core.spikes import SpikeEvent

__all__ = ["OWN_NAMES", "finite_of"]

OWN_NAMES = ("local_grad_norm", "activation_rms", "activation_max", "attention_logit_max", "log_z")
"""Values that a rank computes of its own microbatches, before ranks speak to each other; each may have a ``/PART``."""

_LOSS = "loss"


def finite_of(
    rows: NDArray[np.void],
    event: SpikeEvent,
    *,
    first_label: int = 0,
    world_size: int | None = None,
) -> tuple[Finite, int | None, tuple[str, ...]]:
    """Where NaN or infinity stood at an event.

    Parameters
    ----------
    rows
        TELEMETRY_ROW, shape (n,), of all ranks (``telemetry_of_lineage``); steps count from 0. More steps than the
        event's are welcome: they show whether the loss was reduced.
    event
        In the trainer's labels.
    first_label
        What the trainer calls its first step.
    world_size
        Ranks of the attempt; None where it is not known: then the ranks that logged anything.

    Returns
    -------
    tuple
        The answer; the rank, where it is one; texts with the numbers.
    """
    begin = min(event.start, event.start if event.onset is None else event.onset) - first_label
    whole = rows[rows["slot"] < 0]
    names = np.char.partition(whole["name"], b"/")[:, 0] if len(whole) else np.empty(0, "S1")
    is_own = np.isin(names, [name.encode() for name in OWN_NAMES])
    is_loss = whole["name"] == _LOSS.encode()
    is_reduced = _is_reduced(whole[is_loss])
    counted = is_own | (is_loss & (not is_reduced))
    # The loss of step s is of the weights before update s, so what makes it NaN may be a step older than the event.
    inside = (whole["step"] >= max(begin - 1, 0)) & (whole["step"] < event.stop - first_label)
    seen = whole[counted & inside]
    texts: list[str] = []
    if is_reduced and bool((is_loss & inside).any()):
        texts.append(
            "the loss is one number on all ranks: it was reduced before it was logged, and says nothing of them"
        )
    if not len(seen):
        return Finite.UNKNOWN, None, (*texts, "no rank logged anything of its own at these steps")
    num_ranks = world_size if world_size is not None else len(np.unique(whole["rank"]))
    bad = ~np.isfinite(seen["value"])
    if not bad.any():
        ranks = np.unique(seen["rank"])
        if len(ranks) < num_ranks:
            return Finite.UNKNOWN, None, (*texts, _unheard(ranks, num_ranks, "finite"))
        return Finite.EVERYWHERE, None, (*texts, f"{_count(len(ranks))} logged finite values of its own at these steps")
    step = int(seen["step"][bad].min())
    there = seen["step"] == step
    ranks = np.unique(seen["rank"][there])
    odd = np.unique(seen["rank"][there & bad])
    what = _what(seen[there & bad])
    texts.append(f"step {step + first_label:,}: {what}")
    if len(odd) > 1:
        return Finite.SEVERAL_RANKS, None, (*texts, f"{len(odd):,} of {len(ranks):,} ranks that logged there")
    if len(ranks) < num_ranks:
        return Finite.UNKNOWN, int(odd[0]), (*texts, _unheard(ranks, num_ranks, f"not finite on rank {odd[0]}"))
    return Finite.ONE_RANK, int(odd[0]), (*texts, f"rank {odd[0]} alone, of {_count(len(ranks))} that logged there")


def _is_reduced(losses: NDArray[np.void]) -> bool:
    """Whether ranks logged one loss: equal to the last bit at every step that several of them logged finite."""
    losses = losses[np.isfinite(losses["value"])]
    order = np.lexsort((losses["rank"], losses["step"]))
    steps, ranks, values = losses["step"][order], losses["rank"][order], losses["value"][order]
    same_step = (steps[1:] == steps[:-1]) & (ranks[1:] != ranks[:-1])
    return bool(same_step.any() and (values[1:] == values[:-1])[same_step].all())


def _what(rows: NDArray[np.void]) -> str:
    """Names and values that are not finite, the first few."""
    found = sorted(
        {
            (int(rank), name.decode("utf-8", "replace"), repr(float(value)))
            for rank, name, value in rows[["rank", "name", "value"]].tolist()
        }
    )
    said = [f"{name} of rank {rank} is {value}" for rank, name, value in found[:4]]
    return ", ".join(said) + (f" and {len(found) - 4:,} more" if len(found) > 4 else "")


def _unheard(ranks: Iterable[int], num_ranks: int, found: str) -> str:
    heard = len(list(ranks))
    return f"{found}; {num_ranks - heard:,} of {_count(num_ranks)} logged nothing of their own there"


def _count(num_ranks: int) -> str:
    return f"{num_ranks:,} rank{'' if num_ranks == 1 else 's'}"
