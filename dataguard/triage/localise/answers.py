"""What does `localise` answer? The part of triage's document that names ranks, microbatches, samples, shards.

Steps are in the trainer's labels; ranges are half-open. `z` are robust standard deviations, losses are nats, a
`p_value` is the chance of as much or more in a run in which nothing is wrong, before it is corrected; `corrected` has
been multiplied by how many comparisons there were. None is what was not measured.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from dataguard.core.evidence import RankPattern, Told
from dataguard.replay.answers import Delivered

__all__ = [
    "Localised",
    "LocalisedDuplicates",
    "LocalisedMicrobatch",
    "LocalisedRank",
    "LocalisedSample",
    "LocalisedShare",
    "LocalisedSignal",
    "LookedAt",
    "SampleSignal",
    "finite",
]


def finite(value: float) -> float | None:
    """A number that a document can hold: None for NaN and infinity.

    >>> finite(2.5), finite(float("inf"))
    (2.5, None)
    """
    return value if math.isfinite(value) else None


class LookedAt(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer rests on."""

    steps: tuple[int, int]
    """The steps searched, half-open: from one before the onset to the event's end, as far as they are listed."""
    tested: tuple[int, ...]
    """Of these the steps that are held against the background: a cause lies no later than the loss it makes."""
    missing_steps: tuple[int, ...] = ()
    """Steps of which the index has nothing (not delivered, lost, or not complete)."""
    num_samples: int = 0
    """Samples recorded of the steps searched, padding left out."""
    num_steps_before: int = 0
    """Steps before them that are the background of losses, duplicates and shards."""
    num_samples_before: int = 0
    num_losses: int = 0
    """Samples of the steps searched whose own loss was logged."""
    num_losses_before: int = 0
    num_scored: int = 0
    """Samples of the steps tested whose signals were computed anew, or taken from the record where they could not be.
    """
    num_scored_before: int = 0
    """The same of the background."""
    num_unreadable: int = 0
    """Samples that could not be rebuilt: their shards cannot be read now, or hold something else."""
    unreadable_shards: tuple[str, ...] = ()
    """Their shards, the first 20."""
    scored_from: Literal["rebuilt", "recorded", "both", "none"] = "none"


class LocalisedRank(msgspec.Struct, frozen=True, kw_only=True):
    """One data-parallel rank at the event."""

    rank: int
    step: int | None = None
    """Where it stands out most."""
    loss: float | None = None
    """Its own loss there, in nats, before any reduction; null where it is not known, or no number."""
    loss_z: float | None = None
    grad_norm: float | None = None
    """Norm of its own gradient there, before any reduction."""
    grad_norm_z: float | None = None
    is_finite: bool = True
    """False where what it logged there is NaN or infinite."""
    against: Literal["ranks", "past", "none"] = "none"
    """What it is compared with: the other ranks at the same step (from 8 ranks up), or its own past."""
    outlying: bool = False
    """Whether that is more than chance makes of so many ranks and steps."""
    persistent: bool = False
    """Whether it stood out before the event as well, over other data, by more than chance makes of so many ranks."""
    num_outlying_samples: int = 0
    """Samples of it that stand out."""
    num_steps_out: int | None = None
    """Steps before the event, over other data, at which it stood out in the same way; None where nobody looked."""
    num_steps_looked: int = 0
    """Steps before the event that were looked at for that."""


class LocalisedMicrobatch(msgspec.Struct, frozen=True, kw_only=True):
    """One microbatch of the steps searched."""

    step: int
    rank: int
    microbatch: int
    num_samples: int
    loss: float | None = None
    """Mean loss of its samples."""
    loss_z: float | None = None
    """Of that mean, against means of as many samples of the background."""
    num_outlying_samples: int = 0


class SampleSignal(msgspec.Struct, frozen=True, kw_only=True):
    """One signal of one sample beside what is usual for its source in this run."""

    signal: str
    value: float
    usual: float
    """Median of the background."""
    z: float | None
    """None where the background has no spread at all and the value is another."""


class LocalisedSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of the steps searched, as it was delivered."""

    step: int
    rank: int
    microbatch: int
    slot: int
    position: int
    source: str
    shard: str
    row: int
    """Of the planned sample; in a run of `guard()` the index in the data set."""
    delivered: Delivered | None = None
    """A substitute's shard and row, where one was delivered."""
    digest: str
    loss: float | None = None
    loss_z: float | None = None
    is_finite: bool = True
    """False where its loss was logged as NaN or infinite."""
    verdict: str | None = None
    """What the gate said, where there was one."""
    signals: tuple[SampleSignal, ...] = ()
    """Those that stand out, the furthest first."""
    num_copies: int = 0
    """Other rows of the same content in the steps searched and in the background."""
    num_seen_before: int = 0
    """Deliveries of this very row before: by the plan; where the order was given from outside, in the background."""
    first_seen_step: int | None = None
    outlying: bool = False
    why: tuple[str, ...] = ()


class LocalisedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """One signal of the samples of the event against the background."""

    signal: str
    """Of the registry; ``fertility_bytes_per_char`` is made of its counts; ``rule NAME`` is how
    often a rule of the policy fired."""
    unit: str
    source: str
    """The source whose samples are compared."""
    origin: Literal["rebuilt", "recorded"]
    """From the samples themselves, read again; or from what the index says of them."""
    side: Literal["high", "low"]
    step: int | None
    """The step where it shows most; None where it is all steps tested together."""
    num_beyond: int
    """Samples of the event that lie beyond `bound`."""
    num_samples: int
    num_beyond_before: int
    """The same of the background."""
    num_samples_before: int
    bound: float
    usual: float
    """Median of the background."""
    extreme: float
    """The furthest value of the event."""
    p_value: float
    near_p_value: float | None
    """The same against the steps right before the event alone, where the same blocks were read: what stands out must
    stand out of them too. Null where it was not asked, or these are too few."""
    corrected: float
    stands_out: bool


class LocalisedDuplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the event's samples were seen before in this run, under the same name or another."""

    num_samples: int
    num_rows_seen_before: int
    """Samples whose very row was delivered before in this run, by the plan."""
    num_rows_seen_before_background: int | None
    """The same of as many samples of the steps before."""
    first_seen_step: int | None
    num_copies: int
    """Samples whose content stands under another row as well."""
    num_samples_before: int
    num_copies_before: int
    """The same of the background."""
    most_alike_in_step: int
    """Samples of one step that are one content, at most."""
    most_alike_in_step_before: int
    p_value: float | None
    corrected: float | None
    stands_out: bool


class LocalisedShare(msgspec.Struct, frozen=True, kw_only=True):
    """One shard or source in the event, and in the background."""

    kind: Literal["shard", "source"]
    name: str
    num_samples: int
    """Of the steps tested."""
    num_outlying: int
    """Of those that stand out."""
    num_expected: float
    """Samples that its share of the background would give these steps."""
    num_samples_before: int
    p_value: float
    """Of at least so many by the share of the background, were samples drawn one by one. Where a shard is read in one
    go its neighbours come with it, so this alone says nothing about the data."""
    outlying_p_value: float | None
    """Of at least so many outlying ones among the samples of the same steps."""
    steps_before: int
    """Steps of the background that held it."""
    steps_before_out: int
    """Of these the steps at which the loss stood out."""
    num_steps_before: int
    num_steps_before_out: int
    steps_p_value: float | None
    """Of at least so many; None where nothing is known of the loss of the steps before."""
    corrected: float
    """The least of the two that say something about the data, corrected for shards and sources."""
    stands_out: bool


class Localised(msgspec.Struct, frozen=True, kw_only=True):
    """Which ranks, microbatches, samples, shards and sources stand out at an event, worst first."""

    attempt: int
    """The leaf of the lineage that was looked at."""
    looked_at: LookedAt
    pattern: RankPattern
    data: Told
    """``yes``: samples stand out by signals, copies or shards, by more than chance does in one of `false_alarms` runs;
    ``no``: looked at, and within the background; ``unknown``: nothing could be looked at."""
    false_alarms: float
    """Bound on the chance that `data` says yes of an event that no data made."""
    num_comparisons: int
    """What was compared for that, all together."""
    ranks: tuple[LocalisedRank, ...] = ()
    microbatches: tuple[LocalisedMicrobatch, ...] = ()
    samples: tuple[LocalisedSample, ...] = ()
    signals: tuple[LocalisedSignal, ...] = ()
    duplicates: LocalisedDuplicates | None = None
    shards: tuple[LocalisedShare, ...] = ()
    sources: tuple[LocalisedShare, ...] = ()
    texts: tuple[str, ...] = ()
    """One line each, with numbers."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
