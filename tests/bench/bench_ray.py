"""What does it cost to score by a Ray cluster of this machine, and not by threads?

    pytest tests/bench/bench_ray.py --benchmark-enable

The corpus and the first half of an audit are those of `bench_audit`. The cluster of two workers is there before the
clock runs, and its workers have loaded their kernels (the first round does not count). Whatever is beyond threads is
processes that share no memory, parts that travel through Ray, and streams that two tasks share and both decode.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataguard.audit.engines import Content, Engine
from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.engines.ray import RayEngine
from dataguard.audit.tasks import Task
from dataguard.corpus.corpus import Corpus
from tests.audit.ray_cluster import NUM_WORKERS, cluster, ray_environment
from tests.bench.bench_audit import Pipeline, corpus
from tests.bench.conftest import Claims, Interleaved

__all__ = ["corpus"]  # the fixture


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is the driver of a cluster."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed; it comes with dataguard[ray]")
    with ray_environment() as env, cluster(env) as address:
        for name in ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_TMPDIR"):
            monkeypatch.setenv(name, env[name])
        import ray  # after that: it reads its settings as it is imported

        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()


def scored(pipeline: Pipeline, engine: Engine, folder: Path) -> None:
    folder.mkdir(exist_ok=True)

    def keep(task: Task, content: Content) -> None:
        with (folder / f"{task.number}.parquet").open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)

    engine.run(pipeline.job, pipeline.tasks, keep)


def test_a_cluster_of_this_machine_against_threads(
    connected: None, corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved
) -> None:
    pipeline = Pipeline(corpus, tmp_path)
    threads, ray = LocalEngine(NUM_WORKERS), RayEngine(NUM_WORKERS)
    turns = interleaved(
        {
            "threads": lambda: scored(pipeline, threads, tmp_path / "threads"),
            "ray": lambda: scored(pipeline, ray, tmp_path / "ray"),
        },
        rounds=5,
    )
    made = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("threads", "ray")]
    assert made[0] == made[1]
    claims(
        f"audit, first half, {NUM_WORKERS} Ray workers / as many threads, throughput",
        turns.ratio("threads", "ray"),
        detail=f"{pipeline.content_bytes / turns.seconds_of('ray') / 1e6:,.0f} MB/s by Ray",
    )
