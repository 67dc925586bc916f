"""What do tables of device counters say: DCGM as CSV, as ``dcgmi dmon`` prints it or as its exporter serves it, and the
CSV of ``nvidia-smi --query-gpu``?

A counter says something when it *rises*, and the XID field, which keeps the last code for ever, when it *changes*. What
a table begins with happened before it, nobody knows when: it is told without a time, and matches no event.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dataguard.triage.evidence.lines import MachineLine, Meaning
from dataguard.triage.evidence.times import TimeReader
from dataguard.triage.evidence.xid import xid_meaning, xid_text

__all__ = ["COUNTERS", "CounterTable", "counter_of"]

HARDWARE, AMBIGUOUS = Meaning.HARDWARE, Meaning.AMBIGUOUS

COUNTERS: tuple[tuple[str, Meaning | None, str], ...] = (
    (r"XID_ERRORS|^XIDER$|^230$", None, "XID"),
    (r"ECC_DBE|^311$|ECC\.ERRORS\.UNCORRECTED", HARDWARE, "uncorrectable ECC errors"),
    (r"ECC_SBE|^310$|ECC\.ERRORS\.CORRECTED", AMBIGUOUS, "corrected ECC errors"),
    (r"ROW_REMAP_FAILURE|^395$|REMAPPED_ROWS\.FAILURE", HARDWARE, "failures to remap a row"),
    (r"UNCORRECTABLE_REMAPPED_ROWS|^393$|REMAPPED_ROWS\.UNCORRECTABLE", HARDWARE, "rows remapped after ECC errors"),
    (r"(?<!UN)CORRECTABLE_REMAPPED_ROWS|^394$|REMAPPED_ROWS\.CORRECTABLE", AMBIGUOUS, "rows remapped in time"),
    (r"RETIRED_DBE|^391$|RETIRED_PAGES\.DOUBLE", HARDWARE, "pages retired after ECC errors of two bits"),
    (r"RETIRED_(?:SBE|PENDING)|^39[02]$|RETIRED_PAGES\.(?:SINGLE|PENDING)", AMBIGUOUS, "pages retired"),
    (r"THERMAL_VIOLATION|^241$|HW_THERMAL_SLOWDOWN", HARDWARE, "time throttled for heat"),
    (r"POWER_VIOLATION|^240$|HW_POWER_BRAKE", AMBIGUOUS, "time throttled for power"),
    (r"PCIE_REPLAY|^202$", AMBIGUOUS, "PCIe replays"),
    (r"NVLINK_(?:CRC|REPLAY|RECOVERY)", AMBIGUOUS, "NVLink errors"),
)
"""Pattern of a field's name (or its number in DCGM), what its rise means, and what it counts."""

