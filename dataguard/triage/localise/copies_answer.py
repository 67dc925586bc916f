"""How often, and where first, were the event's rows delivered before?

The plan knows: the epoch of a position is how often its row was planned before. Where the order was given from outside,
the stretches that were looked up say what they can.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataguard.triage.localise.answers import LocalisedDuplicates
from dataguard.triage.localise.copies import Copies
from dataguard.triage.localise.gathered import Gathered
from dataguard.triage.localise.history import Delivered

__all__ = ["copies_answer"]

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
