"""What does a plan cost in memory, and a look-up in it in time?

    pytest tests/bench/bench_plan.py --benchmark-enable

Memory follows the blocks and not the samples: four numbers of blocks at one number of samples, four numbers of samples
at one number of blocks. It is what tracemalloc sees from a manifest in memory to a stream that has given samples of two
epochs; what the manifest itself holds is shown beside it. (A memory claim needs no quiet machine, so it is asserted.)
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.core.permute_kernels import permute_bulk
from dataguard.loader.walk import Walk
from dataguard.plan.plan import Plan
from dataguard.plan.withheld import WithheldSet
from tests.bench.conftest import Claims
from tests.bench.synthetic import manifest_of

MB = 1e6


def bytes_of_plan(num_blocks: int, rows_of_block: int) -> tuple[int, int]:
    """(of the plan and its stream with tables of two epochs, of the manifest's own arrays)."""
    permute_bulk(64, 17, np.arange(64))  # what the compiler holds is no part of a plan
    manifest = manifest_of(num_blocks, rows_of_block)
    tracemalloc.start()
    try:
        plan = Plan(manifest, seed=17, global_batch=512)
        stream = plan.stream(bulk=True)
        num_samples = num_blocks * rows_of_block
        for epoch in range(2):
            stream.samples(np.arange(512, dtype=np.int64) * (num_samples // 1024) + epoch * num_samples)
        return tracemalloc.get_traced_memory()[0], manifest.blocks.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("num_blocks", [12_500, 25_000, 50_000, 100_000], ids="{:,} blocks".format)
def test_memory_grows_with_blocks(claims: Claims, num_blocks: int) -> None:
    held, manifest = bytes_of_plan(num_blocks, 100_000_000 // num_blocks)
    claims(
        f"plan of 100 M samples in {num_blocks:,} blocks", (held + manifest) / MB, "MB", target=50,
        detail=f"{held / num_blocks:.0f} bytes a block, and the manifest's {manifest / num_blocks:.0f}",
    )  # fmt: skip
    assert held + manifest <= 50 * MB


def test_memory_does_not_grow_with_samples(claims: Claims) -> None:
    held = {rows: bytes_of_plan(20_000, rows)[0] for rows in (50, 500, 5_000, 50_000)}
    for rows, size in held.items():
        claims(f"plan of 20,000 blocks, {20_000 * rows / 1e6:,.0f} M samples", size / MB, "MB")
    assert max(held.values()) <= 1.1 * min(held.values())


@pytest.mark.parametrize("num_blocks", [1_000, 10_000, 100_000, 1_000_000], ids="{:,} blocks".format)
@pytest.mark.benchmark(group="64 slots of one step, by size of the corpus", timer=time.process_time)
def test_slots_of_one_step(benchmark: Any, num_blocks: int) -> None:
    """The arithmetic of one rank's share, in a walk from step to step."""
    plan = Plan(manifest_of(num_blocks, 1_000), seed=17, global_batch=512, lanes=64)
    walk(benchmark, plan, first_step=1_000)


@pytest.mark.parametrize("first_step", [0, 10_000, 1_000_000, 100_000_000], ids="step {:,}".format)
@pytest.mark.benchmark(group="64 slots of one step, by step", timer=time.process_time)
def test_slots_of_a_late_step(benchmark: Any, first_step: int) -> None:
    plan = Plan(manifest_of(10_000, 1_000), seed=17, global_batch=512, lanes=64)
    walk(benchmark, plan, first_step=first_step)


@pytest.mark.parametrize("num_sources", [1, 2, 4, 8], ids="{} sources".format)
@pytest.mark.benchmark(group="64 slots of one step, by sources", timer=time.process_time)
def test_slots_of_a_mixture(benchmark: Any, num_sources: int) -> None:
    names = [f"source-{number}" for number in range(num_sources)]
    plan = Plan(manifest_of(10_000, 1_000, sources=names), seed=17, global_batch=512, lanes=64)
    walk(benchmark, plan, first_step=1_000)


def walk(benchmark: Any, plan: Plan, *, first_step: int) -> None:
    """Walk as rank 2 of 8 does, 64 slots a step; a round is 32 steps, looked up in two groups."""
    stream = plan.stream(bulk=True)
    upcoming = iter(
        Walk(
            stream=stream, steps=plan.steps(), withheld=WithheldSet.of([], stream.manifest_set), fill="mask",
            geometry=Geometry(world_size=8, microbatch_size=64), rank=2, attempt=1, first_step=first_step,
        )
    )  # fmt: skip
    for _ in range(31):  # the groups have grown
        next(upcoming)
    benchmark.pedantic(lambda: next(upcoming), rounds=30, iterations=32)
