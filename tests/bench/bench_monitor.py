"""What does logging cost a training step?

    pytest tests/bench/bench_monitor.py --benchmark-enable

Beside it stands what cannot be saved: one ``pwrite`` of as many bytes, to the same file system. A step is on record
before it is logged, so each contender logs the newest of a run that was walked by a loader. Processor time: nothing
here waits for a disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from dataguard.core.microbatch import Microbatch
from dataguard.loader.loader import Loader
from dataguard.run.records import TELEMETRY_RECORD
from dataguard.run.run import Run
from dataguard.run.telemetry import RECORDS_PER_FRAME
from dataguard.torch.monitoring.monitor import Monitor
from tests.bench.conftest import Claims, Interleaved
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders

FRAME_BYTES = RECORDS_PER_FRAME * TELEMETRY_RECORD.itemsize + 8
STEPS_A_ROUND = 200


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Callable[..., tuple[Monitor, Microbatch]]]:
    """Makes a monitor beside a loader that has handed over step 0, each in a run of its own."""
    corpus = make_corpus(tmp_path / "corpus", {"web": {"a.parquet": 40}})
    with ExitStack() as stack:

        def make(name: str, **settings: Any) -> tuple[Monitor, Microbatch]:
            run: Run = make_run(tmp_path / name, corpus)
            loader: Loader = stack.enter_context(open_loaders(run, microbatch_size=4)[0])
            microbatch = loader.take_step()[-1]
            return stack.enter_context(Monitor(run, loader=loader, **settings)), microbatch

        yield make


def test_log_in_turns(
    tmp_path: Path, stand: Callable[..., tuple[Monitor, Microbatch]], claims: Claims, interleaved: Interleaved
) -> None:
    (numbers, _), (tensors, _), (samples, microbatch), (many, _) = map(stand, ("numbers", "tensors", "samples", "many"))
    asked, _ = stand("asked", prometheus_port=0)
    loss, norm, losses = torch.tensor(2.5), torch.tensor(1.0), torch.rand(4)
    watched = {f"activation_rms/block.{i}": torch.tensor(float(i)) for i in range(100)}
    descriptor = os.open(tmp_path / "plain", os.O_RDWR | os.O_CREAT)
    content, end = bytes(FRAME_BYTES), 0

    def plain() -> None:
        nonlocal end
        for _ in range(STEPS_A_ROUND):
            os.pwrite(descriptor, content, end)
            end += FRAME_BYTES

    def repeated(work: Callable[[], object], count: int = STEPS_A_ROUND) -> Callable[[], object]:
        return lambda: [work() for _ in range(count)]

    turns = interleaved(
        {
            "pwrite": plain,
            "numbers": repeated(lambda: numbers.log(0, loss=2.5, grad_norm=1.0, lr=1e-3, tokens=4096)),
            "asked": repeated(lambda: asked.log(0, loss=2.5, grad_norm=1.0, lr=1e-3, tokens=4096)),
            "tensors": repeated(lambda: tensors.log(0, loss=loss, grad_norm=norm, lr=1e-3, tokens=4096)),
            "samples": repeated(lambda: samples.log_samples(microbatch, losses)),
            "many": repeated(lambda: many.record(0, watched), STEPS_A_ROUND // 10),
        },
        rounds=60,
        clock=time.process_time,
    )
    os.close(descriptor)
    for name, what, values, calls in (
        ("numbers", "log of 4 numbers", 4, STEPS_A_ROUND),
        ("asked", "log of 4 numbers that can be scraped", 4, STEPS_A_ROUND),
        ("tensors", "log of 2 numbers and 2 tensors of the CPU", 4, STEPS_A_ROUND),
        ("samples", "log_samples of 4", 4, STEPS_A_ROUND),
        ("many", "record of 100 tensors", 100, STEPS_A_ROUND // 10),
    ):
        frames = -(-values // RECORDS_PER_FRAME)
        ratio = turns.ratio(name, "pwrite") * STEPS_A_ROUND / calls / frames
        claims(
            f"{what}, a call", turns.seconds_of(name) / calls * 1e6, "us",
            detail=f"{ratio:.1f} times a pwrite of the same bytes",
        )  # fmt: skip
    claims("pwrite of as many bytes", turns.seconds_of("pwrite") / STEPS_A_ROUND * 1e6, "us")
    claims("telemetry of 4 values, a step", FRAME_BYTES, "B")
