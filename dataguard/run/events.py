"""What can happen to a run, as values, and as the bytes of an event file?

An event states a fact: the run was created, an attempt began, positions are to be skipped, rows are quarantined or
released, an earlier event is revoked, a rank proposes something. An `EventFile` is the document around it: its number,
the link to the file before (``prev``), who wrote it and when. Order is the number, never the time.

The bytes of an event file are one line of JSON:

1. the document without its last field, spelled canonically (sorted keys, no white space);
2. ``,"check":"<64 hexadecimal digits>"}`` and a newline: the SHA-256 of everything before the comma.

So any changed byte shows in the file itself, even in the newest one, which no other file links to. It finds
accidents; it is no signature.

>>> raw = encode_event(EventFile(number=1, prev=None, time="2026-01-02T03:04:05.000000Z", by="ada@lovelace",
...                              dataguard="0.1", event=Revoked(event=4, reason="wrong shard")))
>>> decode_event(raw).event
Revoked(event=4, reason='wrong shard')
>>> decode_event(raw.replace(b"4", b"5", 1))
Traceback (most recent call last):
    ...
dataguard.run.events.EventUnreadableError: its bytes are not those that were written: the check does not fit
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

from dataguard.core.digests import canonical_json
from dataguard.plan.document import Fill, SkipMode
from dataguard.run.event_fields import Digest, EventBase, NonNegative, Positive
from dataguard.run.note_events import (
    CanaryCompared,
    CheckpointSaved,
    Diagnosed,
    ExperimentDone,
    Note,
    SpikeFound,
    TrainerDescribed,
)

__all__ = [
    "AppliedSkip",
    "AttemptBegun",
    "CanaryCompared",
    "CheckpointSaved",
    "Diagnosed",
    "EvaluatedAt",
    "Event",
    "EventFile",
    "EventUnreadableError",
    "ExperimentDone",
    "Halted",
    "Note",
    "Proposed",
    "Quarantined",
    "RankPlace",
    "Released",
    "Revoked",
    "RunCreated",
    "SkipAdded",
    "SpikeFound",
    "StreamAdded",
    "StreamIdentity",
    "TrainerDescribed",
    "TransformIdentity",
    "decode_event",
    "encode_event",
    "kind_of",
]


class EventUnreadableError(ValueError):
    """The bytes of one event file are no event; the journal turns this into a problem that names the file."""


class StreamIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which named stream of which run a folder under ``streams/`` holds; what stands as its attempts are evaluations,
    none of which forks from another.
    """

    name: str
    run: str
    """Of the run it belongs to."""
    first_label: Literal[0, 1]
    """What that run's trainer calls its first step; the stream's own first step is 0."""
    num_steps: Positive | None
    """Steps of an evaluation; null for one whole pass over every source."""


class EvaluatedAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the training stood when a stream was evaluated, as far as it was said."""

    attempt: Positive | None = None
    """Attempt of the run that the stream belongs to."""
    step: NonNegative | None = None
    """Its step, counted from 0."""


class RunCreated(EventBase, frozen=True, kw_only=True, tag="run-created"):
    """Event 1: the run exists from here on."""

    run: str
    """Name of the run for ever: 32 hexadecimal digits, drawn once."""
    plan: Digest
    """Digest of the PlanDocument in ``plan/``."""
    root: Digest
    """root_digest, which never changes in a run."""
    manifests: tuple[Digest, ...]
    """Manifests that the plan names, in order of first mention."""
    skip_mode: SkipMode
    fill: Fill
    first_label: Literal[0, 1]
    """What the trainer calls its first step."""
    withheld: Digest | None = None
    """Digest of the list in ``withheld/`` that the run withholds from its first attempt on."""
    policy: Digest | None = None
    """Digest of the policy in ``policy/`` by which attempts judge their samples unless they are given another."""
    policy_name: str | msgspec.UnsetType = msgspec.UNSET
    """What the policy is called; in no digest."""
    profile: Digest | None = None
    """Digest of the reference profile in ``profile/``, as `policy`."""
    vocab_size: Positive | msgspec.UnsetType = msgspec.UNSET
    """Size of the vocabulary, as `policy`; left out where it is not known."""
    spool: str | None = None
    """Folder on each machine's local disk under which its ranks keep their hot files; null for the run directory."""
    roots: dict[str, str] = msgspec.field(default_factory=dict)
    """Where the sources lay when the run was created; remembered, in no digest."""
    stream: StreamIdentity | msgspec.UnsetType = msgspec.UNSET
    """Where this is no run of its own but a named stream of one."""


