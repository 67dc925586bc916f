"""How fast does a run go, how long do its ranks wait for data, and which of them are behind? Pure: numbers in, answers
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from dataguard.plan.steps import Steps
from dataguard.triage.watching.answers import Behind, Speed, WaitSeen

__all__ = ["LAST_SECONDS", "MOST_BEHIND", "behind_of", "last_speed", "median_gap", "speed_of", "wait_of"]

LAST_SECONDS = 60.0
MOST_BEHIND = 16
LEAST_BEHIND = 2
"""Steps. Ranks that wait for one another differ by one step at any moment."""
_MOST_SUMMED = 10_000


def speed_of(steps: Steps, first: int, stop: int, seconds: float) -> Speed | None:
    """Of the steps ``first:stop``, counted from 0; None where no time passed."""
    if seconds <= 0 or stop < first:
        return None
    if stop - first <= _MOST_SUMMED:
        num_samples = sum(map(steps.size_of, range(first, stop)))
    else:
        start, end = steps.span_of_steps(first, stop)
        num_samples = end - start
    return Speed(steps_per_second=(stop - first) / seconds, samples_per_second=num_samples / seconds, seconds=seconds)


def median_gap(points: Sequence[tuple[float, int]]) -> float | None:
    """Median seconds a step of (time, step) in order; None of fewer than two."""
    gaps = sorted(
        (later[0] - before[0]) / (later[1] - before[1]) for before, later in pairwise(points) if later[1] > before[1]
    )
    return gaps[len(gaps) // 2] if gaps else None


def last_speed(steps: Steps, points: Sequence[tuple[float, int]], now: float) -> Speed | None:
    """The speed over the last minute.

    Parameters
    ----------
    points
        (Unix seconds, step) in order: when steps were made.
    now
        Of the look. Silence counts: a run that has stopped goes slower and slower, to nothing.

    >>> from dataguard.plan.attempts import AttemptPlan
    >>> from dataguard.core.address import Geometry
    >>> median_gap([(0.0, 0), (2.0, 1), (4.0, 2)])
    2.0
    """
    if len(points) < 2:
        return None
    newest_time, newest = points[-1]
    before = [point for point in points if point[0] <= now - LAST_SECONDS]
    begin = before[-1] if before else points[0]
    gap = median_gap(points[-64:])
    is_at_work = gap is not None and now - newest_time <= 2 * gap
    if begin[1] >= newest:
        return speed_of(steps, newest, newest, now - newest_time)
    return speed_of(steps, begin[1], newest, (newest_time if is_at_work else max(now, newest_time)) - begin[0])


def wait_of(
    waits: Mapping[int, Mapping[int, float]], times: Mapping[int, float], label: Callable[[int], int]
) -> WaitSeen | None:
    """The share of the time of the newest steps that ranks waited for data; None where it cannot be told.

    Parameters
    ----------
    waits
        Step -> rank -> seconds.
    times
        Step -> unix seconds, of the steps whose time is known.
    label
        The trainer's label of a step.

    >>> wait_of({7: {0: 9.0}, 8: {0: 0.1, 1: 0.3}, 9: {0: 0.1, 1: 0.3}}, {7: 10.0, 8: 11.0, 9: 12.0}, lambda step: step)
    WaitSeen(share=0.2, worst_rank=1, worst_share=0.3, steps=(8, 10))
    """
    known = sorted(step for step in waits if step in times)
    if len(known) < 2 or times[known[-1]] <= times[known[0]]:
        return None
    seconds = times[known[-1]] - times[known[0]]
    total: dict[int, float] = {}
    for step in known[1:]:
        for rank, waited in waits[step].items():
            total[rank] = total.get(rank, 0.0) + waited
    if not total:
        return None
    worst = max(total, key=lambda rank: (total[rank], -rank))
    return WaitSeen(
        share=sum(total.values()) / len(total) / seconds,
        worst_rank=worst,
        worst_share=total[worst] / seconds,
        steps=(label(known[1]), label(known[-1]) + 1),
    )


def behind_of(
    newest: Mapping[int, tuple[int, int] | None],
    *,
    first_step: int,
    is_stalled: bool,
    silent: Mapping[int, float],
    label: Callable[[int], int],
) -> tuple[Behind, ...]:
    """Ranks that are `LEAST_BEHIND` steps behind the newest or more; of a stalled run all that came less far.

    Parameters
    ----------
    newest
        Rank -> newest step and microbatch that it was handed; None for nothing.
    first_step
        Of the attempt: a rank that was handed nothing stands before it.
    is_stalled
        Whether triage calls the attempt stalled.
    silent
        Rank -> seconds since anything of it was seen.
    label
        The trainer's label of a step.

    >>> newest = {0: (9, 0), 1: (9, 1), 2: (6, 1), 3: None}
    >>> [(rank.rank, rank.step, rank.num_steps) for rank in
    ...  behind_of(newest, first_step=0, is_stalled=False, silent={}, label=lambda step: step + 1)]
    [(3, None, None), (2, 7, 3)]
    >>> [rank.rank for rank in behind_of(newest, first_step=0, is_stalled=True, silent={}, label=lambda step: step)]
    [3, 2, 0]
    """
    front = max((each for each in newest.values() if each is not None), default=None)
    if front is None:
        return ()
    found = []
    for rank, at in newest.items():
        came = (first_step - 1, 0) if at is None else at
        if front[0] - came[0] >= LEAST_BEHIND or (is_stalled and came < front):
            found.append((came, rank, at))
    return tuple(
        Behind(
            rank=rank,
            step=None if at is None else label(at[0]),
            num_steps=None if at is None else front[0] - at[0],
            silent_seconds=silent.get(rank),
        )
        for _, rank, at in sorted(found, key=lambda each: (each[0], each[1]))
    )
