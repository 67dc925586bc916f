"""What do ``plan`` and ``rehearse`` answer? The documents they print as JSON; steps are in the trainer's labels."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["GateAnswer", "Mixed", "PlanAnswer", "PlannedSample", "RehearseAnswer", "RuleAnswer", "WorstSample"]


class Mixed(msgspec.Struct, frozen=True, kw_only=True):
    """How strongly one source is mixed."""

    source: str
    weight: int
    share: float
    """Of all samples, 0 to 1."""
    num_samples: int
    """Deliverable samples of one epoch."""


class PlannedSample(msgspec.Struct, frozen=True, kw_only=True):
    """One slot as planned."""

    step: int
    rank: int
    microbatch: int
    slot: int
    position: int
    source: str
    shard: str
    row: int
    epoch: int
    status: str = "live"
    """live, or what stands in the slot since the row is withheld from the start: quarantined or substituted."""
    delivered: str | None = None
    """``SHARD:ROW`` of the substitute."""


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What would be delivered, without any run."""

    plan: str
    """Digest of the plan."""
    root: str
    """Digest of its root."""
    lanes: int
    global_batch: int
    world_size: int
    microbatch_size: int
    mixture: tuple[Mixed, ...]
    left_out: tuple[str, ...]
    """Sources of the manifest that are not mixed."""
    steps: tuple[int, int]
    num_withheld: int = 0
    """Shards and rows that are withheld from the start."""
    policy: str | None = None
    """Name and digest of the policy that fits this plan. Nothing is read, so nothing is judged."""
    profile: str | None = None
    """Digest of the reference profile."""
    samples: tuple[PlannedSample, ...]


class RuleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule of the policy did."""

    rule: str
    scope: Literal["sample", "batch", "shard"]
    signal: str
    """What it is over; of a rule over shards: which rules or actions it counts."""
    action: str
    evaluated: int
    """Samples, batches or shards on which it was evaluated; substitutes that were drawn are samples, too."""
    fired: int
    skipped: int
    skipped_why: dict[str, int]
    """By reason; sums to `skipped`."""


class WorstSample(msgspec.Struct, frozen=True, kw_only=True):
    """The sample to look at first: the gravest verdict, the most rules that fired, the earliest."""

    step: int
    rank: int
    slot: int
    shard: str
    row: int
    """The planned one."""
    verdict: str
    rules: tuple[str, ...]


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate said of an attempt."""

    policy: str
    policy_digest: str
    profile: str | None
    """Digest of the reference profile."""
    vocab_size: int | None
    verdicts: dict[str, int]
    """Samples by verdict: pass, flag, mask, substitute, halt."""
    rules: tuple[RuleAnswer, ...]
    worst: WorstSample | None = None
    """Null where everything passes; ``dataguard inspect RUN --step N`` shows it."""
    halted: str | None
    """Why the attempt was stopped; the command then ends with 1."""


class RehearseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal delivered."""

    run: str
    attempt: int
    parent: int | None
    steps: tuple[int, int]
    """From the first step to the next one that would be delivered."""
    num_steps: int
    world_size: int
    microbatch_size: int
    num_microbatches: int
    """Of one rank in a step."""
    global_batch: int
    num_samples: int
    """Slots handed over that were to hold a sample."""
    num_withheld: int
    """Of those, slots that did not deliver their planned sample, substitutes included."""
    num_unreadable: int
    """Of those, slots that delivered nothing since no row could be read."""
    num_padding: int
    """Slots beside them that hold nothing by design: inside a skip, or past the end."""
    content_bytes: int
    """Bytes of all records (or of all ids, 8 bytes each) handed over."""
    storage_bytes: int
    """Bytes read from the shards by all ranks."""
    corpus_bytes: int
    """Bytes of all shards of the corpus."""
    seconds: float
    samples_per_second: float
    mixture: tuple[Mixed, ...]
    unreadable_shards: tuple[str, ...]
    """Shards of which rows could not be read, whatever their slots hold instead; the command then ends with 3."""
    notes: tuple[str, ...]
    gate: GateAnswer | None = None
    """Null for an attempt without a policy."""
