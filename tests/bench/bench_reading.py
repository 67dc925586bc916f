"""What does shuffled reading cost beside sequential reading, in time and in bytes?

    pytest tests/bench/bench_reading.py --benchmark-enable

- The same Parquet shards, every row of one epoch as bytes: a plain pyarrow loop over row groups, our reader in stored
  order, our reader in the order of the stream (windows of 4 to 16 row groups, one rank, 64 rows a call), and rows
  drawn at random over everything, which is what a shuffle without windows comes to.
- Bytes read by 64 ranks with 64 lanes over an epoch, counted by the reader, against the size of the shards.
- The whole loader (plan, read, assemble, digests, record) on one rank against the plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.reader import RowReader
from dataguard.loader.demand import demand_of
from dataguard.loader.loader import Loader
from dataguard.loader.walk import End, Walk
from dataguard.plan.plan import Plan
from dataguard.plan.withheld import WithheldSet
from dataguard.run.run import Run
from tests.bench.conftest import Claims, Interleaved
from tests.bench.corpora import parquet_corpus

GROUPS, ROWS = 64, 500
CALL = 64  # rows of one read


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return parquet_corpus(tmp_path_factory.mktemp("reading"), num_shards=4, groups_of_shard=16, rows_of_group=ROWS)


def plainly(corpus: Corpus) -> int:
    """Every record as bytes, with nothing but pyarrow."""
    num_bytes = 0
    for path in sorted(Path(corpus.roots["web"]).glob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            column = file.read_row_group(group, columns=["text"], use_threads=False).column("text")
            for record in column.cast("binary").to_pylist():
                num_bytes += len(record)
    return num_bytes


def read_all(corpus: Corpus, blocks: NDArray[np.int64], rows: NDArray[np.int64], cache_bytes: int) -> int:
    with RowReader([corpus], cache_bytes=cache_bytes, cache_folder="") as reader:
        num_bytes = 0
        for start in range(0, len(blocks), CALL):
            for record in reader.read(blocks[start : start + CALL], rows[start : start + CALL]):
                assert isinstance(record, bytes)
                num_bytes += len(record)
        return num_bytes


def stored_order(corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    blocks = corpus.manifest.blocks
    counts = blocks["num_rows"]
    rows = np.concatenate([first + np.arange(n) for first, n in zip(blocks["first_row"], counts, strict=True)])
    return np.repeat(np.arange(len(blocks)), counts), rows


@pytest.mark.parametrize("window", [4, 8, 16], ids="windows of {} row groups".format)
def test_shuffled_against_sequential(corpus: Corpus, claims: Claims, interleaved: Interleaved, window: int) -> None:
    plan = Plan(corpus, seed=17, global_batch=CALL, lanes=1, window_blocks=window)
    stream = plan.stream(bulk=True)
    samples = stream.samples(np.arange(GROUPS * ROWS, dtype=np.int64))
    # One lane, so an epoch is a prefix; the cache is what the loader would give it.
    cache = demand_of(plan, stream, Geometry(world_size=1, microbatch_size=CALL)).cache_bytes
    blocks, rows = stored_order(corpus)
    contents = set()
    turns = interleaved(
        {
            "pyarrow": lambda: contents.add(plainly(corpus)),
            "in order": lambda: contents.add(read_all(corpus, blocks, rows, cache)),
            "shuffled": lambda: contents.add(read_all(corpus, samples.block, samples.row, cache)),
        },
        rounds=7,
        clock=time.process_time,
    )
    assert len(contents) == 1, "all three read the same epoch"
    each = turns.seconds_of("shuffled") / (GROUPS * ROWS) * 1e6
    claims(
        f"shuffled / pyarrow in order, windows of {window} row groups", turns.ratio("shuffled", "pyarrow"), target=1.3,
        detail=f"{each:.1f} us a sample of 1.6 kB, verified",
    )  # fmt: skip
    claims(f"shuffled / our reader in order, windows of {window}", turns.ratio("shuffled", "in order"), target=1.3)


def test_random_rows_without_windows(corpus: Corpus, claims: Claims, interleaved: Interleaved) -> None:
    """A cache that holds a quarter of the row groups, and rows drawn from all of them."""
    blocks, rows = stored_order(corpus)
    order = np.random.default_rng(3).permutation(len(rows))[: len(rows) // 16]
    cache = int(corpus.manifest.blocks["content_bytes"].sum()) // 4
    turns = interleaved(
        {
            "pyarrow": lambda: plainly(corpus),
            "random": lambda: read_all(corpus, blocks[order], rows[order], cache),
        },
        rounds=3,
        clock=time.process_time,
    )
    claims("random rows / pyarrow in order, a sample (what windows spare)", 16 * turns.ratio("random", "pyarrow"))


@pytest.mark.parametrize("statistics", [False, True], ids=["lean footers", "footers with statistics"])
@pytest.mark.parametrize("rows", [16, 64, 256, pytest.param(512, marks=pytest.mark.long)], ids="{} rows".format)
def test_bytes_of_64_ranks(tmp_path: Path, claims: Claims, rows: int, statistics: bool) -> None:
    """Every rank reads its lane of one epoch with a reader of its own: blocks once, and the footer of each shard."""
    corpus = parquet_corpus(tmp_path, num_shards=8, groups_of_shard=64, rows_of_group=rows, statistics=statistics)
    plan = Plan(corpus, seed=17, global_batch=1_024, lanes=64, window_blocks=256)
    stream, steps = plan.stream(bulk=True), plan.steps()
    geometry = Geometry(world_size=64, microbatch_size=16)
    size = sum(shard.size_bytes for shard in corpus.manifest.shards)
    cache = demand_of(plan, stream, geometry).cache_bytes
    nothing = WithheldSet.of([], stream.manifest_set)
    read_bytes = num_samples = 0
    for rank in range(64):
        walk = Walk(
            stream=stream, steps=steps, withheld=nothing, fill="mask", geometry=geometry, rank=rank, attempt=1,
            first_step=0, end=End(epochs=1),
        )  # fmt: skip
        with RowReader([corpus], cache_bytes=cache, cache_folder="") as reader:
            for blocks, stored in calls(walk):
                num_samples += len(reader.read(blocks, stored))
            read_bytes += reader.counts.storage_bytes
    assert num_samples == 8 * 64 * rows
    kind = "" if statistics else ", no statistics"
    claims(
        f"bytes read by 64 ranks over an epoch / corpus, {size / 8 / 64 / 1e3:,.0f} kB a block{kind}",
        read_bytes / size, target=1.5,
    )  # fmt: skip


def calls(walk: Walk) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for planned in walk:
        there = planned.slots.delivered_block >= 0
        yield planned.slots.delivered_block[there], planned.slots.delivered_row[there]


@pytest.mark.parametrize("num_threads", [0, 2], ids="{} threads".format)
def test_loader_against_a_plain_loop(
    corpus: Corpus, claims: Claims, interleaved: Interleaved, tmp_path: Path, num_threads: int
) -> None:
    runs = iter(range(100))
    plan = Plan(corpus, seed=17, global_batch=64, lanes=1, window_blocks=16)

    def load() -> None:
        run = Run.create(tmp_path / str(next(runs)), plan)
        geometry = Geometry(world_size=1, microbatch_size=8)
        with Loader(run, geometry=geometry, epochs=1, num_threads=num_threads) as loader:
            assert sum(len(microbatch) for microbatch in loader) == GROUPS * ROWS

    turns = interleaved(
        {"pyarrow": lambda: plainly(corpus), "loader": load}, rounds=5, clock=time.process_time
    )  # the processor's time of all threads
    claims(
        f"loader of one rank, {num_threads} threads / plain pyarrow loop", turns.ratio("loader", "pyarrow"),
        detail=f"{GROUPS * ROWS / turns.seconds_of('loader'):,.0f} samples/s, recorded and verified",
    )  # fmt: skip
