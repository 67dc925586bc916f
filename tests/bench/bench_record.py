"""What does the record cost: to write at hand-over, on disk, and to look one step up in a long run?

    pytest tests/bench/bench_record.py --benchmark-enable [-m "long or not long"]

Every claim is made beside its reference in the same run: Arrow's stream writer for recording, one ``pread`` for a
lookup, a plain pyarrow read for reading. "Cold" means that the pages of the run's files were dropped from the cache.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from dataguard.run.columns import FileIdentity, to_table
from dataguard.run.compact import compact
from dataguard.run.frames import FramesFile
from dataguard.run.index import Index, StepRecords
from dataguard.run.layout import Layout
from dataguard.run.records import INDEX_RECORD, with_rank
from dataguard.run.seal import publish_records, seal_attempt
from tests.bench.conftest import Claims, Interleaved
from tests.run.recording import DIGESTS, HEAD, RUN_ID, header, microbatch, open_writer

SIZE = 8
SEGMENT = 10_000


def realistic(first: int, stop: int, *, rank: int = 0, num_ranks: int = 64) -> np.ndarray:
    """Steps ``first:stop`` of one rank at microbatches of 8, one a step, 64 lanes over 64 ranks.

    A lane walks windows of 4 blocks of 700 rows in random order, out of 2,000 shards; lengths are log-normal; one
    sample in a thousand is withheld.
    """
    dice = np.random.Generator(np.random.PCG64([first, rank]))
    n = (stop - first) * SIZE
    records = np.zeros(n, INDEX_RECORD)
    k = np.arange(first * SIZE, stop * SIZE)
    records["step"] = records["batch"] = np.repeat(np.arange(first, stop), SIZE)
    records["slot"] = rank * SIZE + k % SIZE
    records["position"] = k * num_ranks + rank
    records["source"] = dice.choice(3, n, p=[0.7, 0.2, 0.1])
    windows = -(-n // 2_800)
    block, shard = dice.integers(0, 40, (windows, 4)), dice.integers(0, 2_000, (windows, 4))
    walk = np.concatenate([dice.permutation(2_800) for _ in range(windows)])[:n]
    window = np.arange(n) // 2_800
    records["shard"] = shard[window, walk // 700]
    records["row"] = block[window, walk // 700] * 700 + walk % 700
    records["delivered_shard"] = records["delivered_row"] = -1
    records["length"] = np.exp(dice.normal(7.2, 1.1, n)).astype(np.int64)
    records["digest"] = dice.integers(1, 2**63, n, dtype=np.int64).view("V8")
    records["microbatch_digest"][::SIZE] = np.frombuffer(dice.bytes(16 * (n // SIZE)), "V16")
    held = dice.random(n) < 0.001
    records["status"][held], records["event"][held] = 2, 5
    return records


def long_run(root: Path, num_samples: int) -> Layout:
    """A sealed run of one rank, made without going through frames."""
    layout = Layout(root)
    facts = header(kind="seals", records_per_frame=1)
    with FramesFile.create(layout.seals(1, 0), facts, tmp=layout.tmp) as seals:
        steps = num_samples // SIZE
        for first in range(0, steps, SEGMENT):
            stop = min(first + SEGMENT, steps)
            identity = FileIdentity(
                kind="sealed", run_id=RUN_ID, attempt=1, rank=0, first_step=first, stop_step=stop,
                digests=DIGESTS, journal_head=HEAD,
            )  # fmt: skip
            path = layout.sealed(1, 0, first, stop)
            seals.append(publish_records(layout, path, with_rank(realistic(first, stop), 0), identity).record())
    return layout


def drop_pages(layout: Layout) -> None:
    for path in layout.root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def test_record_in_turns(tmp_path: Path, claims: Claims, interleaved: Interleaved) -> None:
    """A hundred microbatches a round: as the writer records them, and as Arrow's stream writer would."""
    batches = iter([microbatch(step) for step in range(9_000)])
    (batch,) = to_table(with_rank(microbatch(5), 0)).to_batches()
    with (
        open_writer(tmp_path / "run") as writer,
        pa.OSFile(str(tmp_path / "a"), "wb") as file,
        pa.ipc.new_stream(file, batch.schema) as stream,
    ):
        turns = interleaved(
            {
                "frames": lambda: [writer.append(next(batches)) for _ in range(100)],
                "arrow": lambda: [stream.write_batch(batch) for _ in range(100)],
            },
            rounds=60,
        )
    claims(
        "recording a microbatch of 4", turns.seconds_of("frames") / 100 * 1e6, "us", target=20,
        detail=f"{turns.ratio('arrow', 'frames'):.1f} times as fast as Arrow's stream writer",
    )  # fmt: skip


