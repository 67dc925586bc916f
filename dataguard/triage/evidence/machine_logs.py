"""What do logs of machines say that were collected somewhere else?

``HOST=FILE``, or ``FILE`` alone: then the host is what the lines say, or what stands before ``.dmesg``, ``.kern``,
``.journal``, ``.dcgm``, ``.nccl`` in the file's name. Kernel logs, journals, NCCL and PyTorch logs, Slurm logs and
tables of counters may be mixed in one file; each line is read by itself. Files that end in ``.gz`` are unpacked.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataguard.errors import InputError, UsageError
from dataguard.triage.evidence.counters import CounterTable
from dataguard.triage.evidence.lines import LogSource, MachineLine, MachineLogs
from dataguard.triage.evidence.patterns import meaning_of
from dataguard.triage.evidence.times import TimeReader

__all__ = ["read_machine_logs"]

_HOST_SUFFIXES = (".dmesg", ".kern", ".kernel", ".journal", ".syslog", ".dcgm", ".nccl", ".ecc")
_MOST_TEXT = 120


def read_machine_logs(specs: Sequence[str | Path], *, utc_offset_seconds: int | None = None) -> MachineLogs:
    """Read logs of machines.

    Parameters
    ----------
    specs
        ``HOST=FILE`` or ``FILE``; several may be joined by commas.
    utc_offset_seconds
        Of times that name no zone; by default they are taken as UTC, which the notes say.

    Raises
    ------
    UsageError
        A specification that names no file.
    InputError
        A file that cannot be read.
    """
    lines: list[MachineLine] = []
    sources = []
    for host, path in _files(specs):
        reading = _Reading(path=path, host=host)
        try:
            newest = path.stat().st_mtime
            reading.read(_lines_of(path), TimeReader(newest=newest, utc_offset_seconds=utc_offset_seconds))
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{path} cannot be read: {why}", todo="give a file of text, or leave it out") from error
        lines += reading.lines
        sources.append(reading.source())
    lines.sort(key=lambda line: (math.inf if line.time is None else line.time, line.source, line.number))
    return MachineLogs(lines=tuple(lines), sources=tuple(sources))


def _files(specs: Sequence[str | Path]) -> Iterator[tuple[str | None, Path]]:
    for spec in specs:
        if isinstance(spec, Path):
            yield _host_of_name(spec), spec
            continue
        parts = [spec] if Path(spec).exists() else spec.split(",")
        for part in parts:
            host, equals, name = part.partition("=")
            if not equals or Path(part).exists():
                host, name = "", part
            if not name.strip() or (equals and not host and not Path(part).exists()):
                raise UsageError(f"{spec!r} names no file", allowed="FILE, or HOST=FILE, joined by commas")
            path = Path(name.strip())
            yield (host.strip() or _host_of_name(path)), path


def _host_of_name(path: Path) -> str | None:
    """What stands before a suffix that says what kind of log it is.

    >>> _host_of_name(Path("logs/node03.dmesg")), _host_of_name(Path("dmesg.txt")), _host_of_name(Path("n1.nccl.log"))
    ('node03', None, 'n1')
    """
    name = path.name
    for suffix in _HOST_SUFFIXES:
        host, found, _ = name.partition(suffix)
        if found and host:
            return host
    return None


def _lines_of(path: Path) -> Iterator[str]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for raw in file:
            yield raw.decode("utf-8", "replace").rstrip("\r\n")


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One file while it is read."""

    path: Path
    host: str | None
    lines: list[MachineLine] = field(default_factory=list)
    num_lines: int = 0
    num_dated: int = 0
    num_undated: int = 0
    num_unparsed: int = 0
    first_unparsed: str | None = None
    first_time: float = math.inf
    last_time: float = -math.inf
    is_zone_known: bool = True
    hosts: set[str] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)

    def read(self, lines: Iterator[str], times: TimeReader) -> None:
        table = CounterTable(source=str(self.path), times=times, host=self.host)
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            self.num_lines += 1
            if table.takes(line):
                self._counted(table, line, number)
            else:
                self._said(times, line, number)

    def _counted(self, table: CounterTable, line: str, number: int) -> None:
        read = table.read(line, number)
        if read is None:
            self.num_unparsed += 1
            self.first_unparsed = self.first_unparsed or line[:_MOST_TEXT]
            return
        found, time = read
        self.kinds["counters"] += 1
        self._dated(time)
        self.lines += found
        self.hosts.update(each.host for each in found if each.host)

    def _said(self, times: TimeReader, line: str, number: int) -> None:
        stamp = times.read(line)
        self._dated(stamp.time)
        self.num_undated += stamp.is_since_boot
        self.is_zone_known &= stamp.time is None or stamp.is_zone_known
        if stamp.host is not None:
            self.hosts.add(stamp.host)
        said = meaning_of(line)
        if said is None:
            if "Xid" in line and "NVRM" in line:
                self.num_unparsed += 1
                self.first_unparsed = self.first_unparsed or line[:_MOST_TEXT]
            return
        self.kinds[said.kind] += 1
        self.lines.append(
            MachineLine(
                meaning=said.meaning,
                what=said.what,
                source=str(self.path),
                number=number,
                host=stamp.host or self.host,
                time=stamp.time,
                device=said.device,
            )
        )

    def _dated(self, time: float | None) -> None:
        if time is not None:
            self.num_dated += 1
            self.first_time = min(self.first_time, time)
            self.last_time = max(self.last_time, time)

    def source(self) -> LogSource:
        kind = self.kinds.most_common(1)[0][0] if self.kinds else "unknown"
        return LogSource(
            path=str(self.path),
            host=self.host,
            kind=kind,
            num_lines=self.num_lines,
            num_dated=self.num_dated,
            num_undated=self.num_undated,
            num_unparsed=self.num_unparsed,
            first_unparsed=self.first_unparsed,
            first_time=self.first_time if self.num_dated else None,
            last_time=self.last_time if self.num_dated else None,
            is_zone_known=self.is_zone_known,
            hosts=tuple(sorted(self.hosts)),
        )
