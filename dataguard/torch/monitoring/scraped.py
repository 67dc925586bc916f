"""What can be scraped of a rank that trains, and where does each number come from?

1. Loss, gradient norm, learning rate, loss scale: as they were written to the telemetry, at the moment they were. A
   value that is still on its way from a device is not waited for, and not shown before it is there.
2. Steps and the time waited for data: counted at each call of `Monitor.log`.
3. Samples, by source, status and verdict, and rules that fired: counted in the record of this rank itself, at a scrape.
   Nothing is counted in the training loop, and what is shown is what was recorded.
4. Events, skipped updates and alerts: as the detector decided them.

Label values are bounded: sources of the plan (the first `MOST_SOURCES`, the rest together), rules of the policy, and
words of closed lists. Counters begin again at 0 with a new attempt or process, as counters do.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spikes import EventClass
from dataguard.errors import DataguardError
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.run.policies import policy_of
from dataguard.run.progress import Progress
from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import Decision
from dataguard.triage.watching.delivered import Columns, Counts, Delivered, Tally

__all__ = ["MOST_SOURCES", "Family", "Scraped"]

MOST_SOURCES = 64
_OTHERS = "(others)"
_NUM_RULES = 64
_CODES = 64  # status * 8 + verdict
_GAUGES = {
    b"loss": ("dataguard_loss", "The loss that this rank logged last, in nats."),
    b"grad_norm": ("dataguard_gradient_norm", "The gradient norm that this rank logged last, before clipping."),
    b"lr": ("dataguard_learning_rate", "The learning rate that this rank logged last."),
    b"loss_scale": ("dataguard_loss_scale", "The loss scale that this rank logged last."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with all its values."""

    name: str
    """Without the ``_total`` that counters end in."""
    kind: Literal["gauge", "counter"]
    text: str
    values: Sequence[tuple[dict[str, str], float]]
    """Labels, and the value."""


