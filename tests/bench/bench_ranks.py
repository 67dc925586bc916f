"""What does a rank more cost the others?

    pytest tests/bench/bench_ranks.py --benchmark-enable

Real processes in gloo groups of 1, 2 and 4, in turns: each size begins a run of its own, each rank takes 128
microbatches of 4 as tensors, one a step out of a lane of its own, and the run is resumed. What a microbatch costs is
processor time of a rank, the mean of all: more ranks than processors share them. What it takes to begin an attempt, and
to resume one, is the wall time of the slowest rank from nothing to its first microbatch; imports, processes and the
process group were there before.

512 ranks are simulated in `bench_record.py`, and what they read in `bench_reading.py`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.plan.plan import Plan
from dataguard.run.run import Run
from tests.bench.conftest import Claims, Interleaved
from tests.bench.corpora import parquet_corpus
from tests.bench.other_process import OtherProcess
from tests.bench.ratio import Turns
from tests.support.processes import environment

pytest.importorskip("torch", reason="torch is not installed: pip install 'dataguard[torch]'")

SIZES = [1, 2, 4]
MICROBATCH = 4
ROUNDS = 7
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return parquet_corpus(tmp_path_factory.mktemp("ranks"), num_shards=4, groups_of_shard=64, rows_of_group=50)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OtherProcess]]:
    """As many processes as the largest size, all of one launch."""
    folder = tmp_path_factory.mktemp("processes")
    env = environment(
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
        RANK=None,
        WORLD_SIZE=None,
        SLURM_JOB_ID=None,
        TORCHELASTIC_RUN_ID=None,
    )
    command = [sys.executable, "-m", "tests.bench.rank_of_group"]
    processes = [
        OtherProcess([*command, str(rank), str(max(SIZES)), f"file://{folder}/store"], folder / f"{rank}.log", env=env)
        for rank in range(max(SIZES))
    ]
    for process in processes:
        assert set(SIZES) <= set(process.hear()["sizes"])
    yield processes
    for process in processes:  # all of them before one is waited for: they meet once more
        process.tell({"do": "end"})
    for process in processes:
        process.close()


def asked(ranks: list[OtherProcess], words: dict[str, Any]) -> list[dict[str, Any]]:
    """What each of the ranks answers; they work at the same time."""
    for process in ranks:
        process.tell(words)
    return [process.hear() for process in ranks]


def test_by_number_of_ranks(
    ranks: list[OtherProcess], corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, measured: bool
) -> None:
    plans = {size: Plan(corpus, seed=17, global_batch=size * MICROBATCH, lanes=size, window_blocks=4) for size in SIZES}
    number = 128 if measured else 8
    seen: dict[str, dict[int, list[float]]] = {
        what: {size: [] for size in SIZES} for what in ("a microbatch", "beginning", "resuming")
    }
    processor: dict[str, dict[int, list[float]]] = {
        what: {size: [] for size in SIZES} for what in ("beginning", "resuming")
    }

    def launch(size: int) -> None:
        run = Run.create(tmp_path / f"run {next(_NUMBERS)}", plans[size])
        words = {"run": str(run.path), "world_size": size, "microbatch_size": MICROBATCH}
        walked = asked(ranks[:size], {**words, "do": "walk", "num_microbatches": number})
        states = [each["state"] for each in walked]
        assert states == states[:1] * size
        assert states[0]["next_step"] == number
        resumed = asked(ranks[:size], {**words, "do": "resume", "state": states[0]})
        seen["a microbatch"][size].append(mean(each["of_a_microbatch"] for each in walked))
        for what, answers in (("beginning", walked), ("resuming", resumed)):
            seen[what][size].append(max(each["seconds"] for each in answers))
            processor[what][size].append(max(each["processor_seconds"] for each in answers))

    contenders: dict[str, Callable[[], object]] = {str(size): partial(launch, size) for size in SIZES}
    interleaved(contenders, rounds=ROUNDS)
    counted = slice(-ROUNDS if measured else None, None)  # the first round does not count
    turns = {
        what: Turns(seconds={str(size): taken[counted] for size, taken in of.items()}) for what, of in seen.items()
    }
    for size in SIZES:
        each = turns["a microbatch"]
        claims(
            f"a microbatch of {MICROBATCH}, tensors of 1,024 ids, {size} ranks / 1",
            each.ratio(str(size), "1"), detail=f"{each.seconds_of(str(size)) * 1e6:,.0f} us of a rank's processor",
        )  # fmt: skip
    for what, of in processor.items():
        used = Turns(seconds={str(size): taken[counted] for size, taken in of.items()})
        for size in SIZES:
            claims(
                f"{what}, to the first microbatch of the slowest of {size} ranks",
                turns[what].seconds_of(str(size)) * 1e3, "ms",
                detail=f"{used.seconds_of(str(size)) * 1e3:.1f} ms of its processor; "
                f"{turns[what].ratio(str(size), '1'):.2f} x the time of 1",
            )  # fmt: skip
