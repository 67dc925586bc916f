"""How does a live run look on a terminal, and in one line?

`render_watch` is the whole view, a label and its facts a row; `line_of` is one look in one line, and `news_of` what two
looks differ in that deserves a line of its own. What comes from data (reasons, paths, names) is made printable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dataguard.report.tables import printable
from dataguard.run.telemetry_show import Number, as_float
from dataguard.triage.watching.answers import Behind, EventSeen, Share, SignalSeen, Speed, WatchAnswer

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["line_of", "news_of", "render_watch", "sparkline"]

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_MOST_NAMED = 4
_NUM_LINES = 3
_SPARK = 32
_STYLES = {"stalled": "bold red", "open": "green", "closed": "bold"}
_OWN_ROWS = ("spike-found", "checkpoint-saved")
"""Kinds of journal events that stand in rows of their own."""


def render_watch(answer: WatchAnswer, *, is_ascii: bool = False) -> Table:
    """The whole view.

    Parameters
    ----------
    is_ascii
        Draw with plain letters, for terminals that know no others.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for label, text in _rows(answer, is_ascii=is_ascii):
        style = _STYLES.get(answer.state, "") if label == "state" else "red" if label == "problem" else ""
        made.add_row(Text(label, style="dim"), Text(printable(text), style=style))
    return made


def _rows(answer: WatchAnswer, *, is_ascii: bool) -> Iterator[tuple[str, str]]:
    yield "run", answer.run
    yield "state", _state(answer)
    attempt = answer.attempt
    if attempt is not None:
        parent = "" if attempt.parent is None else f", from attempt {attempt.parent}"
        geometry = f"{_ranks(attempt.world_size)} * microbatches of {attempt.microbatch_size:,}"
        begun = f"begun {attempt.begun}"
        yield "attempt", f"{attempt.number}{parent}, from step {attempt.first_step:,}; {geometry}; {begun}"
        yield "step", _step(answer)
        yield "speed", _speeds(answer)
        yield "flagged", _shares(answer, "flagged")
        yield "withheld", _shares(answer, "withheld")
        yield from ((_label(signal), _signal(signal, is_ascii=is_ascii)) for signal in answer.signals)
        if not answer.signals:
            yield "loss", "not known: nothing was logged in this attempt"
        yield "data wait", _wait(answer)
        yield "ranks", _behind(answer, attempt.world_size)
        yield from _listed("events", [_event(event) for event in reversed(answer.events)] or ["none"])
        if answer.judged_from is not None:
            yield "", f"judged from step {answer.judged_from:,} on; before that, what the journal tells"
    if answer.exceptions:
        yield "exceptions", _counts(answer.exceptions)
    if answer.let_go:
        yield "store", f"let go of {_counts(answer.let_go)}"
    if answer.checkpoint is not None:
        noted = answer.checkpoint
        yield "checkpoint", f"before step {noted.next_step:,}: {noted.path} (noted {noted.noted})"
    lines = [f"{each.number}: {each.text}" for each in answer.journal if each.kind not in _OWN_ROWS]
    yield from _listed("journal", lines[-_NUM_LINES:][::-1])
    if answer.free_bytes is not None:
        yield "disk", f"{answer.free_bytes / 1e9:,.1f} GB left under the run"
    yield from (("problem", text) for text in answer.problems)


def line_of(answer: WatchAnswer) -> str:
    """One look in one line, for logs and pipes.

    >>> line_of(WatchAnswer(run="runs/a", looked="2026-11-30T04:30:00.000Z", state="absent"))
    '2026-11-30T04:30:00.000Z no run stands there yet'
    """
    attempt = answer.attempt
    if attempt is None:
        return f"{answer.looked} {_state(answer)}"
    parts = [f"{answer.state}, attempt {attempt.number}"]
    parts.append("no step yet" if answer.step is None else f"step {answer.step:,}")
    if answer.last_minute is not None:
        parts.append(_speed(answer.last_minute))
    parts += [f"{_label(signal)} {_shown(signal.value)}" for signal in answer.signals]
    for what in ("flagged", "withheld"):
        share = None if answer.recent is None else getattr(answer.recent, what)
        if share is not None:
            parts.append(f"{what} {_percent(share)}")
    if answer.wait is not None:
        parts.append(f"data wait {_percent(answer.wait.share)}")
    if answer.num_behind:
        parts.append(f"{answer.num_behind:,} of {_ranks(attempt.world_size)} behind: {_named(answer.behind)}")
    return printable(f"{answer.looked} " + ", ".join(parts))


