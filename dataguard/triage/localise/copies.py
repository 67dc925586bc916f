"""Were the samples of the event in this run before, under the same name or under another?

A *row* comes again in every epoch: that is the plan's business and said with its numbers, and no sign of anything. A
*copy* is another row of the same content (the digest in the index tells). Whether a row has copies, among all rows that
were looked up, is a property of it that has nothing to do with the step it stands in; so of the rows of an event as
many have them as of others, by a hypergeometric draw. Copies that lie side by side come together: where steps of
the background have them in bunches, counts are divided by how much more they vary than single draws would.

In a run whose rows are ordinals of what was delivered, a row that comes again cannot be told from a copy, and nothing
is judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.chances import hypergeometric_tail
from dataguard.triage.localise.history import Delivered

__all__ = ["Copies", "find_copies"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copies:
    """Rows and contents that occur several times."""

    num_copies: NDArray[np.int64]
    """Of each sample searched: other rows of its content, in the steps searched and before."""
    num_seen: NDArray[np.int64]
    """Of each: deliveries of the very row in the background."""
    first_seen: NDArray[np.int64]
    """Of each: the first step of these; -1 where there is none."""
    share_seen_before: float | None
    """Of samples of the background, the share whose row was delivered in it earlier; None without background."""
    most_alike: int
    """Samples of one step of the event that are one content, at most."""
    most_alike_before: int
    with_copies: int
    """Rows of the steps tested that have copies; of `num_rows`."""
    num_rows: int
    with_copies_before: int
    num_rows_before: int
    p_value: float | None
    """None where it cannot be told."""


def find_copies(event: Delivered, tested: NDArray[np.bool_], before: Delivered, *, by_row: bool) -> Copies:
    """Hold digests and rows of the steps searched against each other and the background.

    Parameters
    ----------
    tested
        Samples of the event that are judged.
    by_row
        Whether a row's number names content; not so for ordinals.
    """
    digest = np.concatenate([event.digest, before.digest])
    held = digest != 0
    rows = np.stack([np.concatenate([event.shard, before.shard]), np.concatenate([event.row, before.row])], axis=1)
    row_ids = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1) if len(rows) else np.zeros(0, np.intp)
    others = _other_rows(digest, row_ids, held)
    n = len(event)
    seen, first = _seen(row_ids[:n], row_ids[n:], before.step)
    chosen = tested & event.held
    mine, my_places = np.unique(row_ids[:n][chosen], return_index=True)
    my_copies = others[:n][chosen][my_places] > 0
    theirs, their_places = np.unique(row_ids[n:][held[n:]], return_index=True)
    their_copies = others[n:][held[n:]][their_places] > 0
    apart = ~np.isin(theirs, mine)
    their_copies = their_copies[apart]
    p_value = None
    if by_row and len(mine) and len(their_copies):
        by = _bunching(before.step[held[n:]], others[n:][held[n:]] > 0)
        hits, draws = math.floor(my_copies.sum() / by), math.ceil(len(mine) / by)
        marked = hits + math.ceil(their_copies.sum() / by)
        p_value = hypergeometric_tail(hits, draws, marked, draws + math.ceil(len(their_copies) / by))
    return Copies(
        num_copies=others[:n],
        num_seen=seen,
        first_seen=first,
        share_seen_before=_share_seen(row_ids[n:], before.step, held[n:]),
        most_alike=_most_alike(event.step, event.digest, chosen),
        most_alike_before=_most_alike(before.step, before.digest, before.held),
        with_copies=int(my_copies.sum()),
        num_rows=len(mine),
        with_copies_before=int(their_copies.sum()),
        num_rows_before=len(their_copies),
        p_value=p_value,
    )


def _other_rows(digest: NDArray[np.uint64], row_ids: NDArray[np.intp], held: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Of each sample: how many other rows have its content."""
    others = np.zeros(len(digest), np.int64)
    if not held.any():
        return others
    pairs = np.unique(np.stack([digest[held], row_ids[held].astype(np.uint64)], axis=1), axis=0)
    known, counts = np.unique(pairs[:, 0], return_counts=True)
    others[held] = counts[np.searchsorted(known, digest[held])] - 1
    return others


def _seen(
    mine: NDArray[np.intp], theirs: NDArray[np.intp], steps: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.lexsort((steps, theirs))
    rows, at = theirs[order], steps[order]
    low, high = np.searchsorted(rows, mine, side="left"), np.searchsorted(rows, mine, side="right")
    first = np.full(len(mine), -1, np.int64)
    some = high > low
    first[some] = at[low[some]]
    return (high - low).astype(np.int64), first


def _share_seen(rows: NDArray[np.intp], steps: NDArray[np.int64], held: NDArray[np.bool_]) -> float | None:
    """The share of the background's last steps whose row came in it before: of as many samples as one step has."""
    rows, steps = rows[held], steps[held]
    if not len(rows):
        return None
    order = np.lexsort((steps, rows))
    again = np.zeros(len(rows), np.bool_)
    again[order[1:]] = rows[order[1:]] == rows[order[:-1]]
    last = steps >= np.quantile(steps, 0.9)
    return float(again[last].mean())


def _most_alike(steps: NDArray[np.int64], digests: NDArray[np.uint64], chosen: NDArray[np.bool_]) -> int:
    if not chosen.any():
        return 0
    pairs = np.stack([steps[chosen].astype(np.uint64), digests[chosen]], axis=1)
    return int(np.unique(pairs, axis=0, return_counts=True)[1].max())


def _bunching(steps: NDArray[np.int64], marked: NDArray[np.bool_]) -> float:
    """How much more the count of marked samples a step varies than if each were drawn by itself; at least 1."""
    share = float(marked.mean()) if len(marked) else 0.0
    if share in {0.0, 1.0}:
        return 1.0
    _, places, sizes = np.unique(steps, return_inverse=True, return_counts=True)
    counts = np.bincount(places, weights=marked.astype(np.float64))
    expected = sizes * share
    return max(1.0, float(np.mean((counts - expected) ** 2 / (expected * (1 - share)))))
