"""What does keeping delivered batches cost a step, and how fast is it written?

    pytest tests/bench/bench_store.py --benchmark-enable

A step pays for one copy of what is kept; the thread beside it pays for compressing and writing. Both are shown beside
what cannot be saved: a plain copy, and zstd alone.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import zstandard
from pytest_benchmark.fixture import BenchmarkFixture

from dataguard.core.tensors import NamedTensor, tensors_digest
from dataguard.run.layout import Layout
from dataguard.run.store import StoreWriter
from dataguard.run.store_file import KeptMicrobatch, encode_store, read_store
from tests.bench.conftest import Claims, Interleaved
from tests.run.storing import RUN_ID, open_store

SIZE, SEQ_LEN = 8, 2_048
ROUNDS = 40


def realistic(step: int) -> KeptMicrobatch:
    """Eight windows of 2,048 ids as a trainer has them: input_ids, labels, attention_mask, all int64; 393 kB."""
    dice = random.Random(step)
    ids = [min(int(dice.paretovariate(0.6)), 50_000) for _ in range(SIZE * SEQ_LEN)]
    raw = b"".join(i.to_bytes(8, "little") for i in ids)
    ones = (1).to_bytes(8, "little") * (SIZE * SEQ_LEN)
    shape = (SIZE, SEQ_LEN)
    tensors = {
        "input_ids": NamedTensor(dtype="I64", shape=shape, data=bytearray(raw)),
        "labels": NamedTensor(dtype="I64", shape=shape, data=bytearray(raw)),
        "attention_mask": NamedTensor(dtype="I64", shape=shape, data=bytearray(ones)),
    }
    return KeptMicrobatch(
        microbatch=0,
        form="tensors",
        slots=range(SIZE),
        made_of=bytes(16),
        digest=tensors_digest(bytes(16), tensors),
        tensors=tensors,
    )


def test_what_a_step_pays(tmp_path: Path, claims: Claims, interleaved: Interleaved) -> None:
    """A microbatch offered with nothing waiting, against a plain copy of its tensors."""
    kept = realistic(0)
    steps = iter(range(10**9))
    store = open_store(tmp_path, "last:4", background=True)

    def offer() -> None:
        store.offer(next(steps), lambda: kept, last_of_step=True)

    def copy() -> list[bytes]:
        return [bytes(tensor.data) for tensor in kept.tensors.values()]

    def settled() -> None:
        while store._shared.pending_bytes:  # what is written beside is none of the step's time
            pass

    turns = interleaved({"offer": offer, "copy": copy}, rounds=ROUNDS, before=settled)
    store.close()
    claims(
        "keeping a microbatch of 393 kB, the step's share", turns.seconds_of("offer") * 1e6, "us", target=500,
        detail=f"{turns.ratio('offer', 'copy'):.1f} times a plain copy of it",
    )  # fmt: skip


def test_what_the_thread_pays(tmp_path: Path, claims: Claims, interleaved: Interleaved) -> None:
    """The same written: made, compressed, fsynced, renamed; beside compressing the bytes alone."""
    kept = realistic(0)
    raw = b"".join(bytes(tensor.data) for tensor in kept.tensors.values())
    steps = iter(range(10**9))
    store = open_store(tmp_path, "last:4")
    packer = zstandard.ZstdCompressor(level=1)
    turns = interleaved(
        {
            "store": lambda: store.offer(next(steps), lambda: kept, last_of_step=True),
            "zstd": lambda: packer.compress(raw),
        },
        rounds=ROUNDS,
    )
    store.close()
    (path,) = list(Layout(tmp_path).store_attempt(1).glob("step-*"))[-1].iterdir()
    claims(
        "keeping a microbatch of 393 kB, the thread's share", turns.seconds_of("store") * 1e3, "ms",
        detail=f"{turns.ratio('store', 'zstd'):.1f} times zstd alone; {path.stat().st_size / 1e3:,.0f} kB on disk",
    )  # fmt: skip


@pytest.mark.benchmark(group="a store file of 393 kB")
def test_make_a_file(benchmark: BenchmarkFixture) -> None:
    kept = realistic(0)
    benchmark(encode_store, {"run": RUN_ID, "attempt": 1, "rank": 0, "step": 0}, [kept])


@pytest.mark.benchmark(group="a store file of 393 kB")
def test_read_a_file_with_every_digest(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    store: StoreWriter = open_store(tmp_path)
    store.offer(0, lambda: realistic(0), last_of_step=True)
    store.close()
    path = Layout(tmp_path).store(1, 0, 0)
    benchmark(lambda: read_store(path, run=RUN_ID, attempt=1, rank=0, step=0))
