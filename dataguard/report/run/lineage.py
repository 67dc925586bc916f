"""Which attempts, and which of their steps, is the page of a run about?"""

from __future__ import annotations

from dataclasses import dataclass, field

from dataguard.errors import NotInRun, RunDamaged
from dataguard.plan.attempts import AttemptPlan
from dataguard.replay.lookup import Lookup
from dataguard.run.journal import JournalRead
from dataguard.run.reached import reached
from dataguard.run.run import Run

__all__ = ["Lineage", "Owned", "lineage_of", "require_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One attempt of a lineage with the steps that count there, from 0 and half-open."""

    attempt: AttemptPlan
    first: int
    stop: int
    """One past its last step that every rank completed and that no later attempt of the lineage delivered again."""
    farthest: int
    """The same of the rank that came farthest: what lies beyond `stop` is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What is shown of a run, and what is to be said of it."""

    run: Run
    read: JournalRead
    lookup: Lookup
    leaf: int | None
    """None where no attempt has begun."""
    owned: tuple[Owned, ...]
    """In order; one that delivered nothing has an empty range."""
    complete: dict[int, int]
    """One past the last complete step of every attempt."""
    notes: list[str] = field(default_factory=list)
    """What could not be read or is not whole; grows."""
    limits: list[str] = field(default_factory=list)
    """What the page leaves out, and what a healthy run cannot tell; grows."""
    damage: list[str] = field(default_factory=list)
    """What cannot be trusted; grows."""

    @property
    def steps(self) -> tuple[int, int] | None:
        """Complete steps, from 0; None where there are none."""
        own = [each for each in self.owned if each.first < each.stop]
        return (own[0].first, own[-1].stop) if own else None

    @property
    def farthest(self) -> int:
        """One past the last step that any rank came to, complete or not, from 0."""
        return max((each.farthest for each in self.owned), default=0)

    def owner(self, step: int) -> Owned | None:
        """The attempt that counts for a step (from 0); None where none does."""
        return next((each for each in reversed(self.owned) if each.first <= step < each.farthest), None)


def lineage_of(run: Run, attempt: int | None = None) -> Lineage:
    """The lineage of an attempt (default: the newest leaf's).

    Raises
    ------
    NotInRun
        There is no such attempt.
    RunDamaged
        The journal of a run whose other parts are sound contradicts itself.
    """
    read = run.read()
    lookup = Lookup(run)
    if not len(lookup.tree):
        if attempt is not None:
            lookup.tree.attempt(attempt)
        return Lineage(
            run=run, read=read, lookup=lookup, leaf=None, owned=(), complete={}, damage=list(run.problems()),
            notes=[] if run.problems() else ["no attempt has begun: nothing is delivered yet"],
        )  # fmt: skip
    chain = lookup.chain(attempt)
    damage = list(run.problems())
    complete, most = {}, {}
    for number in lookup.tree.numbers:
        first = lookup.tree.attempt(number).fork_step
        try:
            ends = [first if step is None else step for step in reached(run, number)]
        except RunDamaged as error:
            damage.append(f"how far attempt {number} came cannot be told: {str(error).splitlines()[0]}")
            ends = [first]
        complete[number], most[number] = min(ends), max(ends)
    owned = []
    for i, each in enumerate(chain):
        low = each.fork_step
        high = chain[i + 1].fork_step if i + 1 < len(chain) else None
        stop, farthest = complete[each.number], most[each.number] + 1  # the step in hand may be recorded in part
        if high is not None:
            stop, farthest = min(stop, high), min(farthest, high)
        owned.append(Owned(attempt=each, first=low, stop=max(low, stop), farthest=max(low, farthest)))
    return Lineage(
        run=run, read=read, lookup=lookup, leaf=chain[-1].number, owned=tuple(owned), complete=complete, damage=damage
    )


def require_step(lineage: Lineage, label: int) -> None:
    """NotInRun where nothing on the lineage has come to a step (in the trainer's labels); it names who has."""
    step = lineage.run.step(label)
    if lineage.owner(step) is not None:
        return
    if lineage.leaf is None:
        raise NotInRun(f"step {label:,} is not in this run", found="no attempt has begun")
    lineage.lookup.find(label, attempt=lineage.leaf)
    raise NotInRun(f"step {label:,} is not on the lineage of attempt {lineage.leaf}")
