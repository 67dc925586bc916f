"""Responses: by verdict, over skips, forks, labels and modes; the range is the event's own, not the checkpoint's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from dataguard.core.trainer import CheckpointFacts, OptimizerFacts, PrecisionFacts, ScheduleFacts, TrainerFacts
from dataguard.errors import NotInRun
from dataguard.run.amend import quarantine, release, revoke, skip
from dataguard.run.begin import begin_attempt
from dataguard.run.events import CheckpointSaved, Proposed, RankPlace, TrainerDescribed
from dataguard.run.run import Run
from dataguard.triage.respond import Response, Sign, Suspect, plan_response
from tests.run.small import begin, make_run, request
from tests.triage.respond.spikes import drift, spike


def saved(run: Run, *next_steps: int, attempt: int = 1) -> None:
    for step in next_steps:
        run.journal.append(CheckpointSaved(attempt=attempt, next_step=step, path=f"s3://b/{attempt}/{step}"))


def blamed(run: Run, start: int, stop: int | None = None, **asked: object) -> Response:
    """The response to a spike that data did together with the state."""
    return plan_response(run, spike(start, stop), **{"verdict": Verdict.DATA_AND_STATE, **asked})  # type: ignore[arg-type]


def positions_of(run: Run, attempt: int, label: int) -> set[int]:
    return set(run.steps_of(attempt).batch(run.step(label)).positions.tolist())


# -- the range


@pytest.mark.parametrize("first_label", [0, 1])
@pytest.mark.parametrize("mode", ["jump", "hole"])
def test_the_range_covers_the_event_where_the_relative_rule_ends_before_it(
    tmp_path: Path, first_label: int, mode: str
) -> None:
    """Rewind 200, skip 200: with the checkpoint 200 steps before the batch, the skip ends exactly where it begins."""
    run = make_run(tmp_path, first_label=first_label, skip_mode=mode)
    begin(run)
    bad = 400 + first_label
    the_batch = positions_of(run, 1, bad)
    saved(run, 100, 200, 300, 395)
    response = blamed(run, bad)
    assert response.skip is not None
    assert response.resume is not None
    relative = skip(run, bad - 200, bad, reason="rewind 200, skip 200", dry_run=True).positions
    assert relative is not None
    assert not the_batch & set(range(*relative))
    assert the_batch <= set(range(*response.skip.positions))
    # and with it ten steps of lead, which the checkpoint that is resumed from has not seen
    assert response.skip.steps == (bad - 10, bad + 1)
    assert response.skip.positions == (390 * 8, 401 * 8)
    assert response.resume.next_step == 300 + first_label
    assert (response.skip.num_samples, response.skip.num_samples_new) == (88, 88)
    assert response.skip.share_of_pass == 88 / 200


@pytest.mark.parametrize("first_label", [0, 1])
def test_what_was_planned_is_what_the_next_attempt_is_not_trained_on(tmp_path: Path, first_label: int) -> None:
    run = make_run(tmp_path, first_label=first_label)
    begin(run)
    saved(run, 30)
    response = blamed(run, 50, 53, lead=4)
    assert response.skip is not None
    assert response.skip.steps == (46, 53)
    lost = set().union(*(positions_of(run, 1, step) for step in range(46, 53)))
    skip(run, *response.skip.steps, reason="x", attempt=response.attempt)
    begin(run, fork_step=30)
    after = set().union(*(positions_of(run, 2, step) for step in range(30 + first_label, 60)))
    assert not lost & after
    assert lost == set(range(*response.skip.positions))


def test_the_lead_is_what_a_first_moment_remembers_and_begins_at_the_onset(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    facts = TrainerFacts(optimizer=OptimizerFacts(beta1=0.8))
    response = plan_response(run, spike(50, onset=47), verdict=Verdict.BAD_DATA, facts=facts)
    assert response.skip is not None
    assert response.skip.steps == (42, 51)
    assert response.skip.lead_steps == 5
    assert "beta1 = 0.8" in response.skip.lead_reason
    plain = plan_response(run, spike(50), verdict=Verdict.BAD_DATA)
    assert plain.skip is not None
    assert plain.skip.lead_reason.startswith("beta1 is not known")


@pytest.mark.parametrize("first_label", [0, 1])
def test_an_event_at_the_very_beginning_has_less_of_a_lead_and_no_checkpoint(tmp_path: Path, first_label: int) -> None:
    run = make_run(tmp_path, first_label=first_label)
    begin(run)
    saved(run, 50)
    response = blamed(run, 3 + first_label)
    assert response.skip is not None
    assert response.resume is not None
    assert response.skip.steps == (first_label, 4 + first_label)
    assert response.skip.lead_steps == 3
    assert "the run begins 3 before the onset" in response.skip.lead_reason
    assert (response.resume.kind, response.resume.next_step, response.resume.num_steps_again) == (
        "beginning",
        first_label,
        3,
    )
    with pytest.raises(NotInRun):
        blamed(run, first_label - 1)


def test_an_event_that_goes_on_is_covered_as_far_as_it_was_logged(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    response = plan_response(run, spike(50, 90, is_open=True), verdict=Verdict.BAD_DATA)
    assert response.skip is not None
    assert response.skip.steps[1] == 90
    assert any("goes on where the log ends" in note for note in response.notes)


def test_earlier_skips_in_the_range_are_counted_once(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 48, 50, reason="a")
    response = blamed(run, 50, lead=4)
    assert response.skip is not None
    assert (response.skip.num_samples, response.skip.num_samples_new) == (40, 24)
    assert "16 of 40 positions are skipped already" in response.notes
    # In a lineage that began with that skip, the same labels mean later batches.
    begin(run, fork_step=30)
    later = blamed(run, 50, lead=4)
    assert later.skip is not None
    assert later.skip.steps == (46, 51)
    assert later.skip.positions == (46 * 8, 53 * 8)
    assert later.skip.num_samples_new == 40
    first = blamed(run, 50, lead=4, attempt=1)
    assert first.skip is not None
    assert first.skip.positions == (46 * 8, 51 * 8)
    assert first.commands[0].argv[-2:] == ("--attempt", "1")


def test_a_range_that_is_skipped_whole_asks_for_no_command(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    event = skip(run, 40, 60, reason="a").event
    response = blamed(run, 50)
    assert response.skip is not None
    assert response.skip.by_event == (event,)
    assert [command.argv[1] for command in response.commands] == ["verify"]


def test_a_plan_without_attempts_is_answered_in_its_own_steps(tmp_path: Path) -> None:
    response = blamed(make_run(tmp_path), 50)
    assert response.attempt is None
    assert response.skip is not None
    assert response.skip.positions == (40 * 8, 51 * 8)


# -- the checkpoint


def test_the_newest_checkpoint_that_has_seen_none_of_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    saved(run, 20, 40, 41, 60)
    facts = TrainerFacts(checkpoints=CheckpointFacts(seconds_per_step=36.0, num_nodes=100))
    response = blamed(run, 50, facts=facts)
    assert response.resume is not None
    assert (response.resume.kind, response.resume.next_step, response.resume.path) == ("checkpoint", 40, "s3://b/1/40")
    assert response.resume.num_steps_again == 10
    assert response.resume.node_hours == pytest.approx(10.0)
    assert response.retention is not None
    assert "at 19 steps apart keep at least 12" in response.retention  # by what was noted
    assert blamed(run, 50, verdict=Verdict.NO_INCIDENT).retention is None


def test_checkpoints_that_do_not_count(tmp_path: Path) -> None:
    """Pruned, gone from this disk, saved on an abandoned stretch."""
    run = make_run(tmp_path)
    begin(run)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "20").touch()
    for step in (20, 25, 30):
        run.journal.append(CheckpointSaved(attempt=1, next_step=step, path=str(tmp_path / "ckpt" / str(step))))
    begin(run, fork_step=30)
    saved(run, 33, attempt=1)  # behind the fork: what attempt 2 did not go through
    response = blamed(run, 50)
    assert response.resume is not None
    assert response.resume.next_step == 20
    assert any("of other attempts" in note for note in response.notes)
    assert any("gone from this machine" in note for note in response.notes)
    kept = TrainerFacts(checkpoints=CheckpointFacts(num_kept=3))
    pruned = blamed(run, 50, facts=kept)
    assert pruned.resume is not None
    assert pruned.resume.kind == "beginning"
    assert any("1 older ones of the journal do not count" in note for note in pruned.notes)


def test_a_checkpoint_inside_the_lead_is_taken_where_there_is_no_other_and_said_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    saved(run, 45, 60)
    facts = TrainerFacts(checkpoints=CheckpointFacts(every_steps=15, num_kept=2))
    response = blamed(run, 50, facts=facts)
    assert response.resume is not None
    assert (response.resume.kind, response.resume.next_step) == ("inside_lead", 45)
    assert "stays in it" in response.resume.text
    assert response.retention is not None
    assert "keep at least 15 checkpoints" in response.retention


def test_where_none_is_known_that_is_said_and_what_it_costs(tmp_path: Path) -> None:
    run = make_run(tmp_path, first_label=1)
    begin(run)
    response = blamed(run, 51)
    assert response.resume is not None
    assert (response.resume.kind, response.resume.next_step, response.resume.node_hours) == ("none", None, None)
    assert "take the newest from before step 41" in response.resume.text
    assert "50 steps once more" in response.resume.text
    given = blamed(run, 51, checkpoints=[(10, "/mnt/a"), (39, "/mnt/b"), (41, "/mnt/c")])
    assert given.resume is not None
    assert (given.resume.next_step, given.resume.path) == (40, "/mnt/b")


# -- by verdict


def test_bad_data_is_rewound_skipped_and_quarantined(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    saved(run, 30)
    shards = [
        Suspect(shard="web/a.jsonl", reason="base64", evidence="z 9.1"),
        Suspect(shard="web/a.jsonl", row=3, reason="x"),
    ]
    response = blamed(run, 50, verdict=Verdict.BAD_DATA, shards=shards)
    assert [command.argv[1] for command in response.commands] == ["skip", "quarantine", "verify"]
    assert [command.applies for command in response.commands] == [True, True, False]
    (only,) = response.quarantines  # the row stands in the shard already
    assert (only.shard, only.row, only.origin) == ("web/a.jsonl", None, "event")
    with pytest.raises(NotInRun, match="nosuch"):
        blamed(run, 50, verdict=Verdict.BAD_DATA, shards=[Suspect(shard="web/nosuch", reason="x")])


def test_a_hard_batch_is_not_rewound_and_its_bad_samples_are_quarantined(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    saved(run, 30)
    event = spike(50, event_class=EventClass.HARD_BATCH)
    nothing = plan_response(run, event, verdict=Verdict.HARD_BATCH)
    assert nothing.nothing
    assert (nothing.resume, nothing.skip, nothing.commands, nothing.exports) == (None, None, (), None)
    scored = plan_response(
        run, event, verdict=Verdict.HARD_BATCH, shards=[Suspect(shard="web/a.jsonl", row=7, reason="dup lines 0.9")]
    )
    assert not scored.nothing
    assert (scored.resume, scored.skip) == (None, None)
    assert scored.commands[0].argv == (
        *("dataguard", "quarantine", str(run.path), "web/a.jsonl:7", "--reason", "dup lines 0.9"),
    )


@pytest.mark.parametrize("verdict", [Verdict.PLANNED_CHANGE, Verdict.NO_INCIDENT, Verdict.INCONCLUSIVE])
def test_nothing_is_done_where_nothing_is_wrong_but_what_is_proposed_is_shown(tmp_path: Path, verdict: Verdict) -> None:
    run = make_run(tmp_path)
    begin(run)
    event = None if verdict is Verdict.NO_INCIDENT else spike(50)
    before = plan_response(run, event, verdict=verdict, next_check="replay step 50")
    assert before.nothing
    assert before.next_check == ("replay step 50" if verdict is Verdict.INCONCLUSIVE else None)
    run.journal.append(Proposed(proposal="quarantine", attempt=1, shard="web/b.jsonl", reason="truncated"))
    few = Proposed(
        proposal="quarantine", attempt=1, shard="web/a.jsonl", rows=(2, 5), positions=(9, 11), reason="unreadable"
    )
    number = run.journal.append(few).number
    shown = plan_response(run, event, verdict=verdict)
    assert not shown.nothing
    assert [(each.shard, each.row, each.origin) for each in shown.quarantines] == [
        ("web/b.jsonl", None, "proposal"),
        ("web/a.jsonl", 2, "proposal"),
        ("web/a.jsonl", 5, "proposal"),
    ]
    assert shown.quarantines[1].evidence == f"proposal of event {number}"
    assert (shown.resume, shown.skip) == (None, None)
    # Done, or decided otherwise, it is shown no more.
    quarantine(run, "web/b.jsonl", reason="truncated")
    release(run, "web/b.jsonl", reason="restored")
    taken_back = quarantine(run, "web/a.jsonl:2", reason="x").event
    assert taken_back is not None
    revoke(run, taken_back)
    quarantine(run, "web/a.jsonl:5", reason="x")
    assert plan_response(run, event, verdict=verdict).quarantines == ()


def test_hardware_is_fenced_by_name_and_skips_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin_attempt(run, request(), ranks=[RankPlace(rank=0, host="node-7")])
    saved(run, 30)
    event = spike(50, rank=0)
    response = plan_response(run, event, verdict=Verdict.HARDWARE)
    assert response.fence == ("node-7",)
    assert response.skip is None
    assert response.resume is not None
    assert response.resume.next_step == 30
    assert not any(command.applies for command in response.commands)
    assert plan_response(run, event, verdict=Verdict.HARDWARE, hosts=["a", "b", "a"]).fence == ("a", "b")
    unknown = plan_response(run, spike(50), verdict=Verdict.HARDWARE)
    assert unknown.fence == ()
    assert any("which host to fence is not known" in note for note in unknown.notes)


def test_the_optimizer_is_answered_by_configuration_and_by_the_signs_that_were_found(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    none = blamed(run, 500, verdict=Verdict.OPTIMIZER_OR_NUMERICS)
    assert none.skip is None
    assert none.configuration == ()
    events = [spike(start) for start in (200, 350, 500)]
    response = blamed(
        run,
        500,
        verdict=Verdict.OPTIMIZER_OR_NUMERICS,
        events=[*events, drift("attention_logit_max/blocks.3", 100, 480)],
    )
    assert {change.what for change in response.configuration} == {"qk_norm", "peak_lr"}
    by_name = {change.what: change for change in response.configuration}
    assert "blocks.3" in by_name["qk_norm"].reason
    assert "3 spikes" in by_name["peak_lr"].reason
    facts = TrainerFacts(
        schedule=ScheduleFacts(peak_lr=1e-3, warmup_steps=20, total_steps=10_000),
        optimizer=OptimizerFacts(epsilon=1e-8),
        precision=PrecisionFacts(compute="float16", optimizer_state="bfloat16"),
    )
    run.journal.append(TrainerDescribed(attempt=1, facts=facts))
    early = plan_response(
        run,
        spike(25, event_class=EventClass.HARD_FAULT),
        verdict=Verdict.OPTIMIZER_OR_NUMERICS,
        signs={Sign.EPSILON_FLOOR: "12 % of blocks.0 below ten epsilon"},
    )
    told = {change.what: change for change in early.configuration}
    assert set(told) == {"warmup", "epsilon", "optimizer_state", "compute"}
    assert told["warmup"].to == "at least 100 steps, 1 % of 10,000"
    assert told["epsilon"].reason == "12 % of blocks.0 below ten epsilon"
    assert told["compute"].to.startswith("bfloat16")


def test_spikes_that_recur_under_climbing_logits_are_not_skipped(tmp_path: Path) -> None:
    """Row A10: N spikes within M steps and a rising logit -> configuration."""
    run = make_run(tmp_path)
    begin(run)
    climbing = drift("attention_logit_max/blocks.0", 100, 490)
    thick = [spike(start) for start in (200, 350, 500)]
    thin = [spike(start) for start in (200, 500)]
    instead = blamed(run, 500, events=[*thick, climbing])
    assert instead.skip is None
    assert {change.what for change in instead.configuration} == {"qk_norm", "peak_lr"}
    for events in ([*thin, climbing], thick, [climbing]):
        assert blamed(run, 500, events=events).skip is not None
    # A batch that does it from either checkpoint is bad whatever else is.
    both = blamed(run, 500, verdict=Verdict.BAD_DATA, events=[*thick, climbing])
    assert both.skip is not None
    assert both.configuration


# -- exports


@pytest.mark.parametrize("first_label", [0, 1])
def test_exports_are_batches_of_the_stream_whatever_the_trainer_calls_them(tmp_path: Path, first_label: int) -> None:
    run = make_run(tmp_path, first_label=first_label)
    begin(run)
    skip(run, 10 + first_label, 12 + first_label, reason="earlier")
    response = blamed(run, 50 + first_label, lead=1)
    assert response.exports is not None
    assert response.exports.batches == ((10, 12), (49, 51))
    assert response.exports.megatron_lm == "--iterations-to-skip 11 12 50 51"
    assert response.exports.bigscience == "--skip-train-iteration-range 11-12 50-51"
    assert response.exports.olmo_core.endswith("StepSkipRange(start=50, stop=52)]")
    assert np.diff(response.exports.batches).tolist() == [[2], [2]]


def test_a_skip_of_no_whole_batches_is_exported_by_those_that_hold_it_and_said(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 0, 1, reason="x", batches=True)
    begin(run, fork_step=0, global_batch=16)
    response = blamed(run, 5, lead=0)
    assert response.exports is not None
    assert response.exports.batches[-1] == (5, 7)
    assert any("no whole batches" in note for note in response.exports.notes)
