"""What does looking back answer? Every document that `inspect`, `replay`, `where`, `seen` and `verify` print as JSON.

Steps are in the trainer's labels; ranges are half-open. The JSON Schemas in ``schemas/`` are made from these types.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "Delivered",
    "Fault",
    "InspectAnswer",
    "InspectedSample",
    "Placed",
    "ReplayAnswer",
    "ReplayMicrobatch",
    "ReplayOrigin",
    "ReplaySample",
    "ReplayStatus",
    "SamplePreview",
    "SeenAnswer",
    "SeenShard",
    "SeenSource",
    "SkippedBatch",
    "SkippedBy",
    "VerifyAnswer",
    "VerifyCheck",
    "WhereAnswer",
    "rebuilt_digest",
]

ReplayStatus = Literal["exact", "differs", "skipped", "withheld", "unreadable"]
ReplayOrigin = Literal["rebuilt", "fetched", "both", "none"]
"""Where the content comes from: made again from the plan and the shards, read from the batch store, or both, compared
with each other; none where neither could be had."""
DeliveryLabel = Literal["live", "abandoned", "unfinished", "planned"]


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """What stood in a slot instead of the planned sample."""

    shard: str
    row: int


class SkippedBy(msgspec.Struct, frozen=True, kw_only=True):
    """The journal event that took a range out of the stream."""

    event: int
    reason: str
    by: str
    time: str
    positions: tuple[int, int]
    batches: tuple[int, int] | None = None
    """The same by batch, as the event says."""


class SamplePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What the row that a slot is about looks like: on one line, safe to show, cut around the first marked place."""

    shard: str
    row: int
    """The planned row, also where the gate refused it; what was delivered instead where the plan withheld it."""
    size: int
    """Bytes of the record, tokens of the window."""
    text: str
    """Controls, invalid bytes and whatever acts without being seen are escapes; ``⟦...⟧`` stands for what has no text:
    where a document begins, special tokens, ids outside of the vocabulary. Without a tokenizer, ids of a window."""
    signal: str | None
    """The signal that is marked: the first one with a place, of the gravest rule that fired."""
    spans: tuple[tuple[int, int], ...]
    """Where: half-open, in bytes or tokens of the sample; the first 100. Records are searched up to 256 KiB."""
    num_spans: int
    problem: str | None
    """Why it cannot be read, or is not what was delivered; `text` is then empty, or what stands there now."""


class InspectedSample(msgspec.Struct, frozen=True, kw_only=True):
    """One slot as it was delivered."""

    rank: int
    microbatch: int
    slot: int
    position: int
    source: str
    shard: str
    row: int
    status: str
    """live, substituted, quarantined, unreadable, skipped, ended, refused or removed."""
    delivered: Delivered | None
    """The substitute's shard and row; null where the planned sample or nothing was delivered."""
    event: int | None
    """The journal event that withheld the planned sample."""
    length: int
    """Bytes of a document, tokens of a window."""
    digest: str
    """First 8 bytes of xxh3-128 of the canonical bytes, hexadecimal; zeros where nothing was delivered."""
    verdict: str | None = None
    """pass, flag, mask, substitute or halt: of the first row judged in the slot, or of the one that halts; null in an
    attempt without a policy and where nothing was judged."""
    rules: tuple[str, ...] = ()
    """Names of the rules that fired."""
    headline: dict[str, float | None] | None = None
    """The headline signals, as far as a byte says them; null for what could not be had."""
    why: tuple[str, ...] = ()
    """What each of those rules says for this source, in words."""
    signals: dict[str, float] | None = None
    """The policy's signals, to 10 bits; null where they are not kept, as of most that pass."""
    preview: SamplePreview | None = None
    """Where it was asked for; null where the slot delivered nothing and nothing was judged."""


class InspectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What every rank was fed at one step, worst first: the gravest verdict, then the most rules that fired, then the
    furthest beyond their bounds; withheld and substituted slots before those that pass; then by address.
    """

    step: int
    attempt: int
    batch: int
    label: DeliveryLabel
    """What this delivery is on the lineage asked for."""
    lineage: tuple[int, ...]
    positions: tuple[int, int]
    """From the first position to one past the last."""
    global_batch: int
    world_size: int
    microbatch_size: int
    skip_mode: Literal["jump", "hole"]
    skips: tuple[SkippedBy, ...]
    """With ``jump``, what the attempt jumped over between its start and the end of this batch; with ``hole``, what of
    this batch is skipped."""
    missing_ranks: tuple[int, ...]
    """Ranks with no complete record of this step."""
    damage: tuple[str, ...]
    """Files of the record that cannot be trusted, so that something may be missing; the command then ends with 3."""
    notes: tuple[str, ...]
    policy: str | None = None
    """Name of the attempt's policy."""
    resolutions: dict[str, str] = {}
    """How far neighbouring values of each headline signal lie apart."""
    num_samples: int
    """Recorded of the step (and rank), whether listed or not."""
    samples: tuple[InspectedSample, ...]


class SkippedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The answer where a batch or step was not delivered because it was skipped."""

    step: int | None
    batch: int | None
    attempt: int
    status: Literal["skipped"]
    positions: tuple[int, int]
    skips: tuple[SkippedBy, ...]


class ReplaySample(msgspec.Struct, frozen=True, kw_only=True):
    """One slot, rebuilt and compared."""

    slot: int
    position: int
    source: str
    shard: str
    row: int
    delivered: Delivered | None
    status: ReplayStatus
    digest: str
    """Of the sample as rebuilt, as the index keeps it: 8 bytes, hexadecimal."""
    recorded: str | None
    """Of the sample as delivered; null where the index has no record of it."""
    length: int
    problem: str | None = None
    """Why it could not be read, or what differs."""
    verdict: str | None = None
    """What the gate says now: pass, flag, mask, substitute or halt; null where nothing is judged."""
    rules: tuple[str, ...] = ()
    """Names of the rules that fire."""
    why: tuple[str, ...] = ()
    """What each of those rules says for this source, in words."""
    signals: dict[str, float | None] | None = None
    """The policy's signals and the headline, in full precision; null for what could not be had."""


def rebuilt_digest(digest: str) -> str:
    """A sample's digest as people read it: where there is nothing to digest there is none.

    >>> rebuilt_digest("0000000000000000"), rebuilt_digest("0473edd3f0825647")
    ('none', '0473edd3f0825647')
    """
    return digest if digest.strip("0") else "none"


class ReplayMicrobatch(msgspec.Struct, frozen=True, kw_only=True):
    """One microbatch, rebuilt and compared."""

    rank: int
    microbatch: int
    status: ReplayStatus
    digest: str | None
    """As rebuilt or fetched: 16 bytes, hexadecimal; null where only the transform could make what it covers."""
    recorded: str | None
    made_of: str | None = None
    """Of the samples as rebuilt or fetched, without what a transform made of them."""
    origin: ReplayOrigin = "rebuilt"
    problem: str | None = None
    """What differs, beside samples; why nothing was compared."""
    samples: tuple[ReplaySample, ...]


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One step, rebuilt and compared with what was recorded."""

    step: int | None
    """Null where a batch was asked for that no step delivers."""
    batch: int | None
    attempt: int
    status: ReplayStatus
    origin: ReplayOrigin = "rebuilt"
    """``both`` where the store had some of it, ``fetched`` where something could be had from there alone."""
    microbatches: tuple[ReplayMicrobatch, ...]
    skips: tuple[SkippedBy, ...] = ()
    """Where the step was skipped: by which events."""
    damage: tuple[str, ...] = ()
    """Files of the record or the store that cannot be trusted, so that something went uncompared; the command then ends
    with 3."""
    notes: tuple[str, ...] = ()


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the run that holds the record asked for."""

    label: DeliveryLabel | Literal["skipped"]
    attempt: int
    step: int | None
    """Null where the position is skipped."""
    batch: int
    rank: int | None
    microbatch: int | None
    slot: int | None
    position: int
    epoch: int
    status: str
    """live, or what stood in the slot instead; for planned places what is planned."""
    substitute_for: Delivered | None = None
    """Where the record was itself a substitute: the planned sample it stood for."""
    skips: tuple[SkippedBy, ...] = ()


class WhereAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Every step, delivered and planned, that holds one record."""

    shard: str
    row: int
    until: int | None
    """First step that was not searched for planned places."""
    deliverable: bool
    """False where the record was rejected at the scan and has no place in the stream."""
    reason: str | None
    places: tuple[Placed, ...]
    notes: tuple[str, ...] = ()
    """What was not searched."""


class SeenSource(msgspec.Struct, frozen=True, kw_only=True):
    """What was trained on of one source."""

    source: str
    num_samples: int
    length: int
    """Bytes (documents) or tokens (windows)."""
    num_distinct: int
    """Different rows."""
    num_withheld: int
    lowest_epoch: int | None
    highest_epoch: int | None


class SeenShard(msgspec.Struct, frozen=True, kw_only=True):
    """What was trained on of one shard."""

    shard: str
    num_samples: int
    length: int
    num_distinct: int


class SeenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint saved at a step boundary was trained on, along one lineage."""

    step: int
    """Every step before this one is counted."""
    attempt: int
    lineage: tuple[int, ...]
    num_samples: int
    num_withheld: int
    length: int
    unit: Literal["bytes", "tokens"]
    sources: tuple[SeenSource, ...]
    shards: tuple[SeenShard, ...]
    notes: tuple[str, ...]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that verification found wrong."""

    kind: str
    message: str


class VerifyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of check: how much it looked at, and what it found."""

    name: str
    checked: int
    unit: str
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    """What was seen and is no fault, such as a torn tail."""


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether journal, index, plan and data agree."""

    ok: bool
    lineage: tuple[int, ...]
    checks: tuple[VerifyCheck, ...]
