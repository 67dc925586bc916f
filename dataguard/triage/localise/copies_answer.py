"""How often, and where first, were the event's rows delivered before?

The plan knows: the epoch of a position is how often its row was planned before. Where the order was given from outside,
the stretches that were looked up say what they can.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.plan.located import Located
from dataguard.triage.localise.answers import LocalisedDuplicates, LocalisedSample
from dataguard.triage.localise.copies import Copies
from dataguard.triage.localise.gathered import Gathered
from dataguard.triage.localise.history import Delivered

__all__ = ["copies_answer", "with_earlier_deliveries"]

_MOST_BEFORE = 2048


def copies_answer(g: Gathered, copies: Copies, *, stands_out: bool) -> LocalisedDuplicates:
    """The answer about the samples of the steps tested."""
    tested = np.flatnonzero(g.is_tested & g.samples.held)
    mine = g.samples.part(tested)
    seen = copies.num_seen[tested] > 0
    epochs = _epochs(g, mine)
    usual: int | None
    if epochs is None:
        usual = None if copies.share_seen_before is None else round(copies.share_seen_before * len(mine))
    else:
        seen |= epochs > 0
        recent = g.before.part(np.flatnonzero(g.before.held)[-_MOST_BEFORE:])
        theirs = _epochs(g, recent)
        usual = None if theirs is None or not len(theirs) else round(float((theirs > 0).mean()) * len(mine))
    first = copies.first_seen[tested]
    first = first[first >= 0]
    return LocalisedDuplicates(
        num_samples=len(mine),
        num_rows_seen_before=int(seen.sum()),
        num_rows_seen_before_background=usual,
        first_seen_step=g.run.label(int(first.min())) if len(first) else None,
        num_copies=copies.with_copies,
        num_samples_before=copies.num_rows_before,
        num_copies_before=copies.with_copies_before,
        most_alike_in_step=copies.most_alike,
        most_alike_in_step_before=copies.most_alike_before,
        p_value=copies.p_value,
        corrected=copies.p_value,
        stands_out=stands_out,
    )


def _epochs(g: Gathered, samples: Delivered) -> NDArray[np.int64] | None:
    """The epoch of each sample by the plan of its attempt; None where no plan knows."""
    if g.run.plan_document().root.form == "given":
        return None
    epochs = np.zeros(len(samples), np.int64)
    for attempt in np.unique(samples.attempt).tolist():
        chosen = samples.attempt == attempt
        epochs[chosen] = g.run.stream_of(attempt).samples(samples.position[chosen]).epoch
    return epochs


def with_earlier_deliveries(g: Gathered, listed: Sequence[LocalisedSample]) -> tuple[LocalisedSample, ...]:
    """The samples listed with how often their planned row came before by the plan, and where first.

    A run is looked up in stretches, so the index alone knows less than the plan does. Of an order that was given from
    outside, and of a substitute, it is all there is.
    """
    if g.run.plan_document().root.form == "given":
        return tuple(listed)
    places = {
        (int(step), int(slot)): i for i, (step, slot) in enumerate(zip(g.samples.step, g.samples.slot, strict=True))
    }
    return tuple(
        each if each.delivered is not None else _with_plan(g, each, places[g.run.step(each.step), each.slot])
        for each in listed
    )


def _with_plan(g: Gathered, sample: LocalisedSample, i: int) -> LocalisedSample:
    attempt, number = int(g.samples.attempt[i]), int(g.samples.number[i])
    steps = g.run.steps_of(attempt)
    found = g.run.stream_of(attempt).find(number, sample.row, start=0, stop=sample.position)
    delivered = [at for each in found if isinstance(at := steps.locate(each.position), Located)]
    if len(delivered) <= sample.num_seen_before:
        return sample
    first = g.run.label(delivered[0].step)
    return msgspec.structs.replace(sample, num_seen_before=len(delivered), first_seen_step=first)
