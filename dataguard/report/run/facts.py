"""What is on the page of a run? Every value of it, as documents: gathered from the run, drawn by the page.

Steps are in the trainer's labels, ranges are half-open, losses are nats. None is what was not measured or not kept; no
number here is a default. Texts are as data has them: whoever draws them makes them harmless.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.core.spikes import EventClass
from dataguard.replay.log import LogLine
from dataguard.triage.answers import TriageAnswer

__all__ = [
    "AttemptMark",
    "CellSample",
    "Curve",
    "EventMark",
    "Heat",
    "HeatCell",
    "Measure",
    "Preview",
    "RunFacts",
    "SignalCurve",
    "SkipMark",
    "SourceShare",
    "WithheldOfSource",
]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One telemetry name over the steps of the lineage, in at most a few thousand columns.

    A column is one step, or a stretch of steps with its least and greatest value, so that no spike is lost.
    """

    name: str
    """``loss``, ``grad_norm``, ``lr``, ..."""
    rank: int | None
    """None: over all ranks of a step: the mean of the losses, the largest gradient norm, and of any other name what the
    lowest rank logged that logged it there; as `triage` looks at them."""
    steps: tuple[int, ...]
    """First step of each column, ascending."""
    low: tuple[float | None, ...]
    """None where nothing of the column is finite."""
    high: tuple[float | None, ...]
    num_not_finite: tuple[tuple[int, int], ...] = ()
    """(first step of the column, how many values of it were NaN or infinite), of those that have any."""


