"""Which samples of an event, and which of its background, are read again?

A few hundred in all (`contents.MOST_SCORED`), at most half of them of the event. Both sides are chosen by one rule, so
that they can be compared: of a step all samples where they are few; of many, those of the largest loss and as many by
key, or by key alone where losses were not logged. The steps of the background are drawn by key from all that were
looked up and at which the loss did not stand out; then single samples of sources that are still short of a background.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataguard.core.keys import derive_key
from dataguard.triage.localise.contents import MOST_SCORED
from dataguard.triage.localise.history import Delivered
from dataguard.triage.localise.sample_losses import LEAST_BACKGROUND

__all__ = ["NEAR_SAMPLES", "choose", "is_near"]

NEAR_SAMPLES = 96
"""Samples of the background that are of the steps right before the event."""
_KEPT_FOR_SOURCES = 96
"""Of the samples that may be read: for sources of which too few came with the steps."""
_WANTED_OF_SOURCE = 2 * LEAST_BACKGROUND


def choose(
    event: Delivered,
    losses: NDArray[np.float64],
    before: Delivered,
    losses_before: NDArray[np.float64],
    *,
    quiet: NDArray[np.bool_],
    seed: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of the samples to read, of the event and of the background, ascending.

    Parameters
    ----------
    event, losses
        Samples of the steps tested, and the loss of each (NaN where it is not known).
    quiet
        Of each sample before, whether it is background: those of other events are not.
    """
    steps = event.steps.tolist()
    if not steps:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    most = max(1, MOST_SCORED // 2 // len(steps))
    quiet_steps = np.unique(before.step[quiet]).tolist()
    by_loss = all(_is_known(event, losses, step) for step in steps)
    if by_loss:
        usable = [step for step in quiet_steps if _is_known(before, losses_before, step)]
        # Where losses were logged now and then, too few steps have them.
        by_loss = len(usable) >= min(4, len(quiet_steps))
    if not by_loss:
        usable = quiet_steps
    mine = [_of_step(event, losses, step, most, seed=seed, by_loss=by_loss) for step in steps]
    room = MOST_SCORED - sum(map(len, mine))
    usable = sorted(usable, key=lambda step: derive_key("localise-background", seed, steps[0], step))
    # What was read right before comes first: it may be of one kind, since blocks are read together.
    nearest = sorted(usable, key=lambda step: steps[0] - step)
    near, count = set(), 0
    for step in nearest:
        if count >= NEAR_SAMPLES:
            break
        near.add(step)
        count += len(_of_step(before, losses_before, step, most, seed=seed, by_loss=by_loss))
    usable.sort(key=lambda step: step not in near)
    theirs: list[NDArray[np.intp]] = []
    several = len(np.unique(before.source)) > 1
    for step in usable:
        places = _of_step(before, losses_before, step, most, seed=seed, by_loss=by_loss)
        if len(places) > room - (_KEPT_FOR_SOURCES if several else 0):
            break
        theirs.append(places)
        room -= len(places)
    chosen = np.concatenate([np.zeros(0, np.intp), *theirs])
    if several:
        chosen = np.concatenate([chosen, _of_sources(event, before, chosen, quiet, room=room, seed=seed)])
    return np.sort(np.concatenate(mine)), np.sort(chosen)


def is_near(samples: Delivered) -> NDArray[np.bool_]:
    """Of each sample of a background, whether it is of the last steps, those that hold `NEAR_SAMPLES` or more."""
    steps, counts = np.unique(samples.step, return_counts=True)
    behind = np.cumsum(counts[::-1])[::-1] - counts
    near: NDArray[np.bool_] = np.isin(samples.step, steps[behind < NEAR_SAMPLES])
    return near


def _is_known(samples: Delivered, losses: NDArray[np.float64], step: int) -> bool:
    mine = (samples.step == step) & samples.held
    return bool(mine.any() and not np.isnan(losses[mine]).any())


def _of_step(
    samples: Delivered, losses: NDArray[np.float64], step: int, most: int, *, seed: int, by_loss: bool
) -> NDArray[np.intp]:
    places = np.flatnonzero((samples.step == step) & samples.held)
    if len(places) <= most:
        return places
    worst = places[np.argsort(-losses[places], kind="stable")[: most // 2]] if by_loss else places[:0]
    rest = np.setdiff1d(places, worst)
    drawn = rest[_by_key(samples.position[rest], seed)][: most - len(worst)]
    return np.concatenate([worst, drawn])


def _of_sources(
    event: Delivered,
    before: Delivered,
    chosen: NDArray[np.intp],
    quiet: NDArray[np.bool_],
    *,
    room: int,
    seed: int,
) -> NDArray[np.intp]:
    """More of the sources of the event that have too few."""
    found = [np.zeros(0, np.intp)]
    taken = np.zeros(len(before), np.bool_)
    taken[chosen] = True
    allowed = before.held & ~taken & quiet
    wanting = []
    for source in np.unique(event.source[event.held]).tolist():
        have = int(np.count_nonzero(before.source[chosen] == source))
        if have < _WANTED_OF_SOURCE:
            wanting.append((have, source))
    for have, source in sorted(wanting, reverse=True):
        places = np.flatnonzero(allowed & (before.source == source))
        number = min(room, _WANTED_OF_SOURCE - have, len(places))
        if have + number < LEAST_BACKGROUND:
            continue  # it would stay too few
        found.append(places[_by_key(before.position[places], seed)][:number])
        room -= number
    return np.concatenate(found)


def _by_key(positions: NDArray[np.int64], seed: int) -> NDArray[np.intp]:
    keys = [derive_key("localise-sample", seed, position) for position in positions.tolist()]
    return np.argsort(np.array(keys, np.uint64), kind="stable")
