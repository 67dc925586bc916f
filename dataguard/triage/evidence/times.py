"""At what time, and on which host, was a line of a machine's log written?

Prefixes that logs have, most telling first:

- ISO 8601 with or without a zone (``dmesg --time-format iso``, ``journalctl -o short-iso``, Slurm in brackets);
- ``[Mon Nov 30 01:02:03 2026]`` of ``dmesg -T``;
- ``2026/11/30 01:02:03.123`` of ``nvidia-smi``;
- ``Nov 30 01:02:03 HOST`` of syslog and ``E1130 01:02:03.123456`` of PyTorch: no year, so the newest year in which the
  line is not younger than its file;
- ``[12345.678901]``: seconds since the boot, which is no date;
- unix seconds, or milliseconds.

What names no zone is taken as UTC (or as the offset that was given), and that is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache

__all__ = ["Stamp", "TimeReader"]

_DAY_SECONDS = 86_400.0
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_HOST = r"(?P<host>[A-Za-z0-9][\w.-]*)"

_ISO = re.compile(
    r"^\W?(?P<date>\d{4}[-/]\d\d[-/]\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d+))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?\]?,?\s*"
)
_CTIME = re.compile(
    r"^\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s+(?P<month>[A-Z][a-z]{2})\s+(?P<day>\d{1,2})\s+(?P<clock>\d\d:\d\d:\d\d)"
    r"\s+(?P<year>\d{4})\]?,?\s*"
)
_SYSLOG = re.compile(r"^(?P<month>[A-Z][a-z]{2})\s+(?P<day>\d{1,2})\s+(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?\s+")
_GLOG = re.compile(r"(?:^|\[|\s)[IWEF](?P<date>\d{3,4}) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?")
_UPTIME = re.compile(r"^\[\s*\d+\.\d+\]\s*")
_UNIX = re.compile(r"^(?P<seconds>\d{10}(?:\.\d+)?|\d{13})(?=[\s,])[\s,]*")
_SYSLOG_HOST = re.compile(rf"^{_HOST}\s+")
"""In syslog a host stands behind every time."""
_JOURNAL_HOST = re.compile(
    rf"^{_HOST}\s+(?=kernel:|[\w./-]+\[\d+\]:|(?:slurm|systemd|container|docker|nvidia-|nv-)[\w-]*:)"
)
"""Behind an ISO time it may: ``dmesg --time-format iso`` has none, and begins with what the kernel says."""
_NCCL_HOST = re.compile(rf"^{_HOST}:\d+:\d+ (?:\[\d+\] )?(?:NCCL|.*NCCL)")
_SLURM_HOST = re.compile(r"\b(?:ON|[Nn]odes?) (?P<host>[A-Za-z][\w-]*\d[\w-]*)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the beginning of a line says."""

    time: float | None
    """Unix seconds."""
    is_since_boot: bool
    """Whether there is a time, and it counts from the boot."""
    is_zone_known: bool
    host: str | None
    text: str
    """What stands behind it."""


