"""Which samples stand in full on the page: those that `localise` names at the event, with how they look.

Where nothing was localised, the outlying samples of the heat maps' cells are. How a sample looks was read once, for the
cells; the one that is named here is found there by its step, rank, microbatch and slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dataguard.replay.answers import rebuilt_digest
from dataguard.report.html import told, visible
from dataguard.report.preview import Piece, as_html
from dataguard.report.preview import Preview as Pieces
from dataguard.report.run.facts import CellSample, HeatCell, Preview, RunFacts
from dataguard.triage.localise import LocalisedSample

__all__ = ["SampleView", "looks_of", "samples_of"]

_MOST = 24

Place = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleView:
    """One sample."""

    shard: str
    row: int
    delivered: tuple[str, int] | None
    source: str
    step: int
    rank: int
    microbatch: int
    slot: int
    position: int
    status: str
    """Empty where it is live, or not known."""
    verdict: str
    digest: str
    loss: str
    """With what it is against, in words; empty where it was not logged."""
    rules: tuple[str, ...]
    facts: tuple[str, ...]
    """Signals and copies."""
    why: tuple[str, ...]
    look: Any
    """Markup, escaped; None where the record was not read."""
    what: str
    """What is marked, or why nothing is shown."""
    command: str


def samples_of(facts: RunFacts) -> tuple[SampleView, ...]:
    """The samples, worst first, a bounded number of them."""
    cells = {place: (cell, sample) for place, cell, sample in _recorded(facts)}
    localised = None if facts.triage is None else facts.triage.localised
    named = () if localised is None else tuple(each for each in localised.samples if each.outlying)
    if named:
        views = [
            _named(each, cells.get((each.step, each.rank, each.microbatch, each.slot)), facts) for each in named[:_MOST]
        ]
        return tuple(views)
    odd = [(cell, sample) for cell, sample in cells.values() if sample.outlying]
    return tuple(_view(sample, cell.step, cell.rank, cell.command, facts) for cell, sample in odd[:_MOST])


def looks_of(preview: Preview | None) -> tuple[Any, str]:
    """How a record looks, as markup (None where nothing is shown), and what that is."""
    from markupsafe import Markup

    if preview is None:
        return None, "not read for this page; the command shows it"
    pieces = tuple(Piece(text=visible(text), kind=kind, marked=marked) for kind, marked, text in preview.parts)
    look = Markup(as_html(Pieces(pieces=pieces, start=0, stop=0, size=preview.size)))  # noqa: S704 - it escapes
    if preview.problem is not None:
        return look if pieces else None, f"cannot be shown: {preview.problem}"
    if preview.signal is not None and preview.num_spans:
        places = "1 place" if preview.num_spans == 1 else f"{preview.num_spans:,} places"
        return look, f"marked: {preview.signal} in {places}"
    return look, "nothing is marked in it"


def _recorded(facts: RunFacts) -> Iterator[tuple[Place, HeatCell, CellSample]]:
    for heat in facts.heats:
        for cell in heat.cells:
            for sample in cell.samples:
                yield (cell.step, cell.rank, sample.microbatch, sample.slot), cell, sample


def _named(each: LocalisedSample, found: tuple[HeatCell, CellSample] | None, facts: RunFacts) -> SampleView:
    about = [
        f"{one.signal} {told(one.value)} (usual {told(one.usual)}{f', z {one.z:.3g}' if one.z is not None else ''})"
        for one in each.signals[:_MOST]
    ]
    if each.num_copies:
        about.append("another row has" if each.num_copies == 1 else f"{each.num_copies:,} other rows have")
        about[-1] += " the same content"
    if each.num_seen_before:
        since = "" if each.first_seen_step is None else f", first at step {each.first_seen_step:,}"
        about.append(f"delivered {_times(each.num_seen_before)} before{since}")
    loss = told(each.loss, "") if each.is_finite else "NaN or infinite"
    against = f" (z {each.loss_z:.3g})" if each.loss_z is not None else ""
    cell, sample = (None, None) if found is None else found
    look, what = looks_of(_preview(sample, facts))
    command = f"dataguard inspect RUN --step {each.step} --rank {each.rank} --preview" if cell is None else cell.command
    return SampleView(
        shard=each.shard,
        row=each.row,
        delivered=None if each.delivered is None else (each.delivered.shard, each.delivered.row),
        source=each.source,
        step=each.step,
        rank=each.rank,
        microbatch=each.microbatch,
        slot=each.slot,
        position=each.position,
        status="" if sample is None or sample.status == "live" else sample.status,
        verdict=each.verdict or "",
        digest=rebuilt_digest(each.digest),
        loss=f"{loss}{against}" if loss else "",
        rules=() if sample is None else sample.rules,
        facts=tuple(about),
        why=each.why,
        look=look,
        what=what,
        command=command,
    )


def _view(sample: CellSample, step: int, rank: int, command: str, facts: RunFacts) -> SampleView:
    look, what = looks_of(_preview(sample, facts))
    return SampleView(
        shard=sample.shard,
        row=sample.row,
        delivered=sample.delivered,
        source=sample.source,
        step=step,
        rank=rank,
        microbatch=sample.microbatch,
        slot=sample.slot,
        position=sample.position,
        status="" if sample.status == "live" else sample.status,
        verdict=sample.verdict or "",
        digest=sample.digest,
        loss=told(sample.loss, ""),
        rules=sample.rules,
        facts=(),
        why=sample.why,
        look=look,
        what=what,
        command=command,
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _preview(sample: CellSample | None, facts: RunFacts) -> Preview | None:
    return None if sample is None or sample.preview is None else facts.previews[sample.preview]