@pytest.mark.benchmark(group="record a microbatch of 4")
def test_record_as_a_frame(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp") as file:
        benchmark.pedantic(file.append, (microbatch(5),), rounds=200, iterations=100)


@pytest.mark.benchmark(group="record a microbatch of 4")
def test_record_through_the_writer(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """With the fence, the order of addresses and the bounds of segments."""
    batches = iter([microbatch(step) for step in range(9_000)])
    with open_writer(tmp_path) as writer:
        benchmark.pedantic(lambda: writer.append(next(batches)), rounds=80, iterations=100)


@pytest.mark.benchmark(group="record a microbatch of 4")
def test_record_through_arrows_stream_writer(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """The batch is made beforehand, so this is less than what Arrow would really cost."""
    (batch,) = to_table(with_rank(microbatch(5), 0)).to_batches()
    with pa.OSFile(str(tmp_path / "a"), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        benchmark.pedantic(writer.write_batch, (batch,), rounds=50, iterations=100)


@pytest.mark.benchmark(group="index writing and reading, 80,000 samples")
def test_seal_a_segment(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Read the frames, write, read back, compare, digest."""
    records = realistic(0, SEGMENT)
    numbers = iter(range(100))

    def fresh() -> tuple[tuple[Layout], dict[str, object]]:
        root = tmp_path / str(next(numbers))
        with open_writer(root, microbatch_size=SIZE) as writer:
            for step in range(SEGMENT):
                writer.append(records[step * SIZE : (step + 1) * SIZE])
            writer.close(seal=False)
        return (Layout(root),), {}

    benchmark.pedantic(lambda layout: seal_attempt(layout, 1), setup=fresh, rounds=5)


@pytest.mark.benchmark(group="index writing and reading, 80,000 samples")
def test_read_all_records(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    layout = long_run(tmp_path, SEGMENT * SIZE)
    records = benchmark.pedantic(lambda: list(Index(layout).records(1)), rounds=10)
    assert sum(map(len, records)) == SEGMENT * SIZE


@pytest.mark.benchmark(group="index writing and reading, 80,000 samples")
def test_read_with_pyarrow_alone(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    path = long_run(tmp_path, SEGMENT * SIZE).sealed(1, 0, 0, SEGMENT)
    benchmark.pedantic(lambda: pq.ParquetFile(path).read(use_threads=False), rounds=10)


def one_pread(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, 1 << 19, 0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "sizes",
    [
        [10_000, 100_000, 1_000_000],
        pytest.param([100_000, 1_000_000, 10_000_000, 100_000_000], marks=pytest.mark.long),
    ],
    ids=["to 1 M", "to 100 M"],
)
def test_one_step(tmp_path: Path, claims: Claims, interleaved: Interleaved, sizes: list[int]) -> None:
    """Runs of several lengths in turns, an `Index` made anew for each look-up, with pages dropped and without."""
    runs = {size: long_run(tmp_path / str(size), size) for size in sizes}
    largest = max(runs[sizes[-1]].index.rglob("*.parquet"), key=lambda path: path.stat().st_size)

    def look_up(size: int) -> None:
        found = Index(runs[size]).step(1, size // SIZE * 2 // 3, num_ranks=1)
        assert len(found.records) == SIZE

    for kind, drop in (("pages dropped", True), ("warm", False)):
        turns = interleaved(
            {
                "pread": lambda: one_pread(largest),
                **{str(size): partial(look_up, size) for size in sizes},
            },
            rounds=21,
            before=(lambda: [drop_pages(run) for run in runs.values()]) if drop else (lambda: None),
        )
        for size in sizes:
            claims(
                f"one step looked up among {size:,} samples, {kind}", turns.seconds_of(str(size)) * 1e3, "ms",
                target=30, detail=f"{turns.ratio(str(size), 'pread'):.3g} times one pread of 512 KiB",
            )  # fmt: skip
        claims(
            f"the same, {sizes[-1]:,} / {sizes[-1] // 100:,} samples, {kind}",
            turns.ratio(str(sizes[-1]), str(sizes[-1] // 100)), target=2,
        )  # fmt: skip


@pytest.mark.parametrize("compacted", [False, True], ids=["sealed", "compacted"])
def test_bytes_a_sample(tmp_path: Path, compacted: bool, claims: Claims) -> None:
    """Eight of them are the digest, two a sample the microbatch's."""
    if compacted:
        for rank in range(8):
            write_rank(tmp_path, rank, 2_000, 8)
        layout, num_samples = Layout(tmp_path), 8 * 2_000 * SIZE
        compact(layout, 1)
    else:
        num_samples = 2 * SEGMENT * SIZE
        layout = long_run(tmp_path, num_samples)
    size = sum(path.stat().st_size for path in layout.index.rglob("*.parquet"))
    columns: dict[str, float] = {}
    for path in layout.index.rglob("*.parquet"):
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups):
            for i in range(metadata.num_columns):
                column = metadata.row_group(group).column(i)
                name = column.path_in_schema
                columns[name] = columns.get(name, 0) + column.total_compressed_size / num_samples
    told = ", ".join(f"{name} {cost:.2f}" for name, cost in columns.items() if cost >= 0.15)
    kind = "compacted" if compacted else "sealed"
    claims(f"index, {kind}, microbatches of 8, a sample", size / num_samples, "B", target=24, detail=told)
    assert size / num_samples <= 24


def write_rank(root: Path, rank: int, num_steps: int, num_ranks: int) -> None:
    records = realistic(0, num_steps, rank=rank, num_ranks=num_ranks)
    with open_writer(root, rank=rank, microbatch_size=SIZE) as writer:
        for step in range(num_steps):
            writer.append(records[step * SIZE : (step + 1) * SIZE])


@pytest.mark.long
@pytest.mark.parametrize("compacted", [False, True], ids=["sealed", "compacted"])
def test_one_step_over_512_ranks(tmp_path: Path, claims: Claims, interleaved: Interleaved, compacted: bool) -> None:
    for rank in range(512):
        write_rank(tmp_path, rank, 300, 512)
    layout = Layout(tmp_path)
    if compacted:
        compact(layout, 1)
    reference = max(layout.index.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    found: list[StepRecords] = []
    turns = interleaved(
        {
            "step": lambda: found.append(Index(layout).step(1, 200, num_ranks=512)),
            "pread": lambda: one_pread(reference),
        },
        rounds=7,
        before=lambda: drop_pages(layout),
    )
    assert all(len(each.records) == 512 * SIZE for each in found)
    claims(
        f"one step over 512 ranks, {'compacted' if compacted else 'sealed'}, pages dropped",
        turns.seconds_of("step") * 1e3, "ms", target=60 if compacted else 1_000,
        detail=f"{turns.ratio('step', 'pread'):,.0f} times one cold pread of 512 KiB",
    )  # fmt: skip
