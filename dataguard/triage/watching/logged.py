"""What do the ranks of a live attempt log, as one curve, read once and from near its end?

1. Each rank's telemetry is followed; the first look reads back until a rank's newest `NUM_STEPS` steps are there, or
   until its share of a bounded number of bytes is used up. The curve begins where all ranks' rows are there.
2. A step is *settled* once every rank that logs a loss has gone on to a later one, or once all of them have logged it
   and nothing more came by the next look; a rank that falls `MOST_HELD` steps behind is not waited for. Settled steps
   come out once, in order, with the mean of the loss and the largest gradient norm, as `triage.curve` has them.
3. Beside the curve are kept: how long each rank waited for data, and what `triage.silence` needs of the newest steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataguard.run.following import FramesFollower
from dataguard.run.layout import Layout
from dataguard.run.telemetry_reading import TELEMETRY_ROW, rows_of
from dataguard.triage.detect.drift import ATTENTION_LOGITS
from dataguard.triage.detect.faults import LOSS_SCALES

__all__ = ["DATA_WAIT", "NUM_STEPS", "Logged", "Row"]

DATA_WAIT = "data_wait_seconds"
"""As `dataguard.torch.Monitor` logs it."""
NUM_STEPS = 1024
"""Steps that the first look reads back: four windows of the detector."""
NUM_PACE_STEPS = 4096
"""The same of the lowest rank, whose times tell the longest pause."""
NUM_NEAR = 64
"""Newest steps of which all rows of all ranks are kept."""
MOST_HELD = 32
FIRST_BYTES = 192 << 20
_LEAST_BYTES, _LOWEST_BYTES = 256 << 10, 32 << 20
_STRETCH_BYTES = 256 << 10
_TAIL_FRAMES = 256
_NUM_WAITS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One settled step, counted from 0."""

    step: int
    loss: float | None
    grad_norm: float | None
    lr: float | None
    time: float | None
    """Unix seconds."""
    more: dict[str, float]
    """What else the detector looks at, of the lowest rank."""


@dataclass(slots=True)
class _Step:
    """One step that is not settled."""

    loss: dict[int, float] = field(default_factory=dict)
    """By rank."""
    grad_norm: dict[int, float] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)
    """Of the lowest rank that logged anything of the step."""
    lowest: int | None = None
    time: float | None = None

    def row(self, step: int) -> Row:
        mean = math.nan if any(map(math.isnan, self.loss.values())) else _mean(self.loss.values())
        norms = self.grad_norm.values()
        largest = math.nan if any(map(math.isnan, norms)) else max(norms, default=math.nan)
        return Row(
            step=step,
            loss=mean if self.loss else None,
            grad_norm=largest if self.grad_norm else None,
            lr=self.others.get("lr"),
            time=self.time,
            more={name: value for name, value in self.others.items() if name != "lr"},
        )