class AppliedSkip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A skip range as an attempt applies it."""

    start: NonNegative
    """First position."""
    stop: Positive
    """One past the last position."""
    event: Positive
    """The SkipAdded event it comes from."""
    reason: str


class RankPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one rank ran, as far as the rank that began the attempt knew."""

    rank: NonNegative
    host: str
    device: str | None = None
    process: int | None = None
    """Process id on its host."""


class TransformIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which function made tensors of the records that an attempt delivered: what a replay has to be given again."""

    name: str
    """``MODULE:QUALIFIED.NAME``."""
    source: Digest | None = None
    """SHA-256 of its source text; null where it has none that can be read."""
    version: str | None = None
    """As its author says."""
    parts: dict[str, str] = {}
    """What else decides what it gives, by name: the digest of a tokenizer, of a collate function, settings."""


class AttemptBegun(EventBase, frozen=True, kw_only=True, tag="attempt-begun"):
    """An attempt begins: from which step, with which geometry, plan, skips and withheld rows."""

    attempt: Positive
    parent: Positive | None
    """The attempt whose loader state was resumed from; null for a fresh start."""
    fork_step: NonNegative
    """First step of this attempt (0-based)."""
    start_position: NonNegative
    """One past the last position of the step before the fork, in the parent."""
    world_size: Positive
    microbatch_size: Positive
    plan: Digest
    """Digest of this attempt's PlanDocument: the parent's with what this attempt amended."""
    root: Digest
    seed: NonNegative
    manifests: tuple[Digest, ...]
    skips: tuple[AppliedSkip, ...] = ()
    """Every skip unrevoked at this event, in order of position."""
    withheld: Digest
    """Digest of the merged list of withheld rows (`withhold.list_digest`)."""
    num_withheld: NonNegative = 0
    """Entries of that list."""
    attempt_digest: Digest
    launch_id: str
    epochs: Positive | None = None
    """Whole epochs after which the stream is padding; null where it has no such end."""
    policy: Digest | msgspec.UnsetType = msgspec.UNSET
    """Digest of the policy that judges its samples; left out where nothing does."""
    policy_name: str | msgspec.UnsetType = msgspec.UNSET
    """What the policy is called; in no digest."""
    profile: Digest | msgspec.UnsetType = msgspec.UNSET
    vocab_size: Positive | msgspec.UnsetType = msgspec.UNSET
    transform: TransformIdentity | msgspec.UnsetType = msgspec.UNSET
    """What makes tensors of its samples; then the digest of each microbatch covers those tensors. In no digest."""
    ranks: tuple[RankPlace, ...] = ()
    roots: dict[str, str] = msgspec.field(default_factory=dict)
    """Where the sources lay for this attempt; remembered, in no digest."""
    evaluated_at: EvaluatedAt | msgspec.UnsetType = msgspec.UNSET
    """For an evaluation of a named stream, and for that alone; in no digest."""


class SkipAdded(EventBase, frozen=True, kw_only=True, tag="skip-added"):
    """Positions that later attempts shall not be trained on."""

    start: NonNegative
    """First position."""
    stop: Positive
    """One past the last position."""
    steps: tuple[int, int] | None
    """The same as steps of the lineage it was translated in, half-open, in the trainer's labels; null where earlier
    skips held all of it already."""
    batches: tuple[int, int]
    """The same by batch index, half-open, in the trainer's labels."""
    asked: Literal["steps", "batches"] = "steps"
    """Which of the two was asked for; the other is an echo."""
    attempt: NonNegative
    """The attempt in whose lineage it was translated; 0 where the run had none."""
    reason: str


class Quarantined(EventBase, frozen=True, kw_only=True, tag="quarantined"):
    """A shard, one of its rows, or a list of rows is withheld from every later attempt."""

    shard: str | None = None
    """``SOURCE/path``; null where a list is given."""
    row: NonNegative | None = None
    """Stored row (or window number); null for the whole shard."""
    withheld: Digest | None = None
    """Digest of a list in ``withheld/``; null where a shard is given."""
    reason: str
    evidence: str | None = None
    """What shows it: free text, a path, a digest."""

    def __post_init__(self) -> None:
        if (self.shard is None) == (self.withheld is None):
            raise ValueError("a quarantine names a shard or a list, and not both")
        if self.shard is None and self.row is not None:
            raise ValueError("a quarantined row needs its shard")


