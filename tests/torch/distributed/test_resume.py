"""A resumed run is the unbroken one over real processes: the tensors handed over, and the record along the lineage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.support.gated import documents, rule
from tests.support.lineage import delivered
from tests.support.runs import make_run
from tests.torch.distributed.conftest import batches_of, begin


def clean(run: Run) -> None:
    """`verify` finds nothing missing, doubled or changed."""
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok, [fault for check in answer.checks for fault in check.faults]


def recorded(run: Run, stop: int) -> list[Any]:
    """Of the record along the newest lineage, all before a step."""
    return [sample for sample in delivered(run.path) if sample[0] < stop]


@pytest.fixture(scope="module")
def unbroken(launcher, tmp_path_factory, corpus) -> tuple[Run, dict[int, list[tuple[str, str]]]]:
    """Steps 0:20 in one process."""
    folder = tmp_path_factory.mktemp("unbroken")
    run = make_run(folder / "run", corpus, lanes=4)
    words = {"job": "walk", "run": str(run.path), "world_size": 1, "microbatch_size": 8, "steps": 20}
    (answers,) = begin(launcher, folder, [words], 1)
    batches = batches_of(answers)
    assert len(batches) == 20
    return run, batches


FOUR, TWO, ONE = [[0, 1, 2, 3]], [[0, 1]], [[3]]


def test_any_number_of_resumes_with_other_ranks_and_workers(launch, run, unbroken) -> None:
    """4 -> 2 -> 1 -> 4 -> 2 -> 4 ranks, 0 to 3 workers, past the end of an epoch; saved again right after loading."""
    words = {"job": "walk", "run": str(run.path), "world_size": 4, "microbatch_size": 1}
    jobs: list[dict[str, Any]] = [
        {**words, "dp": FOUR, "steps": 3},
        {**words, "dp": TWO, "world_size": 2, "num_workers": 2, "state": {"of": 0}, "steps": 2},
        {**words, "dp": FOUR, "job": "save", "state": {"of": 1}},
        {**words, "dp": ONE, "world_size": 1, "num_workers": 3, "microbatch_size": 4, "state": {"of": 2}, "steps": 7},
        {**words, "dp": TWO, "world_size": 2, "job": "save", "state": {"of": 3}},
        {**words, "dp": FOUR, "num_workers": 1, "microbatch_size": 2, "state": {"of": 4}, "steps": 4},
        {**words, "dp": TWO, "world_size": 2, "microbatch_size": 4, "state": {"of": 5}, "steps": 2},
        {**words, "dp": FOUR, "state": {"of": 6}, "steps": 2, "steps_per_epoch": 2},
    ]
    answers = launch(jobs, 4)
    whole, batches = unbroken
    joined: dict[int, Any] = {}
    stop = 0
    for number, (job, told) in enumerate(zip(jobs, answers, strict=True)):
        states = [answer["state"] for answer in told if "state" in answer]
        assert all(state == states[0] for state in states), "the same on all ranks"
        if job["job"] == "save":
            assert states[0] == answers[number - 1][0 if number != 4 else 3]["state"], "loading and saving is no change"
            continue
        assert {answer["state at first"]["next_step"] for answer in told if "state" in answer} == {stop}
        held = batches_of(told)
        assert sorted(held) == list(range(stop, stop + job["steps"]))
        stop += job["steps"]
        assert states[0]["next_step"] == stop
        joined |= held
    assert stop == 20
    assert joined == batches
    assert recorded(run, 20) == recorded(whole, 20)
    assert len(run.attempts()) == 6
    clean(run)


def test_a_step_that_one_rank_did_not_complete_starts_again(launch, run, unbroken) -> None:
    """Rank 0 had all of step 2, rank 1 one of its four microbatches: the state that holds for both says step 2."""
    words = {"job": "walk", "run": str(run.path), "world_size": 2, "microbatch_size": 1}
    jobs = [
        {**words, "meet": False, "steps": 5, "only": {"0": {"stop_after": 12}, "1": {"stop_after": 9}}},
        {**words, "state": {"of": 0, "process": 1}, "steps": 2},
    ]
    first, second = launch(jobs, 2)
    assert first[0]["state"]["next_step"] == 3
    assert first[1]["state"]["next_step"] == 2
    assert first[1]["next_steps"] == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    whole, batches = unbroken
    assert batches_of(second) == {step: batches[step] for step in (2, 3)}
    assert recorded(run, 4) == recorded(whole, 4)
    clean(run)


@pytest.mark.parametrize(("victim", "after", "num_workers"), [(1, 7, 0), (0, 6, 1)])
def test_a_rank_that_is_killed_in_a_step(launch, tmp_path, run, unbroken, victim, after, num_workers) -> None:
    """SIGKILL of one of two ranks, amid a step of two microbatches; on from the last checkpoint, on one rank."""
    checkpoint = tmp_path / "state.json"
    words = {"job": "walk", "run": str(run.path), "world_size": 2, "microbatch_size": 2, "num_workers": num_workers}
    killed = {**words, "steps": 6, "save_to": str(checkpoint), "only": {str(victim): {"die_after": after}}}
    launch([killed], 2, die=(victim,))
    state = json.loads(checkpoint.read_text())
    assert state["next_step"] == (after - 1) // 2
    again = {**words, "world_size": 1, "microbatch_size": 4, "state": state, "steps": 4}
    (answers,) = launch([again], 1)
    whole, batches = unbroken
    start = state["next_step"]
    assert batches_of(answers) == {step: batches[step] for step in range(start, start + 4)}
    assert recorded(run, start + 4) == recorded(whole, start + 4)
    clean(run)


def test_a_halt_stops_all_ranks_before_the_same_step(launch, tmp_path, corpus) -> None:
    gated = documents(tmp_path, bad=lambda shard, row: (shard, row) == (1, 30), num_rows=40)
    policy = tmp_path / "halt.toml"
    policy.write_text(rule("halt"))
    run = make_run(tmp_path / "run", gated, lanes=4)
    words = {"job": "walk", "run": str(run.path), "world_size": 4, "microbatch_size": 1, "policy": str(policy)}
    (answers,) = launch([{**words, "epochs": 1}], 4)
    assert [answer["kind"] for answer in answers] == ["AnswerNo"] * 4
    first = answers[0]["error"].splitlines()[0]
    assert "the gate says halt" in first
    assert {answer["error"].splitlines()[0] for answer in answers} == {first}
    steps = [sorted(map(int, answer["slots"])) for answer in answers]
    assert steps == [steps[0]] * 4
    stop = steps[0][-1] + 1
    assert f"stops before step {stop}" in first
    assert {answer["again"]["kind"] for answer in answers} == {"AnswerNo"}
    assert {len(slots) for answer in answers for slots in answer["slots"].values()} == {2}, "no step was begun in vain"
    clean(run)
