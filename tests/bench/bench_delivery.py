"""How much of a step's time goes into recording it?

    pytest tests/bench/bench_delivery.py --benchmark-enable

One rank is fed windows of 2,048 tokens, four a microbatch, without a trainer. What recording costs (making the index
records with their digest of the microbatch, appending the frame, sealing at the end) is timed within the very walk, on
the thread that would wait for it, and compared with two steps:

- one of which a trainer takes 1 ms a sample, 2 million tokens a second and rank: more than accelerators feed on;
- the whole delivery itself, with no trainer at all, which is the hardest measure there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.loader import feed
from dataguard.loader.loader import Loader
from dataguard.plan.plan import Plan
from dataguard.run.run import Run
from dataguard.run.writer import RankWriter
from tests.bench.conftest import Claims

TOKENS, SIZE = 2_048, 4
NUM_STEPS = 2_000


class Timed:
    """A function that adds up the time it takes its thread."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any, **settings: Any) -> Any:
        began = time.thread_time()
        try:
            return self.function(*args, **settings)
        finally:
            self.seconds += time.thread_time() - began


def test_share_of_recording(tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch, measured: bool) -> None:
    source = tmp_path / "tokens"
    source.mkdir()
    dice = np.random.default_rng(17)
    for shard in range(4):
        np.save(source / f"{shard}.npy", dice.integers(0, 50_000, 2_048 * 1_000, dtype=np.uint16))
    build_manifest_file([str(source)], tmp_path / "M.parquet", num_workers=1)
    plan = Plan(Corpus.open(tmp_path / "M.parquet"), seed=17, global_batch=SIZE, form="window", seq_len=TOKENS)

    records = Timed(feed.index_records)
    monkeypatch.setattr(feed, "index_records", records)
    num_steps = NUM_STEPS if measured else 10
    run = Run.create(tmp_path / "run", plan)
    loader = Loader(run, geometry=Geometry(world_size=1, microbatch_size=SIZE), num_threads=0, steps=num_steps)
    next(loader)
    writer = loader._walking.writer  # type: ignore[union-attr]
    assert isinstance(writer, RankWriter)
    append = Timed(writer.append)
    monkeypatch.setattr(writer, "append", append)
    records.seconds = 0.0
    began = time.thread_time()
    num_samples = 0
    for _ in range(num_steps - 1):
        num_samples += len(next(loader))
    seconds = time.thread_time() - began
    close = Timed(writer.close)
    close()
    loader.close()
    sample = (records.seconds + append.seconds + close.seconds) / num_samples
    claims(
        "recording / a step of 1 ms a sample of 2,048 tokens", sample / 1e-3 * 100, "%", target=2,
        detail=f"{sample * 1e6:.1f} us a sample: records {records.seconds / num_samples * 1e6:.1f}, "
        f"frames {append.seconds / num_samples * 1e6:.1f}, sealing {close.seconds / num_samples * 1e6:.1f}",
    )  # fmt: skip
    claims(
        "recording / delivery of windows of 2,048 tokens without a trainer", sample * num_samples / seconds * 100, "%",
        detail=f"{seconds / num_samples * 1e6:.1f} us a sample, on one thread",
    )  # fmt: skip
