"""What does the head of the page say: the verdict in a word, where the event lies, and what is to be typed?

The words are those of `dataguard.triage`. Where nobody looked, or nothing was logged, the page says that and is not
green: a run that nobody watched is no run without an incident.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataguard.core.evidence import RankPattern, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.report.html import told
from dataguard.report.run.drawing.numbers import steps_text
from dataguard.report.run.facts import RunFacts
from dataguard.report.triage import could_show
from dataguard.triage.answers import EventShown, TriageAnswer
from dataguard.triage.localise import Localised, LocalisedRank
from dataguard.triage.respond import Command, Response
from dataguard.triage.respond.answers import SkipAdvice

__all__ = ["Fact", "Head", "Typed", "head_of"]

_TITLES = {
    Verdict.BAD_DATA: ("Bad data", "fail"),
    Verdict.DATA_AND_STATE: ("Data and state together", "fail"),
    Verdict.HARD_BATCH: ("A hard batch", "flag"),
    Verdict.OPTIMIZER_OR_NUMERICS: ("Optimizer or numerics", "fail"),
    Verdict.HARDWARE: ("Hardware", "fail"),
    Verdict.APPLICATION: ("Application", "fail"),
    Verdict.PLANNED_CHANGE: ("A planned change", "pass"),
    Verdict.NO_INCIDENT: ("No incident", "pass"),
    Verdict.INCONCLUSIVE: ("Inconclusive", "flag"),
}
_SETTLED = (Verdict.NO_INCIDENT, Verdict.PLANNED_CHANGE)
_SIZELESS = {EventClass.HARD_FAULT: "NaN or infinite", EventClass.STALL: "no row arrives"}
_FEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One of the few facts that stand in large letters."""

    what: str
    value: str
    more: str = ""
    is_name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """One thing to do, and what to type for it where it can be typed."""

    text: str
    commands: tuple[str, ...] = ()
    """One a line."""
    can_copy: bool = True
    """Whether they can be typed as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of the page."""

    title: str
    tone: str
    verdict: str
    """The word of the vocabulary; empty where there is none."""
    summary: str
    facts: tuple[Fact, ...]
    typed: tuple[Typed, ...]
    asks: str
    """Heading of what is to be typed."""
    could_show: tuple[str, ...] = ()
    """Where no event was found: what the log could show at all."""


def head_of(facts: RunFacts) -> Head:
    """The head."""
    answer = facts.triage
    if facts.attempt is None:
        return _untold("Nothing has run yet", "nothing", "no attempt of this run has begun, so there is no verdict")
    if answer is None:
        why = "journal or telemetry of this run cannot be trusted, so there is no verdict"
        return _untold("No verdict", "fail", why)
    diagnosis = answer.diagnosis
    title, tone = _TITLES[diagnosis.verdict]
    if answer.steps is None and diagnosis.verdict in _SETTLED:
        return Head(
            title="Nothing was logged",
            tone="nothing",
            verdict=diagnosis.verdict.value,
            summary=f"there is no telemetry of this run, so nothing is known of its loss; {diagnosis.summary}",
            facts=(),
            typed=tuple(_typed(answer)),
            asks="What to do",
        )
    return Head(
        title=title,
        tone=tone,
        verdict=diagnosis.verdict.value,
        summary=diagnosis.summary,
        facts=tuple(_facts(answer, answer.event)) if answer.event is not None else (),
        could_show=tuple(could_show(answer)) if answer.event is None else (),
        typed=tuple(_typed(answer)),
        asks=_asks(answer.response),
    )


def _untold(title: str, tone: str, summary: str) -> Head:
    return Head(title=title, tone=tone, verdict="", summary=summary, facts=(), typed=(), asks="")


def _facts(answer: TriageAnswer, event: EventShown) -> list[Fact]:
    what = event.event_class.value.replace("_", " ")
    sizes = []
    if event.sigmas is not None:
        sizes.append(f"{event.sigmas:.3g} robust sigmas")
    if event.grad_norm_ratio is not None:
        sizes.append(f"gradient norm x {event.grad_norm_ratio:.3g}")
    if event.aftermath_nats is not None:
        sizes.append(f"aftermath {event.aftermath_nats:+.3g} nats")
    size = (
        f"{event.size_nats:+.3g} nats" if event.size_nats is not None else _SIZELESS.get(event.event_class, "not known")
    )
    found = [
        Fact(what="event", value=what, more="it goes on at the end of the log" if event.is_open else ""),
        Fact(
            what="steps" if event.stop > event.start + 1 else "step",
            value=steps_text(event.start, event.stop).partition(" ")[2],
            more=f"peak {event.peak:,}" + (f", onset {event.onset:,}" if event.onset is not None else ""),
        ),
    ]
    if event.signal != "loss" and event.event_class not in _SIZELESS:
        found.append(Fact(what="seen in", value=event.signal, more=", ".join(sizes), is_name=True))
    else:
        found.append(Fact(what="size", value=size, more=", ".join(sizes)))
    return [*found, _rank(event, answer.localised), _shard(answer.localised)]


