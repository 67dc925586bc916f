"""Where a record stands, by looking at everything: every position of every attempt, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dataguard.run.run import Run
from tests.support.story import Story
from tests.twins.steps import in_slots, is_skipped, walk


@dataclass(frozen=True, order=True)
class Place:
    """One place; what is None is not meant to be compared."""

    position: int
    attempt: int
    label: str
    step: int | None
    slot: int | None
    status: str


def planned_at(run: Run, attempt: int, stop: int) -> list[tuple[str, int]]:
    """(shard, row) of positions ``0:stop``, forwards."""
    stream = run.stream_of(attempt)
    samples = stream.samples(np.arange(stop))
    names = stream.manifest_set
    return [(names.shard_name(s), r) for s, r in zip(samples.shard.tolist(), samples.row.tolist(), strict=True)]


def all_places(story: Story, leaf: int, complete: dict[int, int], until: int) -> dict[tuple[str, int], list[Place]]:
    """Every place of every record: handed over (by the log), skipped, and planned before step ``until``."""
    places: dict[tuple[str, int], list[Place]] = {}
    for key, place in _walked(story, leaf, complete, until):
        places.setdefault(key, []).append(place)
    return {key: sorted(each) for key, each in places.items()}


def _walked(story: Story, leaf: int, complete: dict[int, int], until: int) -> Iterator[tuple[tuple[str, int], Place]]:
    run, tree = story.run, story.run.attempts()
    owners = {attempt.number for attempt in tree.lineage(leaf)}
    forks = {attempt.number: attempt.fork_step for attempt in tree.lineage(leaf)}
    for number in tree.numbers:
        attempt = tree.attempt(number)
        log = [handed for handed in story.log if handed.attempt == number]
        last = max(handed.step for handed in log)
        stop = max(until, last + 1) if number == leaf else last + 1
        found = walk(tree.lineage(number), run.document.skip_mode, stop)
        rows = planned_at(run, number, found.walked)
        withheld = {entry.shard for entry in attempt.withheld}
        handed_over = {handed.position: handed for handed in log}
        end = max(handed_over) + 1
        stands = {
            position: (step, slot)
            for step, batch in found.steps.items()
            for slot, position in enumerate(in_slots(batch, run.plan.root.lanes))
        }
        withholds = "quarantined" if run.document.fill == "mask" else "substituted"
        for position in range(attempt.start_position, found.walked):
            if is_skipped(attempt, position):
                if position < end or number == leaf:
                    yield rows[position], Place(position, number, "skipped", None, None, "skipped")
                continue
            step, slot = stands[position]
            handed = handed_over.get(position)
            if handed is None:
                if number == leaf and step < until:
                    status = withholds if rows[position][0] in withheld else "live"
                    yield rows[position], Place(position, number, "planned", step, slot, status)
                    if status == "substituted":
                        drawn = _drawn(run, number, position, withheld)
                        yield drawn, Place(position, number, "planned", step, slot, "substitute")
                continue
            assert (handed.step, handed.slot) == (step, slot)
            after = [fork for other, fork in forks.items() if other > number]
            live = number in owners and (not after or step < min(after))
            label = "unfinished" if step >= complete[number] else "live" if live else "abandoned"
            yield rows[position], Place(position, number, label, step, slot, handed.status.name.lower())
            if handed.status.name == "SUBSTITUTED":
                assert handed.place is not None
                yield handed.place, Place(position, number, label, step, slot, "substitute")


def _drawn(run: Run, attempt: int, position: int, withheld: set[str]) -> tuple[str, int]:
    """The first draw for a position that no quarantined shard holds."""
    stream = run.stream_of(attempt)
    planned = stream.samples(np.array([position]))
    source, generation = int(planned.source[0]), int(planned.generation[0])
    for draw in range(8):
        _, shard, row = stream.substitute(position, source, generation, draw)
        if stream.manifest_set.shard_name(shard) not in withheld:
            return stream.manifest_set.shard_name(shard), row
    raise AssertionError("eight draws of a source that is mostly good all failed")
