"""How long does one index take through the keyed permutation, and does that depend on n?

Run with ``pytest tests/bench/bench_permutation.py --benchmark-enable``. Each case permutes the same 200,000 indices,
spread over the domain, so rates compare across sizes: the compiled kernels both ways, the NumPy twin, and as a peer
what others do, a table made by ``numpy.random.Generator.permutation`` (whose making is measured apart, and which stops
being possible where n integers do not fit in memory). Time is the process's own, since the machine may be shared;
``extra_info`` gives nanoseconds an index and the bytes of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.core.permute import permute, unpermute
from dataguard.core.permute_kernels import permute_bulk, unpermute_bulk
from tests.bench.conftest import Claims, Interleaved

NUM_INDICES = 200_000
SIZES = [10**6, 10**8, 10**10, 10**12]
TABLE_SIZES = [10**5, 10**6, 10**7]  # 8 bytes a row: the largest sizes above would take 80 GB and 8 TB


def indices(n: int) -> NDArray[np.int64]:
    return (np.arange(NUM_INDICES, dtype=np.int64) * (n // NUM_INDICES or 1)) % n


def report(benchmark: Any, work: Callable[[], Any], **info: int) -> None:
    benchmark.pedantic(work, rounds=15, warmup_rounds=2)
    if benchmark.stats is not None:
        benchmark.extra_info["ns_an_index"] = round(benchmark.stats["median"] / NUM_INDICES * 1e9, 2)
    benchmark.extra_info.update(info)


@pytest.mark.parametrize("n", SIZES, ids="n={:.0e}".format)
def test_kernel_in_turns_with_a_table(claims: Claims, interleaved: Interleaved, n: int) -> None:
    """Beside it a table of 10^6 rows, made anew and looked up: what n = 10^6 costs those who have one."""
    index, rows = indices(n), indices(10**6)
    turns = interleaved(
        {
            "forward": lambda: permute_bulk(n, 17, index),
            "inverse": lambda: unpermute_bulk(n, 17, index),
            "table": lambda: np.random.default_rng(17).permutation(10**6)[rows],
        },
        rounds=21,
        clock=time.process_time,
    )
    for name in ("forward", "inverse"):
        detail = f"{turns.ratio('table', name):.3g} times as fast as making a table of 10^6 and looking 200,000 up"
        claims(
            f"keyed permutation, {name}, n = {n:.0e}, an index", turns.seconds_of(name) / NUM_INDICES * 1e9, "ns",
            target=20, detail=detail,
        )  # fmt: skip


@pytest.mark.parametrize("n", SIZES, ids="n={:.0e}".format)
@pytest.mark.parametrize("work", [permute_bulk, unpermute_bulk], ids=["forward", "inverse"])
@pytest.mark.benchmark(group="permutation", timer=time.process_time)
def test_kernel(benchmark: Any, work: Any, n: int) -> None:
    index = indices(n)
    other = unpermute_bulk if work is permute_bulk else permute_bulk
    assert np.array_equal(other(n, 17, work(n, 17, index)), index)
    report(benchmark, lambda: work(n, 17, index), table_bytes=0)


@pytest.mark.parametrize("n", SIZES, ids="n={:.0e}".format)
@pytest.mark.parametrize("work", [permute, unpermute], ids=["forward", "inverse"])
@pytest.mark.benchmark(group="permutation", timer=time.process_time)
def test_numpy_twin(benchmark: Any, work: Any, n: int) -> None:
    index = indices(n)
    report(benchmark, lambda: work(n, 17, index), table_bytes=0)


@pytest.mark.parametrize("run", [1, 8, 64, 1024], ids="run={}".format)
@pytest.mark.benchmark(group="many keys", timer=time.process_time)
def test_kernel_with_a_new_window_every_so_many_indices(benchmark: Any, run: int) -> None:
    # The way the stream calls it: a key for each window, of which a batch takes a few samples of each lane.
    keys = np.repeat(np.arange(NUM_INDICES // run + 1, dtype=np.uint64), run)[:NUM_INDICES]
    sizes = np.full(NUM_INDICES, 4000, dtype=np.int64)
    index = np.arange(NUM_INDICES) % 4000
    report(benchmark, lambda: permute_bulk(sizes, keys, index), table_bytes=0)


@pytest.mark.parametrize("n", TABLE_SIZES, ids="n={:.0e}".format)
@pytest.mark.benchmark(group="permutation", timer=time.process_time)
def test_peer_look_up_in_a_numpy_table(benchmark: Any, n: int) -> None:
    table = np.random.default_rng(17).permutation(n)
    index = indices(n)
    report(benchmark, lambda: table[index], table_bytes=table.nbytes)


@pytest.mark.parametrize("n", TABLE_SIZES, ids="n={:.0e}".format)
@pytest.mark.benchmark(group="making a table", timer=time.process_time)
def test_peer_making_a_numpy_table(benchmark: Any, n: int) -> None:
    benchmark.pedantic(lambda: np.random.default_rng(17).permutation(n), rounds=3, warmup_rounds=0)
    benchmark.extra_info["table_bytes"] = n * 8