def _rank(event: EventShown, localised: Localised | None) -> Fact:
    ranks = () if localised is None else localised.ranks
    # Odd samples are found on any rank by chance: they name one only where no rank's own loss or gradient norm does.
    odd = [each for each in ranks if each.outlying] or [each for each in ranks if each.num_outlying_samples]
    if odd:
        more = ""
        if localised is not None and localised.pattern is RankPattern.WITH_DATA:
            more = "it held samples that stand out" if len(odd) == 1 else "they held samples that stand out"
        elif localised is not None and localised.pattern is RankPattern.PERSISTENT:
            more = "again and again, over other data"
        return Fact(what="rank" if len(odd) == 1 else "ranks", value=_listed(odd), more=more)
    if event.rank is not None:
        return Fact(what="rank", value=str(event.rank), more="it alone shows the event")
    if localised is not None and localised.pattern is RankPattern.NONE:
        return Fact(what="rank", value="none stands out")
    return Fact(what="rank", value="not known")


def _shard(localised: Localised | None) -> Fact:
    if localised is None:
        return Fact(what="shard", value="not known")
    odd = [sample for sample in localised.samples if sample.outlying]
    shards = [each.name for each in localised.shards if each.stands_out] or list(dict.fromkeys(s.shard for s in odd))
    if shards:
        named = [each for each in localised.shards if each.name == shards[0]]
        more = [f"samples that stand out: {each.num_outlying:,} of {each.num_samples:,}" for each in named]
        if len(shards) > 1:
            more.append(f"and {len(shards) - 1:,} more shards")
        return Fact(what="shard", value=shards[0], more=", ".join(more), is_name=True)
    if localised.data is Told.NO:
        return Fact(what="shard", value="none stands out")
    return Fact(what="shard", value="not known")


def _is_skip(command: Command) -> bool:
    return command.argv[:2] == ("dataguard", "skip")


def _skip(skip: SkipAdvice) -> str:
    where = f"{steps_text(*skip.steps)} (positions {skip.positions[0]:,}:{skip.positions[1]:,})"
    if skip.by_event:
        return f"{where} are skipped already, by event {', '.join(map(str, skip.by_event))}"
    share = "" if skip.share_of_pass is None else f", {told(skip.share_of_pass)} of one pass"
    return f"skip {where}: {skip.num_samples_new:,} samples{share}; {skip.lead_reason}"


def _listed(ranks: list[LocalisedRank]) -> str:
    names = [str(each.rank) for each in ranks]
    if len(names) > _FEW:
        return f"{', '.join(names[:_FEW])} and {len(names) - _FEW} more"
    return ", ".join(names)


def _asks(response: Response) -> str:
    if response.nothing and response.verdict is Verdict.INCONCLUSIVE:
        return "What to do: nothing yet, for the verdict is inconclusive"
    if response.nothing:
        return "What to do: nothing"
    return "What to do"


def _typed(answer: TriageAnswer) -> list[Typed]:
    response, diagnosis = answer.response, answer.diagnosis
    typed = []
    if response.resume is not None:
        typed.append(Typed(text=response.resume.text))
    skips = "" if response.skip is None else _skip(response.skip)
    if skips and not any(_is_skip(command) for command in response.commands):
        typed.append(Typed(text=skips))
        skips = ""
    for command in response.commands:
        is_skip = bool(skips) and _is_skip(command)
        text = skips if is_skip else command.why
        skips = "" if is_skip else skips
        if typed and typed[-1].commands and typed[-1].text == text:  # of ten rows to quarantine one copies all at once
            typed[-1] = Typed(text=text, commands=(*typed[-1].commands, command.text))
        else:
            typed.append(Typed(text=text, commands=(command.text,)))
    typed += [Typed(text=f"change {each.what}: {each.to} ({each.reason})") for each in response.configuration]
    typed += [Typed(text=f"take {host} out of the job") for host in response.fence]
    following = diagnosis.next_check
    if following is not None and diagnosis.verdict not in _SETTLED:
        name = following.name.replace("_", " ")
        typed.append(
            Typed(
                text=f"the next cheapest check: {name} ({following.cost.text})",
                commands=(following.how,),
                can_copy=following.how.startswith("dataguard "),
            )
        )
    return typed
