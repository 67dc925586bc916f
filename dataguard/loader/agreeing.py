"""How do all ranks of a launch come to deliver the same attempt?

Rank 0 begins it in the journal, all others join it, after checking that they were told the same. Ranks that share the
run directory alone wait for its event; where they have a process group (`Peers`), all of them first hold what they were
told against each other, so that a difference, or a rank that cannot begin, ends every one of them at once with both
values, before anything is written.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
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

__all__ = ["agree"]

T = TypeVar("T")


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

    Raises
    ------
    RanksDisagree
        Ranks were told different things; both values are in the message, on all ranks.
    UsageError
        A launch of several ranks that cannot know each other.
    RankMissing
        Rank 0 did not begin in time.
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

    asked = prepare() if peers is None else _together(peers, run, prepare, rank)
    if rank != 0:
        if peers is not None:
            _raise_of(peers.broadcast(None), "rank 0 could not begin the attempt")
        return join_attempt(run, asked, rank=rank, timeout_seconds=join_timeout_seconds)

    def begin() -> AttemptPlan:
        record_halts(run)
        propose_met(run, before_attempt=True)
        return begin_attempt(
            run,
            asked,
            parent_next_step=lambda parent: reached_by_any(run, parent),
            ranks=[_here(0)],
            roots=dict(roots) if corpus is None else {**corpus.roots, **roots},
            corpus=corpus,
        )

    if peers is None:
        return begin()
    attempt, failure = _tried(begin)
    peers.broadcast(None if failure is None else _told(failure))
    if failure is not None:
        raise failure
    assert attempt is not None
    return attempt


def _together(peers: Peers, run: Run, prepare: Callable[[], AttemptRequest], rank: int) -> AttemptRequest:
    """Prepare on every rank, and fail on every rank where one of them fails or was told otherwise."""
    asked, failure = _tried(prepare)
    facts = None if asked is None else facts_of(run, asked)
    answers: list[tuple[dict[str, str] | None, tuple[int, str] | None]] = peers.gather(
        (facts, None if failure is None else _told(failure))
    )
    if failure is not None:
        raise failure
    for other, (_, told) in enumerate(answers):
        _raise_of(told, f"rank {other} cannot begin")
    first = answers[0][0] or {}
    different = [
        f"rank {other} has {name} {theirs.get(name)}, rank 0 has {first.get(name)}"
        for other, (theirs, _) in enumerate(answers)
        if theirs is not None
        for name in sorted({*first, *theirs})
        if theirs.get(name) != first.get(name)
    ]
    if different:
        raise RanksDisagree(
            f"the ranks of this launch were told different things (this is rank {rank})",
            found="; ".join(different[:8]) + (f"; and {len(different) - 8:,} more" if len(different) > 8 else ""),
            allowed="the same facts on all ranks of a launch",
            todo="give every rank the same plan, policy, geometry, transform and state",
        )
    assert asked is not None
    return asked


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What it returns, or what it raises: the peers wait for an answer either way."""
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - told to every peer, and raised on this rank
        return None, error


def _told(error: Exception) -> tuple[int, str]:
    return getattr(error, "exit_code", 4), str(error) or type(error).__name__


def _raise_of(told: tuple[int, str] | None, what: str) -> None:
    """Fail as another rank has failed."""
    if told is None:
        return
    raise RanksDisagree(what, found=told[1], todo="mend that rank; no rank has begun")


def _default_launch_id(world_size: int) -> str:
    found = environment_launch_id(os.environ)  # noqa: TID251 - the launcher speaks through the environment
    if found is not None:
        return found
    if world_size > 1:
        raise UsageError(
            f"{world_size} ranks cannot know each other's launch",
            found="no launcher's run id in the environment, and no launch_id",
            todo="give all ranks the same launch_id, another at every restart",
        )
    return f"single {uuid.uuid4().hex}"


def _here(rank: int) -> RankPlace:
    return RankPlace(rank=rank, host=os.uname().nodename, process=os.getpid())
