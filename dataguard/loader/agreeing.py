"""How do all ranks of a launch come to deliver the same attempt?

Rank 0 begins it in the journal, all others join it, after checking that they were told the same. Ranks that share the
run directory alone wait for its event. Where they have a process group (`Peers`) nobody goes on alone:

1. each prepares what can be refused, and all hold what they were told against each other;
2. rank 0 begins the attempt, the others join it;
3. each opens what it needs to deliver (`all_or_none`, by the loader).

After each of the three all ranks learn how it went. A difference, or a rank that cannot go on, ends every one of them
at once, with both values or with that rank's own words; before 2 nothing is written.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from dataguard.errors import RanksDisagree, UsageError
from dataguard.loader.peers import Peers
from dataguard.loader.places import check_places
from dataguard.loader.proposals import propose_met
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.begin import begin_attempt
from dataguard.run.events import RankPlace
from dataguard.run.halting import record_halts
from dataguard.run.join import join_attempt
from dataguard.run.launch import AttemptRequest, environment_launch_id, facts_of
from dataguard.run.reached import reached_by_any
from dataguard.run.run import Run

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus

__all__ = ["agree", "all_or_none", "differences"]

T = TypeVar("T")

_Told = tuple[str, str | None]
"""What a rank is called, and what it failed with."""

_SHOWN = 8
"""Differences, or ranks that failed, in a message."""


def agree(
    run: Run,
    request: Callable[[str], AttemptRequest],
    *,
    launch_id: str | None,
    rank: int,
    world_size: int,
    roots: Mapping[str, str],
    corpus: Corpus | None = None,
    peers: Peers | None = None,
    also: Mapping[str, str] | None = None,
    join_timeout_seconds: float = 120.0,
) -> AttemptPlan:
    """Begin the attempt as rank 0, or join it.

    Parameters
    ----------
    request
        What this rank was told, given the launch id.
    launch_id
        What all ranks of this launch share and no other has; None for that of the process group, else the launcher's,
        else a fresh one where there is one rank.
    roots, corpus
        Where sources lie now; what changes from this attempt's start on.
    peers
        The ranks' process group; None where they share the run directory alone.
    also
        What else peers are held to, which is no fact of the attempt: a rank that ends before the others leaves them
        waiting.

    Raises
    ------
    RanksDisagree
        Ranks were told different things; both values are in the message, on all ranks. Or another rank failed, in
        whose words the message goes on.
    UsageError
        A launch of several ranks that cannot know each other.
    RankMissing
        A rank did not come in time.
    """
    shared = None if peers is None else peers.broadcast(launch_id or f"group {uuid.uuid4().hex}")
    own = launch_id or shared or _default_launch_id(world_size)

    def prepare() -> AttemptRequest:
        asked = request(own)
        # An attempt is begun for ever, so what can be refused is refused before: a source that nobody placed, or that
        # is not there on this machine.
        check_places(
            run,
            parent=asked.parent if asked.state is None else asked.state.attempt,
            roots=roots,
            corpus=corpus,
            weights=asked.weights,
        )
        return asked

    here = _here(rank, None if peers is None else peers.device)
    asked, places = (prepare(), (here,)) if peers is None else _together(peers, run, prepare, here, also or {})
    begins = rank == 0 and (peers is None or peers.records)

    def begin() -> AttemptPlan:
        record_halts(run)
        propose_met(run, before_attempt=True)
        return begin_attempt(
            run,
            asked,
            parent_next_step=lambda parent: reached_by_any(run, parent),
            ranks=places,
            roots=dict(roots) if corpus is None else {**corpus.roots, **roots},
            corpus=corpus,
        )

    def join() -> AttemptPlan:
        return join_attempt(run, asked, rank=rank, timeout_seconds=join_timeout_seconds)

    if peers is None:
        return begin() if begins else join()
    begun, failure = _tried(begin) if begins else (None, None)
    told = peers.broadcast(None if failure is None else _told(failure))
    if failure is not None:
        raise failure
    if told is not None:
        raise RanksDisagree("rank 0 could not begin the attempt", found=told, todo="mend that rank; no rank has begun")
    return all_or_none(peers, lambda: begun or join(), what="join the attempt")


def all_or_none(peers: Peers | None, work: Callable[[], T], *, what: str, undo: Callable[[T], None] | None = None) -> T:
    """Do something on every rank, and fail on every rank where one of them fails.

    Parameters
    ----------
    work, undo
        What this rank does, and how that is taken back where another rank failed.
    what
        In words, behind "could not".

    Raises
    ------
    RanksDisagree
        Another rank failed; the message holds its words. What failed on this rank is raised as it is.
    """
    if peers is None:
        return work()
    done: list[T] = []
    failure = _tried(lambda: done.append(work()))[1]
    try:
        answers: Sequence[_Told] = peers.gather((peers.name, None if failure is None else _told(failure)))
        if failure is None:
            _raise_told(answers, what)
    except Exception:
        if failure is None:
            if undo is not None:
                undo(done[0])
            raise
    if failure is not None:
        raise failure
    return done[0]


def differences(facts: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """In which facts some differ from the first, with both values; empty where all are the same.

    Parameters
    ----------
    facts
        By what a rank is called. A fact that one leaves open, and another was told, is a difference.

    Examples
    --------
    >>> differences([("rank 0", {"seed": "1"}), ("rank 1", {"seed": "2"}), ("rank 2", {"seed": "1"})])
    'rank 1 has seed 2, rank 0 has 1'
    >>> differences([("rank 0", {"seed": "1"}), ("rank 1", {})])
    'rank 1 has no seed, rank 0 has 1'
    """
    who, first = facts[0]
    different = [
        f"{other} has {_valued(name, theirs)}, {who} has {first.get(name, f'no {name}')}"
        for other, theirs in facts
        for name in sorted({*first, *theirs})
        if theirs.get(name) != first.get(name)
    ]
    more = f"; and {len(different) - _SHOWN:,} more" if len(different) > _SHOWN else ""
    return "; ".join(different[:_SHOWN]) + more


def _valued(name: str, facts: Mapping[str, str]) -> str:
    return f"{name} {facts[name]}" if name in facts else f"no {name}"


def _together(
    peers: Peers, run: Run, prepare: Callable[[], AttemptRequest], here: RankPlace, more: Mapping[str, str]
) -> tuple[AttemptRequest, tuple[RankPlace, ...]]:
    """Prepare on every rank, and fail on every rank where one of them fails or was told otherwise."""
    asked, failure = _tried(prepare)
    facts = {} if asked is None else {**facts_of(run, asked), **more}
    told = None if failure is None else _told(failure)
    try:
        answers: list[tuple[_Told, dict[str, str], RankPlace | None]] = peers.gather(
            ((peers.name, told), facts, here if peers.records else None)
        )
    except Exception:
        if failure is None:
            raise
    if failure is not None:
        raise failure
    _raise_told([told for told, _, _ in answers], "begin")
    different = differences([(name, theirs) for (name, _), theirs, _ in answers])
    if different:
        raise RanksDisagree(
            f"the ranks of this launch were told different things (this is {peers.name})",
            found=different,
            allowed="the same facts on all ranks of a launch",
            todo="give every rank the same plan, policy, geometry, transform and state",
        )
    assert asked is not None
    return asked, tuple(place for _, _, place in answers if place is not None)


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What it returns, or what it raises: the peers wait for an answer either way."""
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - told to every peer, and raised on this rank
        return None, error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _raise_told(answers: Sequence[_Told], what: str) -> None:
    """Fail where other ranks have failed, in their words."""
    failed = [(name, told) for name, told in answers if told is not None]
    if not failed:
        return
    names = ", ".join(name for name, _ in failed[:_SHOWN])
    more = f" and {len(failed) - _SHOWN:,} more" if len(failed) > _SHOWN else ""
    raise RanksDisagree(
        f"{names}{more} could not {what}",
        found="; ".join(dict.fromkeys(told for _, told in failed[:_SHOWN] if told)),
        todo="mend what is found there; no rank was handed anything",
    )


def _default_launch_id(world_size: int) -> str:
    environ = os.environ  # noqa: TID251 - the launcher speaks through the environment
    found = environment_launch_id(environ)
    if found is not None:
        return found
    if world_size > 1:
        named = environ.get("TORCHELASTIC_RUN_ID")
        raise UsageError(
            f"{world_size} ranks cannot know each other's launch",
            found="no launch_id, and " + (f"torchrun's run id is {named!r}" if named else "no launcher's run id"),
            todo="give all ranks the same launch_id, another at every restart"
            + ("; or torchrun --rdzv-id ID, or a process group" if named else ""),
        )
    return f"single {uuid.uuid4().hex}"


def _here(rank: int, device: str | None) -> RankPlace:
    return RankPlace(rank=rank, host=os.uname().nodename, device=device, process=os.getpid())
