"""Was something tried after the event, and did it not come again? The last row of the table of six signals (A16).

An event that lies on an abandoned stretch has a later attempt that began before it. Where that attempt got past the
event's steps and as many again without one, what it was given otherwise helped: a skip, other facts of the trainer, or
other machines. Where it was given several at once, or the same event came again, nothing is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dataguard.core.evidence import Mitigation
from dataguard.core.spikes import SpikeEvent
from dataguard.core.trainer import MonitoringFacts, TrainerFacts
from dataguard.errors import NotInRun
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.events import TrainerDescribed
from dataguard.run.journal import Entry, JournalRead
from dataguard.run.places import hosts_of
from dataguard.run.run import Run
from dataguard.triage.curve import curve_of_run
from dataguard.triage.detect import detect
from dataguard.triage.respond import facts_of

__all__ = ["mitigation_of"]


def mitigation_of(run: Run, read: JournalRead, leaf: int, event: SpikeEvent) -> tuple[Mitigation, tuple[str, ...]]:
    """What helped, as far as a later attempt shows it.

    Parameters
    ----------
    leaf
        Attempt on whose lineage the event lies.
    event
        In the trainer's labels.
    """
    begin = event.start if event.onset is None else min(event.onset, event.start)
    onset, stop = run.step(begin), run.step(event.stop - 1) + 1
    tree = run.attempts(read)
    own = {each.number for each in tree.lineage(leaf)}
    retry = next(
        (tree.attempt(each) for each in reversed(tree.numbers) if each not in own and each > leaf
         and tree.attempt(each).fork_step <= onset), None,
    )  # fmt: skip
    if retry is None:
        return Mitigation.NOT_TRIED, ()
    reach = stop + max(stop - onset, 1)
    damage: list[str] = []
    try:
        curve = curve_of_run(run, retry.number, damage=damage)
    except NotInRun:
        return Mitigation.NOT_TRIED, (f"attempt {retry.number} began again before it, and logged nothing",)
    if damage:
        # That it got past the event cannot be said of a curve with holes.
        return Mitigation.NOT_TRIED, (f"attempt {retry.number} began again before it; its telemetry is damaged",)
    if not len(curve.steps) or run.step(int(curve.steps[-1])) < reach:
        return Mitigation.NOT_TRIED, (f"attempt {retry.number} began again before it, and did not get past it",)
    begun = [run.label(each.fork_step) for each in tree.lineage(retry.number)[1:]]
    again = [
        each
        for each in detect(curve, changes=begun, begun=begun).events
        if run.step(each.start) < reach and each.stop > run.label(retry.fork_step)
    ]
    if again:
        where = f"{again[0].event_class} in steps {again[0].start:,}:{again[0].stop:,}"
        return Mitigation.NOT_TRIED, (f"attempt {retry.number} began again before it, and has {where}",)
    tried = _tried(run, read.entries, tree.attempt(leaf), retry)
    past = f"attempt {retry.number} got past step {run.label(reach):,} without it"
    if len(tried) != 1:
        many = "nothing that is known was given otherwise" if not tried else "several things were given otherwise"
        return Mitigation.NOT_TRIED, (f"{past}; {many}",)
    [(helped, text)] = tried.items()
    return helped, (f"{past}: {text}",)


def _tried(run: Run, entries: Sequence[Entry], before: AttemptPlan, retry: AttemptPlan) -> dict[Mitigation, str]:
    """What the later attempt was given otherwise."""
    found: dict[Mitigation, str] = {}
    skips = {skip.event for skip in retry.skips} - {skip.event for skip in before.skips}
    withheld = retry.withheld != before.withheld
    if skips or withheld:
        what = f"the skip of event {', '.join(map(str, sorted(skips)))}" if skips else "what it withholds"
        found[Mitigation.SKIP] = what
    if _facts(entries, retry.number) != _facts(entries, retry.number - 1):
        found[Mitigation.CONFIGURATION] = "the trainer described itself otherwise"
    there, now = (set(hosts_of(run.layout, each.number).values()) for each in (before, retry))
    if there and now and there - now:
        found[Mitigation.HOST] = f"without {', '.join(sorted(there - now))}"
    return found


def _facts(entries: Sequence[Entry], attempt: int) -> TrainerFacts:
    """What the trainer had said of itself by the end of an attempt, but for who watches it: that helps nothing."""
    known = [
        entry
        for entry in entries
        if not isinstance(entry.event, TrainerDescribed) or (entry.event.attempt or 0) <= attempt
    ]
    return msgspec.structs.replace(facts_of(known), monitoring=MonitoringFacts())