def news_of(before: WatchAnswer | None, after: WatchAnswer) -> list[str]:
    """What one look found that the one before did not: stalls, events, what stands in the journal, problems.

    >>> look = WatchAnswer(run="runs/a", looked="", state="open", problems=("frame 7 is damaged",))
    >>> news_of(None, look), news_of(look, look)
    (['problem: frame 7 is damaged'], [])
    """
    texts = []
    if after.stall is not None and (before is None or before.stall is None):
        texts += [f"stalled: {text}" for text in after.stall.texts]
    known = {(event.start, event.signal) for event in before.events} if before is not None else set()
    texts += [f"event: {_event(event)}" for event in after.events if (event.start, event.signal) not in known]
    numbers = {each.number for each in before.journal} if before is not None else set()
    newest = max(numbers, default=0)
    texts += [f"journal {each.number}: {each.text}" for each in after.journal if each.number > newest]
    problems = set() if before is None else set(before.problems)
    texts += [f"problem: {text}" for text in after.problems if text not in problems]
    return [printable(text) for text in texts]


def sparkline(values: Sequence[float | None], *, is_ascii: bool = False) -> str:
    """Values as bars, the least lowest; one that is not finite as a cross.

    >>> sparkline([1.0, 2.0, None, 8.0]), sparkline([3.0, 3.0], is_ascii=True)
    ('▁▂x█', '__')
    """
    bars = _ASCII_BARS if is_ascii else _BARS
    finite = [value for value in values if value is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = high - low
    top = len(bars) - 1

    def bar(value: float) -> str:
        share = (value - low) / span if 0 < span < math.inf else 0.0
        return bars[round(top * share)]

    return "".join("x" if value is None else bar(value) for value in values)


# -- parts


def _state(answer: WatchAnswer) -> str:
    age = "nothing was recorded yet" if answer.silent_seconds is None else _age(answer.silent_seconds)
    if answer.state == "absent":
        return "no run stands there yet"
    if answer.state == "waiting":
        return "no attempt has begun yet"
    if answer.state == "closed":
        return "closed: every rank has closed its record"
    if answer.stall is not None:
        return "STALLED: " + "; ".join(answer.stall.texts)
    return f"open; {age}"


def _age(seconds: float) -> str:
    return f"the newest record is {_seconds(seconds)} old"


def _seconds(seconds: float) -> str:
    """A time as people read it.

    >>> _seconds(0.42), _seconds(75.0), _seconds(7_300.0)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def _step(answer: WatchAnswer) -> str:
    if answer.step is None:
        return "none yet"
    if answer.complete == answer.step:
        return f"{answer.step:,}, complete on all ranks"
    complete = "not known or none" if answer.complete is None else f"{answer.complete:,}"
    return f"{answer.step:,}; newest that is complete on all ranks: {complete}"


def _speed(speed: Speed) -> str:
    return f"{speed.steps_per_second:,.3g} steps/s, {speed.samples_per_second:,.4g} samples/s"


def _speeds(answer: WatchAnswer) -> str:
    parts = []
    if answer.last_minute is not None:
        # An attempt may be younger than a minute, and then it says over how long.
        parts.append(f"{_speed(answer.last_minute)} over the last {_seconds(answer.last_minute.seconds)}")
    if answer.since_begun is not None:
        parts.append(f"{_speed(answer.since_begun)} since the attempt began")
    return "; ".join(parts) or "not known yet"


def _shares(answer: WatchAnswer, what: str) -> str:
    texts = [_share(share, what, of) for share, of in ((answer.recent, "of"), (answer.whole, "of the attempt's"))]
    return "; ".join(text for text in texts if text) or "not known: no sample was handed over yet"


def _share(share: Share | None, what: str, of: str) -> str:
    value = None if share is None else getattr(share, what)
    if share is None or value is None or share.steps is None:
        return ""
    steps = "" if of != "of" else f" in steps {share.steps[0]:,}:{share.steps[1]:,}"
    rest = "" if share.is_whole else ", the newest (older ones are still being counted)"
    return f"{_percent(value)} {of} {share.num_samples:,} samples{steps}{rest}"


def _percent(share: float) -> str:
    """Never 0 % of something that was there.

    >>> _percent(0.0), _percent(0.00001), _percent(0.1234)
    ('0 %', '<0.01 %', '12.34 %')
    """
    if 0 < share < 0.0001:
        return "<0.01 %"
    return f"{100 * share:.2f} %" if share else "0 %"


def _label(signal: SignalSeen) -> str:
    return signal.name.replace("_", " ")


def _signal(signal: SignalSeen, *, is_ascii: bool) -> str:
    bars = sparkline(signal.recent[-_SPARK:], is_ascii=is_ascii) if signal.name != "lr" else ""
    return f"{_shown(signal.value)} at step {signal.step:,}  {bars}".rstrip()


def _shown(value: Number) -> str:
    number = as_float(value)
    return f"{number:.5g}" if math.isfinite(number) else str(number)


def _wait(answer: WatchAnswer) -> str:
    wait = answer.wait
    if wait is None:
        return "not known"
    return (
        f"{_percent(wait.share)} of the time in steps {wait.steps[0]:,}:{wait.steps[1]:,}; most on rank "
        f"{wait.worst_rank}, {_percent(wait.worst_share)}"
    )


def _behind(answer: WatchAnswer, world_size: int) -> str:
    attempt = answer.attempt
    assert attempt is not None
    if answer.step is None:
        return f"{attempt.num_ranks_seen:,} of {world_size:,} were seen"
    if not answer.num_behind:
        return f"none of {world_size:,} is behind"
    return f"{answer.num_behind:,} of {world_size:,} behind: {_named(answer.behind)}"


def _named(behind: Sequence[Behind]) -> str:
    shown = [_rank(each) for each in behind[:_MOST_NAMED]]
    return "; ".join(shown) + (" ..." if len(behind) > _MOST_NAMED else "")


def _rank(behind: Behind) -> str:
    silent = "" if behind.silent_seconds is None else f", silent for {_seconds(behind.silent_seconds)}"
    if behind.num_steps is None:
        return f"rank {behind.rank} was handed nothing{silent}"
    if not behind.num_steps:
        return f"rank {behind.rank} within step {behind.step:,}{silent}"
    return f"rank {behind.rank} by {behind.num_steps:,} step{'s' * (behind.num_steps != 1)}{silent}"


def _event(event: EventSeen) -> str:
    what = f"{event.event_class}" + ("" if event.signal == "loss" else f" of {event.signal}")
    where = f"since step {event.start:,}" if event.is_open else f"at steps {event.start:,}:{event.stop:,}"
    size = "" if event.size_nats is None else f", {event.size_nats:+.3g} nats"
    if event.size_nats is not None and event.sigmas is not None:
        size += f" ({event.sigmas:.3g} sigma)"
    rank = "" if event.rank is None else f" on rank {event.rank}"
    return f"{what} {where}{rank}{size}" + (", noted" if event.origin == "journal" else "")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def _ranks(count: int) -> str:
    return f"{count:,} rank{'s' * (count != 1)}"


def _listed(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for i, text in enumerate(texts):
        yield ("" if i else label), text
