"""A run whose telemetry is damaged is answered from what is whole, the damage is named, and the end is 3."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dataguard.cli.triage import triage as command
from dataguard.core.evidence import Verdict
from dataguard.errors import RunDamaged
from dataguard.report.triage import render_triage
from dataguard.run.frames import FramesReader
from dataguard.run.run import Run
from dataguard.triage.curve import curve_of_run
from dataguard.triage.preflight import preflight
from dataguard.triage.triage import NOTHING_CHECKED, triage
from tests.triage.test_triage import SPIKE, logged


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logged(tmp_path_factory.mktemp("damaged"), SPIKE).path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(made, tmp_path / "copy"))


def damage(run: Run, *frames: int) -> str:
    """A bit of each of these frames of the only rank's telemetry is turned over."""
    path = run.layout.telemetry(1, 0)
    with FramesReader(path, "telemetry") as reader:
        places = [reader.offset(frame) + 50 for frame in frames]
    content = bytearray(path.read_bytes())
    for place in places:
        content[place] ^= 1
    path.write_bytes(bytes(content))
    return path.name


def test_the_event_is_found_in_what_is_whole_and_the_damage_is_named(run: Run) -> None:
    name = damage(run, 100)  # one of steps long before the spike
    with pytest.raises(RunDamaged):
        curve_of_run(run)
    done = CliRunner().invoke(command, [str(run.path), "--json"], standalone_mode=False)
    assert isinstance(done.exception, RunDamaged)
    assert done.exception.exit_code == 3
    answer = json.loads(done.stdout)
    assert answer["event"]["peak"] == 250
    assert answer["steps"]["logged"] < 300
    (told,) = answer["damage"]
    assert name in told
    assert answer["diagnosis"]["verdict"] == "inconclusive"
    assert any("damaged telemetry was left out" in note and name in note for note in preflight(run).notes)
    text = "\n".join(each for each in render_triage(triage(run, note=False)) if isinstance(each, str))
    assert f"damaged, and left out: {told}" in text


def test_an_incident_is_not_ruled_out_by_what_is_missing(run: Run) -> None:
    quiet = triage(run, step=100, note=False)
    assert (quiet.diagnosis.verdict, quiet.damage) == (Verdict.NO_INCIDENT, ())
    damage(run, 150)
    answer = triage(run, step=100, note=False)
    assert answer.event is None
    assert (answer.diagnosis.verdict, answer.diagnosis.rule) == (Verdict.INCONCLUSIVE, NOTHING_CHECKED)
    assert "what is missing may hold one" in answer.diagnosis.summary


def test_where_nothing_can_be_read_it_is_not_told_that_nothing_was_logged(run: Run) -> None:
    path = run.layout.telemetry(1, 0)
    content = bytearray(path.read_bytes())
    content[:4096] = b"\x00" * 4096
    path.write_bytes(bytes(content))
    answer = triage(run, note=False)
    assert answer.damage
    assert answer.steps is None
    assert answer.diagnosis.verdict is Verdict.INCONCLUSIVE
    assert "telemetry is damaged" in answer.diagnosis.summary
    assert not any("nothing was logged" in text for text in (*answer.notes, answer.diagnosis.summary))
