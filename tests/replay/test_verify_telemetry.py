"""Damage in what the ranks logged is found by verify; a torn tail is told; where nobody logged, nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.replay.answers import VerifyCheck
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from dataguard.run.telemetry import telemetry_records
from tests.corpus.making import flip
from tests.run.recording import open_telemetry_writer


@pytest.fixture
def logged(copy) -> Run:
    run = copy().run
    for attempt, rank in ((1, 0), (1, 1), (3, 1)):
        # The story's attempts are over, so what they logged is put there as they would have: without a fence.
        with open_telemetry_writer(run.path, attempt=attempt, rank=rank, run_id=run.run_id) as writer:
            for step in range(30, 34):
                writer.append(telemetry_records(step, ["loss", "lr"], [step, 0.5], time_ns=1))
    return run


def check(run: Run) -> tuple[bool, VerifyCheck]:
    answer = verify_run(Lookup(Run.open(run.path)), data=False)
    (found,) = [each for each in answer.checks if each.name == "telemetry"]
    return answer.ok, found


def path_of(run: Run, attempt: int, rank: int) -> Path:
    return run.layout.telemetry(attempt, rank)


def test_every_value_of_every_attempt_is_looked_at(logged: Run) -> None:
    ok, found = check(logged)
    assert ok
    assert (found.checked, found.unit, found.faults, found.notes) == (3 * 8, "values", (), ())


@pytest.mark.parametrize(("attempt", "offset"), [(1, 4096 + 17), (3, 4096 + 400), (1, 100)])
def test_a_flip_is_found(logged: Run, attempt: int, offset: int) -> None:
    path = path_of(logged, attempt, 1)
    flip(path, offset)
    ok, found = check(logged)
    assert not ok
    (fault,) = found.faults
    assert fault.kind == "damaged"
    assert str(path) in fault.message


def test_a_torn_tail_is_told_and_is_no_failure(logged: Run) -> None:
    path = path_of(logged, 1, 0)
    path.write_bytes(path.read_bytes()[:-5])
    ok, found = check(logged)
    assert ok
    assert (found.checked, len(found.notes)) == (3 * 8 - 2, 1)
    assert found.notes[0].endswith("bytes dropped")


def test_the_file_of_another_run_is_no_part_of_this_one(logged: Run) -> None:
    content = path_of(logged, 1, 0).read_bytes()
    path_of(logged, 3, 0).write_bytes(content)
    ok, found = check(logged)
    assert not ok
    assert "another file in this one's place" in found.faults[0].message
