"""Which rows do the tables of the page have, and which small curves stand beside them?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from dataguard.report.html import told
from dataguard.report.run.drawing.charts import Panel, panels_of
from dataguard.report.run.drawing.sparks import spark
from dataguard.report.run.facts import RunFacts, SignalCurve, SourceShare, WithheldOfSource
from dataguard.triage.answers import TriageAnswer

__all__ = ["CurveLine", "Hypothesis", "ShareRow", "SignalRow", "Tables", "WithheldRow", "tables_of"]

_STATUSES = ("quarantined", "unreadable", "refused", "removed", "substituted", "skipped")
_MOST_RULES = 6
_FEW_PANELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveLine:
    """A curve drawn without a script."""

    title: str
    picture: Any
    ends: tuple[str, str]
    """Its least and greatest value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """A signal with its small picture."""

    place: int
    """In `RunFacts.signals`."""
    signal: SignalCurve
    picture: Any
    span: str
    """From which to which median."""
    stands_out: bool
    """Whether `localise` says that it does, at the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldRow:
    """A source with what was withheld of it."""

    withheld: WithheldOfSource
    counts: tuple[int, ...]
    """By status, as the columns are."""
    num_withheld: int
    """Planned slots that did not deliver their sample; what a skip passes over is no slot."""
    rules: tuple[tuple[str, int], ...]
    num_more_rules: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRow:
    """A source in the mixture."""

    share: SourceShare
    picture: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """What could be to blame, with what speaks for and against it."""

    name: str
    score: int
    for_: tuple[str, ...]
    against: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All of them."""

    curves: tuple[CurveLine, ...]
    signals: tuple[SignalRow, ...]
    statuses: tuple[str, ...]
    withheld: tuple[WithheldRow, ...]
    mixture: tuple[ShareRow, ...]
    kinds: tuple[tuple[str, int], ...]
    """(kind of journal events, how many are listed), the most frequent first."""
    hypotheses: tuple[Hypothesis, ...]
    """The likeliest first."""
    missing: tuple[tuple[str, tuple[str, ...]], ...]
    """What nobody looked at, and for which hypotheses it matters."""


def tables_of(facts: RunFacts) -> Tables:
    """What the templates need of all that stands in rows."""
    spans = [(event.start, event.stop) for event in facts.events]
    counted = Counter(status for each in facts.withheld for status, number in each.by_status.items() if number)
    statuses = (*(name for name in _STATUSES if name in counted), *sorted(set(counted) - set(_STATUSES)))
    answer = facts.triage
    if answer is not None and answer.event is None and not any(answer.diagnosis.scores.values()):
        answer = None  # nothing happened, so nothing is to blame
    kinds = Counter(line.kind for line in facts.journal)
    return Tables(
        curves=tuple(_curves(panels_of(facts), spans)),
        signals=_signals(facts, spans),
        statuses=statuses,
        withheld=tuple(_withheld(each, statuses) for each in facts.withheld),
        mixture=tuple(_mixed(each, facts.mixture_steps, spans) for each in facts.mixture),
        kinds=tuple(sorted(kinds.items(), key=lambda each: (-each[1], each[0]))),
        hypotheses=() if answer is None else _hypotheses(answer),
        missing=() if answer is None else _missing(answer),
    )


def _curves(panels: tuple[Panel, ...], spans: list[tuple[int, int]]) -> list[CurveLine]:
    lines = []
    for panel in panels[:_FEW_PANELS]:
        curve = panel.over_all
        if curve is None:
            continue
        picture = spark(
            curve.steps, curve.low, curve.high, spans=spans, width=900, height=160, is_log=panel.is_log,
            bounds=panel.bounds, label=f"{panel.title} by step",
        )  # fmt: skip
        ends = [10**each if panel.is_log else each for each in panel.bounds]
        lines.append(CurveLine(title=panel.title, picture=picture, ends=(told(ends[0]), told(ends[1]))))
    return lines


def _signals(facts: RunFacts, spans: list[tuple[int, int]]) -> tuple[SignalRow, ...]:
    localised = None if facts.triage is None else facts.triage.localised
    odd = frozenset(() if localised is None else (each.signal for each in localised.signals if each.stands_out))
    rows = []
    for place, signal in enumerate(facts.signals):
        medians = [value for value in signal.median if value is not None]
        span = "no value" if not medians else told(medians[0])
        if medians and min(medians) != max(medians):
            span = f"{told(min(medians))} to {told(max(medians))}"
        picture = spark(
            signal.steps, signal.low, signal.high, middle=signal.median, spans=spans, label=f"{signal.name} by step"
        )
        rows.append(SignalRow(place=place, signal=signal, picture=picture, span=span, stands_out=signal.name in odd))
    return tuple(sorted(rows, key=lambda row: not row.stands_out))


def _withheld(each: WithheldOfSource, statuses: tuple[str, ...]) -> WithheldRow:
    rules = sorted(each.by_rule.items(), key=lambda rule: (-rule[1], rule[0]))
    return WithheldRow(
        withheld=each,
        counts=tuple(each.by_status.get(status, 0) for status in statuses),
        num_withheld=sum(number for status, number in each.by_status.items() if status != "skipped"),
        rules=tuple(rules[:_MOST_RULES]),
        num_more_rules=max(0, len(rules) - _MOST_RULES),
    )


def _mixed(share: SourceShare, steps: tuple[int, ...], spans: list[tuple[int, int]]) -> ShareRow:
    picture = spark(
        steps, share.over_time, share.over_time, against=share.asked_over_time, spans=spans, width=200, height=36,
        bounds=(0.0, 1.0), label=f"share of {share.source} by step",
    )  # fmt: skip
    return ShareRow(share=share, picture=picture)


def _hypotheses(answer: TriageAnswer) -> tuple[Hypothesis, ...]:
    diagnosis = answer.diagnosis
    return tuple(
        Hypothesis(name=name, score=score, for_=diagnosis.for_.get(name, ()), against=diagnosis.against.get(name, ()))
        for name, score in sorted(diagnosis.scores.items(), key=lambda each: -each[1])
    )


def _missing(answer: TriageAnswer) -> tuple[tuple[str, tuple[str, ...]], ...]:
    missing: dict[str, list[str]] = {}
    for name in answer.diagnosis.scores:
        for text in answer.diagnosis.missing.get(name, ()):
            missing.setdefault(text, []).append(name)
    return tuple((text, tuple(names)) for text, names in missing.items())