class Released(EventBase, frozen=True, kw_only=True, tag="released"):
    """A quarantined shard (and all of its rows), or one quarantined row, is delivered again by later attempts."""

    shard: str
    row: NonNegative | None = None
    reason: str = ""


class Revoked(EventBase, frozen=True, kw_only=True, tag="revoked"):
    """An earlier skip, quarantine, release or revocation no longer applies to later attempts."""

    event: Positive
    reason: str = ""


class Proposed(EventBase, frozen=True, kw_only=True, tag="proposed"):
    """What a rank met and could not decide; it has no effect until somebody acts on it."""

    proposal: Literal["quarantine", "skip"]
    attempt: Positive
    """The attempt in which it was met."""
    shard: str | None = None
    rows: tuple[NonNegative, ...] = ()
    """Rows (or window numbers) of that shard, rising."""
    positions: tuple[NonNegative, ...] = ()
    """Positions where they were met, rising."""
    reason: str
    rule: str | msgspec.UnsetType = msgspec.UNSET
    """The rule of the attempt's policy that proposes it; left out where rows could not be read."""


class Halted(EventBase, frozen=True, kw_only=True, tag="halted"):
    """A rule of the gate said halt: all ranks of the attempt stop before a step. Steps count from 0."""

    attempt: Positive
    stop_step: NonNegative
    step: NonNegative
    """Where the sample stood."""
    rank: NonNegative
    microbatch: NonNegative
    slot: NonNegative
    position: NonNegative
    shard: str
    row: NonNegative
    rules: tuple[str, ...]


class StreamAdded(EventBase, frozen=True, kw_only=True, tag="stream-added"):
    """The run has a named stream, a fixed set to evaluate on; its own journal and index lie in ``streams/NAME``."""

    name: str
    stream: str
    """What its own first event calls it: 32 hexadecimal digits."""
    plan: Digest
    manifest: Digest
    num_steps: Positive | None
    """Steps of an evaluation; null for one whole pass over every source."""


Event = (
    RunCreated
    | AttemptBegun
    | SkipAdded
    | Quarantined
    | Released
    | Revoked
    | Proposed
    | Halted
    | StreamAdded
    | CheckpointSaved
    | TrainerDescribed
    | SpikeFound
    | ExperimentDone
    | CanaryCompared
    | Diagnosed
)
Amendment = SkipAdded | Quarantined | Released | Revoked


class EventFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document in one event file, without its check."""

    version: Literal[1] = 1
    number: Positive
    prev: Digest | None
    """SHA-256 of the raw bytes of the event file before; null in the first."""
    time: str
    """UTC, ISO 8601 with microseconds: for people, order is the number."""
    by: str
    """``user@host``."""
    dataguard: str
    """The version that wrote it."""
    event: Event


_TAIL = re.compile(rb',"check":"([0-9a-f]{64})"\}\n\Z')
_TAIL_BYTES = len(',"check":""}\n') + 64


def kind_of(event: Event) -> str:
    """The tag of an event, as in the file.

    >>> kind_of(Revoked(event=4))
    'revoked'
    """
    return str(event.__struct_config__.tag)


def encode_event(document: EventFile) -> bytes:
    """The raw bytes of one event file."""
    body = canonical_json(document)[:-1]
    return body + b',"check":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def decode_event(raw: bytes) -> EventFile:
    """The document in raw bytes; EventUnreadableError says why there is none."""
    tail = _TAIL.search(raw[-_TAIL_BYTES:])
    if tail is None:
        raise EventUnreadableError(f"it does not end as an event file does ({len(raw):,} bytes)")
    body = raw[:-_TAIL_BYTES]
    if hashlib.sha256(body).hexdigest().encode() != tail.group(1):
        raise EventUnreadableError("its bytes are not those that were written: the check does not fit")
    document = body + b"}"
    try:
        version = msgspec.json.decode(document, type=_Version).version
        if version != 1:
            raise EventUnreadableError(f"it has format version {version}, and this dataguard reads version 1")
        return _DECODER.decode(document)
    except msgspec.MsgspecError as error:
        raise EventUnreadableError(f"it is no event: {error}") from error


class _Version(msgspec.Struct, frozen=True):
    version: int


_DECODER = msgspec.json.Decoder(EventFile)
