"""Microbatches for the tests of the store, and stores to put them in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from dataguard.core.tensors import NamedTensor, tensors_digest
from dataguard.run.layout import Layout
from dataguard.run.store import StoreWriter
from dataguard.run.store_file import KeptMicrobatch, read_store
from dataguard.run.store_rule import StoreRule

RUN_ID = "run-of-the-tests"
MADE_OF = bytes(range(16))


def kept(step: int, microbatch: int = 0, *, num_bytes: int = 64, made_of: bytes = MADE_OF) -> KeptMicrobatch:
    """A microbatch of three tensors, of dtypes that NumPy lacks too; what is in it follows from its address."""
    content = bytearray(random.Random(step * 1_000 + microbatch).randbytes(num_bytes))
    tensors = {
        "input_ids": NamedTensor(dtype="I64", shape=(2, num_bytes // 16), data=content),
        "scales": NamedTensor(dtype="BF16", shape=(2,), data=bytes([step % 256, 1, 2, 3])),
        "attention_mask": NamedTensor(dtype="BOOL", shape=(2, 1), data=b"\x01\x00"),
    }
    return KeptMicrobatch(
        microbatch=microbatch,
        form="tensors",
        slots=range(microbatch * 2, microbatch * 2 + 2),
        made_of=made_of,
        digest=tensors_digest(made_of, tensors),
        tensors=tensors,
    )


def open_store(root: Path, keep: str = "all", *, attempt: int = 1, rank: int = 0, **changes: Any) -> StoreWriter:
    """A store of one rank; writes on the calling thread unless told otherwise."""
    facts: dict[str, Any] = {"run_id": RUN_ID, "first_step": 0, "clock": lambda: "2026-01-02", "background": False}
    return StoreWriter.open(
        Layout(root), attempt=attempt, rank=rank, rule=StoreRule.parse(keep), **{**facts, **changes}
    )


def put(store: StoreWriter, step: int, num_microbatches: int = 1, **facts: Any) -> None:
    """Offer a whole step."""
    for number in range(num_microbatches):
        store.offer(step, lambda n=number: kept(step, n, **facts), last_of_step=number + 1 == num_microbatches)


def read(root: Path, step: int, *, attempt: int = 1, rank: int = 0) -> list[KeptMicrobatch]:
    """What stands of a step."""
    path = Layout(root).store(attempt, step, rank)
    return read_store(path, run=RUN_ID, attempt=attempt, rank=rank, step=step)[1]


def contents(kept: KeptMicrobatch) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Its tensors as values that can be compared."""
    return {name: (t.dtype, t.shape, bytes(t.data)) for name, t in sorted(kept.tensors.items())}
