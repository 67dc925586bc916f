"""Responses in runs that are not like most: an order given from outside, hosts as ranks recorded them, no notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.core.evidence import Verdict
from dataguard.core.trainer import CheckpointFacts, TrainerFacts
from dataguard.plan.given import given_plan
from dataguard.run.places import this_host
from dataguard.run.run import Run
from dataguard.run.telemetry import telemetry_records
from dataguard.triage.respond import Suspect, apply_response, plan_response
from tests.run.recording import open_telemetry_writer
from tests.run.small import begin
from tests.run.small import make_run as make_small_run
from tests.support.corpora import make_corpus
from tests.support.runs import deliver, make_run
from tests.triage.respond.spikes import spike


@pytest.mark.parametrize("num_rows", [500, None])
def test_an_order_given_from_outside_is_left_to_whoever_gives_it(tmp_path: Path, num_rows: int | None) -> None:
    run = Run.create(tmp_path / "run", given_plan(num_rows=num_rows, global_batch=8, first_label=1))
    begin(run)
    shard = run.manifests[run.plan.document.mixtures[0].manifest].shard_name(0)
    suspects = [Suspect(shard=shard, row=7, reason="repeated")]
    response = plan_response(run, spike(51), verdict=Verdict.BAD_DATA, shards=suspects)
    assert response.skip is not None
    assert response.skip.positions == (40 * 8, 51 * 8)
    assert response.skip.share_of_pass == (None if num_rows is None else pytest.approx(88 / 500))
    assert [each.argv[1] for each in response.commands] == ["verify"]
    assert response.exports is not None
    assert response.exports.bigscience.endswith(" 41-51")
    assert any("given by the trainer's own loader" in note for note in response.notes)
    head = run.head()
    applied = apply_response(run, response)
    assert run.head() == head
    assert (applied.written, applied.done) == ((), ())
    assert applied.left[0] == "leave steps 41:52 out in the trainer's own loader"
    assert applied.left[1].startswith(f"leave {shard}:7 out")


def test_the_host_of_a_rank_is_the_one_that_it_recorded_in_the_attempt_of_the_event(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.jsonl": 96}}))
    deliver(run, steps=6)
    response = plan_response(run, spike(4, rank=0), verdict=Verdict.HARDWARE)
    assert response.fence == (this_host(),)
    assert plan_response(run, spike(4, rank=3), verdict=Verdict.HARDWARE).fence == ()


def test_retention_counts_the_delay_of_the_detector_at_the_rhythm_of_the_loss(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.jsonl": 96}}))
    deliver(run, steps=8)
    writer = open_telemetry_writer(run.path, attempt=1, run_id=run.run_id)
    writer.append(telemetry_records([0, 2, 4, 6], "loss", [2.0] * 4, time_ns=1))
    writer.close()
    facts = TrainerFacts(checkpoints=CheckpointFacts(every_steps=50, num_kept=5))
    response = plan_response(run, spike(6), verdict=Verdict.HARDWARE, facts=facts)
    assert response.retention is not None
    assert response.retention.startswith("keep 6 checkpoints at 50 steps apart")  # 200 + 17 x 2 = 234
    assert "34 until the default detector notices it" in response.retention


def test_where_no_checkpoint_is_noted_the_trainers_own_rhythm_says_which_to_look_for(tmp_path: Path) -> None:
    run = make_small_run(tmp_path)
    begin(run)
    facts = TrainerFacts(checkpoints=CheckpointFacts(every_steps=15))
    response = plan_response(run, spike(50), verdict=Verdict.OPTIMIZER_OR_NUMERICS, facts=facts)
    assert response.resume is not None
    assert response.resume.kind == "none"
    assert "every 15 steps: that after 30 steps would do" in response.resume.text
