"""What is to be done about an event, as one document: where to resume, what to skip, quarantine, change, fence?

All ranges are half-open; steps and batches are in the trainer's labels, positions count from 0. What is not known is
null and said so in words, never a default.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass

__all__ = ["Applied", "Change", "Command", "Exports", "QuarantineAdvice", "Response", "ResumeAdvice", "SkipAdvice"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command, as it is typed."""

    text: str
    """For a shell, quoted."""
    argv: tuple[str, ...]
    why: str
    applies: bool
    """Whether ``triage --apply`` does the same: skips and quarantines, and nothing else."""


class ResumeAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go on from."""

    kind: Literal["checkpoint", "inside_lead", "beginning", "none"]
    """A checkpoint from before what is skipped; one from before the onset, but inside of the lead; anew from the first
    step; or nowhere: no checkpoint is known."""
    next_step: int | None
    """The step that the resumed run begins with; null where there is none."""
    path: str | None
    """Of the checkpoint, as the trainer named it."""
    attempt: int | None
    """That saved it; null where it was given from outside."""
    num_steps_again: int | None
    """Steps before the onset that are trained once more, since no later checkpoint is kept."""
    node_hours: float | None
    """What these cost; null where seconds per step or the number of nodes are not known."""
    text: str


class SkipAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What not to train on: from the event's onset minus a lead to its end, by its own positions."""

    steps: tuple[int, int]
    """Of the lineage of `attempt`."""
    batches: tuple[int, int]
    positions: tuple[int, int]
    attempt: int
    lead_steps: int
    """Steps before the onset that are part of it."""
    lead_reason: str
    num_samples: int
    """Positions in the range."""
    num_samples_new: int
    """Of them, those that no earlier skip holds."""
    share_of_pass: float | None
    """`num_samples_new` over the samples of one pass over all weighted sources; null where the plan has none."""
    num_tokens_new: int | None
    """In samples of fixed length; null for documents, whose lengths differ."""
    by_event: tuple[int, ...] = ()
    """Skip events that hold all of the range already: nothing is left to be written."""


class QuarantineAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """A shard, or one of its rows, to withhold."""

    shard: str
    row: int | None
    reason: str
    evidence: str | None
    origin: Literal["event", "proposal"]
    """What asks for it: this event, or a rank (or the gate) that proposed it in the journal."""
    by_event: int | None = None
    """The event that withholds it already."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something of the trainer's configuration to change; nobody but its owner does."""

    what: Literal[
        "peak_lr", "warmup", "qk_norm", "z_loss", "epsilon", "optimizer_state", "compute", "clip_norm", "loss_scaling"
    ]
    to: str
    reason: str
    """The sign that was found, with its numbers."""


class Exports(msgspec.Struct, frozen=True, kw_only=True):
    """All that is skipped, this response with it, in the forms that other trainers take: whole batches of the stream.

    For a trainer that reads the same stream by itself, whose step numbers pass over what it skips.
    """

    batches: tuple[tuple[int, int], ...]
    """The same from 0, half-open."""
    megatron_lm: str
    bigscience: str
    olmo_core: str
    notes: tuple[str, ...] = ()


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in the order in which to do it."""

    verdict: Verdict
    event_class: EventClass | None
    run: str
    """The run directory, as commands name it."""
    attempt: int | None
    """The leaf of the lineage whose steps are named; null where no attempt has begun."""
    first_label: int
    skip_mode: Literal["jump", "hole"]
    journal: tuple[int, str]
    """Number and digest of the newest journal event when this was planned."""
    nothing: bool
    """Whether there is nothing to rewind, skip, quarantine, change or fence."""
    resume: ResumeAdvice | None = None
    skip: SkipAdvice | None = None
    quarantines: tuple[QuarantineAdvice, ...] = ()
    configuration: tuple[Change, ...] = ()
    fence: tuple[str, ...] = ()
    """Hosts to take out of the job: named here, never done."""
    next_check: str | None = None
    """Of an inconclusive verdict: what to look at next."""
    retention: str | None = None
    """Where something is resumed from: whether what is kept of checkpoints reaches back far enough (row A18)."""
    commands: tuple[Command, ...] = ()
    exports: Exports | None = None
    notes: tuple[str, ...] = ()


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--apply`` wrote (or, dry, would write) of a response."""

    dry_run: bool
    written: tuple[int, ...]
    """Numbers of the journal events; empty where it was a dry run."""
    done: tuple[str, ...]
    """One line for each event."""
    already: tuple[str, ...]
    """What stood already, and is not written again."""
    left: tuple[str, ...]
    """What is not done from here: checkpoint, configuration, hosts."""
