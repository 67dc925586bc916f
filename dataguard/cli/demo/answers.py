"""What does ``dataguard demo --json`` answer?"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["DemoAnswer", "DemoCheck", "DemoCommand", "DemoEvent", "DemoLosses", "DemoShard"]


class DemoCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the story, as it went."""

    command: str
    """As a person would type it, in the demo's folder."""
    exit_code: int
    expected_exit_code: int
    seconds: float


class DemoCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the story promises, held against what was found."""

    what: str
    expected: str
    found: str
    as_expected: bool


class DemoShard(msgspec.Struct, frozen=True, kw_only=True):
    """The shard that is poisoned (or would be), and who read it when."""

    shard: str
    num_records: int
    poisoned: bool
    rank: int
    start: int
    """First step that held a record of it."""
    stop: int
    """One past the last."""


class DemoEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The event that triage found, in half-open steps."""

    event_class: str
    start: int
    stop: int
    peak: int
    size_nats: float | None
    needed_nats: float | None
    """What a spike there needed to show."""
    rank: int | None
    """The rank that stands out most."""
    shard: str | None
    """The shard that stands out most."""


class DemoLosses(msgspec.Struct, frozen=True, kw_only=True):
    """Loss in nats, mean over ranks: medians over `num_steps` steps, but for the peak."""

    before: float
    """Right before the event."""
    peak: float | None
    """At the event's peak, one step."""
    end: float
    """At the end of the resumed run."""
    num_steps: int


class DemoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dataguard demo --json`` answers."""

    story: Literal["poisoned", "clean", "fast"]
    seed: int
    """What the order was drawn from: the one that was given, or made of it."""
    folder: str | None
    """Where everything was kept; null where it was removed."""
    report: str | None
    """The page of the run, which stays where nothing else is kept; null where none was written."""
    commands: tuple[DemoCommand, ...]
    checks: tuple[DemoCheck, ...]
    shard: DemoShard | None
    event: DemoEvent | None
    verdict: str | None
    losses: DemoLosses | None
    all_as_expected: bool
    seconds: float
