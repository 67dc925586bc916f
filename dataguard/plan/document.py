"""What a run's stream is, written down: the root, which never changes, and the lists that amend it.

The root fixes which sample stands at which position of the first mixture. Two independent lists amend it: mixtures
(from position P on: manifest and weights) and batch sizes (from position P on: G). Fill, skip mode and first label
belong to the run. A `PlanDocument` is what lies in ``plan/<digest>.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import Annotated, Literal

import msgspec

from dataguard.core.digests import canonical_json, sha256_hex
from dataguard.core.parse import exact_number
from dataguard.errors import PlanError, RunDamaged

__all__ = [
    "ALGORITHMS",
    "BatchSize",
    "Fill",
    "Form",
    "Mixture",
    "PlanDocument",
    "Root",
    "Shuffle",
    "SkipMode",
    "check_starts",
    "decode_plan",
    "encode_plan",
    "whole_weights",
]

Form = Literal["document", "window", "given"]
"""``given``: the order comes from outside, and no plan says which row stands where (`plan.given`)."""
Shuffle = Literal["blocks", "all", "none"]
SkipMode = Literal["jump", "hole"]
Fill = Literal["mask", "substitute"]

ALGORITHMS = {"keys": 1, "lanes": 1, "mixture": 1, "order": 1, "permutation": 1, "substitute": 1}
"""Version of each algorithm a position's sample depends on. A change of one is a new number here, and a new root."""

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Root(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What fixes the stream for ever."""

    manifest: str
    """Digest of the first manifest."""
    seed: NonNegative
    form: Form
    seq_len: Positive | None
    """Tokens of a window; null for documents."""
    lanes: Positive
    """A power of two."""
    window_blocks: Positive
    """Blocks of a source that are shuffled together."""
    shuffle: Shuffle
    algorithms: dict[str, int]

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.lanes & (self.lanes - 1):
            raise PlanError(f"lanes {self.lanes} is not a power of two", allowed="1, 2, 4, ... 1,024 ...")
        if self.form == "window" and self.seq_len is None:
            raise PlanError("form window needs the tokens of a window", todo="give --seq-len N")
        if self.form == "document" and self.seq_len is not None:
            raise PlanError("form document has no seq_len: each record is a sample", todo="leave --seq-len out")
        if self.form == "given" and (self.seq_len, self.lanes, self.shuffle) != (None, 1, "none"):
            raise PlanError("form given has neither seq_len nor lanes nor shuffle: its order comes from outside")

    @property
    def digest(self) -> str:
        """``root_digest``: SHA-256 of the canonical bytes."""
        return sha256_hex(b"dataguard-root-1" + canonical_json(self))


class Mixture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sources are mixed, how strongly, from one position on."""

    start: NonNegative
    manifest: str
    weights: dict[str, Positive]
    """Whole weights by source name; only their ratios count."""

    def __post_init__(self) -> None:
        if not self.weights:
            raise PlanError("a mixture of no sources cannot be", todo="give at least one source with weight above 0")


class BatchSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many positions a global batch holds, from one position on."""

    start: NonNegative
    size: Positive

    def __post_init__(self) -> None:
        if self.size < 1:
            raise PlanError(f"a global batch of {self.size:,} cannot be", allowed="at least 1 slot")


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan as it lies on disk."""

    version: Literal[1] = 1
    root: Root
    mixtures: tuple[Mixture, ...]
    batch_sizes: tuple[BatchSize, ...]
    fill: Fill = "mask"
    skip_mode: SkipMode = "jump"
    first_label: Literal[0, 1] = 0

    def __post_init__(self) -> None:
        check_starts("mixture", self.mixtures)
        check_starts("batch size", self.batch_sizes)
        if self.mixtures[0].manifest != self.root.manifest:
            raise PlanError("the first mixture reads another manifest than the root names")

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return sha256_hex(b"dataguard-plan-1" + canonical_json(self))


def check_starts(what: str, entries: Sequence[Mixture] | Sequence[BatchSize]) -> None:
    """Refuse a list by position that does not start at 0 and rise."""
    starts = [entry.start for entry in entries]
    if not starts or starts[0] != 0 or any(a >= b for a, b in pairwise(starts)):
        raise PlanError(f"the {what} list starts at positions {starts}", allowed="0 first, then rising")


def encode_plan(document: PlanDocument) -> bytes:
    """Spell a document canonically: what ``plan/<digest>.json`` holds."""
    return canonical_json(document)


def decode_plan(content: bytes, *, name: str = "plan", digest: str | None = None) -> PlanDocument:
    """Read a plan document back.

    Parameters
    ----------
    content
        The bytes of the file.
    name
        What messages call it.
    digest
        What its digest should be.

    Raises
    ------
    RunDamaged
        It is no plan document of a version this dataguard reads, or has another digest.
    """
    try:
        document = msgspec.json.decode(content, type=PlanDocument)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunDamaged(f"{name} cannot be read", found=str(error), allowed="a plan document of version 1") from error
    if digest is not None and document.digest != digest:
        raise RunDamaged(f"{name} holds another plan than its name says", found=document.digest, allowed=digest)
    return document


def whole_weights(weights: Mapping[str, str | int | float | Fraction]) -> dict[str, int]:
    """Weights as the smallest whole numbers of the same ratios; decimals are taken as written, 0 leaves a source out.

    >>> whole_weights({"web": "0.3", "code": 2, "logs": 0})
    {'web': 3, 'code': 20}
    """
    exact: dict[str, Fraction] = {}
    for name, weight in weights.items():
        number = weight if isinstance(weight, Fraction) else exact_number(str(weight).strip())
        if number is None:
            raise PlanError(
                f"weight {weight!r} of source {name!r} is no number",
                allowed="2, 0.25, 1/3, 1e-3; exponents of two digits",
                todo="give e.g. --weight NAME=2",
            )
        exact[name] = number
        if number < 0:
            raise PlanError(f"weight {weight} of source {name!r} cannot be", allowed="above 0; 0 leaves the source out")
    exact = {name: value for name, value in exact.items() if value}
    if not exact:
        raise PlanError("a mixture of no sources cannot be", todo="give at least one source with weight above 0")
    scale = lcm(*(value.denominator for value in exact.values()))
    whole = {name: int(value * scale) for name, value in exact.items()}
    shared = gcd(*whole.values())
    smallest = {name: value // shared for name, value in whole.items()}
    if sum(smallest.values()) >= 1 << 62:
        raise PlanError(
            "these weights have no whole numbers of the same ratios that fit",
            found=", ".join(f"{name}={weight}" for name, weight in weights.items()),
            allowed="ratios of whole numbers that sum to less than 2**62",
            todo="write them with fewer digits",
        )
    return smallest
