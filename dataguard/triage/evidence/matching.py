"""Do lines of machines' logs match the node and the time of an event?

A line convicts nobody unless it matches both: at 16,000 devices some unrelated event falls into an hour with p = .28
(A16). So the window is narrow, the hosts are those of the outlier, and the chance that an unrelated event falls there
is said with each match; where it is above `_MOST_CHANCE`, a match is none.

The window reaches from `_LEAD_SECONDS` before the event, within which a fault shows in a step or a collective gives up
(NCCL's default timeout, ten minutes), to `_LAG_SECONDS` after it, for clocks that differ. What collective libraries say
may come later, as their timeouts pass: it is looked for `_COMPLAINT_SECONDS` long, and it is a consequence; the earlier
root is looked for on all hosts, before the first complaint.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dataguard.core.evidence import HardwareLog
from dataguard.triage.diagnose.rates import HARDWARE_SHARE, chance_in_window
from dataguard.triage.evidence.lines import MachineLine, MachineLogs, Meaning

__all__ = ["match", "same_host"]

_LEAD_SECONDS = 600.0
_LAG_SECONDS = 60.0
_COMPLAINT_SECONDS = 1_800.0
"""The longest default timeout: that of PyTorch's process groups other than NCCL's."""
_MOST_CHANCE = 0.05
_MOST_TEXTS = 8


def match(
    logs: MachineLogs,
    *,
    start_time: float | None,
    stop_time: float | None,
    hosts: Sequence[str],
    devices_per_host: int | None = None,
) -> tuple[HardwareLog, tuple[str, ...]]:
    """What the logs say about the node and the time of an event.

    Parameters
    ----------
    logs
        What was read.
    start_time, stop_time
        Unix seconds of the event's first and last step; of a stall, of the last row that came, twice. None where the
        log of the training has no times: then nothing can be matched.
    hosts
        Of the outlier; none where it is not known: then no line of a machine can be matched, and only what collective
        libraries say of that time, on whatever host, counts as a consequence.
    devices_per_host
        For the chance of an unrelated event; without it the chance is not known. Ranks that ran on a host are a lower
        bound of its devices, and give a lower bound of the chance.

    Returns
    -------
    tuple
        The answer, and texts: the lines, what could not be matched, and what could not be read.
    """
    if not logs.sources:
        return HardwareLog.NOT_GIVEN, ()
    notes = logs.notes
    guilty = [line for line in logs.lines if line.meaning is Meaning.HARDWARE]
    if start_time is None:
        texts = tuple(f"{line}{_at(line)}" for line in guilty[:_MOST_TEXTS])
        unknown = "the time of the event is not known, so it matches nothing"
        return (HardwareLog.ELSEWHERE if guilty else HardwareLog.NOT_GIVEN), (*texts, unknown, *notes)
    stop = start_time if stop_time is None else max(start_time, stop_time)
    if not hosts:
        return _nowhere(logs, guilty, start_time, stop)
    here = [line for line in logs.lines if _is_on(line, hosts)]
    near = [line for line in here if line.time is not None and _inside(line.time, start_time, stop)]
    chance = _chance(hosts, devices_per_host, stop - start_time)
    for meaning, answer in (
        (Meaning.HARDWARE, HardwareLog.HARDWARE),
        (Meaning.APPLICATION, HardwareLog.APPLICATION),
        (Meaning.AMBIGUOUS, HardwareLog.AMBIGUOUS),
    ):
        found = [line for line in near if line.meaning is meaning]
        if not found:
            continue
        texts = tuple(f"{line}{_at(line, start_time)}" for line in found[:_MOST_TEXTS])
        if meaning is Meaning.HARDWARE:
            if chance is not None and chance > _MOST_CHANCE:
                said = f"by chance an unrelated event falls there with p = {chance:.2g}: it tells nothing"
                return HardwareLog.ELSEWHERE, (*texts, said, *notes)
            said = "not known, without the number of devices of a host" if chance is None else f"{chance:.2g}"
            texts = (*texts, f"the chance that an unrelated event falls there: {said}")
        return answer, (*texts, *notes)
    complaints = _complaints(logs, start_time, stop)
    if complaints:
        return HardwareLog.CONSEQUENCE, (*_root(complaints, logs), *notes)
    if guilty:
        texts = tuple(f"{line}{_at(line, start_time)}: {_why_not(line, hosts)}" for line in guilty[:_MOST_TEXTS])
        return HardwareLog.ELSEWHERE, (*texts, *notes)
    if all(_covers(logs, host, start_time, stop) for host in hosts):
        return HardwareLog.CLEAN, (f"they cover {', '.join(hosts)} at that time, and say nothing", *notes)
    return HardwareLog.NOT_GIVEN, (f"no log covers {', '.join(hosts)} at that time", *notes)


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one host: equal, or one of them the other without its domain.

    >>> same_host("Node03", "node03.cluster.local"), same_host("node03.a", "node03.b")
    (True, False)
    """
    first, second = one.lower().rstrip("."), other.lower().rstrip(".")
    return first == second or first.split(".")[0] == second or second.split(".")[0] == first


