"""Whatever differs between real ranks, or fails on one of them, ends all of them at once, with both values."""

from __future__ import annotations

from typing import Any

import pytest

from dataguard.run.run import Run
from tests.support.runs import deliver, make_run
from tests.torch.distributed.conftest import begin

PATIENCE = 45
"""Seconds that ranks would wait for each other: more than half of what a launch may take."""

ODD = 2

TOLD_AT_ONCE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # what all are told; what one rank is told instead; what all say
    "microbatch size": ({}, {"microbatch_size": 2}, ["rank 2 has microbatch size 2, rank 0 has 1"]),
    "policy": ({}, {"policy": "default"}, ["rank 2 has policy", "rank 0 has no policy"]),
    "version": ({}, {"version": "2"}, ['"version":"2"', '"version":null', "rank 2 has transform"]),
    "transform": ({}, {"transform": ["bytes", 9]}, ["rank 2 has transform"]),
    "launch": ({"launch_id": "job 1"}, {"launch_id": "job 2"}, ["rank 2 has launch id job 2, rank 0 has job 1"]),
    "launch of one": ({}, {"launch_id": "job 2"}, ["rank 2 has launch id job 2, rank 0 has group "]),
    "start": ({"from_step": 1}, {"from_step": 2}, ["rank 2 has start step 2, rank 0 has 1"]),
    "vocabulary": ({}, {"vocab_size": 5}, ["rank 2 has vocabulary size 5, rank 0 has no vocabulary size"]),
    "world size": ({}, {"world_size": 8}, ["world size 8, a group of 4"]),
    "rank": ({}, {"rank": 3}, ["rank=3, group rank 2"]),
    "settings": ({}, {"steps": 0}, ["steps 0 cannot be"]),
    "end": ({}, {"steps": 3}, ["rank 2 has steps 3, rank 0 has 2"]),
    "epoch": ({}, {"steps_per_epoch": 1}, ["rank 2 has steps per epoch 1, rank 0 has None"]),
    "workers": ({}, {"num_workers": -1}, ["num_workers -1 cannot be"]),
    "roots": ({}, {"roots": {"web": "/nowhere"}}, ["source 'web' is not where it is looked for", "/nowhere"]),
    "own run, other seed": ({}, {"run": "other"}, ["rank 2 has seed 8, rank 0 has 7", "rank 2 has run"]),
    "state": ({"state": 2}, {"state": 1}, ["of attempt 1, step 1", "of attempt 1, step 2"]),
}


@pytest.fixture(scope="module")
def answers(launcher, tmp_path_factory, corpus) -> dict[str, list[dict[str, Any]]]:
    """All differences in one launch of four ranks, each on a run of its own; by name, what each rank said."""
    folder = tmp_path_factory.mktemp("agreement")
    jobs = []
    for name, (common, odd, _) in TOLD_AT_ONCE.items():
        run = make_run(folder / name, corpus, lanes=4)
        states: dict[int, Any] = {}
        if "state" in common or "from_step" in common:
            deliver(run, microbatch_size=8, steps=3)
            states = {step: state_at(run, step) for step in (1, 2)}
        if odd.get("run") == "other":
            odd = {"run": str(make_run(folder / "other", corpus, lanes=4, seed=8).path)}
        words = [
            {key: states[value] if key == "state" else value for key, value in told.items()} for told in (common, odd)
        ]
        jobs.append(
            {
                "job": "walk",
                "run": str(run.path),
                "world_size": 4,
                "steps": 2,
                "seconds": PATIENCE,
                **words[0],
                "only": {str(ODD): words[1]},
            }
        )
    return dict(zip(TOLD_AT_ONCE, begin(launcher, folder, jobs, 4), strict=True))


def state_at(run: Run, step: int) -> dict[str, Any]:
    """As a trainer saved it behind a step of attempt 1."""
    head = run.head()
    return {
        "version": 1,
        "root_digest": run.plan.root.digest,
        "attempt": 1,
        "next_step": step,
        "journal_head": {"number": head.number, "sha256": head.sha256},
    }


