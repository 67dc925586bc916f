"""Do signals, copies and shards of the event's samples stand out, each family with its own share of false alarms?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import DataguardError
from dataguard.plan.given import row_kind
from dataguard.run.policies import policy_of
from dataguard.score.registry import HEADLINE
from dataguard.triage.localise.choosing import choose, is_near
from dataguard.triage.localise.contents import Scored, score_samples
from dataguard.triage.localise.copies import Copies, find_copies
from dataguard.triage.localise.gathered import Gathered
from dataguard.triage.localise.history import Delivered
from dataguard.triage.localise.measures import MEASURES
from dataguard.triage.localise.sample_losses import SampleLosses
from dataguard.triage.localise.signals import (
    Compared,
    Deviation,
    Measured,
    compare,
    deviations,
    rules_as_measures,
)

__all__ = ["Contents", "copies_of", "look_at_contents"]

_HARD = 0.01
"""Chance of a sample's loss below which the sample may stand out by itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """What the samples are, beside the background."""

    compared: tuple[tuple[Compared, NDArray[np.intp]], ...]
    """Each with the places, among the samples searched, of those it was made of; the least chance first."""
    num_comparisons: int
    deviations: tuple[tuple[Deviation, dict[int, int]], ...]
    values: dict[tuple[str, int], float]
    num_measures: int
    scored: Scored
    scored_before: Scored
    num_chosen: int
    """Samples of the steps tested that were to be read."""
    recorded: bool
    """Whether the record alone says something of all samples."""


def look_at_contents(g: Gathered, losses: SampleLosses, roots: Mapping[str, str] | None) -> Contents:
    """Read samples of the event and of the background again, and hold both against each other."""
    tested = np.flatnonzero(g.is_tested)
    event = g.samples.part(tested)
    mine, theirs = choose(event, g.loss[tested], g.before, g.loss_before, quiet=g.quiet, seed=g.seed)
    event_part, before_part = event.part(mine), g.before.part(theirs)
    scored = score_samples(g.run, event_part, g.names[1], roots=roots)
    scored_before = score_samples(g.run, before_part, g.names[1], roots=roots)
    places = tested[mine]
    compared, count = _compared(
        Measured(step=event_part.step, source=event_part.source, values=scored.values),
        Measured(step=before_part.step, source=before_part.source, values=scored_before.values),
        places,
        losses,
        near=is_near(before_part),
        origin="rebuilt",
    )
    from_event = _recorded(g, event)
    quiet = g.before.part(g.quiet)
    from_before = _recorded(g, quiet)
    more, more_count = _compared(from_event, from_before, tested, losses, near=is_near(quiet), origin="recorded")
    found = sorted([*compared, *more], key=lambda each: each[0].order)
    told, values = _deviations(
        [
            (Measured(step=event_part.step, source=event_part.source, values=scored.values), places,
             Measured(step=before_part.step, source=before_part.source, values=scored_before.values)),
            (from_event, tested, from_before),
        ]
    )  # fmt: skip
    for note in (*scored.notes, *scored_before.notes):
        if note not in g.notes:
            g.notes.append(note)
    return Contents(
        compared=tuple(found),
        num_comparisons=count + more_count,
        deviations=told,
        values=values,
        num_measures=max(1, len({*scored.values, *from_event.values})),
        scored=scored,
        scored_before=scored_before,
        num_chosen=len(mine),
        recorded=any(one.origin == "recorded" and one.measure != "length_bytes" for one, _ in found),
    )


def _compared(
    event: Measured,
    before: Measured,
    places: NDArray[np.intp],
    losses: SampleLosses,
    *,
    near: NDArray[np.bool_],
    origin: str,
) -> tuple[list[tuple[Compared, NDArray[np.intp]]], int]:
    chance = np.maximum(losses.chance, losses.own_chance)[places]
    # An odd sample whose loss is as its neighbours' did nothing; where losses are not known each may have.
    alone = None if not len(chance) or np.isnan(chance).any() else chance < _HARD
    found, count = compare(event, before, near=near, origin=origin, alone=alone)  # type: ignore[arg-type]
    return [(one, places) for one in found], count


def _recorded(g: Gathered, samples: Delivered) -> Measured:
    """What the index says of every sample: its length, headline signals, and which rules fired."""
    form = g.run.plan_document().root.form
    known = {measure.name for measure in MEASURES}
    held = samples.held
    values: dict[str, NDArray[np.float64]] = {}
    if form == "document":
        values["length_bytes"] = np.where(held, samples.length.astype(np.float64), np.nan)
    for name in (*HEADLINE["text"], *HEADLINE["tokens"]):
        if name in known and name in samples.recorded and name not in values:
            values[name] = samples.recorded[name]
    values |= _rules(g, samples)
    return Measured(step=samples.step, source=samples.source, values=values)


def _rules(g: Gathered, samples: Delivered) -> dict[str, NDArray[np.float64]]:
    """By the policy of the event's own attempt; what another policy judged is left out."""
    if not len(g.samples) or not samples.judged.any():
        return {}
    attempts = g.run.attempts()
    own = int(g.samples.attempt.max())
    digest = attempts.attempt(own).policy
    if digest is None:
        return {}
    try:
        policy = policy_of(g.run, own)
    except DataguardError as error:
        note = f"rules have no names: {str(error).splitlines()[0]}"
        if note not in g.notes:
            g.notes.append(note)
        return {}
    if policy is None or not policy.rules:
        return {}
    same = [number for number in np.unique(samples.attempt).tolist() if attempts.attempt(number).policy == digest]
    judged = samples.judged & np.isin(samples.attempt, same)
    names = {rule.bit: rule.name for rule in policy.rules}
    fired = rules_as_measures([names.get(bit, "") for bit in range(max(names) + 1)], samples.rules, judged)
    return {name: values for name, values in fired.items() if name != "rule "}


def _deviations(
    parts: list[tuple[Measured, NDArray[np.intp], Measured]],
) -> tuple[tuple[tuple[Deviation, dict[int, int]], ...], dict[tuple[str, int], float]]:
    """Of each sample what was rebuilt, else what was recorded."""
    told: list[tuple[Deviation, dict[int, int]]] = []
    values: dict[tuple[str, int], float] = {}
    for event, places, before in parts:
        for each in deviations(event, before):
            if each.measure.startswith("rule "):
                continue
            mine = event.values[each.measure]
            known = {}
            for i in np.flatnonzero(~np.isnan(each.z)).tolist():
                sample = int(places[i])
                if (each.measure, sample) not in values:
                    values[each.measure, sample] = float(mine[i])
                    known[sample] = i
            if known:
                told.append((each, known))
    return tuple(told), values


def copies_of(g: Gathered) -> Copies:
    """Rows and contents of the event that occur elsewhere; see `copies`."""
    by_row = g.run.plan_document().root.form != "given" or row_kind(g.run.plan) == "indices"
    return find_copies(g.samples, g.is_tested, g.before, by_row=by_row)