def _is_on(line: MachineLine, hosts: Sequence[str]) -> bool:
    return line.host is not None and any(same_host(line.host, host) for host in hosts)


def _inside(time: float, start: float, stop: float) -> bool:
    return start - _LEAD_SECONDS <= time <= stop + _LAG_SECONDS


def _chance(hosts: Sequence[str], devices_per_host: int | None, lasts: float) -> float | None:
    """The chance that hardware of these hosts has an event of its own in the window."""
    if devices_per_host is None:
        return None
    window = (lasts + _LEAD_SECONDS + _LAG_SECONDS) * HARDWARE_SHARE
    return chance_in_window(len(hosts) * devices_per_host, window)


def _nowhere(
    logs: MachineLogs, guilty: Sequence[MachineLine], start: float, stop: float
) -> tuple[HardwareLog, tuple[str, ...]]:
    """Where no host stands out: machines match nothing, but what libraries complain of is of the job."""
    unknown = "the host of the event is not known, so it matches nothing"
    complaints = _complaints(logs, start, stop)
    if complaints:
        return HardwareLog.CONSEQUENCE, (*_root(complaints, logs), *logs.notes)
    texts = tuple(f"{line}{_at(line, start)}" for line in guilty[:_MOST_TEXTS])
    return (HardwareLog.ELSEWHERE if guilty else HardwareLog.NOT_GIVEN), (*texts, unknown, *logs.notes)


def _complaints(logs: MachineLogs, start: float, stop: float) -> list[MachineLine]:
    """Consequences that somebody noticed as the event went on, on whatever host."""
    return [
        line
        for line in logs.lines
        if line.meaning is Meaning.CONSEQUENCE
        and line.time is not None
        and start - _LEAD_SECONDS <= line.time <= stop + _COMPLAINT_SECONDS
    ]


def _root(complaints: Sequence[MachineLine], logs: MachineLogs) -> tuple[str, ...]:
    """The first complaint, and what came before it on any host."""
    first = complaints[0]
    more = "" if len(complaints) == 1 else f", and {len(complaints) - 1:,} more like it"
    texts = [f"{first}{_at(first)}: a consequence{more}"]
    assert first.time is not None
    roots = [
        line
        for line in logs.lines
        if line.time is not None
        and line.meaning in (Meaning.HARDWARE, Meaning.APPLICATION)
        and first.time - _COMPLAINT_SECONDS <= line.time <= first.time
    ]
    for root in roots[:_MOST_TEXTS]:
        assert root.time is not None
        texts.append(f"{first.time - root.time:,.0f} s before it, {root}: look there")
    if not roots:
        texts.append("nothing in these logs comes before it: look in logs of other hosts")
    return tuple(texts)


def _why_not(line: MachineLine, hosts: Sequence[str]) -> str:
    if line.time is None:
        return "it has no date"
    return "another time" if _is_on(line, hosts) else f"not on {', '.join(hosts)}"


def _covers(logs: MachineLogs, host: str, start: float, stop: float) -> bool:
    """Whether a log of the machine itself, of that host, begins before the window and ends after it."""
    return any(
        source.first_time is not None
        and source.last_time is not None
        and source.kind != "collective"
        and source.first_time <= start - _LEAD_SECONDS
        and source.last_time >= stop
        and any(same_host(host, named) for named in (*source.hosts, *([source.host] if source.host else [])))
        for source in logs.sources
    )


def _at(line: MachineLine, event: float | None = None) -> str:
    if line.time is None:
        return ""
    at = datetime.fromtimestamp(line.time, UTC).strftime(" at %Y-%m-%d %H:%M:%S UTC")
    if event is None:
        return at
    away = event - line.time
    return f"{at}, {abs(away):,.0f} s {'before' if away >= 0 else 'after'} the event began"
