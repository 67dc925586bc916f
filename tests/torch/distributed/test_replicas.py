"""Processes that share a copy of the model hold the same microbatch, or none; one of them reads and records."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.index import Index
from dataguard.run.run import Run
from tests.support.gated import documents, rule
from tests.support.runs import make_run
from tests.torch.distributed.conftest import batches_of, begin

DP = [[0, 2], [1, 3]]
REPLICAS = [[0, 1], [2, 3]]
"""Two ranks of two processes: 0 and 2 read and record."""

FIRST = (0, 2)
MODES = ("receive", "compare")


def shared(run: Run, **words: Any) -> dict[str, Any]:
    """A walk of two replicas."""
    told = {"job": "walk", "run": str(run.path), "world_size": 2, "microbatch_size": 2, "dp": DP, "replica": REPLICAS}
    return {**told, "steps": 4, "seconds": 30, **words}


@pytest.fixture(scope="module")
def walks(launcher, tmp_path_factory, corpus) -> dict[str, Any]:
    """All walks that come to their end, in one launch: by name, the run and what each process said."""
    folder = tmp_path_factory.mktemp("replicas")
    runs = {name: make_run(folder / name, corpus, lanes=4) for name in ("plain", *MODES, "one", "again")}
    again, last = str(runs["again"].path), {"world_size": 1, "steps": 1}
    jobs = {
        "plain": {"job": "walk", "run": str(runs["plain"].path), "world_size": 4, "microbatch_size": 2, "steps": 4},
        "receive": shared(runs["receive"], mode="receive", num_workers=1),
        "compare": shared(runs["compare"], mode="compare", num_workers=1),
        # One replica of all four, and no data-parallel group.
        "one": shared(runs["one"], world_size=1, replica=[[0, 1, 2, 3]], microbatch_size=4, mode="compare", epochs=1),
        "again": shared(runs["again"], steps=2),
        "again 2": shared(
            runs["again"], mode="compare", world_size=1, replica=[[2, 3]], dp=[[2], [3]], state={"of": 4}, steps=1
        ),
        "again 3": {"job": "walk", "run": again, "microbatch_size": 2, **last, "world_size": 4, "state": {"of": 5}},
    }
    del jobs["one"]["dp"], jobs["one"]["steps"]
    return {"runs": runs, **dict(zip(jobs, begin(launcher, folder, list(jobs.values()), 4), strict=True))}


@pytest.mark.parametrize("mode", MODES)
def test_all_processes_of_a_replica_are_handed_the_same(walks, mode) -> None:
    told = walks[mode]
    for first in FIRST:
        peer = told[first + 1]
        for what in ("slots", "digests", "loss_tokens", "next_steps", "state", "attempt", "rank", "length"):
            assert peer[what] == told[first][what], what
        assert (peer["bytes_read"] > 0) == (mode == "compare"), "a peer that receives reads nothing"
        assert told[first]["rank"] == first // 2
        assert (told[first]["records"], peer["records"]) == (True, False)
    assert batches_of([told[first] for first in FIRST]) == batches_of(walks["plain"])
    assert {str(answer["state"]) for answer in told} == {str(told[0]["state"])}


@pytest.mark.parametrize("mode", MODES)
def test_only_the_first_records(walks, mode) -> None:
    run = walks["runs"][mode]
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok
    assert [check.checked for check in answer.checks if check.name == "exactly once"] == [32]
    assert [place.rank for place in run.begun(1).ranks] == [0, 1]


def test_one_replica_needs_no_data_parallel_group(walks) -> None:
    told = walks["one"]
    assert {str(answer["slots"]) for answer in told} == {str(told[0]["slots"])}
    whole, plain = batches_of(told[:1]), batches_of(walks["plain"])
    assert {step: whole[step] for step in plain} == plain
    texts = [text for batch in whole.values() for text, _ in batch if text]
    assert len(texts) == len(set(texts)) == 96, "to the end of the epoch, and all of them saw that end"


def test_a_state_of_replicas_goes_on_anywhere(walks) -> None:
    plain = batches_of(walks["plain"])
    assert batches_of([walks["again"][first] for first in FIRST]) == {step: plain[step] for step in (0, 1)}
    assert batches_of(walks["again 2"][2:3]) == {2: plain[2]}
    assert walks["again 2"][2]["slots"] == walks["again 2"][3]["slots"]
    assert batches_of(walks["again 3"]) == {3: plain[3]}
    assert verify_run(Lookup(Run.open(walks["runs"]["again"].path))).ok


# -- what goes wrong

FAULTS: dict[str, dict[str, Any]] = {
    "peer told otherwise": {"only": {"3": {"version": "2"}}},
    "first told otherwise": {"only": {"2": {"version": "2"}}},
    "peer of another launch": {"only": {"1": {"launch_id": "x"}}},
    "peer of another size": {"only": {"1": {"microbatch_size": 4}}},
    "peer of another world": {"only": {"3": {"world_size": 4}}},
    "first is odd, received": {"mode": "receive", "only": {"2": {"odd": {"from": 20, "how": "fails"}}}},
    "peer fails, compared": {"mode": "compare", "only": {"3": {"odd": {"from": 20, "how": "fails"}}}},
    "first fails, compared": {"mode": "compare", "only": {"2": {"odd": {"from": 20, "how": "fails"}}}},
    "peer differs, compared": {"mode": "compare", "only": {"3": {"odd": {"from": 20, "how": "differs"}}}},
    "groups that cross": {"replica": [[0, 3], [1, 2]]},
}


@pytest.fixture(scope="module")
def faults(launcher, tmp_path_factory, corpus) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("faults")
    runs = {name: make_run(folder / name, corpus, lanes=4) for name in FAULTS}
    # Without meeting, since one replica goes on where the other has ended.
    jobs = [shared(runs[name], transform=["odd"], meet=False, **words) for name, words in FAULTS.items()]
    return {"runs": runs, **dict(zip(FAULTS, begin(launcher, folder, jobs, 4), strict=True))}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "peer told otherwise",
            ["process 1 of the replica of rank 1 has transform", '"version":"2"', '"version":null'],
        ),
        ("first told otherwise", ["rank 1 has transform", "rank 0 has", '"version":"2"', '"version":null']),
        (
            "peer of another launch",
            ["process 1 of the replica of rank 0 has launch id x", "rank 0 has group "],
        ),
        ("peer of another size", ["process 1 of the replica of rank 0 has microbatch size 4, rank 0 has 2"]),
        ("peer of another world", ["world size 4, a group of 2"]),
        ("groups that cross", ["ranks 0, 1 in their data_parallel_group"]),
    ],
)
def test_a_process_that_was_told_otherwise_ends_all_before_anything_is_written(faults, name, words) -> None:
    for answer in faults[name]:
        assert "error" in answer
        assert [word for word in words if word not in answer["error"]] == [], answer["error"]
    assert faults["runs"][name].head().number == 1


@pytest.mark.parametrize("name", ["first is odd, received", "first fails, compared", "peer fails, compared"])
def test_a_failure_in_one_process_ends_its_replica_in_the_same_words(faults, name) -> None:
    told = faults[name]
    for answer in told[2:]:
        assert answer["kind"] == "TransformFailed"
        assert "no tokens for" in answer["error"]
        assert "step 2, rank 1, microbatch" in answer["error"]
        assert "kind" in answer["again"]
    assert told[2]["slots"] == told[3]["slots"]
    assert [len(told[2]["digests"]), len(told[0]["digests"])] == [4, 8], "the other replica had nothing to fail of"
    clean_up_to(faults["runs"][name], told[2]["digests"])


def test_a_difference_ends_its_replica_with_both_digests_and_the_address(faults) -> None:
    told = faults["peer differs, compared"]
    for answer in told[2:]:
        assert answer["kind"] == "RanksDisagree"
        (found,) = [line for line in answer["error"].splitlines() if line.startswith("  found")]
        one, other = found.split("; ")
        assert "rank 1 has step 2, rank 1, microbatch" in one
        assert "process 1 of the replica of rank 1 has step 2, rank 1, microbatch" in other
        assert one.rpartition(" ")[2] != other.rpartition(" ")[2]
    assert told[2]["error"].splitlines()[1] == told[3]["error"].splitlines()[1]
    assert told[2]["slots"] == told[3]["slots"]
    clean_up_to(faults["runs"]["peer differs, compared"], told[2]["digests"])


def clean_up_to(run: Run, digests: list[list[str]]) -> None:
    """The record of rank 1 ends with what was handed over last: nothing that differed stands in it."""
    found = Index(run.layout).records(1, num_ranks=2)
    rows = [record for records in found for record in records if record["rank"] == 1]
    recorded = [bytes(record["microbatch_digest"]).hex() for record in rows if any(bytes(record["microbatch_digest"]))]
    assert recorded == [digest for _, digest in digests]


@pytest.mark.parametrize("mode", MODES)
def test_a_halt_and_a_missing_peer(launch, tmp_path, corpus, mode) -> None:
    gated = documents(tmp_path, bad=lambda shard, row: (shard, row) == (1, 30), num_rows=40)
    policy = tmp_path / "halt.toml"
    policy.write_text(rule("halt"))
    halted, missed = make_run(tmp_path / "run", gated, lanes=4), make_run(tmp_path / "missed", corpus, lanes=4)
    halt, miss = launch(
        [
            shared(halted, mode=mode, policy=str(policy), steps=30),
            shared(missed, mode=mode, seconds=1, only={"1": {"absent": True}}),
        ],
        4,
    )
    assert [answer["kind"] for answer in halt] == ["AnswerNo"] * 4
    assert {answer["error"].splitlines()[0] for answer in halt} == {halt[0]["error"].splitlines()[0]}
    assert {len(answer["digests"]) for answer in halt} == {len(halt[0]["digests"])}
    assert {answer["again"]["kind"] for answer in halt} == {"AnswerNo"}
    for rank in (0, 2, 3):
        assert miss[rank]["kind"] in {"RankMissing", "RanksDisagree"}
        assert "process 1 of the replica of rank 0 did not come" in miss[rank]["error"]
    assert missed.head().number == 1


@pytest.mark.parametrize(("mode", "victim"), [("receive", 0), ("receive", 1), ("compare", 1)])
def test_who_loses_the_others_of_its_replica_is_told_and_does_not_hang(launch, run, mode, victim) -> None:
    words = {"world_size": 1, "microbatch_size": 4, "meet": False, "mode": mode, "steps": 11}
    job = {"job": "walk", "run": str(run.path), **words, "replica": [[0, 1]], "only": {str(victim): {"die_after": 5}}}
    (answers,) = launch([job], 2, die=(victim,))
    left = answers[1 - victim]
    assert left["kind"] == "RankMissing"
    name = "rank 0" if victim else "process 1 of the replica of rank 0"
    assert left["error"].startswith(f"{name} has lost the other processes of its replica")
    assert 4 <= len(left["digests"]) < 22


def test_context_parallelism_slices_afterwards() -> None:
    """As the module's page says: shifted first, every label is in the slice of the token that predicts it."""
    labels = torch.arange(24).reshape(2, 12)
    labels[:, 0] = -100
    logits = torch.randn(2, 12, 30, generator=torch.Generator().manual_seed(5))
    whole = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    parts = torch.zeros(())
    counted = 0
    for cp_rank in range(4):
        mine, own = (tensor.chunk(4, dim=1)[cp_rank] for tensor in (logits, shifted))
        parts += torch.nn.functional.cross_entropy(mine.flatten(0, 1), own.flatten(), reduction="sum")
        counted += int((own != -100).sum())
    assert torch.allclose(whole, parts)
    assert counted == int((labels != -100).sum())
