"""What does one attempt decide, and how do attempts hang together?

An attempt is one start of the run: from which step, with which geometry, mixtures, batch sizes, skips and withheld
rows. All of it is fixed when it begins. Attempts form a tree; the path from the root to a leaf is a lineage:

1. Attempt k of a lineage owns the steps from its fork step to the next one's fork step; the leaf owns all from its own.
2. Its start position is one past the last position of the step before the fork, as its parent cut it.
3. It carries its own full lists. They are its parent's, amended at its start; later planned entries stay unless
   replaced. Skips are all that were unrevoked when it began, as one merged set; what lies before its start is
   without effect.
4. A delivery (attempt, step) is ``unfinished`` where the attempt died inside the step, else ``live`` on the lineages
   on which its attempt owns the step, and ``abandoned`` on all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from dataguard.core.address import Geometry
from dataguard.core.digests import canonical_json, sha256_hex
from dataguard.core.spans import SpanSet, check_span
from dataguard.errors import AttemptError, NotInRun
from dataguard.plan.cutting import Cutting
from dataguard.plan.document import BatchSize, Mixture, PlanDocument, Root, SkipMode, check_starts
from dataguard.plan.withheld import Withheld

__all__ = ["AttemptPlan", "AttemptTree", "DeliveryLabel", "Skip", "amend", "attempt_digest", "check_fork", "in_force"]

DeliveryLabel = Literal["live", "abandoned", "unfinished"]


class _Staged(Protocol):
    @property
    def start(self) -> int: ...


_Entry = TypeVar("_Entry", bound=_Staged)


def amend(entries: Sequence[_Entry], entry: _Entry) -> tuple[_Entry, ...]:
    """Add an entry to a list by position: it replaces one with the same start, and all others stay.

    >>> sizes = (BatchSize(start=0, size=8), BatchSize(start=640, size=32))
    >>> [(each.start, each.size) for each in amend(sizes, BatchSize(start=240, size=16))]
    [(0, 8), (240, 16), (640, 32)]
    """
    kept = [each for each in entries if each.start != entry.start]
    return tuple(sorted([*kept, entry], key=lambda each: each.start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Positions ``start:stop`` not to be trained on, by one event and its reason."""

    start: int
    stop: int
    event: int
    """Number of the journal event, at least 1."""
    reason: str

    def __post_init__(self) -> None:
        check_span(self.start, self.stop, what="skip range")
        if self.event < 1:
            raise AttemptError(f"event {self.event} cannot hold a skip", allowed="a journal number of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """All that one attempt decides. Lists are complete: nothing is looked up in the parent.

    >>> from dataguard.core.address import Geometry
    >>> first = AttemptPlan(number=1, geometry=Geometry(world_size=4, microbatch_size=2),
    ...                     mixtures=(Mixture(start=0, manifest="m", weights={"web": 1}),),
    ...                     batch_sizes=(BatchSize(start=0, size=16),))
    >>> first.cutting("jump").cut(3)
    Cut(start=48, stop=64, size=16)
    """

    number: int
    """At least 1, in the order of the journal."""
    parent: int | None = None
    """The attempt whose state it resumed from; None for the first."""
    fork_step: int = 0
    """Its first step."""
    start_position: int = 0
    """One past the last position of the step before the fork."""
    geometry: Geometry
    mixtures: tuple[Mixture, ...]
    batch_sizes: tuple[BatchSize, ...]
    skips: tuple[Skip, ...] = ()
    """Every skip unrevoked when it began, wherever it lies."""
    withheld: tuple[Withheld, ...] = ()
    epochs: int | None = None
    """Whole epochs after which its stream is padding; None where it has no such end."""
    policy: str | None = None
    """Digest of the policy that judges its samples; None where nothing does."""
    profile: str | None = None
    """Digest of the reference profile that the policy goes by."""
    vocab_size: int | None = None
    """Ids below which the policy takes a token for one of the vocabulary."""
    spans: SpanSet = field(init=False, repr=False, compare=False)
    """The skips as one merged set."""

    def __post_init__(self) -> None:
        if self.number < 1:
            raise AttemptError(f"attempt {self.number} cannot be", allowed="attempts count from 1")
        if self.parent is None and (self.fork_step, self.start_position) != (0, 0):
            raise AttemptError(
                f"attempt {self.number} has no parent and begins at step {self.fork_step:,}, position "
                f"{self.start_position:,}",
                allowed="step 0, position 0",
            )
        if self.parent is not None and not 0 < self.parent < self.number:
            raise AttemptError(
                f"attempt {self.number} cannot fork from attempt {self.parent}",
                allowed=f"an attempt of 1:{self.number}",
            )
        if self.fork_step < 0 or self.start_position < self.fork_step:
            raise AttemptError(
                f"attempt {self.number} begins at step {self.fork_step:,}, position {self.start_position:,}",
                allowed="a step of at least 0, and a position no lower than the step",
            )
        if self.epochs is not None and self.epochs < 1:
            raise AttemptError(f"attempt {self.number} of {self.epochs} epochs cannot be", allowed="at least 1")
        if self.policy is None and (self.profile, self.vocab_size) != (None, None):
            raise AttemptError(f"attempt {self.number} has a profile or a vocabulary size, and no policy to use it")
        check_starts("mixture", self.mixtures)
        check_starts("batch size", self.batch_sizes)
        for entry in self.planned_batch_sizes:
            self.geometry.check(entry.size)
        object.__setattr__(self, "spans", SpanSet.of((skip.start, skip.stop) for skip in self.skips))

    @property
    def planned_batch_sizes(self) -> tuple[BatchSize, ...]:
        """The batch sizes that this attempt may meet: the one in force at its start, and all later ones."""
        return in_force(self.batch_sizes, self.start_position)

    def cutting(self, skip_mode: SkipMode) -> Cutting:
        """How this attempt cuts positions into steps, from its start on and without end."""
        return Cutting(
            start=self.start_position,
            first_step=self.fork_step,
            batch_sizes=self.batch_sizes,
            passed_over=self.spans if skip_mode == "jump" else SpanSet(),
        )

    def skips_over(self, start: int, stop: int) -> tuple[Skip, ...]:
        """Every skip that holds a position of ``start:stop``, in the order of events."""
        hit = (skip for skip in self.skips if skip.start < stop and start < skip.stop)
        return tuple(sorted(hit, key=lambda skip: (skip.event, skip.start)))

    @classmethod
    def first(
        cls,
        document: PlanDocument,
        *,
        geometry: Geometry,
        skips: Iterable[Skip] = (),
        withheld: Iterable[Withheld] = (),
        number: int = 1,
    ) -> AttemptPlan:
        """Begin the attempt that starts a run: no parent, the plan's own lists."""
        return cls(
            number=number,
            geometry=geometry,
            mixtures=document.mixtures,
            batch_sizes=document.batch_sizes,
            skips=tuple(skips),
            withheld=tuple(withheld),
        )


def in_force(entries: Sequence[_Entry], position: int) -> tuple[_Entry, ...]:
    """Keep the entry in force at a position and all later ones."""
    later = [entry for entry in entries if entry.start > position]
    return tuple(entries[len(entries) - len(later) - 1 :])


def check_fork(parent: AttemptPlan, fork_step: int, parent_next_step: int, *, first_label: int = 0) -> None:
    """Refuse a fork outside the parent's own steps ``parent.fork_step : parent_next_step`` (its next step included)."""
    if parent.fork_step <= fork_step <= parent_next_step:
        return
    low, high, asked = (step + first_label for step in (parent.fork_step, parent_next_step, fork_step))
    earlier = fork_step < parent.fork_step and parent.parent is not None
    raise AttemptError(
        f"no attempt can begin at step {asked:,} from attempt {parent.number}",
        found=f"attempt {parent.number} began at step {low:,}, and its next step is {high:,}",
        allowed=f"a step from {low:,} to {high:,}, both included",
        todo=f"resume from a state of attempt {parent.parent}" if earlier else None,
    )


def attempt_digest(root: Root, attempt: AttemptPlan) -> str:
    """SHA-256 over all that decides what an attempt delivers: equal for attempts that cannot be told apart by it.

    Skips count as merged positions and withheld rows as a set, so neither order nor reasons matter. Policy and
    reference profile are null in an attempt without, the vocabulary's size is left out; the place of a transform is
    kept, null for now.
    """
    document: dict[str, object] = {
        "root": root.digest,
        "mixtures": attempt.mixtures,
        "batch_sizes": attempt.batch_sizes,
        "skips": attempt.spans.spans,
        "withheld": sorted(
            {(entry.shard, -1 if entry.row is None else entry.row) for entry in attempt.withheld},
            key=lambda pair: (pair[0].encode(), pair[1]),
        ),
        "topology": {
            "world_size": attempt.geometry.world_size,
            "microbatch_size": attempt.geometry.microbatch_size,
        },
        "epochs": attempt.epochs,
        "policy": attempt.policy,
        "profile": attempt.profile,
        "transform": None,
    }
    if attempt.vocab_size is not None:
        document["vocab_size"] = attempt.vocab_size
    return sha256_hex(b"dataguard-attempt-1" + canonical_json(document))


class AttemptTree:
    """All attempts of a run.

    Parameters
    ----------
    attempts
        In the order of the journal; the first has no parent, every other one of those before it.
    skip_mode
        Of the run: in ``hole`` a step whose positions are all skipped is delivered by nobody.
    first_label
        What the trainer calls step 0; messages speak in its labels, arguments and answers count from 0.
    independent
        No attempt forks from another: evaluations of a named stream, each of which is a lineage of its own.

    Examples
    --------
    >>> from dataguard.core.address import Geometry
    >>> lists = dict(geometry=Geometry(world_size=1, microbatch_size=1), batch_sizes=(BatchSize(start=0, size=8),),
    ...              mixtures=(Mixture(start=0, manifest="m", weights={"web": 1}),))
    >>> tree = AttemptTree([AttemptPlan(number=1, **lists),
    ...                     AttemptPlan(number=2, parent=1, fork_step=35, start_position=280, **lists),
    ...                     AttemptPlan(number=3, parent=1, fork_step=30, start_position=240, **lists)])
    >>> next_steps = {1: 60, 2: 70, 3: 33}
    >>> tree.holders(50, next_steps)
    (1, 2)
    >>> tree.label(2, 40, next_steps, leaf=2), tree.label(1, 40, next_steps, leaf=2)
    ('live', 'abandoned')
    """

    __slots__ = ("_attempts", "_first_label", "_independent", "_skip_mode")

    def __init__(
        self,
        attempts: Iterable[AttemptPlan],
        *,
        skip_mode: SkipMode = "jump",
        first_label: int = 0,
        independent: bool = False,
    ) -> None:
        self._attempts: dict[int, AttemptPlan] = {}
        self._independent = independent
        self._skip_mode: SkipMode = skip_mode
        self._first_label = first_label
        for attempt in attempts:
            if attempt.number in self._attempts:
                raise AttemptError(f"attempt {attempt.number} is there twice")
            if attempt.parent is None and self._attempts and not independent:
                raise AttemptError(
                    f"attempt {attempt.number} has no parent, but attempt {min(self._attempts)} is there already",
                    allowed="one root a run: an attempt that starts anew forks from the first at its first step",
                )
            if attempt.parent is not None and attempt.parent not in self._attempts:
                raise AttemptError(
                    f"attempt {attempt.number} forks from attempt {attempt.parent}, which is not there",
                    found=self._shown(self._attempts),
                )
            self._attempts[attempt.number] = attempt

    def __len__(self) -> int:
        return len(self._attempts)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Every attempt's number, rising."""
        return tuple(sorted(self._attempts))

    @property
    def newest(self) -> int:
        """The newest leaf: the highest number, which nothing has forked from. NotInRun where no attempt has begun."""
        if not self._attempts:
            raise NotInRun("no attempt of this run has begun", todo="begin one: iterate a loader, or rehearse the run")
        return max(self._attempts)

    def attempt(self, number: int) -> AttemptPlan:
        """One attempt; NotInRun, with those there are, where the run has none of that number."""
        if number not in self._attempts:
            raise NotInRun(f"attempt {number} is not in this run", found=self._shown(self._attempts))
        return self._attempts[number]

    def children(self, number: int) -> tuple[int, ...]:
        """Attempts that forked from one, rising."""
        self.attempt(number)
        return tuple(each for each in self.numbers if self._attempts[each].parent == number)

    def lineage(self, leaf: int | None = None) -> tuple[AttemptPlan, ...]:
        """Trace the path of attempts from the root to `leaf` (default: the newest leaf), root first."""
        path = [self.attempt(self.newest if leaf is None else leaf)]
        while path[-1].parent is not None:
            path.append(self._attempts[path[-1].parent])
        return tuple(reversed(path))

    def owner(self, step: int, leaf: int | None = None) -> int:
        """Name the attempt that owns a step on a lineage, delivered or not."""
        if step < 0:
            raise NotInRun(f"step {step + self._first_label} lies before the first step, {self._first_label}")
        return next(attempt.number for attempt in reversed(self.lineage(leaf)) if attempt.fork_step <= step)

    def holders(self, step: int, next_steps: Mapping[int, int]) -> tuple[int, ...]:
        """Attempts that delivered a step completely and on their own, rising.

        Parameters
        ----------
        next_steps
            For each attempt, one past its last complete step; an attempt left out has delivered nothing.
        """
        return tuple(number for number in self.numbers if self._delivered(self._attempts[number], step, next_steps))

    def holder(self, step: int, next_steps: Mapping[int, int], leaf: int | None = None) -> int:
        """Name the attempt that delivered a step on a lineage.

        Raises
        ------
        NotInRun
            Nothing on the lineage has delivered it; the error names the attempts that have.
        """
        leaf = self.newest if leaf is None else leaf
        owner = self.owner(step, leaf)
        if self._delivered(self._attempts[owner], step, next_steps):
            return owner
        label = self._first_label
        others = self.holders(step, next_steps)
        reached = next_steps.get(owner, self._attempts[owner].fork_step)
        raise NotInRun(
            f"step {step + label:,} was not delivered on the lineage of attempt {leaf}",
            found=(
                f"there it belongs to attempt {owner}, which holds steps "
                f"{self._attempts[owner].fork_step + label:,}:{reached + label:,}; "
                + (f"delivered by {self._shown(others)}" if others else "no attempt has delivered it")
            ),
            todo=f"ask with --attempt {others[-1]}" if others else None,
        )

    def label(self, attempt: int, step: int, next_steps: Mapping[int, int], leaf: int | None = None) -> DeliveryLabel:
        """Say what a delivery of `step` by `attempt` is to a lineage (default: the newest leaf's)."""
        made_by = self.attempt(attempt)
        if step < made_by.fork_step:
            raise AttemptError(
                f"attempt {attempt} cannot have delivered step {step + self._first_label:,}",
                found=f"it began at step {made_by.fork_step + self._first_label:,}",
            )
        if step >= next_steps.get(attempt, made_by.fork_step):
            return "unfinished"
        return "live" if self._independent or self.owner(step, leaf) == attempt else "abandoned"

    def _delivered(self, attempt: AttemptPlan, step: int, next_steps: Mapping[int, int]) -> bool:
        if not attempt.fork_step <= step < next_steps.get(attempt.number, attempt.fork_step):
            return False
        if self._skip_mode == "jump":
            return True
        cut = attempt.cutting("hole").cut(step)
        return not attempt.spans.covers(cut.start, cut.stop)

    @staticmethod
    def _shown(numbers: Iterable[int]) -> str:
        listed = sorted(numbers)
        shown = ", ".join(str(number) for number in listed[-8:])
        more = f"{len(listed) - 8} earlier ones, " if len(listed) > 8 else ""
        return f"attempt{'s' if len(listed) > 1 else ''} {more}{shown}" if listed else "no attempts"