class Logged:
    """Follows what the ranks of one attempt log.

    Parameters
    ----------
    layout, attempt, world_size
        Which attempt of which run.
    before_step
        Only of steps before this one: what a later attempt went on from.
    """

    def __init__(self, layout: Layout, attempt: int, world_size: int, *, before_step: int | None = None) -> None:
        self.attempt = attempt
        self.rows: deque[Row] = deque(maxlen=NUM_PACE_STEPS)
        """Settled steps, in order."""
        self.newest: dict[int, int] = {}
        """Rank -> the newest step of which it logged anything."""
        self.seen_seconds: dict[int, float] = {}
        """Rank -> unix second of its newest row."""
        self._before = before_step
        self._followers = [
            FramesFollower(
                layout.telemetry(attempt, rank), "telemetry", tail_frames=_TAIL_FRAMES, before_step=before_step
            )
            for rank in range(world_size)
        ]
        self._begun: set[int] = set()
        """Ranks of which something was read."""
        self._open: dict[int, _Step] = {}
        self._complete: set[int] = set()
        """Open steps of which all losses were there at the last look."""
        self._settled = -1
        """The newest settled step."""
        self._losses: set[int] = set()
        """Ranks that log a loss."""
        self._waits: dict[int, dict[int, float]] = {}
        self._near: deque[tuple[int, NDArray[np.void]]] = deque()
        self._paces: dict[int, int] = {}
        """Step -> newest time (ns) that the lowest rank logged of it."""

    # -- looking

    def look(self, *, is_last: bool = False) -> list[Row]:
        """Read what came since the last look: the steps that are settled by it.

        Parameters
        ----------
        is_last
            Do not wait for another look: all that is complete is settled.

        Raises
        ------
        RunDamaged
            The system cannot read a file.
        """
        share = max(_LEAST_BYTES, FIRST_BYTES // len(self._followers))
        begins = []
        came = False
        for rank, follower in enumerate(self._followers):
            records = follower.added()
            if not len(records):
                continue
            came = True
            if rank not in self._begun:
                lowest = rank < min(self._begun, default=len(self._followers))
                records = self._first(follower, records, share, lowest=lowest)
                if not follower.is_whole:
                    begins.append(int(records["step"][0]) + 1)  # the first may be cut
                self._begun.add(rank)
            if self._before is not None:
                records = records[records["step"] < self._before]
            self._take(rank, records)
        if begins and self._settled < 0:
            self._settled = max(begins) - 1
            for step in [step for step in self._open if step <= self._settled]:
                del self._open[step]
        rows = self._settle(is_last=is_last, is_quiet=not came)
        self._forget()
        self.rows.extend(rows)
        return rows

    def _first(
        self, follower: FramesFollower, records: NDArray[np.void], most_bytes: int, *, lowest: bool
    ) -> NDArray[np.void]:
        """The newest steps of a rank that is read for the first time."""
        parts = [records]
        wanted = NUM_PACE_STEPS if lowest else NUM_STEPS
        left = max(most_bytes, _LOWEST_BYTES) if lowest else most_bytes
        newest = int(records["step"].max())
        while left > 0 and not follower.is_whole and int(parts[0]["step"][0]) > newest - wanted:
            earlier, size = follower.earlier(min(left, _STRETCH_BYTES))
            if not len(earlier):
                break
            left -= size
            parts.insert(0, earlier)
        return np.concatenate(parts)

    def _take(self, rank: int, records: NDArray[np.void]) -> None:
        if not len(records):
            return
        newest_time = int(records["time"].max())
        if newest_time > 0:
            self.seen_seconds[rank] = max(self.seen_seconds.get(rank, 0.0), newest_time / 1e9)
        whole = records[records["slot"] < 0]
        names = whole["name"]
        is_wait = names == DATA_WAIT.encode()
        own = records[(records["slot"] >= 0) | (records["name"] != DATA_WAIT.encode())]
        if len(own):
            self.newest[rank] = max(self.newest.get(rank, -1), int(own["step"].max()))
        self._near.append((rank, records))
        if rank == min(self._begun):
            for step, when in zip(whole["step"].tolist(), whole["time"].tolist(), strict=True):
                self._paces[step] = max(self._paces.get(step, 0), when)
        for step, value in zip(whole["step"][is_wait].tolist(), whole["value"][is_wait].tolist(), strict=True):
            self._waits.setdefault(step, {})[rank] = value
        is_kept = _is_one_of(names, self._looked_at(names)) & (whole["step"].astype(np.int64) > self._settled)
        kept = whole[is_kept]
        fields = (kept[each].tolist() for each in ("step", "name", "time", "value"))
        for step, name, when, value in zip(*fields, strict=True):
            at = self._open.get(step)
            if at is None:
                at = self._open[step] = _Step()
            if name == b"loss":
                at.loss[rank] = value
                self._losses.add(rank)
            elif name == b"grad_norm":
                at.grad_norm[rank] = value
            if at.lowest is None or rank < at.lowest:
                at.lowest, at.others, at.time = rank, {}, None
            if rank == at.lowest:
                at.time = when / 1e9 if when > 0 else at.time
                if name not in (b"loss", b"grad_norm"):
                    at.others[name.decode("utf-8", "replace")] = value

    @staticmethod
    def _looked_at(names: NDArray[np.bytes_]) -> list[bytes]:
        """Names that make a row, of those that there are."""
        found = [b"loss", b"grad_norm", b"lr"]
        for name in np.unique(names).tolist():
            text = name.decode("utf-8", "replace")
            if text.startswith(ATTENTION_LOGITS) or text in LOSS_SCALES:
                found.append(name)
        return found

    def _settle(self, *, is_last: bool, is_quiet: bool) -> list[Row]:
        """Open steps that will not change, from the oldest on."""
        rows = []
        newest = max(self.newest.values(), default=-1)
        slowest = min((self.newest.get(rank, -1) for rank in self._losses), default=-1)
        for step in sorted(self._open):
            is_complete = self._is_complete(step)
            if step < slowest or step <= newest - MOST_HELD:
                is_settled = True
            else:
                is_settled = is_complete and (is_last or (is_quiet and step in self._complete))
            if not is_settled:
                break
            self._settled = step
            rows.append(self._open.pop(step).row(step))
        self._complete = {step for step in self._open if self._is_complete(step)}
        return rows

    def _is_complete(self, step: int) -> bool:
        return bool(self._losses) and self._losses <= self._open[step].loss.keys()

    def _forget(self) -> None:
        newest = max(self.newest.values(), default=-1)
        for step in [step for step in self._waits if step <= newest - _NUM_WAITS]:
            del self._waits[step]
        while len(self._paces) > NUM_PACE_STEPS + NUM_NEAR:
            del self._paces[next(iter(self._paces))]
        recent = newest - NUM_NEAR
        if self._near and any(int(records["step"].min()) < recent for _, records in self._near):
            kept = ((rank, records[records["step"].astype(np.int64) >= recent]) for rank, records in self._near)
            self._near = deque((rank, records) for rank, records in kept if len(records))

    # -- what is known

    def curve(self) -> list[Row]:
        """Settled steps, and behind them those of which all losses are there."""
        return [*self.rows, *(self._open[step].row(step) for step in sorted(self._complete))]

    def waits(self) -> dict[int, dict[int, float]]:
        """Step -> rank -> seconds that it waited for data, of the newest steps."""
        return self._waits

    def near_rows(self) -> NDArray[np.void]:
        """TELEMETRY_ROW of what `triage.silence` looks at: newest steps of all ranks, and the lowest's pace before."""
        parts = [rows_of(records, self.attempt, rank) for rank, records in self._near]
        recent = max(self.newest.values(), default=-1) - NUM_NEAR
        earlier = [(step, when) for step, when in self._paces.items() if step < recent]
        pace: NDArray[np.void] = np.zeros(len(earlier), TELEMETRY_ROW)
        if earlier:
            pace["attempt"], pace["rank"], pace["slot"] = self.attempt, min(self._begun), -1
            pace["step"], pace["time"] = np.array(earlier).T
        return np.concatenate([pace, *parts])

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be trusted."""
        return tuple(text for follower in self._followers for text in follower.damage)


def _is_one_of(names: NDArray[np.bytes_], wanted: Iterable[bytes]) -> NDArray[np.bool_]:
    found = np.zeros(len(names), np.bool_)
    for name in wanted:
        found |= names == name
    return found


def _mean(values: Iterable[float]) -> float:
    given = list(values)
    return sum(given) / len(given) if given else math.nan
