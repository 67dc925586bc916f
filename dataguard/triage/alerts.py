"""Who is told that something was found in training, and how often?

An `Alert` has a key. `Alerts` sends it to everybody who wants it unless one with the same key was sent less than
`cooldown_steps` steps ago: then it is counted, and the count goes with the next one of that key that is sent. The
cooldown counts steps, not seconds: then it continues exactly from a checkpoint, a resume to an earlier step takes it
back with everything else, and no clock can shift what is sent; where no step ends there is nothing to send either.

Who wants alerts is a callable that takes an `Alert`: a function of one's own, `JsonLines` (a line of JSON to a file or
a stream), or a `Webhook` (`dataguard.triage.webhook`). None of them can stop training: what fails is counted, told once
in `notes`, and tried again with the next alert.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

from dataguard.core.spikes import EventClass
from dataguard.errors import UsageError
from dataguard.triage.webhook import Webhook

__all__ = ["Alert", "Alerts", "JsonLines", "sink_of"]

MOST_KEYS = 256
"""Keys that are remembered; beyond them, that which was sent longest ago is forgotten."""


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="format", tag="dataguard-alert"):
    """Something that somebody should look at.

    >>> msgspec.json.encode(Alert(key="hard_fault/loss", run="runs/a", attempt=1, step=7, text="loss is nan"))
    b'{"format":"dataguard-alert","key":"hard_fault/loss","run":"runs/a","attempt":1,"step":7,"text":"loss is nan"}'
    """

    key: str
    """What it is about; alerts with the same key are held back for a while."""
    run: str
    """Where the run is kept."""
    attempt: int
    step: int
    """At which it was found, as the trainer calls it."""
    text: str
    """One line for people."""
    event_class: EventClass | None = None
    start: int | None = None
    """First step of the event, as the trainer calls it."""
    stop: int | None = None
    """One past its last; None while it goes on."""
    rank: int | None = None
    """The one rank that shows it."""
    size_nats: float | None = None
    num_held_back: int = 0
    """Alerts of this key that were counted and not sent since the last that was."""


Sink = Callable[[Alert], Any]


class JsonLines:
    r"""Appends each alert as a line of JSON to a file, or to a stream.

    Parameters
    ----------
    target
        A path, or a text stream such as ``sys.stderr``. A file is opened for each alert, so it may be moved away.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO()
    >>> JsonLines(stream)(Alert(key="stall", run="runs/a", attempt=1, step=7, text="no row for 600 s"))
    >>> stream.getvalue().count("\n")
    1
    """

    def __init__(self, target: str | os.PathLike[str] | IO[str]) -> None:
        self._path = Path(os.fspath(target)) if isinstance(target, str | os.PathLike) else None
        self._stream: Any = target

    def __call__(self, alert: Alert) -> None:
        """Write one line; OSError where that fails."""
        line = msgspec.json.encode(alert) + b"\n"
        if self._path is None:
            self._stream.write(line.decode())
            self._stream.flush()
            return
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line)  # one write: lines of several processes stay whole
        finally:
            os.close(file)

    def __repr__(self) -> str:
        return f"JsonLines({str(self._path) if self._path else self._stream!r})"


def sink_of(given: Any) -> Sink:
    """Who is told: a callable as it is, ``http://...`` and ``https://...`` as a `Webhook`, any other path as a file.

    Raises
    ------
    UsageError
        It is none of these.

    Examples
    --------
    >>> sink_of("https://alerts.example/hook/secret")
    Webhook(alerts.example)
    """
    if callable(given):
        sink: Sink = given
        return sink
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return Webhook(given)
    if isinstance(given, str | os.PathLike):
        return JsonLines(given)
    raise UsageError(
        f"nobody can be told by a {type(given).__name__}",
        allowed="a callable that takes an Alert, a URL of http or https, or the path of a file",
    )


class Alerts:
    """Sends alerts, each key at most once in so many steps.

    Parameters
    ----------
    sinks
        Who is told: callables, URLs, paths (`sink_of`).
    cooldown_steps
        For so many steps after an alert was sent, others of its key are counted instead.

    Examples
    --------
    >>> sent = []
    >>> alerts = Alerts([sent.append], cooldown_steps=10)
    >>> for step in (5, 6, 14, 15):
    ...     _ = alerts.send(Alert(key="hard_batch/loss", run="runs/a", attempt=1, step=step, text="..."))
    >>> [(alert.step, alert.num_held_back) for alert in sent]
    [(5, 0), (15, 2)]
    """

    def __init__(self, sinks: Iterable[Any] = (), *, cooldown_steps: int = 100) -> None:
        if isinstance(sinks, str | bytes | os.PathLike) or callable(sinks):
            raise UsageError("who is to be told is a list", found=repr(sinks), todo=f"alerts=[{sinks!r}]")
        if isinstance(cooldown_steps, bool) or not isinstance(cooldown_steps, int) or cooldown_steps < 0:
            raise UsageError(f"cooldown_steps {cooldown_steps!r} cannot be", allowed="a whole number of at least 0")
        self._sinks = [sink_of(each) for each in sinks]
        self._cooldown_steps = cooldown_steps
        self._sent: dict[str, tuple[int, int]] = {}
        """Key -> step at which it was sent last, and how many were held back since; in order of sending."""
        self._told: set[int] = set()
        self.num_sent = 0
        """Alerts that were given to those who are told, each counted once."""
        self.num_failed = 0
        """Alerts that a sink failed to take, over all sinks; webhooks count on their own side as well."""
        self.notes: tuple[str, ...] = ()
        """What failed, once for each sink."""

    @property
    def num_sinks(self) -> int:
        """How many are told."""
        return len(self._sinks)

    def send(self, alert: Alert) -> bool:
        """Send an alert, or count it; says whether it was sent. Nothing is raised, whatever fails."""
        last = self._sent.get(alert.key)
        held = 0
        if last is not None:
            step, held = last
            # A step before the last one sent means that the trainer went back; what was sent then is no reason now.
            if step <= alert.step < step + self._cooldown_steps:
                self._sent[alert.key] = (step, held + 1)
                return False
        self._sent.pop(alert.key, None)
        self._sent[alert.key] = (alert.step, 0)
        while len(self._sent) > MOST_KEYS:
            del self._sent[next(iter(self._sent))]
        given = msgspec.structs.replace(alert, num_held_back=held)
        self.num_sent += bool(self._sinks)
        for number, sink in enumerate(self._sinks):
            try:
                sink(given)
            except Exception as error:  # noqa: BLE001 - whatever somebody's own function raises, training goes on
                self.num_failed += 1
                self._note(number, f"{sink!r} failed: {type(error).__name__}: {error}")
        self.look()
        return True

    @property
    def num_not_taken(self) -> int:
        """Alerts that somebody who is told did not get, over all of them, webhooks included."""
        hooks = [sink for sink in self._sinks if isinstance(sink, Webhook)]
        return self.num_failed + sum(hook.num_failed + hook.num_dropped for hook in hooks)

    def look(self) -> None:
        """Take over what failed in the background since the last look."""
        for number, sink in enumerate(self._sinks):
            failure = sink.failure if isinstance(sink, Webhook) else None
            if failure is not None:
                self._note(number, f"{sink!r} failed: {failure}")

    def close(self) -> None:
        """Give what is on its way a short time to arrive."""
        for sink in self._sinks:
            if isinstance(sink, Webhook):
                sink.close()
        self.look()

    def _note(self, number: int, text: str) -> None:
        if number in self._told:
            return
        self._told.add(number)
        note = f"alerts are not delivered: {text} (said once; later failures are counted)"
        self.notes = (*self.notes, note)
        warnings.warn(note, RuntimeWarning, stacklevel=4)

    # -- checkpoint

    def state_dict(self) -> dict[str, Any]:
        """What was sent when: JSON-able, at most `MOST_KEYS` keys."""
        return {"sent": {key: list(each) for key, each in self._sent.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises
        ------
        UsageError
            It is no state of this kind.
        """
        try:
            self._sent = {str(key): (int(step), int(held)) for key, (step, held) in state["sent"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"this is no state of Alerts: {error!r}", todo="give what state_dict() gave") from error