class Scraped:
    """The numbers of one rank; written by the thread that trains, read by those that answer scrapes.

    Parameters
    ----------
    run
        The run, as loader and monitor share it.
    alerts
        Gives how many alerts were sent and how many failed; None without a detector.
    """

    def __init__(self, run: Run, alerts: Callable[[], tuple[int, int]] | None) -> None:
        self._run = run
        self._alerts = alerts
        self._lock = threading.Lock()
        self._rank: int | None = None
        self._attempt: int | None = None
        self._values: dict[bytes, float] = {}
        self._step: int | None = None
        self._seconds: float | None = None
        self._num_steps = 0
        self._waited = 0.0
        self._waited_of: tuple[int | None, float] = (None, 0.0)
        self._decided: Decision | None = None
        self._began: Counter[EventClass] = Counter()
        self._ended: Counter[EventClass] = Counter()
        self._num_skipped = 0
        self._sources: tuple[str, ...] = ()
        self._rules: dict[int, str] = {}
        self._delivered: Delivered | None = None
        self._counts: Counts | None = None
        self._num_problems = 0

    # -- what the training loop says

    def stepped(self, attempt: int, rank: int, label: int, seconds: float, progress: Progress | None) -> None:
        """A step was logged, as the trainer calls it; unix seconds."""
        if attempt != self._attempt:
            self._begin(attempt, rank)
        if label != self._step:
            self._num_steps += 1
        self._step, self._seconds = label, seconds
        if progress is not None:
            step, waited = self._waited_of
            known = waited if step == progress.step else 0.0
            self._waited += progress.waited_seconds - known
            self._waited_of = (progress.step, progress.waited_seconds)

    def wrote(self, records: NDArray[np.void]) -> None:
        """TELEMETRY_RECORDs stand in the file."""
        if records["slot"][0] >= 0:
            return  # losses of samples
        for name, value in zip(records["name"].tolist(), records["value"].tolist(), strict=True):
            if name in _GAUGES:
                self._values[name] = value

    def decided(self, decision: Decision | None) -> None:
        """A step was judged."""
        if decision is None or decision is self._decided:
            return
        self._decided = decision
        self._began.update(event.event_class for event in decision.began)
        self._ended.update(event.event_class for event in decision.ended)
        self._num_skipped += decision.skip_update

    def _begin(self, attempt: int, rank: int) -> None:
        run = self._run
        names = {name for mixture in run.attempts().attempt(attempt).mixtures for name in mixture.weights}
        policy = policy_of(run, attempt)
        with self._lock:
            self._attempt, self._rank = attempt, rank
            self._sources = tuple(sorted(names, key=str.encode))
            self._rules = {} if policy is None else {rule.bit: rule.name for rule in policy.rules}
            self._counts = None
            self._delivered = Delivered(run.layout, attempt, [rank], tally=_tally(len(self._sources)))
        self._num_steps, self._waited, self._waited_of = 0, 0.0, (None, 0.0)

    # -- what is answered

    def families(self) -> Iterator[Family]:
        """All metrics as they stand now; what is not known is left out."""
        yield _gauge("dataguard_run_info", "The run that is recorded.", [({"run": self._run.run_id}, 1.0)])
        values = dict(self._values)
        for name, (metric, text) in _GAUGES.items():
            if name in values:
                yield self._one(metric, text, values[name])
        for metric, text, value in (
            ("dataguard_attempt", "Number of the attempt.", self._attempt),
            ("dataguard_step", "The step that was logged last, as the trainer calls it.", self._step),
            ("dataguard_last_logged_timestamp_seconds", "When a step was logged last, unix time.", self._seconds),
        ):
            if value is not None:
                yield self._one(metric, text, value)
        yield self._count("dataguard_steps", "Steps that this process logged in the attempt.", self._num_steps)
        yield self._count(
            "dataguard_data_wait_seconds", "Seconds that the trainer waited for microbatches.", self._waited
        )
        yield from self._of_record()
        if self._alerts is not None:
            yield from self._of_detector(*self._alerts())

    def _of_record(self) -> Iterator[Family]:
        with self._lock:
            delivered = self._delivered
            if delivered is not None:
                try:
                    delivered.look()
                    while not delivered.whole()[1]:
                        delivered.look()
                    self._counts = delivered.whole()[0]
                except (DataguardError, OSError):
                    self._num_problems += 1  # the last counts stand; `dataguard verify` says what is wrong
            counts, sources, rules = self._counts, self._sources, self._rules
        yield self._count(
            "dataguard_scrape_problems", "Scrapes at which the record could not be read.", self._num_problems
        )
        if counts is None:
            return
        samples, padding = [], 0
        table = counts[:-_NUM_RULES].reshape(-1, _CODES)  # sources x codes
        for source, code in np.argwhere(table).tolist():
            status, verdict = SlotStatus(code >> 3), Verdict(code & 7)
            count = int(table[source, code])
            if status in PADDING:
                padding += count
                continue
            name = sources[source] if source < min(len(sources), MOST_SOURCES) else _OTHERS
            labels = {"source": name, "status": status.name.lower(), "verdict": verdict.name.lower()}
            samples.append((self._labels() | labels, float(count)))
        text = "Samples handed over in the attempt; what is neither live nor substituted was withheld."
        yield Family(name="dataguard_samples", kind="counter", text=text, values=samples)
        yield self._count("dataguard_padding_slots", "Slots that held no sample: skipped, or past the end.", padding)
        fired = counts[-_NUM_RULES:]
        yield Family(
            name="dataguard_rule_fired",
            kind="counter",
            text="Samples on which a rule of the policy fired.",
            values=[(self._labels() | {"rule": name}, float(fired[bit])) for bit, name in sorted(rules.items())],
        )

    def _of_detector(self, num_sent: int, num_failed: int) -> Iterator[Family]:
        for metric, text, counts in (
            ("dataguard_events_begun", "Events that began, by the class that they seemed to be.", self._began),
            ("dataguard_events", "Events that are over, by their class.", self._ended),
        ):
            values = [(self._labels() | {"event_class": each.value}, float(counts[each])) for each in EventClass]
            yield Family(name=metric, kind="counter", text=text, values=values)
        yield self._count("dataguard_skipped_updates", "Updates that were left out.", self._num_skipped)
        yield self._count("dataguard_alerts_sent", "Alerts that were given to those who are told.", num_sent)
        yield self._count("dataguard_alerts_failed", "Alerts that somebody who is told did not get.", num_failed)

    def _labels(self) -> dict[str, str]:
        return {} if self._rank is None else {"rank": str(self._rank)}

    def _one(self, name: str, text: str, value: float) -> Family:
        return _gauge(name, text, [(self._labels(), float(value))])

    def _count(self, name: str, text: str, value: float) -> Family:
        return Family(name=name, kind="counter", text=text, values=[(self._labels(), float(value))])


def _gauge(name: str, text: str, values: Sequence[tuple[dict[str, str], float]]) -> Family:
    return Family(name=name, kind="gauge", text=text, values=values)


def _tally(num_sources: int) -> Tally:
    """Counts by source, status and verdict, then by rule; sources beyond `MOST_SOURCES` are one."""
    shown = min(num_sources, MOST_SOURCES) + 1

    def total(records: Columns) -> Counts:
        source = np.minimum(records["source"].astype(np.int64), shown - 1)
        code = source * _CODES + records["status"].astype(np.int64) * 8 + records["verdict"].astype(np.int64)
        by_code = np.bincount(code, minlength=shown * _CODES)
        rules = records["rules"]
        fired = [int(np.count_nonzero(rules & np.uint64(1 << bit))) for bit in range(_NUM_RULES)] if rules.any() else 0
        by_rule = np.zeros(_NUM_RULES, np.int64)
        by_rule[:] = fired
        return np.concatenate([by_code, by_rule])

    return Tally(columns=("source", "status", "verdict", "rules"), size=shown * _CODES + _NUM_RULES, total=total)
