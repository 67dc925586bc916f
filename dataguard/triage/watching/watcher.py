"""How does a run stand at this moment? `Watcher` looks at it again and again, and reads at each look what is new.

It writes nothing, keeps no file open between two looks, and takes a run as it is: one that does not exist yet, one
without an attempt, a new attempt that begins under its eyes (the detector goes on over it: what the earlier one did
beyond the fork counts no longer), segments that are sealed while they are read, tails that are just being written.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter, deque
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dataguard.core.spikes import EventClass
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.steps import Steps
from dataguard.run.exceptions import ExceptionReason
from dataguard.run.following import FramesFollower
from dataguard.run.journal import JournalRead
from dataguard.run.run import Run
from dataguard.run.store_ledger import LetGo
from dataguard.run.telemetry_show import as_number
from dataguard.triage.detect import Detector
from dataguard.triage.silence import TIMES_MEDIAN, silence_of
from dataguard.triage.watching.answers import (
    Share,
    SignalSeen,
    Speed,
    StallSeen,
    WatchAnswer,
    WatchedAttempt,
    WatchState,
)
from dataguard.triage.watching.delivered import Counts, Delivered
from dataguard.triage.watching.logged import NUM_STEPS, Logged, Row
from dataguard.triage.watching.paces import MOST_BEHIND, behind_of, last_speed, median_gap, speed_of, wait_of
from dataguard.triage.watching.told import Told, found_event, merged

__all__ = ["Watcher"]

_NUM_RECENT_POINTS = 64
_MOST_LOOKS = 256


class Watcher:
    """Looks at one run.

    Parameters
    ----------
    path
        The run directory, which need not exist yet.

    Examples
    --------
    >>> import tempfile
    >>> Watcher(Path(tempfile.mkdtemp()) / "run").look(now_seconds=1_800_000_000.0).state
    'absent'
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._run: Run | None = None
        self._told: Told | None = None
        self._watched: _Attempt | None = None
        self._detector = Detector()
        self._changes: frozenset[int] = frozenset()
        self._judged_from: int | None = None

    def look(self, *, now_seconds: float, is_last: bool = False) -> WatchAnswer:
        """How the run stands now.

        Parameters
        ----------
        now_seconds
            Unix second of the look.
        is_last
            No further look follows: the newest step is judged as it is.

        Raises
        ------
        RunDamaged
            A file cannot be read, or an event of the journal, so that nobody knows whether an attempt has begun.
        """
        looked = datetime.fromtimestamp(now_seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self._run is None and Run.exists(self._path):
            self._run = Run.open(self._path)
            self._told = Told(self._run)
        run, told = self._run, self._told
        read = None if run is None else run.read()
        if run is None or told is None or read is None or not read.head.number:
            self._forget()  # a run that was removed is as if it had never been there
            return WatchAnswer(run=str(self._path), looked=looked, state="absent")
        told.look(read)
        try:
            free = shutil.disk_usage(run.path).free
        except OSError:
            free = None  # not every file system says it
        tree = run.attempts(read)
        if not len(tree):
            read.require_sound("watching")  # where an event cannot be read, nobody knows that no attempt has begun
            return WatchAnswer(
                run=str(self._path), looked=looked, state="waiting", journal=told.journal, free_bytes=free,
                problems=told.problems,
            )  # fmt: skip
        plan = tree.attempt(tree.newest)
        rows: list[Row] = []
        if self._watched is None or self._watched.number != plan.number:
            if self._watched is None:
                rows += _history(run, tree.lineage(plan.number))
            self._watched = _Attempt(run, plan, run.steps_of(plan.number, read), read)
        watched = self._watched
        rows += watched.look(now_seconds, is_last=is_last)
        self._judge(run, told, rows)
        begun = {run.label(each.fork_step) for each in tree.lineage(plan.number)[1:]}
        found = tuple(
            found_event(event)
            for event in self._detector.finish()
            if event.event_class is not EventClass.STALL or event.start not in begun
        )
        return watched.answer(
            WatchAnswer(
                run=str(self._path),
                looked=looked,
                state="open",
                events=merged(told.events, found),
                judged_from=self._judged_from,
                journal=told.journal,
                checkpoint=told.checkpoint,
                free_bytes=free,
                problems=told.problems,
            ),
            now_seconds,
        )

    def _judge(self, run: Run, told: Told, rows: list[Row]) -> None:
        for step in sorted(told.changes - self._changes):
            self._detector.add_change(step)
        self._changes |= told.changes
        for row in rows:
            if row.loss is None and row.grad_norm is None and not row.more:
                continue
            step = run.label(row.step)
            if self._judged_from is None or step < self._judged_from:
                self._judged_from = step
            self._detector.observe(step, loss=row.loss, grad_norm=row.grad_norm, time=row.time, more=row.more)


class _Attempt:
    """The newest attempt, as far as it is followed."""

    def __init__(self, run: Run, plan: AttemptPlan, steps: Steps, read: JournalRead) -> None:
        self.number = plan.number
        self._run = run
        self._plan = plan
        self._steps = steps
        self._begun = run.begun(plan.number, read)
        self._begun_time = next(entry.time for entry in read.entries if entry.event == self._begun)
        geometry, layout = plan.geometry, run.layout
        ranks = range(geometry.world_size)
        self._delivered = Delivered(layout, plan.number, ranks, self._num_microbatches)
        self._logged = Logged(layout, plan.number, geometry.world_size)
        self._exceptions = [FramesFollower(layout.exceptions(plan.number, rank), "exceptions") for rank in ranks]
        self._ledgers = [FramesFollower(layout.store_ledger(plan.number, rank), "store") for rank in ranks]
        self._excepted: Counter[int] = Counter()
        self._let_go: Counter[int] = Counter()
        self._looks: deque[tuple[float, int]] = deque(maxlen=_MOST_LOOKS)
        """When this command saw which step, for runs that log nothing."""

    def _num_microbatches(self, step: int) -> int:
        return self._plan.geometry.num_microbatches(self._steps.size_of(step))

    def look(self, now: float, *, is_last: bool) -> list[Row]:
        """Read what is new; the steps that are settled by it."""
        self._delivered.look()
        rows = self._logged.look(is_last=is_last)
        for exceptions in self._exceptions:
            self._excepted.update(exceptions.added()["reason"].tolist())
        for ledger in self._ledgers:
            self._let_go.update(ledger.added()["reason"].tolist())
        newest = self._delivered.newest_step
        if newest is not None:
            self._looks.append((now, newest))
        return rows

    def answer(self, answer: WatchAnswer, now: float) -> WatchAnswer:
        """The answer with what was seen of this attempt."""
        run, delivered, logged = self._run, self._delivered, self._logged
        newest = self._newest()
        seen = delivered.changed_seconds()
        for rank, seconds in logged.seen_seconds.items():
            seen[rank] = max(seen.get(rank, 0.0), seconds)
        silent = {rank: max(0.0, now - seconds) for rank, seconds in seen.items()}
        points = [(row.time, row.step) for row in logged.curve() if row.time is not None]
        num_open = delivered.num_open
        stall = None if num_open == 0 else self._stall(points, now)
        is_closed = num_open == 0 and delivered.num_begun == self._plan.geometry.world_size
        state: WatchState = "stalled" if stall else "closed" if is_closed else "open"
        step = max((each[0] for each in newest.values() if each is not None), default=None)
        complete = self._complete(newest)
        behind = behind_of(
            newest, first_step=self._plan.fork_step, is_stalled=stall is not None, silent=silent, label=run.label
        )
        last = max(seen.values(), default=None)
        times = {row.step: row.time for row in logged.curve() if row.time is not None}
        fields = {
            "state": state,
            "attempt": self._shown(step),
            "step": None if step is None else run.label(step),
            "complete": None if complete is None else run.label(complete),
            "silent_seconds": min(silent.values(), default=None),
            "last_minute": None if is_closed else last_speed(self._steps, points or self._looks_made(), now),
            "since_begun": self._since_begun(complete, last),
            "recent": self._recent(),
            "whole": self._whole(step),
            "signals": self._signals(),
            "wait": wait_of(logged.waits(), times, run.label),
            "stall": stall,
            "behind": behind[:MOST_BEHIND],
            "num_behind": len(behind),
            "exceptions": _named(self._excepted, {each.value: each.text for each in ExceptionReason}),
            "let_go": _named(self._let_go, {each.value: each.text for each in LetGo}),
            "problems": (*answer.problems, *delivered.damage, *logged.damage, *self._unseen(num_open)),
        }  # fmt: skip
        return msgspec.structs.replace(answer, **fields)

    # -- parts of it

    def _newest(self) -> dict[int, tuple[int, int] | None]:
        """Of each rank the newest step and microbatch; where its frames lie on another machine, as far as it logged."""
        newest = self._delivered.newest()
        if self._run.layout.spool is not None:
            for rank, step in self._logged.newest.items():
                known = newest.get(rank)
                if known is None or known[0] < step:
                    newest[rank] = (step, self._num_microbatches(step) - 1)
        return newest

    def _complete(self, newest: dict[int, tuple[int, int] | None]) -> int | None:
        complete: list[int] = []
        for at in newest.values():
            if at is None:
                return None
            complete.append(at[0] if at[1] + 1 >= self._num_microbatches(at[0]) else at[0] - 1)
        step = min(complete)
        while step >= self._plan.fork_step and self._steps.next_delivered(step) != step:
            step -= 1  # a hole
        return step if step >= self._plan.fork_step else None

    def _shown(self, step: int | None) -> WatchedAttempt:
        geometry, delivered = self._plan.geometry, self._delivered
        ranks = {rank for rank, at in delivered.newest().items() if at is not None} | self._logged.newest.keys()
        return WatchedAttempt(
            number=self.number,
            parent=self._plan.parent,
            first_step=self._run.label(self._plan.fork_step),
            begun=self._begun_time,
            world_size=geometry.world_size,
            microbatch_size=geometry.microbatch_size,
            global_batch=self._steps.size_of(self._plan.fork_step if step is None else step),
            num_open_ranks=delivered.num_open,
            num_ranks_seen=len(ranks),
        )

    def _stall(self, points: list[tuple[float, int]], now: float) -> StallSeen | None:
        """What triage says; it is not asked while the silence is no longer than a few steps."""
        last = max(self._logged.seen_seconds.values(), default=None)
        gap = median_gap(points)
        if last is None or (gap is not None and now - last <= TIMES_MEDIAN / 4 * gap):
            return None
        found = silence_of(self._run, self.number, self._logged.near_rows(), now_seconds=now)
        if found is None:
            return None
        return StallSeen(
            step=found.event.start,
            silent_seconds=found.silent_seconds,
            median_step_seconds=found.median_step_seconds,
            longest_pause_seconds=found.longest_pause_seconds,
            rank=found.event.rank,
            texts=found.texts,
        )

    def _looks_made(self) -> list[tuple[float, int]]:
        """When each step was first seen by this command."""
        points: list[tuple[float, int]] = []
        for now, step in self._looks:
            if not points or step > points[-1][1]:
                points.append((now, step))
        return points

    def _since_begun(self, complete: int | None, last: float | None) -> Speed | None:
        if complete is None or last is None:
            return None
        begun = datetime.fromisoformat(self._begun_time).timestamp()
        return speed_of(self._steps, self._plan.fork_step, complete + 1, last - begun)

    def _recent(self) -> Share:
        steps, counts = self._delivered.recent()
        label = self._run.label
        return _share(None if steps is None else (label(steps[0]), label(steps[1] - 1) + 1), counts, is_whole=True)

    def _whole(self, step: int | None) -> Share:
        label = self._run.label
        counts, is_whole = self._delivered.whole()
        return _share(
            None if step is None else (label(self._plan.fork_step), label(step) + 1), counts, is_whole=is_whole
        )

    def _signals(self) -> tuple[SignalSeen, ...]:
        curve = self._logged.curve()
        shown = []
        for name in ("loss", "grad_norm", "lr"):
            points = [(row.step, value) for row in curve if (value := getattr(row, name)) is not None]
            if points:
                recent = tuple(value if math.isfinite(value) else None for _, value in points[-_NUM_RECENT_POINTS:])
                step, value = points[-1]
                shown.append(SignalSeen(name=name, step=self._run.label(step), value=as_number(value), recent=recent))
        return tuple(shown)

    def _unseen(self, num_open: int | None) -> tuple[str, ...]:
        if num_open is not None:
            return ()
        spool = self._run.layout.spool
        return (f"frames of ranks on other machines lie in their {spool} and show here once they are sealed",)


def _history(run: Run, chain: tuple[AttemptPlan, ...]) -> list[Row]:
    """What the lineage logged before its newest attempt began, near its end: what the detector goes on from."""
    rows: list[Row] = []
    for own, later in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
        if len(rows) >= NUM_STEPS or own.fork_step >= later.fork_step:
            break
        logged = Logged(run.layout, own.number, own.geometry.world_size, before_step=later.fork_step)
        rows = [row for row in logged.look(is_last=True) if row.step >= own.fork_step] + rows
    return rows


def _share(steps: tuple[int, int] | None, counts: Counts, *, is_whole: bool) -> Share:
    num_samples, num_flagged, num_withheld = counts.tolist()
    return Share(
        steps=steps,
        num_samples=num_samples,
        num_flagged=num_flagged,
        num_withheld=num_withheld,
        flagged=num_flagged / num_samples if num_samples else None,
        withheld=num_withheld / num_samples if num_samples else None,
        is_whole=is_whole,
    )


def _named(counts: Counter[int], names: dict[int, str]) -> dict[str, int]:
    return {names.get(reason, f"reason {reason}"): count for reason, count in sorted(counts.items())}
