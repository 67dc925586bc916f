"""What does the page of a long run take, from the run directory to the file, triage included?

    pytest tests/bench/bench_report.py --benchmark-enable [-m "long or not long"]

The run is recorded by the real writers (tests/support/long_runs.py): four events, losses of all samples, the default
policy. Told is the processor time of one page, which on a quiet machine is what the clock shows.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from dataguard.report.run.gathering import gather_run
from dataguard.report.run.page import page_of_run
from dataguard.run.run import Run
from tests.bench.conftest import Claims
from tests.support.long_runs import made_corpus, recorded_run

MOST_BYTES = 8_000_000


def excess(steps: int) -> dict[int, float]:
    """Four spikes, each higher than the one before."""
    begins = {int(steps * share): height for share, height in ((0.3, 1.0), (0.6, 1.5), (0.8, 2.0), (0.9, 2.5))}
    return {begin + k: height * 0.7**k for begin, height in begins.items() for k in range(10)}


def page_of(path: Path) -> tuple[float, int]:
    """Processor seconds and bytes of one page."""
    began = time.process_time()
    content = page_of_run(gather_run(Run.open(path)).facts)
    return time.process_time() - began, len(content)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "frames"])
def test_a_page_of_a_long_run(tmp_path: Path, sealed: bool, measured: bool, claims: Claims) -> None:
    steps, ranks, size = (10_000, 8, 8) if measured else (60, 2, 4)
    corpus = made_corpus(tmp_path / "in", num_rows=4_000 if measured else 200)
    run = recorded_run(
        tmp_path / "run", corpus, num_ranks=ranks, steps=steps, size=size, excess=excess(steps), seal=sealed
    )
    seconds, num_bytes = page_of(run.path)
    what = f"page of {steps:,} steps on {ranks} ranks, {'sealed' if sealed else 'frames'}"
    claims(what, seconds, "s", target=20)
    claims(f"{what}: size", num_bytes / 1e6, "MB", target=8)
    claims(f"{what}: memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")
    assert num_bytes < MOST_BYTES


@pytest.mark.long
def test_a_page_of_very_many_ranks(tmp_path: Path, measured: bool, claims: Claims) -> None:
    steps, ranks = (1_000, 512) if measured else (40, 66)
    corpus = made_corpus(tmp_path / "in", num_rows=1_000 if measured else 100)
    run = recorded_run(
        tmp_path / "run", corpus, num_ranks=ranks, steps=steps, size=2, excess=excess(steps), sample_losses=False
    )
    seconds, num_bytes = page_of(run.path)
    claims(f"page of {steps:,} steps on {ranks} ranks, sealed rank by rank", seconds, "s")
    claims(f"page of {steps:,} steps on {ranks} ranks: size", num_bytes / 1e6, "MB", target=8)
    assert num_bytes < MOST_BYTES
