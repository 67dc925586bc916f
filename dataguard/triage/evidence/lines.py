"""What does one line of a machine's log say, and what is kept of the logs that were read?

A `MachineLine` is a line that says something: on which host, when, and whether it means hardware, the application, a
consequence of something else, or either. What says nothing is counted with its log, and so is what cannot be read:
nothing is swallowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LogSource", "MachineLine", "MachineLogs", "Meaning"]


class Meaning(StrEnum):
    """What a line means, before anybody asks whether it matches."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    """Usually the application, by the catalogue or by what it says."""
    CONSEQUENCE = "consequence"
    """Something else went wrong before: a collective timed out, a peer was gone."""
    AMBIGUOUS = "ambiguous"
    """Hardware, driver, or application: the line alone does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLine:
    """One line (or one change of a counter) that says something.

    >>> line = MachineLine(meaning=Meaning.HARDWARE, what="XID 79, GPU fell off the bus", source="a.dmesg", number=3)
    >>> line.host, line.time
    (None, None)
    """

    meaning: Meaning
    what: str
    """In a few words."""
    source: str
    """The file, as it was given."""
    number: int
    """The line in it, from 1."""
    host: str | None = None
    """None where neither the line nor its file says."""
    time: float | None = None
    """Unix seconds; None where the line has no date."""
    device: str | None = None
    """A bus address, or a number of a GPU."""

    def __str__(self) -> str:
        device = "" if self.device is None else f" ({self.device})"
        return f"{self.host or 'some host'}: {self.what}{device}, {self.source} line {self.number:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """One file that was read."""

    path: str
    host: str | None
    """That its name or the user says; lines may name their own."""
    kind: str
    """``kernel``, ``collective``, ``counters`` or ``unknown``: what most of its telling lines are."""
    num_lines: int
    num_dated: int
    """Lines with a date and a time."""
    num_undated: int
    """Lines whose time counts from the boot, and which no event can be matched with."""
    num_unparsed: int
    """Lines of a known kind that cannot be read."""
    first_unparsed: str | None
    """The first of them, word for word as far as it goes."""
    first_time: float | None
    last_time: float | None
    """Unix seconds of its first and last dated line: what it covers."""
    is_zone_known: bool
    """False where its times name no zone and were taken as UTC."""
    hosts: tuple[str, ...] = ()
    """Hosts that its lines name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLogs:
    """What was read of all logs."""

    lines: tuple[MachineLine, ...]
    """By time, those without a time last."""
    sources: tuple[LogSource, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be taken as it is, one text a thing."""
        notes = []
        for source in self.sources:
            if source.num_unparsed:
                several = (
                    "a line cannot be read"
                    if source.num_unparsed == 1
                    else (f"{source.num_unparsed:,} lines cannot be read, the first")
                )
                notes.append(f"{source.path}: {several}: {source.first_unparsed}")
            if source.num_undated and not source.num_dated:
                notes.append(
                    f"{source.path}: its times count from the boot, so that no line can be matched with an event; "
                    "use dmesg -T, or journalctl -k -o short-iso"
                )
            if source.num_dated and not source.is_zone_known:
                notes.append(f"{source.path}: its times name no zone, and were taken as UTC")
            if not source.num_dated and not source.num_undated and source.num_lines:
                notes.append(f"{source.path}: none of its {source.num_lines:,} lines has a time")
        return tuple(notes)