class TimeReader:
    """Reads the beginning of lines of one file.

    Parameters
    ----------
    newest
        Unix seconds that no line is younger than, such as when the file was written; for lines without a year.
    utc_offset_seconds
        Of times that name no zone; None where it is not known: then they are taken as UTC, and said to be.

    Examples
    --------
    >>> reader = TimeReader(newest=datetime(2026, 12, 1, tzinfo=UTC).timestamp(), utc_offset_seconds=None)
    >>> stamp = reader.read("Nov 30 01:02:03 node03 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen")
    >>> stamp.host, datetime.fromtimestamp(stamp.time, UTC).isoformat(), stamp.is_zone_known
    ('node03', '2026-11-30T01:02:03+00:00', False)
    >>> reader.read("[12345.678901] NVRM: Xid").is_since_boot
    True
    """

    def __init__(self, *, newest: float, utc_offset_seconds: int | None = None) -> None:
        self._newest = newest
        self._zone = UTC if utc_offset_seconds is None else timezone(timedelta(seconds=utc_offset_seconds))
        self._is_zone_given = utc_offset_seconds is not None

    def read(self, line: str) -> Stamp:
        """The time and the host of a line, where it names them."""
        for read in (self._iso, self._ctime, self._syslog, self._unix, self._glog):
            found = read(line)
            if found is not None:
                time, is_zone_known, rest = found
                host, rest = _host(rest, _SYSLOG_HOST if read == self._syslog else _JOURNAL_HOST)
                return Stamp(time=time, is_since_boot=False, is_zone_known=is_zone_known, host=host, text=rest)
        uptime = _UPTIME.match(line)
        rest = line[uptime.end() :] if uptime else line
        host, rest = _host(rest, None)
        return Stamp(time=None, is_since_boot=uptime is not None, is_zone_known=True, host=host, text=rest)

    def _iso(self, line: str) -> tuple[float, bool, str] | None:
        match = _ISO.match(line)
        if match is None:
            return None
        zone = match["zone"]
        text = f"{match['date'].replace('/', '-')}T{match['clock']}"
        known = None if zone is None else _zone(zone)
        time = _seconds(text, known or self._zone)
        rest = line[match.end() :]
        return None if time is None else (time + _part(match), zone is not None or self._is_zone_given, rest)

    def _ctime(self, line: str) -> tuple[float, bool, str] | None:
        match = _CTIME.match(line)
        if match is None or match["month"] not in _MONTHS:
            return None
        month = _MONTHS.index(match["month"]) + 1
        time = _seconds(f"{match['year']}-{month:02}-{int(match['day']):02}T{match['clock']}", self._zone)
        return None if time is None else (time, self._is_zone_given, line[match.end() :])

    def _syslog(self, line: str) -> tuple[float, bool, str] | None:
        match = _SYSLOG.match(line)
        if match is None or match["month"] not in _MONTHS:
            return None
        time = self._without_year(_MONTHS.index(match["month"]) + 1, int(match["day"]), match["clock"])
        return None if time is None else (time + _part(match), self._is_zone_given, line[match.end() :])

    def _glog(self, line: str) -> tuple[float, bool, str] | None:
        match = _GLOG.search(line[:80])
        if match is None:
            return None
        time = self._without_year(int(match["date"][:-2]), int(match["date"][-2:]), match["clock"])
        return None if time is None else (time + _part(match), self._is_zone_given, line)

    def _unix(self, line: str) -> tuple[float, bool, str] | None:
        match = _UNIX.match(line)
        if match is None:
            return None
        digits = match["seconds"]
        seconds = float(digits) / (1_000 if len(digits) == 13 and "." not in digits else 1)
        return seconds, True, line[match.end() :]

    def _without_year(self, month: int, day: int, clock: str) -> float | None:
        year = datetime.fromtimestamp(self._newest, UTC).year
        for tried in range(year + 1, year - 9, -1):  # 29 February comes every four years, once in eight at worst
            time = _seconds(f"{tried:04}-{month:02}-{day:02}T{clock}", self._zone)
            if time is not None and time <= self._newest + _DAY_SECONDS:
                return time
        return None


@cache
def _zone(text: str) -> tzinfo | None:
    """``Z``, ``+0100`` or ``-05:30``."""
    return UTC if text == "Z" else datetime.strptime(text, "%z").tzinfo


def _seconds(text: str, zone: object) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()  # type: ignore[arg-type]
    except ValueError:
        return None


def _part(match: re.Match[str]) -> float:
    part = match.groupdict().get("part")
    return float(f"0.{part}") if part else 0.0


def _host(text: str, prefix: re.Pattern[str] | None) -> tuple[str | None, str]:
    named = None if prefix is None else prefix.match(text)
    if named is not None:
        return named["host"], text[named.end() :]
    for pattern in (_NCCL_HOST, _SLURM_HOST):
        match = pattern.search(text)
        if match is not None:
            return match["host"], text
    return None, text
