"""What of a handed-over microbatch is kept in the store?

What the trainer was given: the tensors that a transform made, or, without one, the samples as they are, records or ids
with their mask, as named tensors (`dataguard.run.store_file` says which). Nothing is copied here; whoever keeps it
does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from dataguard.core.microbatch import NOTHING, Microbatch
from dataguard.core.tensors import NamedTensor, Tensors
from dataguard.errors import UsageError
from dataguard.gate.rules import Policy
from dataguard.loader.feed import Fed
from dataguard.plan.attempts import AttemptPlan
from dataguard.run.run import Run
from dataguard.run.store import StoreWriter
from dataguard.run.store_file import KeptMicrobatch
from dataguard.run.store_rule import StoreRule

__all__ = ["Keeper", "Keeping", "Named", "kept_of", "kept_samples"]

Named = Callable[[Fed], Tensors]
"""The tensors of a microbatch as an adapter hands them over, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What a loader was told to keep."""

    rule: StoreRule
    budget_bytes: int | None = None
    queue_bytes: int | None = None
    named: Named | None = None

    @classmethod
    def read(
        cls, rule: str | StoreRule, budget_bytes: int | None, queue_bytes: int | None, named: Named | None = None
    ) -> Self:
        """As people give it; UsageError where that cannot be."""
        for what, value in (("store_budget_bytes", budget_bytes), ("store_queue_bytes", queue_bytes)):
            if value is not None and value < 1:
                raise UsageError(f"{what} {value} cannot be", allowed="at least 1")
        return cls(rule=StoreRule.parse(rule), budget_bytes=budget_bytes, queue_bytes=queue_bytes, named=named)

    def check(self, policy: Policy | None) -> None:
        """UsageError where it speaks of rules that the attempt's policy does not have."""
        self.rule.bits(policy)

    def keeper(
        self,
        run: Run,
        attempt: AttemptPlan,
        *,
        rank: int,
        policy: Policy | None,
        clock: Callable[[], str],
        background: bool,
    ) -> Keeper:
        """What keeps, for one rank of an attempt that has begun."""
        writer = self.writer(run, attempt, rank=rank, policy=policy, clock=clock, background=background)
        return Keeper(writer, self, self.rule.bits(policy))

    def writer(
        self,
        run: Run,
        attempt: AttemptPlan,
        *,
        rank: int,
        policy: Policy | None,
        clock: Callable[[], str],
        background: bool = True,
    ) -> StoreWriter | None:
        """The store of one rank of an attempt that has begun; None where nothing is kept."""
        bits = self.rule.bits(policy)
        if self.rule.kind == "none":
            return None
        return StoreWriter.open(
            run.layout,
            run_id=run.run_id,
            attempt=attempt.number,
            rank=rank,
            first_step=attempt.fork_step,
            rule=self.rule,
            rule_bits=bits,
            clock=clock,
            budget_bytes=self.budget_bytes,
            queue_bytes=self.queue_bytes,
            background=background,
        )


class Keeper:
    """Keeps what one rank hands over; without a writer, nothing."""

    def __init__(self, writer: StoreWriter | None, keeping: Keeping, bits: int) -> None:
        self._writer = writer
        self._keeping = keeping
        self._bits = bits

    def check(self) -> None:
        """Raise what went wrong with what was kept earlier."""
        if self._writer is not None:
            self._writer.check()

    def keep(self, fed: Fed) -> None:
        """Take a microbatch that was recorded, where the rule wants it."""
        if self._writer is not None:
            wanted = bool(self._keeping.rule.wants(fed.records, self._bits).any())
            make = partial(kept_of, fed, self._keeping.named) if wanted else None
            self._writer.offer(fed.planned.address.step, make, last_of_step=fed.planned.last_of_step)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was let go of."""
        return () if self._writer is None else self._writer.notes

    def close(self) -> None:
        """Write what waits."""
        if self._writer is not None:
            self._writer.close()


def kept_of(fed: Fed, named: Named | None = None) -> KeptMicrobatch:
    """A microbatch for the store; its buffers are those of what is handed over.

    Parameters
    ----------
    named
        Where an adapter hands over tensors of its own.
    """
    if named is None or fed.tensors is None:
        return kept_samples(fed.microbatch)
    microbatch = fed.microbatch
    return KeptMicrobatch(
        microbatch=microbatch.address.microbatch,
        form="tensors",
        slots=microbatch.slots,
        made_of=fed.made_of or microbatch.digest,
        digest=microbatch.digest,
        tensors=named(fed),
    )


def kept_samples(microbatch: Microbatch) -> KeptMicrobatch:
    """A microbatch of records or ids for the store."""
    delivered = np.array([digest != NOTHING for digest in microbatch.digests], np.bool_)
    tensors = {
        "mask": NamedTensor(dtype="BOOL", shape=microbatch.mask.shape, data=np.ascontiguousarray(microbatch.mask)),
        "delivered": NamedTensor(dtype="BOOL", shape=delivered.shape, data=delivered),
    }
    if microbatch.ids is not None:
        ids = np.ascontiguousarray(microbatch.ids.astype(microbatch.ids.dtype.newbyteorder("<"), copy=False))
        tensors["ids"] = NamedTensor(dtype="I32" if ids.itemsize == 4 else "I64", shape=ids.shape, data=ids)
    else:
        assert microbatch.records is not None, "its content was given away"
        content = b"".join(microbatch.records)
        offsets = np.zeros(len(microbatch.records) + 1, "<i8")
        np.cumsum([len(record) for record in microbatch.records], out=offsets[1:])
        tensors["bytes"] = NamedTensor(dtype="U8", shape=(len(content),), data=content)
        tensors["offsets"] = NamedTensor(dtype="I64", shape=offsets.shape, data=offsets)
    return KeptMicrobatch(
        microbatch=microbatch.address.microbatch,
        form="records" if microbatch.ids is None else "ids",
        slots=microbatch.slots,
        made_of=microbatch.digest,
        digest=microbatch.digest,
        tensors=tensors,
    )