class EventMark(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the curve."""

    event_class: EventClass = msgspec.field(name="class")
    start: int
    stop: int
    peak: int
    signal: str
    rank: int | None
    text: str
    """In one line: size, sigmas, what became of it."""


class SkipMark(msgspec.Struct, frozen=True, kw_only=True):
    """A range that is not trained on."""

    event: int
    """Number of its journal event."""
    step: int | None
    """The step at which the stream jumps over it; None while no attempt has applied it."""
    steps: tuple[int, int] | None
    """As it was asked for, in steps of the attempt it was asked of; None where it was asked for in batches."""
    batches: tuple[int, int]
    reason: str
    state: str
    """applied, pending or revoked."""


class AttemptMark(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the run."""

    number: int
    parent: int | None
    begins: int
    """Its first step."""
    ends: int | None
    """One past the last step that is complete; None where nothing is."""
    world_size: int
    microbatch_size: int
    global_batch: int
    live_until: int | None
    """One past its last step on the lineage shown; None where none of it is live there."""
    time: str
    policy: str | None
    num_withheld: int
    """Entries of quarantine that it began with."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One number for each rank and step of a heat map."""

    name: str
    """``loss``, ``grad_norm``, ``flagged``, ``withheld``, ..."""
    title: str
    """For people, with the unit."""
    values: tuple[tuple[float | None, ...], ...]
    """By rank, then by step; None where there is none."""
    not_finite: tuple[tuple[int, int], ...] = ()
    """(place of the rank, place of the step) where NaN or infinity was logged."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """How a record looks: in parts, in order; together they are one line that is safe to show."""

    parts: tuple[tuple[Literal["text", "escape", "note", "cut"], bool, str], ...]
    """Kind, whether it is inside a marked span, and text: the pieces of `dataguard.report.preview`."""
    size: int
    """Bytes of the record, tokens of the window."""
    signal: str | None
    """What the marked spans made."""
    spans: tuple[tuple[int, int], ...] = ()
    """Half-open, in bytes or tokens of the sample; the first 100."""
    num_spans: int = 0
    problem: str | None = None
    """Why it cannot be shown, or is not what was delivered."""


class CellSample(msgspec.Struct, frozen=True, kw_only=True):
    """One slot as that rank was handed it."""

    microbatch: int
    slot: int
    position: int
    source: str
    shard: str
    row: int
    status: str
    """live, substituted, quarantined, unreadable, skipped, ended, refused or removed."""
    delivered: tuple[str, int] | None = None
    """Shard and row of a substitute."""
    verdict: str | None = None
    rules: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    loss: float | None = None
    """Its own, where samples' losses were logged."""
    digest: str
    """Of what was delivered; ``none`` where nothing was."""
    outlying: bool = False
    """Whether `localise` says that it stands out."""
    preview: int | None = None
    """Its place in `RunFacts.previews`; None where it was not read: `inspect --preview` shows it."""


class HeatCell(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank was fed at one step."""

    rank: int
    step: int
    attempt: int
    samples: tuple[CellSample, ...]
    num_samples: int
    """As recorded; more than are listed where a batch is large."""
    command: str
    """That shows all of it: ``dataguard inspect RUN --step N --rank R``."""


class Heat(msgspec.Struct, frozen=True, kw_only=True):
    """The steps around one event, rank by rank."""

    event: int | None
    """Its place in `RunFacts.events`; None for a step that was asked for without an event. A long event may have two:
    one of its begin, one around its peak."""
    steps: tuple[int, ...]
    """Ascending; those of which anything was recorded or logged, the last of which may not be complete."""
    ranks: tuple[int, ...]
    """Those shown: all, or of very many those that stand out and others in order."""
    num_ranks: int
    measures: tuple[Measure, ...]
    cells: tuple[HeatCell, ...]
    """Of every rank and step shown for which anything was recorded."""


class SignalCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One signal of delivered samples over time, in at most a few hundred stretches of steps."""

    name: str
    unit: str
    steps: tuple[int, ...]
    """First step of each stretch."""
    low: tuple[float | None, ...]
    """5 % quantile."""
    median: tuple[float | None, ...]
    high: tuple[float | None, ...]
    """95 % quantile."""
    num_samples: tuple[int, ...]
    note: str | None = None
    """What it rests on: signals are kept in 8 bits, say, or of flagged samples alone."""


class WithheldOfSource(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of a source that did not deliver their planned sample, on the lineage shown."""

    source: str
    num_slots: int
    """Planned slots of this source."""
    by_status: dict[str, int]
    """quarantined, unreadable, refused, removed, substituted, skipped: how many each."""
    by_rule: dict[str, int]
    """Rules that fired on its samples, also where they were delivered (flag)."""


class SourceShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a source was asked for and delivered."""

    source: str
    asked: float | None
    """Share of samples by the plan's weights; None where stages differ."""
    asked_over_time: tuple[float | None, ...]
    """The same at the first step of each stretch of `RunFacts.mixture_steps`."""
    delivered: float | None
    """Share of the delivered samples; None where nothing is delivered."""
    num_delivered: int
    over_time: tuple[float | None, ...]
    """Its share in each stretch of `RunFacts.mixture_steps`."""
    num_bytes: int | None
    """Sum of lengths: bytes of documents; None for windows."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one run and lineage."""

    run: str
    """Its directory as it was named, without the folders above it."""
    run_id: str
    attempt: int | None
    """The leaf of the lineage shown; None where no attempt has begun."""
    steps: tuple[int, int] | None
    """Complete steps of the lineage."""
    num_steps_delivered: int
    """Complete steps of which there is a record."""
    num_samples: int
    """Delivered in those, substitutes among them."""
    policy: str | None
    curves: tuple[Curve, ...]
    """Loss and gradient norm first; a rank's own after those over all ranks."""
    events: tuple[EventMark, ...]
    skips: tuple[SkipMark, ...]
    attempts: tuple[AttemptMark, ...]
    checkpoints: tuple[tuple[int, str], ...]
    """(first untrained step, path) as noted."""
    heats: tuple[Heat, ...]
    """The most serious events first; at most a few."""
    previews: tuple[Preview, ...]
    signals: tuple[SignalCurve, ...]
    withheld: tuple[WithheldOfSource, ...]
    mixture: tuple[SourceShare, ...]
    mixture_steps: tuple[int, ...]
    triage: TriageAnswer | None
    """None where journal or telemetry cannot be trusted; a note says so."""
    journal: tuple[LogLine, ...]
    num_journal: int
    """Events of the journal: more than are listed where it is very long; the newest are."""
    notes: tuple[str, ...]
    """What could not be read or is not whole, and why."""
    limits: tuple[str, ...]
    """What the page leaves out, and what a healthy run of this kind cannot tell."""
