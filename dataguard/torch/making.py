"""How does a microbatch of records become a microbatch of tensors?

Each slot becomes a `Record`, the transform makes tensors of it, the slots are put together, and labels of what may not
be trained on are masked. A worker does it as it reads ahead, the parent where there are no workers, a replay when it
looks back: all of them here, so that equal records give equal tensors.

A transform that draws from a process-global generator, or keeps a count, would give other tensors at every replay. So
the first microbatch of each process is made twice: a difference, or a global generator that moved, is an error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dataguard.core.address import Address
from dataguard.core.microbatch import Microbatch
from dataguard.core.tensors import tensors_digest
from dataguard.corpus.fields import FieldReader
from dataguard.corpus.problems import RowProblem
from dataguard.corpus.reader import RowReader
from dataguard.errors import ShardDamaged, TransformFailed, UsageError
from dataguard.plan.slots import PlannedSlots
from dataguard.plan.stream import Stream
from dataguard.torch.collate import Sample, checked_sample, masked_labels, stacked
from dataguard.torch.record import Record
from dataguard.torch.tensors import named_tensors
from dataguard.torch.transform import name_of
from dataguard.torch.transforms import IGNORE_INDEX

__all__ = ["Collate", "Made", "Maker", "Recipe", "Transform"]

Transform = Callable[[Record], Mapping[str, Any]]
"""Makes tensors of one record."""
Collate = Callable[[list[dict[str, torch.Tensor]]], Mapping[str, Any]]
"""Puts the tensors of all slots together, in slot order; the first axis of what it gives is the slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What makes tensors of records."""

    transform: Transform
    collate: Collate | None = None
    """None stacks."""
    label_names: tuple[str, ...] = ("labels",)
    ignore_index: int = IGNORE_INDEX
    first_label: int = 0
    """What the trainer calls its first step: messages speak in its labels."""

    def where(self, address: Address) -> str:
        """A microbatch, for messages."""
        return str(replace(address, step=address.step + self.first_label))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Made:
    """A microbatch of tensors."""

    tensors: Sample
    num_loss_tokens: int | None
    """None where it has no labels."""
    digest: bytes
    """Over the tensors and over what they were made of."""


class Maker:
    """Makes the tensors of one attempt's microbatches.

    Parameters
    ----------
    reader, stream
        Of the attempt: other fields of records, names and numbers.
    """

    def __init__(self, recipe: Recipe, *, reader: RowReader, stream: Stream) -> None:
        self.recipe = recipe
        self._name = name_of(recipe.transform)
        self._stream = stream
        self._fields = FieldReader(reader)
        self._checked = False

    def make(self, microbatch: Microbatch, slots: PlannedSlots) -> Made:
        """Make the tensors of a microbatch.

        Parameters
        ----------
        microbatch
            With its samples.
        slots
            As they are delivered.

        Raises
        ------
        TransformFailed
            The transform or the collate function raised an error; address, slot and message are in it.
        UsageError
            They gave something that is no microbatch of tensors, or that is not the same when they are called again.
        """
        made = self._make(microbatch, slots)
        if not self._checked:
            self._check_again(microbatch, slots, made)
            self._checked = True
        return made

    def _make(self, microbatch: Microbatch, slots: PlannedSlots) -> Made:
        recipe = self.recipe
        samples = [self._sample(record) for record in self._records(microbatch, slots)]
        where = f"{self.recipe.where(microbatch.address)}: {self._name}"
        if recipe.collate is None:
            tensors = stacked(samples, slots.slot.tolist(), where)
        else:
            where = f"{self.recipe.where(microbatch.address)}: {name_of(recipe.collate)}"
            try:
                given = recipe.collate(samples)
            except Exception as error:
                raise _failed(f"{where} failed", error) from error
            tensors = checked_sample(given, where)
        tensors, num_loss_tokens = masked_labels(
            tensors,
            microbatch.mask,
            label_names=recipe.label_names,
            ignore_index=recipe.ignore_index,
            what=where,
        )
        digest = tensors_digest(microbatch.digest, named_tensors(tensors))
        return Made(tensors=tensors, num_loss_tokens=num_loss_tokens, digest=digest)

    def _sample(self, record: Record) -> Sample:
        try:
            given = self.recipe.transform(record)
        except Exception as error:
            where = self._where(record)
            what = "an empty record (record.is_padding)" if record.is_padding else f"{record.shard} row {record.row:,}"
            raise _failed(f"{where} failed on {what}", error) from error
        return checked_sample(given, self._where(record))

    def _where(self, record: Record) -> str:
        return f"{self.recipe.where(record.address)}, slot {record.slot}: {self._name}"

    def _records(self, microbatch: Microbatch, slots: PlannedSlots) -> Sequence[Record]:
        content = microbatch.records if microbatch.ids is None else microbatch.ids
        assert content is not None, "tensors are made of samples"
        manifests, names = self._stream.manifest_set, self._stream.source_names
        records = []
        for i, slot in enumerate(slots.slot.tolist()):
            block = int(slots.delivered_block[i])
            nothing = block < 0
            row = int(slots.row[i] if nothing else slots.delivered_row[i])
            records.append(
                Record(
                    content[i],
                    mask=microbatch.mask[i],
                    address=microbatch.address,
                    slot=slot,
                    position=int(slots.position[i]),
                    source=names[int(slots.source[i])],
                    shard=manifests.shard_name(int(slots.shard[i] if nothing else slots.delivered_shard[i])),
                    row=row,
                    is_padding=nothing,
                    seed=self._stream.root.seed,
                    read_fields=partial(self._read_fields, block, row) if microbatch.ids is None else dict,
                )
            )
        return records

    def _read_fields(self, block: int, row: int) -> Mapping[str, Any]:
        found = self._fields.read(block, row)
        if isinstance(found, RowProblem):
            raise ShardDamaged(
                f"the fields of row {row:,} of {found.shard} cannot be read", found=f"{found.kind}: {found.detail}"
            )
        return found

    def _check_again(self, microbatch: Microbatch, slots: PlannedSlots, made: Made) -> None:
        before = _global_randomness()
        again = self._make(microbatch, slots)
        moved = [name for name, state in _global_randomness().items() if state != before[name]]
        if again.digest == made.digest and not moved:
            return
        names = [name_of(self.recipe.transform)]
        if self.recipe.collate is not None:
            names.append(name_of(self.recipe.collate))
        found = [f"it draws from the process-global generator of {name}" for name in moved]
        if again.digest != made.digest:
            found.append("called twice with the same records it gave different tensors")
        raise UsageError(
            f"{self.recipe.where(microbatch.address)}: what {' and '.join(names)} makes cannot be made again",
            found="; ".join(found),
            allowed="tensors that follow from the record alone",
            todo="draw from record.generator (or a generator seeded with record.seed), and keep no count between calls",
        )


def _failed(what: str, error: BaseException) -> TransformFailed:
    return TransformFailed(
        what,
        found=f"{type(error).__name__}: {message_of(error)}",
        todo="mend it, and resume from the last checkpoint; nothing of this microbatch was recorded",
    )


def message_of(error: BaseException) -> str:
    """What an error says; never an error of its own."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - a message that cannot be made may not hide what failed
        return f"(its message cannot be made: {type(worse).__name__})"


def _global_randomness() -> dict[str, bytes]:
    """Where the process-global generators stand."""
    legacy = np.random.get_state()  # noqa: NPY002, TID251 - looked at, never drawn from
    return {
        "random": repr(random.getstate()).encode(),
        "NumPy": legacy[1].tobytes() + repr(legacy[2:]).encode(),  # type: ignore[index]
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
