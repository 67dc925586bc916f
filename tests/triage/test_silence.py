"""An attempt that says nothing any more, and the rank that stopped first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from dataguard.core.spikes import EventClass
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.run.telemetry_reading import telemetry_of_lineage
from dataguard.triage.silence import silence_of, unclosed_ranks
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders

SECOND = 10**9
BEGIN = 1_800_000_000


def trained(
    folder: Path, *, world_size: int, num_steps: int, samples_of: Mapping[int, int], pause: tuple[int, int] = (0, 0)
) -> Run:
    """A run that logged a step a second; `samples_of` says which ranks logged how many samples of the step after.

    `pause` is (step, seconds).
    """
    run = make_run(folder / "run", make_corpus(folder, {"web": {"a.parquet": 64}}), global_batch=2 * world_size)
    loaders = open_loaders(run, world_size=world_size, microbatch_size=2)
    for _ in range(num_steps + 1):
        for loader in loaders:
            loader.take_step()
    for rank in range(world_size):
        with open_telemetry(run, 1, rank) as writer:
            for step in range(num_steps):
                late = pause[1] if step > pause[0] else 0
                time_ns = (BEGIN + step + late) * SECOND
                writer.append(telemetry_records(step, ["loss"], np.array([2.0]), time_ns=time_ns))
            for slot in range(samples_of.get(rank, 0)):
                time_ns = (BEGIN + num_steps + pause[1]) * SECOND
                slots = range(slot, slot + 1)
                writer.append(telemetry_records(num_steps, ["loss"], np.array([2.0]), slots=slots, time_ns=time_ns))
    return run


def look(run: Run, after_seconds: float) -> object:
    rows = telemetry_of_lineage(run)
    return silence_of(run, 1, rows, now_seconds=float(rows["time"].max()) / SECOND + after_seconds)


def test_a_rank_that_logged_less_of_the_last_step_is_named(tmp_path: Path) -> None:
    run = trained(tmp_path, world_size=3, num_steps=20, samples_of={0: 2, 2: 2})
    assert unclosed_ranks(run.layout, 1) == (0, 1, 2)
    assert look(run, 5) is None
    silence = look(run, 60)
    assert silence is not None
    assert (silence.event.event_class, silence.event.rank) == (EventClass.STALL, 1)
    assert (silence.event.start, silence.event.is_open) == (19, True)
    assert silence.silent_seconds == pytest.approx(60)
    assert "rank 1 logged less" in silence.texts[1]


def test_of_ranks_that_all_began_the_last_step_the_one_with_fewer_samples_is_named(tmp_path: Path) -> None:
    silence = look(trained(tmp_path, world_size=3, num_steps=20, samples_of={0: 2, 1: 1, 2: 2}), 60)
    assert silence is not None
    assert silence.event.rank == 1


def test_ranks_that_came_equally_far_are_not_blamed(tmp_path: Path) -> None:
    silence = look(trained(tmp_path, world_size=2, num_steps=20, samples_of={0: 2, 1: 2}), 60)
    assert silence is not None
    assert silence.event.rank is None


def test_a_pause_that_the_run_has_made_before_is_none(tmp_path: Path) -> None:
    run = trained(tmp_path, world_size=1, num_steps=20, samples_of={}, pause=(7, 100))
    assert look(run, 150) is None
    assert look(run, 250) is not None


def test_a_run_that_was_closed_is_not_silent(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 64}}), global_batch=2)
    (loader,) = open_loaders(run, microbatch_size=2)
    loader.take_step()
    with open_telemetry(run, 1, 0) as writer:
        for step in range(20):
            loader.take_step()
            writer.append(telemetry_records(step, ["loss"], np.array([2.0]), time_ns=(BEGIN + step) * SECOND))
    assert look(run, 1e6) is not None
    loader.close()
    assert unclosed_ranks(run.layout, 1) == ()
    assert look(run, 1e6) is None
