"""What is read of long runs: stretches alone, and of them everything that counts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.run.telemetry_reading import telemetry_of_lineage
from dataguard.triage.localise import history, logged
from dataguard.triage.localise.history import MOST_BEFORE, stretches_before
from dataguard.triage.localise.logged import by_rank, logged_values, losses_of_samples
from dataguard.triage.localise.searched import MOST_SEARCHED, MOST_TESTED, searched_steps
from tests.run.small import begin, make_run

NAMES = ["loss", "lr", "local_grad_norm/a", "local_grad_norm/b", "grad_norm"]


def long_run(path: Path, num_steps: int = 3000):
    run = make_run(path)
    begin(run)
    with open_telemetry(run, 1, 0, fenced=False) as writer:
        for step in range(num_steps):
            writer.append(telemetry_records(step, NAMES, [step, 0.1, 3.0, 4.0, 9.0], time_ns=1))
            writer.append(telemetry_records(step, "loss", [step + 0.5], time_ns=1, slots=[step % 8]))
            if step % 100 == 7:  # what was logged again counts
                writer.append(telemetry_records(step - 2, "loss", [-1.0], time_ns=2))
    return run


@pytest.mark.parametrize("few", [1 << 16, 16])
def test_stretches_of_telemetry_are_what_reading_everything_gives(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "_FEW_FRAMES", few)
    run = long_run(tmp_path / "run")
    spans = [(0, 3), (100, 110), (1500, 1507), (2995, 4000)]
    notes: list[str] = []
    rows = logged_values(run, run.attempts().lineage(1), spans, notes)
    everything = telemetry_of_lineage(run, names=["loss", "local_grad_norm/a", "local_grad_norm/b"])
    inside = np.zeros(len(everything), bool)
    for low, high in spans:
        inside |= (everything["step"] >= low) & (everything["step"] < high)
    newest = {
        (step, name, slot): value
        for step, name, slot, value in everything[inside][["step", "name", "slot", "value"]].tolist()
    }
    assert {
        (step, name, slot): value for step, name, slot, value in rows[["step", "name", "slot", "value"]].tolist()
    } == newest
    assert len(rows) == len(newest)
    assert notes == []
    steps, ranks, table = by_rank(rows, "loss")
    assert ranks.tolist() == [0]
    assert table[steps == 105, 0].tolist() == [-1.0]
    assert by_rank(rows, "local_grad_norm")[2][:, 0].tolist() == [5.0] * len(steps)
    assert len(losses_of_samples(rows)) == len(steps)


def test_bisection_reads_a_part_of_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "_FEW_FRAMES", 16)
    run = long_run(tmp_path / "run")
    seen: list[int] = []
    true_read = logged.FramesReader.read
    monkeypatch.setattr(logged.FramesReader, "read", lambda self, a, b: (seen.append(b - a), true_read(self, a, b))[1])
    assert len(logged_values(run, run.attempts().lineage(1), [(1500, 1502)], [])) == 8
    assert sum(seen) < 1000  # of 9,000 frames


def test_damaged_frames_are_told_and_what_is_good_is_read(tmp_path: Path) -> None:
    run = long_run(tmp_path / "run", 200)
    path = run.layout.telemetry(1, 0)
    content = bytearray(path.read_bytes())
    content[4096 + 50] ^= 1  # in the first frame
    path.write_bytes(bytes(content))
    notes: list[str] = []
    rows = logged_values(run, run.attempts().lineage(1), [(0, 200)], notes)
    assert len(notes) == 1
    assert "rank=00000.frames" in notes[0]
    assert 190 < len(by_rank(rows, "loss")[0]) <= 200


def test_a_background_is_bounded_whatever_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for first, size in ((10, 8), (7_500, 8), (100_000, 8), (100_000, 4096), (100_000, 100_000)):
        spans = stretches_before(first, size, seed=3)
        steps = sum(stop - start for start, stop in spans)
        assert spans[-1][1] == first
        assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))
        assert steps * size <= max(MOST_BEFORE, 16 * size)
        assert steps == first or len(spans) > 4
    assert stretches_before(0, 8, seed=3) == []
    assert stretches_before(100_000, 8, seed=3) != stretches_before(100_000, 8, seed=4)
    assert history.FAR_STRETCHES == 8


def event(start: int, stop: int, peak: int, onset: int | None = None) -> SpikeEvent:
    return SpikeEvent(
        event_class=EventClass.TRANSIENT_SPIKE, start=start, stop=stop, peak=peak, size_nats=1, sigmas=9, onset=onset
    )


@pytest.mark.parametrize(
    ("asked", "steps", "tested"),
    [
        (event(30, 31, 30), (29, 31), (29, 30)),
        (event(30, 50, 33, onset=28), (27, 50), (27, 28, 29, 30, 33)),
        (event(1, 4, 2), (1, 4), (1, 2)),
        (event(5000, 9000, 7000, onset=3000), (4994, 5058), (4994, 4995, 4996, 4997, 4998, 4999, 5000)),
        (event(100, 101, 100, onset=90), (89, 101), (94, 95, 96, 97, 98, 99, 100)),
    ],
)
def test_the_cause_is_looked_for_from_before_the_onset(
    asked: SpikeEvent, steps: tuple[int, int], tested: tuple[int, ...]
) -> None:
    found = searched_steps(asked, first_label=1)
    assert (found.steps, found.tested) == (steps, tested)
    assert found.steps[1] - found.steps[0] <= MOST_SEARCHED
    assert len(found.tested) <= MOST_TESTED
