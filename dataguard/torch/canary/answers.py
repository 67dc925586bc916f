"""What does a canary record hold, and what does comparing some of them answer?

Steps are in the trainer's labels; numbers that JSON lacks are spelled (`dataguard.torch.experiment.answers.Number`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.core.evidence import Told
from dataguard.torch.experiment.answers import Number

__all__ = [
    "CanaryComparison",
    "CanaryMember",
    "CanaryRecord",
    "CanaryTensor",
    "decode_record",
    "encode_comparison",
    "encode_record",
]

Kind = Literal["loss", "logits", "gradient", "updated"]


class CanaryTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the canary, at every repeat."""

    name: str
    """``loss``, ``logits``, or the name of a parameter."""
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    digests: tuple[str, ...]
    """xxh3-128 of its bytes, one a repeat."""
    sketches: tuple[tuple[Number, ...], ...]
    """Eight sums of its numbers under random signs, one tuple a repeat: from two sketches follows, within about a
    quarter, how far two tensors lie apart."""
    norm: Number
    """L2 norm, of the first repeat."""


class CanaryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One microbatch, forward, backward and one update, some times over, on one device."""

    version: Literal["dataguard-canary-1"] = "dataguard-canary-1"
    run: str
    attempt: int
    step: int
    address: str
    """Of the microbatch."""
    host: str
    device: str
    rank: int | None
    """Where it was taken within training; null where it was taken alone."""
    time: str
    """UTC, ISO 8601."""
    plan: str
    """Digest of the attempt's plan."""
    config: str
    """SHA-256 over `configuration`."""
    configuration: dict[str, str]
    """All but data and weights that decides the bits: versions, kind of device, number types, threads."""
    batch: str
    """xxh3-128 of the microbatch, as the index has it."""
    state: str
    """xxh3-128 over the names and bytes of the model and optimizer, as loaded."""
    tensors: tuple[CanaryTensor, ...]
    """Loss, logits, gradients and updated parameters, in this order."""

    @property
    def member(self) -> str:
        """``host/device`` (and the rank): what is compared with others."""
        place = f"{self.host}/{self.device}"
        return place if self.rank is None else f"{place} (rank {self.rank})"

    @property
    def num_repeats(self) -> int:
        """How often it was done."""
        return len(self.tensors[0].digests) if self.tensors else 0


class CanaryMember(msgspec.Struct, frozen=True, kw_only=True):
    """One host and device, of all its records."""

    member: str
    times: tuple[str, ...]
    num_repeats: int
    """Over all its records."""
    reproducible: bool
    """Whether all its repeats, of all dates, are equal bit by bit."""
    differs: Told
    """From most others, beyond the baseline; unknown where there is no baseline, or where it cannot be said who does.
    """
    tensor: str | None
    """The first tensor that differs from the others', in the order loss, logits, gradients, updated parameters."""
    distance: float | None
    """How far that tensor lies from the nearest other member's, over its norm; null where it is not finite."""


class CanaryComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Records, held against each other."""

    version: Literal["dataguard-canary-comparison-1"] = "dataguard-canary-comparison-1"
    step: int
    batch: str
    state: str
    differs: Told
    odd: tuple[str, ...]
    """Members that differ from the others, where that can be said."""
    members: tuple[CanaryMember, ...]
    not_compared: tuple[str, ...]
    """Members whose records are of another batch, state or configuration, with what is another."""
    baseline: Literal["bitwise", "magnitude", "none"]
    """How members are held against each other: bit by bit where they reproduce themselves; else against how far each
    lies from itself; none where nothing was repeated."""
    notes: tuple[str, ...]
    summary: str
    results: str | None = None
    """SHA-256 of the document that was kept (this one, with null here); null where nothing was recorded."""


def encode_record(record: CanaryRecord) -> bytes:
    """The bytes of its file: one line of JSON."""
    return msgspec.json.encode(record) + b"\n"


def decode_record(document: bytes) -> CanaryRecord:
    """What `encode_record` was given; `msgspec.ValidationError` where it is none."""
    return msgspec.json.decode(document, type=CanaryRecord)


def encode_comparison(comparison: CanaryComparison) -> bytes:
    """The bytes of the document that is kept."""
    return msgspec.json.encode(msgspec.structs.replace(comparison, results=None)) + b"\n"
