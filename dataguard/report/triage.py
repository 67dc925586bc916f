"""What is said to people of an event: what it was, where it lies, who is to blame, and what to type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataguard.core.evidence import Verdict
from dataguard.report.tables import table
from dataguard.triage.checklist import TO_DO

if TYPE_CHECKING:
    from rich.table import Table

    from dataguard.triage.answers import EventShown, TriageAnswer
    from dataguard.triage.localise import Localised
    from dataguard.triage.respond import Response

__all__ = ["could_show", "event_facts", "render_triage"]

_MOST = 8
_DONE = {"yes": "done", "partly": "partly", "no": "open"}


def render_triage(answer: TriageAnswer) -> Iterator[str | Table]:
    """What ``triage`` says: event, places, checklist, verdict, response."""
    if answer.steps is not None:
        steps = answer.steps
        where = f"{answer.run}, attempt {answer.attempt}"
        yield f"{where}: steps {steps.first:,}:{steps.last + 1:,}, {steps.logged:,} logged"
    if answer.event is None:
        yield "event: none"
    else:
        yield f"event: {_event(answer.event)}"
    others = [event for event in answer.events if event != answer.event]
    if others:
        shown = "; ".join(f"{event.event_class} {event.start:,}:{event.stop:,}" for event in others[:_MOST])
        more = f" and {len(others) - _MOST:,} more" if len(others) > _MOST else ""
        yield f"other events of this lineage: {shown}{more}"
    yield from could_show(answer)
    if answer.localised is not None:
        yield ""
        yield from _places(answer.localised)
    yield ""
    for step in answer.checklist:
        yield f"{step.number}. {step.name} [{_DONE[step.done]}]: {step.answer}"
        yield from (f"   {text}" for text in step.evidence[:_MOST])
        if len(step.evidence) > _MOST:
            yield f"   and {len(step.evidence) - _MOST:,} more (--json has all)"
        what = "to do" if step.number == TO_DO else "missing"
        yield from (f"   {what}: {text}" for text in step.missing)
    yield ""
    yield from _verdict(answer)
    yield ""
    yield from _response(answer.response)
    if answer.applied is not None:
        yield ""
        applied = answer.applied
        yield from (f"{'would write' if applied.dry_run else 'written'}: {text}" for text in applied.done)
        yield from (f"stands already: {text}" for text in applied.already)
        yield from (f"left to you: {text}" for text in applied.left)
    yield from (f"damaged, and left out: {each}" for each in answer.damage)
    yield from (f"note: {note}" for note in answer.notes)


def could_show(answer: TriageAnswer) -> Iterator[str]:
    """What this log could show at all."""
    if answer.steps is None:
        return
    spike, shift = answer.smallest_spike, answer.smallest_shift_nats
    if spike is not None:
        hardest = f" (most at step {spike.hardest_step:,}: {spike.hardest_nats:.3g} nats)"
        yield (
            f"the smallest spike that would have shown at step {spike.step:,}: {spike.nats:.3g} nats"
            f"{'' if spike.hardest_step == spike.step else hardest}"
        )
    elif answer.asked_step is not None:
        yield f"the smallest spike that would have shown at step {answer.asked_step:,}: not known (it was not judged)"
    told = "not known (too short)" if shift is None else f"{shift:.3g} nats"
    yield f"the least lasting shift that this log can show: {told}"


def _event(event: EventShown) -> str:
    where = [f"{event.event_class} in steps {event.start:,}:{event.stop:,}, peak {event.peak:,}"]
    if event.onset is not None:
        where.append(f"onset {event.onset:,}")
    return ", ".join([*where, *event_facts(event)])


def event_facts(event: EventShown) -> list[str]:
    """How large an event is, what showed it, and whether it goes on."""
    facts = []
    if event.size_nats is not None:
        facts.append(f"{event.size_nats:+.3g} nats")
    if event.sigmas is not None:
        facts.append(f"{event.sigmas:.3g} robust sigmas")
    if event.aftermath_nats is not None:
        facts.append(f"aftermath {event.aftermath_nats:+.3g} nats")
    if event.grad_norm_ratio is not None:
        facts.append(f"gradient norm x {event.grad_norm_ratio:.3g}")
    if event.signal != "loss":
        facts.append(f"seen in {event.signal}")
    if event.rank is not None:
        facts.append(f"rank {event.rank}")
    if event.is_open:
        facts.append("it goes on at the end of the log")
    return facts


def _places(localised: Localised) -> Iterator[str | Table]:
    """Ranks, samples and shards, worst first."""
    known = [each for each in localised.ranks if each.loss_z is not None or each.grad_norm_z is not None]
    # What stands out; where nothing does, the three that come nearest.
    ranks = [each for each in known if each.outlying or each.num_outlying_samples] or known[:3]
    if ranks:
        yield table(
            ("rank", "step", "loss", "z", "gradient norm", "z of it", "against", "outlying samples"),
            (
                (
                    each.rank, each.step, _number(each.loss), _number(each.loss_z), _number(each.grad_norm),
                    _number(each.grad_norm_z), each.against, each.num_outlying_samples,
                )
                for each in ranks[:_MOST]
            ),
            right=("rank", "step", "loss", "z", "gradient norm", "z of it", "outlying samples"),
            title="ranks, worst first",
        )  # fmt: skip
    if any(each.outlying or each.signals or each.loss_z is not None for each in localised.samples):
        yield table(
            ("step", "rank", "microbatch", "slot", "shard", "row", "loss", "z", "signals", "why"),
            (
                (
                    each.step, each.rank, each.microbatch, each.slot, each.shard, each.row, _number(each.loss),
                    _number(each.loss_z), ", ".join(f"{one.signal} {one.value:.4g}" for one in each.signals[:2]),
                    "; ".join(each.why[:2]),
                )
                for each in localised.samples[:_MOST]
            ),
            right=("step", "rank", "microbatch", "slot", "row", "loss", "z"),
            title="samples, worst first",
        )  # fmt: skip
    shares = [*localised.shards, *localised.sources]
    if shares:
        yield table(
            ("", "name", "samples", "expected", "outlying", "p", "steps it was in", "of these odd", "stands out"),
            (
                (
                    each.kind, each.name, each.num_samples, f"{each.num_expected:.3g}", each.num_outlying,
                    f"{each.corrected:.2g}", each.steps_before, each.steps_before_out, "yes" if each.stands_out else "",
                )
                for each in shares[:_MOST]
            ),
            right=("samples", "expected", "outlying", "p", "steps it was in", "of these odd"),
            title="shards and sources",
        )  # fmt: skip
    # Tables show shards and sources, and the checklist what is said of the data.
    yield from (text for text in localised.texts if not text.startswith(("data:", "shard ", "source ")))
    yield from (f"note: {note}" for note in localised.notes)


def _verdict(answer: TriageAnswer) -> Iterator[str]:
    diagnosis = answer.diagnosis
    yield f"verdict: {diagnosis.verdict}. {diagnosis.summary}"
    if answer.event is None and not any(diagnosis.scores.values()):
        return
    missing: dict[str, list[str]] = {}
    for name, score in sorted(diagnosis.scores.items(), key=lambda each: -each[1]):
        yield f"  {name} {score:+d}"
        yield from (f"    for: {text}" for text in diagnosis.for_.get(name, ()))
        yield from (f"    against: {text}" for text in diagnosis.against.get(name, ()))
        for text in diagnosis.missing.get(name, ()):
            missing.setdefault(text, []).append(name)
    yield from (f"  missing, of {', '.join(names)}: {text}" for text, names in missing.items())
    following = diagnosis.next_check
    if following is not None and diagnosis.verdict not in (Verdict.NO_INCIDENT, Verdict.PLANNED_CHANGE):
        yield f"next cheapest check: {following.name.replace('_', ' ')} ({following.cost.text}): {following.how}"


def _response(response: Response) -> Iterator[str]:
    if response.nothing and response.verdict is Verdict.INCONCLUSIVE:
        yield "response: nothing yet, for the verdict is inconclusive"
    elif response.nothing:
        yield "response: nothing is to be done"
    else:
        yield "response:"
    if response.resume is not None:
        yield f"  {response.resume.text}"
    if response.skip is not None:
        skip = response.skip
        share = "" if skip.share_of_pass is None else f", {skip.share_of_pass:.2g} of one pass"
        positions = f"{skip.positions[0]:,}:{skip.positions[1]:,}"
        what = f"{skip.num_samples_new:,} samples{share}; {skip.lead_reason}"
        yield f"  skip steps {skip.steps[0]:,}:{skip.steps[1]:,} (positions {positions}): {what}"
    for change in response.configuration:
        yield f"  change {change.what}: {change.to} ({change.reason})"
    for host in response.fence:
        yield f"  take {host} out of the job"
    for command in response.commands:
        yield f"  $ {command.text}    # {command.why}"
    if response.retention:
        yield f"  {response.retention}"
    if response.exports is not None and response.skip is not None:
        exports = response.exports
        yield f"  for Megatron-LM: {exports.megatron_lm}"
        yield f"  for BigScience's Megatron-DeepSpeed: {exports.bigscience}"
        yield f"  for OLMo-core: {exports.olmo_core}"
    yield from (f"  note: {note}" for note in response.notes)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"