_PATTERNS = tuple((re.compile(pattern), meaning, what) for pattern, meaning, what in COUNTERS)
_TIME = re.compile(r"^#?\s*(?:timestamp|time|date)", re.IGNORECASE)
_HOST = re.compile(r"^(?:host|hostname|node|instance)$", re.IGNORECASE)
_GPU = re.compile(r"^(?:gpu|gpu_id|gpuid|index|device|entity|#entity|pci\.bus_id|uuid|gpu_uuid)$", re.IGNORECASE)
_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_SAMPLE = re.compile(r"^(?P<name>DCGM_FI_\w+)\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)(?:\s+(?P<time>\d+))?\s*$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_MOST_NAME = 200
"""Characters of a field's name; what is longer is prose."""
_EMPTY = frozenset({"", "N/A", "[N/A]", "[Not Supported]", "-", "nan"})


def counter_of(name: str) -> tuple[Meaning | None, str] | None:
    """What a field counts, and what its rise means (None for XID, whose code says); None where it is none of these.

    >>> counter_of("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")[1], counter_of("DCGM_FI_DEV_GPU_TEMP") is None
    ('uncorrectable ECC errors', True)
    """
    return _counter_of(name) if len(name) <= _MOST_NAME else None


@lru_cache(maxsize=4096)
def _counter_of(name: str) -> tuple[Meaning | None, str] | None:
    plain = _UNIT.sub("", name.strip()).upper()
    return next(((meaning, what) for pattern, meaning, what in _PATTERNS if pattern.search(plain)), None)


@dataclass(slots=True)
class CounterTable:
    """Reads one such file, line by line; `takes` says whether a line is part of it."""

    source: str
    times: TimeReader
    host: str | None
    """Of the file, for lines that name none."""
    _columns: list[str] = field(default_factory=list)
    _is_spaced: bool = False
    _last: dict[tuple[str | None, str, str], float] = field(default_factory=dict)

    def takes(self, line: str) -> bool:
        """Whether a line is a header, a row or a sample of a table of counters."""
        return self._header(line) is not None or bool(_SAMPLE.match(line)) or bool(self._columns)

    def read(self, line: str, number: int) -> tuple[list[MachineLine], float | None] | None:
        """What a line says, and its time; None where it is a row that cannot be read."""
        sample = _SAMPLE.match(line)
        if sample is not None:
            return self._sample(sample, number)
        header = self._header(line)
        if header is not None:
            self._columns, self._is_spaced = header
            return [], None
        if line.lstrip().startswith("#") or line.split()[:1] in (["ID"], ["Id"]):
            return [], None
        cells = line.split() if self._is_spaced else next(csv.reader([line], skipinitialspace=True))
        if self._is_spaced and cells[:1] == ["GPU"] and len(cells) == len(self._columns) + 1:
            cells = [f"GPU {cells[1]}", *cells[2:]]
        if len(cells) != len(self._columns):
            return None
        row = dict(zip(self._columns, (cell.strip() for cell in cells), strict=True))
        return self._row(row, number)

    def _header(self, line: str) -> tuple[list[str], bool] | None:
        if "," not in line and "#" not in line:
            return None  # one name alone heads no table
        is_spaced = line.lstrip().startswith("#") and "," not in line
        names = line.split() if is_spaced else [name.strip() for name in line.split(",")]
        is_header = len(names) > 1 and any(counter_of(name) for name in names) and not _SAMPLE.match(line)
        # A row of numbers may look like field numbers; a header has a name of a device or of a time.
        named = any(_GPU.match(name) or _TIME.match(name) or _HOST.match(name) for name in names)
        return (names, is_spaced) if is_header and named else None

    def _sample(self, match: re.Match[str], number: int) -> tuple[list[MachineLine], float | None]:
        labels = dict(_LABEL.findall(match["labels"]))
        time = float(match["time"]) / 1_000 if match["time"] else None
        host = labels.get("Hostname") or labels.get("hostname") or self.host
        device = f"GPU {labels['gpu']}" if "gpu" in labels else labels.get("UUID", "a GPU")
        found = self._changed(host, device, match["name"], match["value"], time, number)
        return ([found] if found else []), time

    def _row(self, row: Mapping[str, str], number: int) -> tuple[list[MachineLine], float | None]:
        stamp = next((self.times.read(f"{row[name]} ").time for name in row if _TIME.match(name)), None)
        host = next((row[name] for name in row if _HOST.match(name) and row[name]), self.host)
        device = next((row[name] for name in row if _GPU.match(name) and row[name]), "a GPU")
        device = device if not device.isdigit() else f"GPU {device}"
        return list(self._of_row(row, host, device, stamp, number)), stamp

    def _of_row(
        self, row: Mapping[str, str], host: str | None, device: str, time: float | None, number: int
    ) -> Iterator[MachineLine]:
        for name, value in row.items():
            if counter_of(name) is not None:
                found = self._changed(host, device, name, value, time, number)
                if found is not None:
                    yield found

    def _changed(
        self, host: str | None, device: str, name: str, value: str, time: float | None, number: int
    ) -> MachineLine | None:
        """The line that a value is, where it says something."""
        counted = counter_of(name)
        now = _number(value)
        if counted is None or now is None:
            return None
        key = (host, device, name)
        before = self._last.get(key)
        self._last[key] = now
        meaning, what = counted
        is_first = before is None
        if meaning is None:  # the XID field keeps its last code
            if now == (before or 0.0) or now == 0:
                return None
            meaning, said = xid_meaning(int(now)), xid_text(int(now))
        elif now <= (before or 0.0):
            return None
        else:
            said = f"{what}: {before or 0:g} to {now:g}"
        if is_first:
            said += ", before the table begins"
        return MachineLine(
            meaning=meaning,
            what=said,
            source=self.source,
            number=number,
            host=host,
            time=None if is_first else time,
            device=device,
        )


def _number(value: str) -> float | None:
    text = value.strip()
    if text in _EMPTY:
        return None
    if text in {"Active", "Not Active"}:
        return float(text == "Active")
    try:
        number = float(text.split()[0])
    except ValueError:
        return None
    return number if math.isfinite(number) else None
