"""K13, kernels beside threads and forks: no hang, no dead worker, no bit that depends on who computed it. G25, G26."""

from __future__ import annotations

import ast
import hashlib
import multiprocessing
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.score.tokens import score_token_rows, score_tokens
from tests.architecture.tree import TOP, modules
from tests.score.token_rows import documents, offsets_of
from tests.support.processes import environment

VOCAB_SIZE = 50_000
SECONDS = 60


def digest_of(columns: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for name, column in columns.items():
        found.update(name.encode() + column.tobytes())
    return found.hexdigest()


def score_all(several: list[Any]) -> dict[str, Any]:
    return score_token_rows(np.concatenate(several), offsets_of(several), vocab_size=VOCAB_SIZE)


def child(path: str, answers: Any) -> None:
    """In a process of its own: read the shard and score it."""
    table = pq.ParquetFile(path).read_row_group(0, use_threads=False)
    scored = score_tokens(table["ids"], vocab_size=VOCAB_SIZE)
    answers.put(digest_of({name: scored[name].to_numpy() for name in scored.column_names}))


@pytest.fixture(scope="module")
def several() -> list[Any]:
    return documents(400, 600, seed=25)


@pytest.fixture(scope="module")
def shard(several: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shard") / "rows.parquet"
    pq.write_table(pa.table({"ids": pa.array([row.tolist() for row in several], pa.list_(pa.uint32()))}), path)
    return path


@pytest.mark.parametrize(("method", "times"), [("fork", 20), ("spawn", 1), ("forkserver", 1)])
def test_g25_workers_score_after_the_parent_did_in_threads(
    several: list[Any], shard: Path, method: Any, times: int
) -> None:
    expected = digest_of(score_all(several))
    context = multiprocessing.get_context(method)
    for _ in range(times):
        # The parent has threads that scored and that read, as a process with a loader in it has.
        with ThreadPoolExecutor(4) as pool:
            assert {digest_of(found) for found in pool.map(score_all, [several] * 4)} == {expected}
            pq.read_table(shard, use_threads=True)
            answers = context.SimpleQueue()
            workers = [context.Process(target=child, args=(str(shard), answers)) for _ in range(2)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any fork beside threads
                for worker in workers:
                    worker.start()
            for worker in workers:
                worker.join(SECONDS)
            assert [worker.exitcode for worker in workers] == [0, 0], "a worker hung or was killed"
            assert [answers.get() for _ in workers] == [expected] * 2


def test_g25_no_kernel_uses_the_compiler_s_own_threads() -> None:
    """They abort in a child whose parent has used them, and sums made by them change with their number."""
    told = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            names = {getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "arg", None)}
            if names & {"prange", "parallel", "fastmath", "set_num_threads"}:
                told.append(f"{path.name}:{getattr(node, 'lineno', 0)}")
    assert told == []


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_g26_threads_leave_every_bit_alone(several: list[Any], num_threads: int) -> None:
    expected = digest_of(score_all(several))
    begin = threading.Barrier(num_threads)

    def work(_: int) -> set[str]:
        begin.wait(SECONDS)
        return {digest_of(score_all(several)) for _ in range(5)}

    with ThreadPoolExecutor(num_threads) as pool:
        assert set().union(*pool.map(work, range(num_threads))) == {expected}


@pytest.mark.parametrize("num_threads", ["1", "3"])
def test_g26_the_runtime_s_own_thread_count_is_of_no_account(several: list[Any], num_threads: str) -> None:
    code = (
        "from tests.cases.test_parallel_runtime import digest_of, score_all\n"
        "from tests.score.token_rows import documents\n"
        "print(digest_of(score_all(documents(400, 600, seed=25))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=TOP,
        env=environment(NUMBA_NUM_THREADS=num_threads),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert done.stdout.strip() == digest_of(score_all(several))


def test_g26_batches_and_order_leave_every_bit_alone() -> None:
    several = documents(4000, 3000, seed=26)
    whole = score_all(several)
    backwards = score_all(several[::-1])
    assert {name: column[::-1].tobytes() for name, column in backwards.items()} == {
        name: column.tobytes() for name, column in whole.items()
    }
    for size in (1, 7):
        parts = [score_all(several[start : start + size]) for start in range(0, 700, size)]
        for name, column in whole.items():
            assert np.concatenate([part[name] for part in parts]).tobytes() == column[:700].tobytes()
