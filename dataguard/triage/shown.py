"""What does a notebook show of triage: the event, the verdict, what stands out, what to type?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.notebook import Listing, card
from dataguard.triage.diagnose.shown import diagnosis_facts, diagnosis_listings

if TYPE_CHECKING:
    from dataguard.triage.answers import EventShown, TriageAnswer

__all__ = ["triage_html", "triage_text"]


def triage_text(answer: TriageAnswer) -> str:
    """One line, whatever was found."""
    event = "no event" if answer.event is None else _event(answer.event)
    return f"<TriageAnswer {answer.run!r} {answer.diagnosis.verdict.value}: {event}>"


def triage_html(answer: TriageAnswer) -> str:
    """A card of an answer."""
    steps = answer.steps
    facts: dict[str, object] = {
        "run": answer.run,
        "lineage": "no attempt has begun" if answer.attempt is None else f"of attempt {answer.attempt}",
        "telemetry": "none" if steps is None else f"{steps.logged:,} steps, {steps.first:,} to {steps.last:,}",
        "event": "none" if answer.event is None else _event(answer.event),
        "events in all": len(answer.events),
        **diagnosis_facts(answer.diagnosis),
    }
    hypotheses, evidence = diagnosis_listings(answer.diagnosis)
    found = answer.localised
    samples = () if found is None else found.samples
    commands = answer.response.commands
    tables = (
        Listing(
            title="to type",
            columns=("command", "why"),
            rows=((command.text, command.why) for command in commands),
            num_rows=len(commands),
        ),
        hypotheses,
        Listing(
            title="samples, the worst first",
            columns=("step", "rank", "slot", "shard", "row", "why"),
            rows=((each.step, each.rank, each.slot, each.shard, each.row, "; ".join(each.why)) for each in samples),
            num_rows=len(samples),
        ),
        evidence,
    )
    problems = (*answer.notes, *([] if answer.not_noted is None else [answer.not_noted]))
    return card(f"Triage: {answer.diagnosis.verdict.value}", facts, tables=tables, problems=problems)


def _event(event: EventShown) -> str:
    rank = "" if event.rank is None else f", rank {event.rank}"
    return f"{event.event_class.value} at steps {event.start:,}:{event.stop:,}, peak {event.peak:,}{rank}"
