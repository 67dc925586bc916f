"""Where in a run does a microbatch stand, and which slots does it hold?

An address (step, rank, microbatch) names one microbatch of one attempt for ever. A geometry says how a global batch
of G slots is cut: ``slot = rank * (G / world_size) + microbatch * microbatch_size + i``. World size and microbatch
size are views only; they never change which sample stands in which slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataguard.errors import GeometryError

__all__ = ["Address", "Geometry"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Address:
    """The name of one microbatch of an attempt.

    >>> str(Address(step=17, rank=1, microbatch=0))
    'step 17, rank 1, microbatch 0'
    """

    step: int
    """Optimizer update, 0-based (labels of the trainer are applied at the surface only)."""
    rank: int
    """Data-parallel rank, 0-based."""
    microbatch: int
    """0-based within the step."""

    def __post_init__(self) -> None:
        if min(self.step, self.rank, self.microbatch) < 0:
            raise GeometryError(f"an address counts from 0, not {self}")

    def __str__(self) -> str:
        return f"step {self.step}, rank {self.rank}, microbatch {self.microbatch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How many ranks share a global batch, and how many samples one forward pass holds.

    >>> g = Geometry(world_size=4, microbatch_size=2)
    >>> g.num_microbatches(16)
    2
    >>> g.slots(global_batch=16, rank=1, microbatch=1)
    range(6, 8)
    """

    world_size: int
    """Data-parallel ranks, at least 1."""
    microbatch_size: int
    """Slots of one microbatch, at least 1."""

    def __post_init__(self) -> None:
        for name, value in (("world size", self.world_size), ("microbatch size", self.microbatch_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise GeometryError(f"{name} {value!r} cannot be", allowed="an integer of at least 1")

    def check(self, global_batch: int) -> None:
        """Refuse a global batch that this geometry does not divide, showing the arithmetic."""
        slots_per_pass = self.world_size * self.microbatch_size
        if global_batch % slots_per_pass == 0 and global_batch >= slots_per_pass:
            return
        if global_batch % self.world_size:
            times, rest = divmod(global_batch, self.world_size)
            sum_of = f"{global_batch:,} = {times:,} * {self.world_size:,} + {rest:,}"
            why = f"world size {self.world_size:,} does not divide it: {sum_of}"
        else:
            share = global_batch // self.world_size
            holds = f"each of {self.world_size:,} ranks holds {share:,} slots"
            why = f"{holds}, which microbatch size {self.microbatch_size:,} does not divide"
        if global_batch % self.world_size:
            fitting = f"world size {_or(_nearest(self.world_size, _divisors(global_batch)))}"
        else:
            sizes = _divisors(global_batch // self.world_size)
            fitting = f"microbatch size {_or(_nearest(self.microbatch_size, sizes))}"
        below = global_batch // slots_per_pass * slots_per_pass
        batches = [size for size in (below, below + slots_per_pass) if size > 0]
        ranks = f"{self.world_size:,} ranks * microbatches of {self.microbatch_size:,}"
        raise GeometryError(
            f"a global batch of {global_batch:,} cannot be cut into {ranks}",
            found=why,
            allowed="a global batch that is a multiple of world size * microbatch size",
            todo=f"nearest that fit: {fitting}, or global batch {_or(batches)}",
        )

    def check_rank(self, rank: int) -> None:
        """Refuse a rank outside ``0:world_size``."""
        if not 0 <= rank < self.world_size:
            raise GeometryError(f"rank {rank} is not one of {self.world_size} ranks", allowed=f"0:{self.world_size}")

    def num_microbatches(self, global_batch: int) -> int:
        """Microbatches of one rank in one step."""
        self.check(global_batch)
        return global_batch // (self.world_size * self.microbatch_size)

    def slots(self, *, global_batch: int, rank: int, microbatch: int) -> range:
        """The slots (half-open) that one microbatch holds."""
        num_microbatches = self.num_microbatches(global_batch)
        self.check_rank(rank)
        if not 0 <= microbatch < num_microbatches:
            raise GeometryError(
                f"microbatch {microbatch} is not one of {num_microbatches}", allowed=f"0:{num_microbatches}"
            )
        start = rank * (global_batch // self.world_size) + microbatch * self.microbatch_size
        return range(start, start + self.microbatch_size)


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _nearest(wanted: int, allowed: list[int]) -> list[int]:
    below = [value for value in allowed if value <= wanted][-1:]
    above = [value for value in allowed if value > wanted][:1]
    return below + above


def _or(values: list[int] | tuple[int, ...]) -> str:
    return " or ".join(f"{value:,}" for value in values)
