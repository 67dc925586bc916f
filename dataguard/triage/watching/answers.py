"""What does one look at a live run say? `WatchAnswer` is what ``watch --json`` prints, one line a look.

Steps are in the trainer's labels; ranges are half-open; what is not known is null, and never a default.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.core.spikes import EventClass
from dataguard.run.telemetry_show import Number

__all__ = [
    "Behind",
    "CheckpointSeen",
    "EventSeen",
    "JournalSeen",
    "Share",
    "SignalSeen",
    "Speed",
    "StallSeen",
    "WaitSeen",
    "WatchAnswer",
    "WatchState",
    "WatchedAttempt",
]

WatchState = Literal["absent", "waiting", "open", "stalled", "closed"]
"""``absent``: no run stands there (yet). ``waiting``: no attempt has begun. ``open``: some rank's record is not closed,
so its trainer runs or ended without a word; how old the newest record is stands beside it. ``stalled``: open, and
silent for longer than the run ever was by itself, as triage judges it. ``closed``: all ranks closed their record."""


class WatchedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The newest attempt."""

    number: int
    parent: int | None
    first_step: int
    begun: str
    """When: UTC, as the journal says."""
    world_size: int
    microbatch_size: int
    global_batch: int
    """Of the newest step."""
    num_open_ranks: int | None
    """Ranks whose record is not closed; null where their files lie on other machines (``spool``)."""
    num_ranks_seen: int
    """Ranks that recorded or logged anything."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """How fast steps are made."""

    steps_per_second: float
    samples_per_second: float
    """Slots of the global batch, whatever they hold."""
    seconds: float
    """Over how long."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What became of samples that were handed over; padding is none of them."""

    steps: tuple[int, int] | None
    """Which steps; null where nothing was counted."""
    num_samples: int
    num_flagged: int
    """Delivered, and the gate says something of them."""
    num_withheld: int
    """Withheld, whether or not another row was delivered instead."""
    flagged: float | None
    """``num_flagged`` of ``num_samples``; null where nothing was counted."""
    withheld: float | None
    is_whole: bool
    """Whether all there is of these steps was counted."""


class SignalSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged under one name: of the loss the mean over ranks, of the gradient norm the largest."""

    name: str
    step: int
    value: Number
    recent: tuple[float | None, ...]
    """The newest values in order of their steps, at most 64; null for one that is not finite."""


class WaitSeen(msgspec.Struct, frozen=True, kw_only=True):
    """How long ranks waited for data."""

    share: float
    """Of the time of these steps, the mean over ranks."""
    worst_rank: int
    worst_share: float
    steps: tuple[int, int]


class EventSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the training curve."""

    event_class: EventClass
    start: int
    stop: int
    is_open: bool | None
    """Whether it goes on; null where the journal told of it, which does not say."""
    size_nats: float | None
    sigmas: float | None
    signal: str
    rank: int | None
    origin: Literal["journal", "found"]
    """Noted in the journal, or found by this command in what was logged."""


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that came less far than others."""

    rank: int
    step: int | None
    """The newest step that it was handed anything of; null for none."""
    num_steps: int | None
    """How far behind the newest step of any rank; null where it was handed nothing. 0: in the same step, and handed
    fewer microbatches of it."""
    silent_seconds: float | None
    """Since anything of it was recorded or logged; null where nothing was."""


class StallSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Why the attempt counts as stalled, as triage says it."""

    step: int
    """The last that was logged."""
    silent_seconds: float
    median_step_seconds: float
    longest_pause_seconds: float
    rank: int | None
    """The one that stopped first, where that can be told."""
    texts: tuple[str, ...]


class JournalSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the journal."""

    number: int
    time: str
    kind: str
    text: str


class CheckpointSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest checkpoint that the trainer noted."""

    next_step: int
    path: str
    attempt: int
    noted: str
    """When: UTC, as the journal says."""


class WatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a run."""

    run: str
    """As it was typed."""
    looked: str
    """When: UTC, ISO 8601."""
    state: WatchState
    attempt: WatchedAttempt | None = None
    step: int | None = None
    """The newest step of which any rank was handed anything."""
    complete: int | None = None
    """The newest step of which every rank was handed everything."""
    silent_seconds: float | None = None
    """Since any rank recorded or logged anything."""
    last_minute: Speed | None = None
    since_begun: Speed | None = None
    recent: Share | None = None
    """Of the newest steps."""
    whole: Share | None = None
    """Of the attempt, as far as it was counted."""
    signals: tuple[SignalSeen, ...] = ()
    wait: WaitSeen | None = None
    stall: StallSeen | None = None
    events: tuple[EventSeen, ...] = ()
    """The newest, in order of their steps."""
    judged_from: int | None = None
    """The first step that this command judged; what lies before is told by the journal alone."""
    behind: tuple[Behind, ...] = ()
    """The farthest first, at most 16."""
    num_behind: int = 0
    journal: tuple[JournalSeen, ...] = ()
    """The newest events."""
    checkpoint: CheckpointSeen | None = None
    exceptions: dict[str, int] = {}
    """Rows that could not be delivered as planned, by reason."""
    let_go: dict[str, int] = {}
    """Microbatches that the batch store was to keep and did not, by reason."""
    free_bytes: int | None = None
    """Left on the file system of the run directory."""
    problems: tuple[str, ...] = ()
    """What is damaged, or cannot be seen from here."""
