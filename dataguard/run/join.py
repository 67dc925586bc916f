"""How do the other ranks learn of the attempt that rank 0 begins, and how does an older attempt learn that it is over?

The others wait by opening the next event's name, and check that what was begun is what they were told (`join_attempt`).
Nothing tells an older attempt that a newer one has begun; it looks. `fence` gives its writers a check of one `stat`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dataguard.errors import RankMissing, WriterConflict
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.attempts import begun_events
from dataguard.run.journal import Journal
from dataguard.run.launch import AttemptRequest, begun_for, check_facts, check_kind, check_root
from dataguard.run.run import Run

__all__ = ["fence", "join_attempt"]


def join_attempt(
    run: Run,
    request: AttemptRequest,
    *,
    rank: int,
    timeout_seconds: float = 120.0,
    poll_seconds: float = 0.1,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> AttemptPlan:
    """Wait for the attempt that rank 0 of this launch begins, and check that it is the one this rank was told of.

    Parameters
    ----------
    sleep, clock
        How time passes, in seconds.

    Raises
    ------
    RankMissing
        Rank 0 did not begin it in time.
    RanksDisagree
        It began another one: both values stand in the message.
    """
    request.geometry.check_rank(rank)
    check_kind(run, request)
    check_root(run, request)
    deadline = clock() + timeout_seconds
    others: dict[int, str] = {}
    seen_before = frozenset(begun_events(run.read()))
    while True:
        read = run.read()
        read.require_sound("joining an attempt")
        begun = begun_for(run, read.entries, request.launch_id, rank)
        if begun is not None:
            check_facts(run, request, begun, f"rank {rank} and the rank that began attempt {begun.attempt} disagree")
            return run.attempts(read).attempt(begun.attempt)
        others.update({n: event.launch_id for n, event in begun_events(read).items() if n not in seen_before})
        while not run.journal.next_exists(read.head.number + 1):
            left = deadline - clock()
            if left <= 0:
                raise _missing(rank, request, timeout_seconds, others)
            sleep(min(poll_seconds, left))
        if clock() >= deadline:
            # Others keep appending and none of it is ours.
            read = run.read()
            if begun_for(run, read.entries, request.launch_id, rank) is None:
                raise _missing(rank, request, timeout_seconds, others)


def fence(run: Run, attempt: int) -> Callable[[], None]:
    """A check for one writer of an attempt to call before each frame; it raises once a newer attempt has begun.

    The check costs one `stat` while nothing is appended to the journal. It is for one thread. Evaluations of a named
    stream do not fence each other.

    Raises
    ------
    WriterConflict
        From the returned function: fenced by attempt K.
    """
    if run.stream_identity is not None:
        return _nothing_fences

    journal = Journal(run.layout)
    fenced_by: int | None = None
    next_number = 1

    def check() -> None:
        nonlocal fenced_by, next_number
        if fenced_by is None and journal.next_exists(next_number):
            read = journal.read()
            newest = max(begun_events(read), default=attempt)
            fenced_by = newest if newest > attempt else None
            next_number = read.head.number + 1
        if fenced_by is not None:
            raise WriterConflict(
                f"attempt {attempt} is over: fenced by attempt {fenced_by}",
                found=f"attempt {fenced_by} of this run has begun, and only one may write",
                todo="end this process; if it should go on instead, resume from its state as a new attempt",
            )

    return check


def _nothing_fences() -> None:
    """Any number of evaluations may go on at once."""


def _missing(rank: int, request: AttemptRequest, timeout_seconds: float, others: Mapping[int, str]) -> RankMissing:
    seen = ", ".join(f"attempt {attempt} by launch {launch!r}" for attempt, launch in sorted(others.items()))
    return RankMissing(
        f"rank {rank} waited {timeout_seconds:g} s for its attempt; rank 0 of {request.geometry.world_size} is missing",
        found=f"no attempt of launch {request.launch_id!r} has begun" + (f", but {seen}" if seen else ""),
        allowed="rank 0 begins the attempt, all others wait for it",
        todo="give all ranks the same launch id"
        if seen
        else "look at the log of rank 0: it may have failed or still wait",
    )
