"""How much does scoring slow an audit down, and do two threads halve its time?

    pytest tests/bench/bench_audit.py --benchmark-enable

Shards are JSON lines in zstd, of real Python modules (the standard library and what lies beside it), two a core, so
that both threads decode. The pipeline is the first half of an audit as the command runs it: decode, verify each block
against the manifest, digest and score every record, write a Parquet part a task. Without scoring it is the same, and
signals are zeros. The second half (judge, profile, duplicates, files) is told beside it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from dataguard.audit.engines import Content
from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.job import Job
from dataguard.audit.run import AuditRequest, run_audit
from dataguard.audit.sample import Sample
from dataguard.audit.tasks import Task, plan_tasks
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.gate.policy import named_policy
from dataguard.score.registry import SIGNALS
from tests.bench.conftest import Claims, Interleaved

NUM_SHARDS = 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Corpus:
    """About 40 MB (2 MB in a smoke test) of text as JSON lines, in frames that a stream decoder has to walk."""
    most = (40 if request.config.getoption("benchmark_enable") else 2) << 20
    folder = tmp_path_factory.mktemp("audit")
    (folder / "web").mkdir()
    texts, total = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        text = path.read_bytes().decode("utf-8", "replace")
        if total + len(text) > most:
            break
        # modules are long: as documents of some kilobytes, cut at definitions
        pieces = [piece for piece in text.split("\n\n\n") if piece.strip()]
        texts += pieces
        total += len(text)
    for shard in range(NUM_SHARDS):
        lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts[shard::NUM_SHARDS])
        (folder / f"web/{shard}.jsonl.zst").write_bytes(zstandard.ZstdCompressor(level=3).compress(lines))
    build_manifest_file([str(folder / "web")], folder / "M.parquet", num_workers=1)
    return Corpus.open(folder / "M.parquet")


class Pipeline:
    """The first half of an audit into a folder of its own."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.job = Job(corpus=corpus, sample=Sample(), seq_len=2048)
        self.tasks: Sequence[Task] = plan_tasks(corpus.manifest, task_bytes=2 << 20)
        self.content_bytes = sum(task.content_bytes for task in self.tasks)
        self.folder = folder

    def run(self, num_workers: int) -> None:
        def keep(task: Task, content: Content) -> None:
            assert not isinstance(content, bytes)
            with (self.folder / f"{task.number}.parquet").open("wb") as file:
                content(file)

        LocalEngine(num_workers).run(self.job, self.tasks, keep)

    def run_without_scoring(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("dataguard.score.text.score_buffers", zeros)
            self.run(1)


def zeros(values: NDArray[np.uint8], offsets: NDArray[np.int64], signals: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: np.zeros(len(offsets) - 1, SIGNALS[name].dtype) for name in signals}


def test_scoring_against_the_same_pipeline_without(
    corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(corpus, tmp_path)
    turns = interleaved(
        {"scoring": lambda: pipeline.run(1), "without": lambda: pipeline.run_without_scoring(monkeypatch)},
        rounds=5,
        clock=time.process_time,
    )
    speed = pipeline.content_bytes / turns.seconds_of("scoring") / 1e6
    claims(
        "audit, jsonl.zst to signals and digests in Parquet: throughput / without scoring",
        turns.ratio("without", "scoring"), target=0.35, at_least=True,
        detail=f"{speed:,.0f} MB/s of text, one thread, all signals",
    )  # fmt: skip


def hashing(num_threads: int) -> None:
    """The same amount of hashing, which holds no lock, on so many threads."""
    content = bytes(4 << 20)
    work = [hashlib.sha256] * 32
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(lambda hash_of: hash_of(content).digest(), work))


def test_two_threads_against_one(corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved) -> None:
    """Beside a control that no lock can slow down: on a machine that others use as well, both gain little."""
    pipeline = Pipeline(corpus, tmp_path)
    turns = interleaved(
        {
            "one": lambda: pipeline.run(1),
            "two": lambda: pipeline.run(2),
            "hashing, one": lambda: hashing(1),
            "hashing, two": lambda: hashing(2),
        },
        rounds=5,
    )
    claims(
        "audit on two threads / on one, throughput", turns.ratio("one", "two"), target=1.8, at_least=True,
        detail=f"control, hashing: {turns.ratio('hashing, one', 'hashing, two'):.2f}x",
    )  # fmt: skip


def test_both_halves(corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved) -> None:
    pipeline = Pipeline(corpus, tmp_path)
    manifest = str(Path(corpus.roots["web"]).parent / "M.parquet")

    def whole() -> None:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        request = AuditRequest(paths=(manifest,), out=tmp_path / "out", policy=named_policy("default"))
        run_audit(request, LocalEngine(1))

    turns = interleaved({"first half": lambda: pipeline.run(1), "whole": whole}, rounds=3, clock=time.process_time)
    claims(
        "audit, both halves / the first half", turns.ratio("whole", "first half"),
        detail=f"{pipeline.content_bytes / turns.seconds_of('whole') / 1e6:,.0f} MB/s in all, one thread",
    )  # fmt: skip
