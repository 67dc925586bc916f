"""Which steps should not be trained on again, and what does leaving them out cost?

The range is laid over the event's own positions: from its onset minus a lead to its end, whatever the checkpoint that
is resumed from. The relative rule (row A17: rewind about 200 steps, skip 200 to 500) is laid over the checkpoint
instead; with a checkpoint 200 steps before the event it ends exactly where the batch that did it begins.

**The lead.** The loss of step s is computed before update s, so what damaged the model lies at s - 1 or earlier, and
Adam's first moment carries a gradient on for 1 / (1 - beta1) steps: 10 at beta1 = 0.9. That many steps before the onset
are part of the range.
"""

from __future__ import annotations

import math

from dataguard.core.spans import SpanSet
from dataguard.core.spikes import SpikeEvent
from dataguard.core.trainer import OptimizerFacts
from dataguard.errors import UsageError
from dataguard.plan.attempts import Skip, in_force
from dataguard.plan.document import PlanDocument
from dataguard.plan.given import MOST_ROWS
from dataguard.plan.tables import num_samples
from dataguard.run.pending import Pending
from dataguard.run.run import Run
from dataguard.triage.respond.answers import SkipAdvice

__all__ = ["lead_of", "skip_advice", "span_of"]

_USUAL_BETA1 = 0.9
_LONGEST_LEAD = 1_000


def lead_of(facts: OptimizerFacts, asked: int | None = None) -> tuple[int, str]:
    """Steps before the onset to leave out as well, and why so many.

    >>> lead_of(OptimizerFacts(beta1=0.95))
    (20, 'a first moment with beta1 = 0.95 carries a gradient on for 1 / (1 - beta1) = 20 steps')
    >>> lead_of(OptimizerFacts())[1]
    'beta1 is not known; with the usual 0.9 a first moment carries a gradient on for 10 steps'
    """
    if asked is not None:
        if asked < 0:
            raise UsageError(f"a lead of {asked} steps cannot be", allowed="0 or more")
        return asked, "as asked"
    if facts.beta1 is None or not 0 <= facts.beta1 < 1:
        lead = _memory(_USUAL_BETA1)
        return lead, f"beta1 is not known; with the usual 0.9 a first moment carries a gradient on for {lead} steps"
    lead = min(_memory(facts.beta1), _LONGEST_LEAD)
    text = f"a first moment with beta1 = {facts.beta1:g} carries a gradient on for 1 / (1 - beta1) = {lead:,} steps"
    return lead, text


def span_of(run: Run, event: SpikeEvent, lead: int) -> tuple[int, int, int]:
    """(first step to leave out, onset, one past the last), from 0; NotInRun where the event lies before the first step.

    An event at the very beginning has less of a lead.
    """
    start = run.step(event.start)
    onset = start if event.onset is None else min(start, max(0, event.onset - run.first_label))
    stop = max(run.step(event.stop), onset + 1)
    return max(0, onset - lead), onset, stop


def skip_advice(
    run: Run, event: SpikeEvent, *, attempt: int | None, pending: Pending, facts: OptimizerFacts, lead: int | None
) -> SkipAdvice:
    """The range of one event on the lineage of an attempt (None: none has begun, and the plan itself is meant)."""
    lead_steps, why = lead_of(facts, lead)
    first, onset, stop = span_of(run, event, lead_steps)
    steps = run.plan.steps() if attempt is None else run.steps_of(attempt)
    meant = steps.skip_of_steps(first, stop)
    start, end = meant.positions
    held = SpanSet.of((max(skip.start, start), min(skip.stop, end)) for skip in _over(pending, start, end))
    new = end - start - held.num_inside
    document = run.plan_document() if attempt is None else run.plan_of(attempt).document
    of_pass = _samples_of_pass(run, document, start)
    by_event = tuple(sorted({skip.event for skip in _over(pending, start, end)})) if new == 0 else ()
    seq_len = document.root.seq_len
    return SkipAdvice(
        steps=(run.label(first), run.label(stop)),
        batches=(run.label(meant.batches[0]), run.label(meant.batches[1])),
        positions=meant.positions,
        attempt=attempt or 0,
        lead_steps=onset - first,
        lead_reason=why if onset - first == lead_steps else f"{why}; the run begins {onset:,} before the onset",
        num_samples=end - start,
        num_samples_new=new,
        share_of_pass=new / of_pass if of_pass else None,
        num_tokens_new=new * seq_len if seq_len is not None else None,
        by_event=by_event,
    )


def _over(pending: Pending, start: int, stop: int) -> list[Skip]:
    return [skip for skip in pending.skips if skip.start < stop and start < skip.stop]


def _samples_of_pass(run: Run, document: PlanDocument, position: int) -> int:
    """Samples of one pass over every source that has weight where the range begins; 0 where nothing tells."""
    mixture = in_force(document.mixtures, position)[0]
    counts = num_samples(run.manifest(mixture.manifest), document.root.form, document.root.seq_len)
    total = sum(count for name, count in counts.items() if mixture.weights.get(name))
    return total if total < MOST_ROWS else 0  # a stream of somebody else's, whose end nobody knows


def _memory(beta1: float) -> int:
    return math.ceil(round(1 / (1 - beta1), 6))
