"""Which events does a training curve hold, told while it is still being drawn?

`Detector` is given rows one at a time, on one rank or on what was reduced over all, and says what each made known. It
decides nothing by the clock of this machine and draws nothing at random: the same rows give the same events, whether
they come in one go or its state was saved and loaded between any two of them.

A row of a step that was there already, or lies before the newest, is the run going back (a restart, a rollback): rows
from that step on count no longer, nor do the events that they made, and the detector judges on exactly as if they had
never come, as long as that is no more than `num_rewind` rows; further back it begins with an empty window. A row that
came late (an earlier step after a later one) is the same to it.

Its memory is bounded: two snapshots and the rows since the older of them, windows, and at most `num_most_events`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import isfinite, isnan
from typing import Any, TypeAlias

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.errors import UsageError
from dataguard.triage.detect.drift import ATTENTION_LOGITS
from dataguard.triage.detect.faults import LOSS_SCALES
from dataguard.triage.detect.judge import Judge, Noticed
from dataguard.triage.detect.settings import DetectorSettings

__all__ = ["Detector", "Noticed"]

_STATE_VERSION = 1
_Row: TypeAlias = "tuple[int, float | None, float | None, float | None, dict[str, float]]"


class Detector:
    """The default detector, row by row.

    Parameters
    ----------
    settings
        By which numbers it judges.
    changes
        Steps (in the trainer's labels) from which on things are otherwise by intention: stages, batch sizes, starts of
        attempts, steps of the learning rate.

    Examples
    --------
    >>> detector = Detector()
    >>> for step in range(200):
    ...     loss = 3.0 + 0.01 * (-1) ** step + (1.5 if step == 150 else 0.0)
    ...     for noticed in detector.observe(step, loss=loss):
    ...         print(noticed.kind, noticed.event.start)
    began 150
    >>> [(event.event_class.value, event.start, event.stop) for event in detector.finish()]
    [('hard_batch', 150, 151)]
    """

    def __init__(self, settings: DetectorSettings | None = None, *, changes: Iterable[int] = ()) -> None:
        self.settings = DetectorSettings() if settings is None else settings
        self._changes = tuple(sorted(set(changes)))
        self._judge = Judge(self.settings, self._changes)
        self._events: deque[SpikeEvent] = deque()
        self._num_ended = 0
        """Events that ended, those that were forgotten too."""
        self._snapshots: list[tuple[dict[str, Any], int]] = []
        """State before a row, and how many events had ended; the older first."""
        self._rows: deque[_Row] = deque()
        """Since the older snapshot."""
        self._num_since = 0

    @property
    def newest(self) -> int | None:
        """The newest step that was observed."""
        return self._judge.newest

    @property
    def num_points(self) -> int:
        """Points of the loss that were judged, or would have been with more history."""
        return self._judge.num_points

    @property
    def smallest_spike_nats(self) -> float | None:
        """How far above what is expected of it the next loss would have to lie to begin an event, in nats; None where
        it would not be judged. Nothing is kept for it, and nothing computed until it is asked for.

        >>> detector = Detector()
        >>> detector.smallest_spike_nats is None
        True
        >>> for step in range(200):
        ...     _ = detector.observe(step, loss=3.0 + 0.01 * (-1) ** step)
        >>> 0.06 < detector.smallest_spike_nats < 0.3
        True
        """
        return self._judge.smallest_spike()

    @property
    def num_forgotten(self) -> int:
        """Events that ended so long ago that they are no longer remembered."""
        return self._num_ended - len(self._events)

    @property
    def changes(self) -> tuple[int, ...]:
        """The told changes."""
        return self._changes

    def add_change(self, step: int) -> None:
        """Tell another change, from `step` on; it holds for rows that are still to come."""
        self._changes = tuple(sorted({*self._changes, step}))
        self._judge.changes = self._changes

    def observe(
        self,
        step: int,
        *,
        loss: float | None = None,
        grad_norm: float | None = None,
        time: float | None = None,
        more: Mapping[str, float] | None = None,
    ) -> tuple[Noticed, ...]:
        """What a row makes known.

        Parameters
        ----------
        step
            In the trainer's labels.
        loss
            In nats; None where it was not logged (which is not NaN).
        grad_norm
            Before clipping; None where it was not logged.
        time
            Seconds, of any clock that runs on.
        more
            Other values of the row: names that begin with ``attention_logit_max``, and ``loss_scale``, are looked at.
        """
        kept = {} if not more else {name: float(value) for name, value in more.items() if _is_looked_at(name)}
        row = (int(step), _number(loss), _number(grad_norm), _number(time), kept)
        if self._judge.newest is not None and row[0] <= self._judge.newest:
            self._go_back(row[0])
        return self._take(row)

    def finish(self) -> tuple[SpikeEvent, ...]:
        """All events in order of their start: those that ended, and those that go on, as far as they are known.

        It ends nothing: rows may go on to come.
        """
        events = [*self._events, *self._judge.open_events()]
        return tuple(sorted(events, key=lambda event: (event.start, event.stop, event.event_class, event.signal)))

    def settled_changes(self) -> tuple[tuple[int, float], ...]:
        """Changes after which the loss settled on another level: step, nats. They are no events."""
        return tuple((int(step), nats) for step, nats in self._judge.settled)

    def _take(self, row: _Row) -> tuple[Noticed, ...]:
        if self._num_since % self.settings.num_rewind == 0:
            self._snapshots.append((self._judge.state(), self._num_ended))
            if len(self._snapshots) > 2:
                del self._snapshots[0]
                for _ in range(self.settings.num_rewind):
                    self._rows.popleft()
        self._num_since += 1
        self._rows.append(row)
        noticed = self._judge.observe(*row)
        for each in noticed:
            if each.kind == "ended":
                self._events.append(each.event)
                self._num_ended += 1
                if len(self._events) > self.settings.num_most_events:
                    self._events.popleft()
        return tuple(noticed)

    def _go_back(self, step: int) -> None:
        """Become what one was before the first row of `step` or later."""
        rows = list(self._rows)
        place = next((i for i, row in enumerate(rows) if row[0] >= step), len(rows))
        if rows and (place or self._is_whole()):
            state, num_ended = self._snapshots[0]
            self._judge = Judge.of_state(self.settings, self._changes, _copied(state))
            kept = rows[:place]
        else:
            self._judge = Judge(self.settings, self._changes)
            num_ended = self.num_forgotten + sum(event.start < step for event in self._events)
            kept = []
        while self._num_ended > num_ended and self._events:
            self._events.pop()
            self._num_ended -= 1
        self._snapshots, self._rows, self._num_since = [], deque(), 0
        for row in kept:
            self._take(row)

    def _is_whole(self) -> bool:
        """Whether the older snapshot is that of the very begin."""
        return bool(self._snapshots) and self._snapshots[0][0]["newest"] is None

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs, for any kind of JSON (numbers that are not finite are words in it)."""
        return {
            "version": _STATE_VERSION,
            "settings": asdict(self.settings),
            "changes": list(self._changes),
            "judge": _packed(self._judge.state()),
            "events": [_packed(asdict(event)) for event in self._events],
            "num_ended": self._num_ended,
            "snapshots": [[_packed(_copied(state)), num_ended] for state, num_ended in self._snapshots],
            "rows": [_packed(list(row)) for row in self._rows],
            "num_since": self._num_since,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; told changes of both are known from here on.

        Raises
        ------
        UsageError
            It is the state of a detector of another version, or with other settings.
        """
        if state.get("version") != _STATE_VERSION:
            raise UsageError(
                "the state of the detector is of another version",
                found=str(state.get("version")),
                allowed=str(_STATE_VERSION),
            )
        settings = asdict(self.settings)
        others = [name for name, value in state["settings"].items() if settings.get(name) != value]
        if others or len(settings) != len(state["settings"]):
            raise UsageError(
                "the state was made with other settings of the detector",
                found=", ".join(f"{name}={state['settings'][name]}" for name in others),
                allowed=", ".join(f"{name}={settings.get(name)}" for name in others),
            )
        self._changes = tuple(sorted({*self._changes, *state["changes"]}))
        self._judge = Judge.of_state(self.settings, self._changes, _unpacked(state["judge"]))
        self._events = deque(_event_of(_unpacked(each)) for each in state["events"])
        self._num_ended = state["num_ended"]
        self._snapshots = [(_unpacked(each), num_ended) for each, num_ended in state["snapshots"]]
        self._rows = deque((row[0], row[1], row[2], row[3], row[4]) for row in map(_unpacked, state["rows"]))
        self._num_since = state["num_since"]


def _is_looked_at(name: str) -> bool:
    return name.startswith(ATTENTION_LOGITS) or name in LOSS_SCALES


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _event_of(fields: dict[str, Any]) -> SpikeEvent:
    return SpikeEvent(**{**fields, "event_class": EventClass(fields["event_class"])})


def _copied(value: Any) -> Any:
    """The same, with containers of its own."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(each) for each in value]
    return value


def _packed(value: Any) -> Any:
    """The same for JSON, which knows no NaN and no infinity."""
    if isinstance(value, dict):
        return {name: _packed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(each) for each in value]
    if isinstance(value, EventClass):
        return value.value
    if isinstance(value, float) and not isfinite(value):
        return {"float": "nan" if isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float(value["float"])
        return {name: _unpacked(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_unpacked(each) for each in value]
    return value
