"""What helped after an event is told by the attempt that began again before it, where one thing was done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.core.evidence import Mitigation
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import MonitoringFacts, OptimizerFacts, TrainerFacts
from dataguard.loader import walking
from dataguard.run import amend
from dataguard.run.noting import note_facts
from dataguard.run.places import this_host
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.triage.mitigation import mitigation_of
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders, state_after

EVENT = SpikeEvent(event_class=EventClass.TRANSIENT_SPIKE, start=60, stop=66, peak=60, size_nats=2.0, sigmas=20.0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Attempt 1 spikes at step 60; nothing is logged after step 70."""
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 500}}, group=50), global_batch=2)
    state_after(run, microbatch_size=2, steps=70)
    log(run, 1, range(70), spike=True)
    return run


def log(run: Run, attempt: int, steps: range, *, spike: bool) -> None:
    noise = np.random.default_rng(3).normal(0, 0.01, 1000)
    with open_telemetry(run, attempt, 0) as writer:
        for step in steps:
            excess = 2.0 if spike and 60 <= step < 66 else 0.0
            writer.append(telemetry_records(step, ["loss"], [3.0 + noise[step] + excess], time_ns=step + 1))


def again(run: Run, *, stop: int, spike: bool) -> None:
    """Attempt 2 begins anew."""
    (loader,) = open_loaders(run, microbatch_size=2, from_step=0)
    loader.take_step()
    log(run, 2, range(stop), spike=spike)


def of(run: Run) -> Mitigation:
    return mitigation_of(run, run.read(), 1, EVENT)[0]


def test_a_skip_that_got_past_it_helped(run: Run) -> None:
    assert of(run) is Mitigation.NOT_TRIED
    amend.skip(run, 58, 66, reason="spike")
    again(run, stop=120, spike=False)
    assert of(run) is Mitigation.SKIP


def test_a_detector_that_was_put_on_is_not_what_helped(run: Run) -> None:
    amend.skip(run, 58, 66, reason="spike")
    again(run, stop=120, spike=False)
    note_facts(run, TrainerFacts(monitoring=MonitoringFacts(spike_detector=True)), attempt=2)
    assert of(run) is Mitigation.SKIP


def test_a_curve_with_holes_got_past_nothing(run: Run) -> None:
    amend.skip(run, 58, 66, reason="spike")
    again(run, stop=120, spike=False)
    path = run.layout.telemetry(2, 0)
    content = bytearray(path.read_bytes())
    content[4096 + 50] ^= 1
    path.write_bytes(bytes(content))
    helped, (text,) = mitigation_of(run, run.read(), 1, EVENT)
    assert helped is Mitigation.NOT_TRIED
    assert "damaged" in text


def test_another_configuration_that_got_past_it_helped(run: Run) -> None:
    (loader,) = open_loaders(run, microbatch_size=2, from_step=0)
    loader.take_step()
    note_facts(run, TrainerFacts(optimizer=OptimizerFacts(epsilon=1e-6)), attempt=2)
    log(run, 2, range(120), spike=False)
    assert of(run) is Mitigation.CONFIGURATION


def test_other_machines_that_got_past_it_helped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "this_host", lambda: "node-9")
    again(run, stop=120, spike=False)
    helped, (text,) = mitigation_of(run, run.read(), 1, EVENT)
    assert helped is Mitigation.HOST
    assert text.endswith(f": without {this_host()}")


def test_the_same_once_more_that_got_past_it_tells_nothing(run: Run) -> None:
    again(run, stop=120, spike=False)
    assert of(run) is Mitigation.NOT_TRIED


def test_what_came_again_or_did_not_get_there_or_was_two_things_tells_nothing(run: Run) -> None:
    amend.skip(run, 58, 66, reason="spike")
    again(run, stop=120, spike=True)
    assert of(run) is Mitigation.NOT_TRIED


def test_too_short_a_retry_tells_nothing(run: Run) -> None:
    amend.skip(run, 58, 66, reason="spike")
    again(run, stop=68, spike=False)
    assert of(run) is Mitigation.NOT_TRIED


def test_two_things_at_once_tell_nothing(run: Run) -> None:
    amend.skip(run, 58, 66, reason="spike")
    (loader,) = open_loaders(run, microbatch_size=2, from_step=0)
    loader.take_step()
    note_facts(run, TrainerFacts(optimizer=OptimizerFacts(epsilon=1e-6)), attempt=2)
    log(run, 2, range(120), spike=False)
    assert of(run) is Mitigation.NOT_TRIED