@pytest.mark.parametrize("name", TOLD_AT_ONCE)
def test_a_difference_ends_all_ranks_at_once_with_both_values(answers, name) -> None:
    for rank, answer in enumerate(answers[name]):
        assert "error" in answer, f"rank {rank} went on"
        assert answer.get("slots", {}) == {}
        for words in TOLD_AT_ONCE[name][2]:
            assert words in answer["error"], (rank, answer["error"])
        if rank != ODD:
            assert answer["kind"] == "RanksDisagree", "and not RankMissing, which patience ends in"
            assert answer["again"]["kind"] in {"RanksDisagree", "RankMissing"}, "and it stays so"
    kinds = {"world size": "GeometryError", "rank": "UsageError", "settings": "UsageError", "roots": "InputError"}
    kinds["workers"] = "UsageError"  # before there is a loader
    assert answers[name][ODD]["kind"] == kinds.get(name, "RanksDisagree")


def test_who_dies_before_the_agreement_is_named_by_all_others(launch, run) -> None:
    words = {"job": "walk", "run": str(run.path), "world_size": 4, "steps": 1, "seconds": 1}
    jobs = [{**words, "only": {str(odd): {"absent": True} for odd in gone}} for gone in ((3,), (3,), (1, 3), (0, 1, 3))]
    answers = launch(jobs, 4)
    for told, gone in zip(answers, ((3,), (3,), (1, 3), (0, 1, 3)), strict=True):
        named = ", ".join(f"rank {odd}" for odd in (gone if 0 not in gone else (0,)))
        for rank, answer in enumerate(told):
            if rank in gone:
                continue
            assert answer["kind"] == "RankMissing"
            assert answer["error"].startswith(f"{named} did not come")
    assert not len(run.attempts())


def test_a_run_of_another_plan_on_one_rank(launch, run, manifest) -> None:
    """It is told at `Run.open`, before there is a loader; the others miss it."""
    plan = {"seed": 7, "global_batch": 8, "lanes": 4}
    words = {"job": "walk", "run": str(run.path), "manifest": str(manifest), "world_size": 2, "steps": 1, "seconds": 1}
    (answers,) = launch([{**words, "plan": plan, "only": {"1": {"plan": {**plan, "seed": 8}}}}], 2)
    assert answers[1]["kind"] == "AttemptError"
    assert "seed 7" in answers[1]["error"] or "8" in answers[1]["error"]
    assert answers[0]["kind"] == "RankMissing"
    assert answers[0]["error"].startswith("rank 1 did not come")


def test_what_fails_before_there_is_a_loader_ends_all_that_are_together(launch, run, manifest) -> None:
    plan = {"seed": 7, "global_batch": 8, "lanes": 4}
    words = {"job": "walk", "run": str(run.path), "manifest": str(manifest), "world_size": 2, "steps": 1, "plan": plan}
    words["together"] = True
    other_plan, other_world = {"1": {"plan": {**plan, "seed": 8}}}, {"1": {"world_size": 4}}
    answers = launch([{**words, "only": other_plan}, {**words, "only": other_world}, words], 2)
    for job, kind in enumerate(("AttemptError", "GeometryError")):
        assert answers[job][1]["kind"] == kind
        assert answers[job][0]["kind"] == "RanksDisagree"
        assert answers[job][0]["error"].startswith(f"rank 1 could not begin\n  found: {kind}: ")
    assert "seed 8" in answers[0][0]["error"]
    assert [answer["attempt"] for answer in answers[2]] == [1, 1], "what failed once is not heard by the next launch"


def test_places_of_all_ranks_stand_in_the_attempt(launch, run) -> None:
    (answers,) = launch([{"job": "walk", "run": str(run.path), "world_size": 2, "microbatch_size": 4, "steps": 1}], 2)
    assert [answer["attempt"] for answer in answers] == [1, 1]
    places = run.begun(1).ranks
    assert [place.rank for place in places] == [0, 1]
    assert [place.device for place in places] == ["cpu", "cpu"]
    assert len({place.process for place in places}) == 2
    assert run.begun(1).launch_id.startswith("group ")
