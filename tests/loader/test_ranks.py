"""Ranks in processes of their own agree through the run directory; where they do not, all are told and nobody hangs."""

from __future__ import annotations

import pytest

from dataguard.errors import RankMissing, RanksDisagree
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.support.processes import launch
from tests.support.runs import deliver, make_run, open_loaders


def words(run: Run, rank: int, **changes: object) -> dict[str, object]:
    common = {"run": str(run.path), "world_size": 4, "microbatch_size": 1, "launch_id": "job 1", "steps": 5}
    return {**common, "rank": rank, **changes}


def test_four_processes_are_one_attempt(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    answers = launch([words(run, rank) for rank in (3, 2, 1, 0)])
    assert len({answer["pid"] for answer in answers}) == 4
    assert {answer["attempt"] for answer in answers} == {1}
    assert len({str(answer["state"]) for answer in answers}) == 1, "the state is the same on every rank"
    held = [answers[3 - rank]["slots"][2 * step : 2 * step + 2] for step in range(5) for rank in range(4)]
    assert [slot for part in held for slot in part] == [slot.decode() for step in range(5) for slot in unbroken[step]]
    answer = verify_run(Lookup(Run.open(run.path)))
    assert answer.ok
    assert [check.checked for check in answer.checks if check.name == "exactly once"] == [40]


def test_ranks_that_were_told_other_things_are_told_so_and_nobody_hangs(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    first, *others = launch(
        [
            words(run, 0, world_size=2),
            words(run, 1, world_size=2, microbatch_size=2),
            words(run, 1, world_size=4),
        ]
    )
    assert first["attempt"] == 1
    assert [answer["kind"] for answer in others] == ["RanksDisagree", "RanksDisagree"]
    assert [answer["delivered"] for answer in others] == [[], []]
    assert "this rank has microbatch size 2, the attempt has 1" in others[0]["error"]
    assert "this rank has world size 4, the attempt has 2" in others[1]["error"]


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ({"microbatch_size": 2}, {}, "microbatch size 2, the attempt has 4"),
        ({"epochs": 2}, {"epochs": 1}, "epochs 2, the attempt has 1"),
        ({"from_step": 3}, {"from_step": 2}, "start step 3, the attempt has 2"),
        ({"global_batch": 16}, {}, "global batch 16, the attempt has 8"),
        ({"weights": {"web": 5, "code": 1}}, {}, "weights code=1, web=5, the attempt has code=1, web=3"),
    ],
)
def test_each_difference_is_named_with_both_values(tmp_path, documents, mine, theirs, told) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    deliver(run, microbatch_size=8, steps=4)
    common = {"world_size": 2, "microbatch_size": 4, "launch_id": "job", "from_step": 2}
    rank0 = open_loaders(run, **{**common, **theirs})[0]
    next(rank0)
    rank1 = open_loaders(run, **{**common, **theirs, **mine})[1]
    with pytest.raises(RanksDisagree, match=told):
        next(rank1)
    rank0.close()


def test_rank_zero_that_does_not_come_is_missed(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    loader = open_loaders(run, world_size=2, microbatch_size=4, launch_id="mine", join_timeout_seconds=0.15)[1]
    with pytest.raises(RankMissing, match=r"rank 1 waited 0.15 s for its attempt; rank 0 of 2 is missing"):
        next(loader)
    deliver(run, microbatch_size=8, steps=1)
    with pytest.raises(RankMissing, match="no attempt of launch 'mine' has begun"):
        next(loader)


def test_a_rank_has_one_writer_ever(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    one = open_loaders(run, world_size=2, microbatch_size=4, launch_id="job")
    next(one[0])
    next(one[1])
    twin = open_loaders(Run.open(run.path), world_size=2, microbatch_size=4, launch_id="job")[1]
    with pytest.raises(Exception, match="rank 1 of attempt 1 has had its writer"):
        next(twin)
    for loader in one:
        loader.close()


def test_the_launchers_id_is_taken_from_the_environment(tmp_path, documents, monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7f3a")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    run = make_run(tmp_path / "run", documents, lanes=4)
    loader = open_loaders(run, world_size=2, microbatch_size=4, launch_id=None)[0]
    next(loader)
    loader.close()
    assert run.begun(1).launch_id == "torchelastic 7f3a restart 2"
