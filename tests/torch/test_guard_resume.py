"""Going on: states of the wrapped loader, a trainer that counts for itself, a kill, several ranks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from dataguard.errors import AttemptError, UsageError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.replay.where import where_record
from dataguard.run.index import Index
from dataguard.run.run import Run
from dataguard.run.seal import read_seals
from dataguard.torch import guard
from tests.support.processes import environment
from tests.torch.guarded_data import Rows, loader_of, rows_of

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def launch(words: list[dict[str, Any]], *, expected: int = 0) -> list[Any]:
    """What each process says; `expected` is their exit code."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.torch.guarded_rank", json.dumps(each)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**ENVIRONMENT),
            text=True,
        )
        for each in words
    ]
    answers = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == expected, err
            answers.append(json.loads(out) if out else None)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return answers


def require_good(path: Path) -> None:
    answer = verify_run(Lookup(Run.open(path)))
    assert answer.ok, answer


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_stateful_loader_goes_on_in_the_middle_of_an_epoch(accumulate: int, num_workers: int, tmp_path: Path) -> None:
    def plain() -> Any:
        return loader_of(40, cls=StatefulDataLoader, num_workers=num_workers)

    def guarded_of(path: Path) -> Any:
        return guard(plain(), path, accumulate=accumulate)

    done = 5 // accumulate
    # What the loader does by itself, the epoch after the one that it goes on in included.
    before = plain()
    unbroken = [rows_of(batch) for batch in islice(before, done * accumulate)]
    after = plain()
    after.load_state_dict(before.state_dict())
    expected = [rows_of(batch) for _ in range(2) for batch in after]
    with guarded_of(tmp_path / "run") as guarded:
        first = [rows_of(batch) for batch in islice(guarded, 5)]
        state = guarded.state_dict()
    assert first[: done * accumulate] == unbroken
    assert state["dataguard"]["next_step"] == done
    with guarded_of(tmp_path / "run") as guarded:
        guarded.load_state_dict(state)
        assert guarded.state_dict()["dataguard"] == state["dataguard"]
        addresses, rest = [], []
        for batch in guarded:
            addresses.append((guarded.address.step, guarded.address.microbatch))
            rest.append(rows_of(batch))
        rest += [rows_of(batch) for batch in guarded]
        with pytest.raises(AttemptError, match="begun attempt 2 already"):
            guarded.load_state_dict(state)
    # A step that was not handed over whole starts again.
    assert rest == expected
    assert addresses[:2] == [(done, 0), (done, 1) if accumulate > 1 else (done + 1, 0)]
    run = Run.open(tmp_path / "run")
    assert [each.number for each in run.attempts().lineage()] == [1, 2]
    assert guarded.replay(done).status == "exact"
    require_good(tmp_path / "run")


def test_a_script_that_starts_anew_begins_an_attempt_at_step_0(tmp_path: Path) -> None:
    for number in (1, 2):
        with guard(loader_of(), tmp_path / "run") as guarded:
            list(guarded)
        assert guarded.attempt is not None
        assert (guarded.attempt.number, guarded.attempt.fork_step) == (number, 0)
    # The second lies over the first: each row was delivered once on the newest lineage, and once besides.
    places = where_record(Lookup(guarded.run), "indices", 9).places
    assert sorted((place.attempt, place.label) for place in places) == [(1, "abandoned"), (2, "live")]
    require_good(tmp_path / "run")


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with guard(loader_of(cls=StatefulDataLoader), tmp_path / "run") as guarded:
        next(iter(guarded))
        state = guarded.state_dict()
    with pytest.raises(AttemptError, match="takes none"):
        guard(loader_of(), tmp_path / "run").load_state_dict(state)
    with pytest.raises(AttemptError, match="another stream"):
        guard(loader_of(24, cls=StatefulDataLoader), tmp_path / "other").load_state_dict(state)
    with pytest.raises(AttemptError, match="no state of a guarded loader"):
        guard(loader_of(), tmp_path / "run").load_state_dict({"step": 3})
    with guard(loader_of(), tmp_path / "run", start_step=9) as guarded, pytest.raises(AttemptError):
        next(iter(guarded))


def test_another_batch_size_and_a_state_from_before_the_first_batch(tmp_path: Path) -> None:
    guarded = guard(loader_of(), tmp_path / "run")
    fresh = guarded.state_dict()
    list(guarded)
    guarded.close()
    with guard(loader_of(batch_size=8), tmp_path / "run", start_step=4) as guarded:
        list(guarded)
    steps = guarded.run.steps_of()
    assert (steps.batch(3).first_position, steps.batch(4).first_position, steps.batch(5).first_position) == (12, 16, 24)
    assert Index(guarded.run.layout).step(2, 4, num_ranks=1).records["row"].tolist() == rows_of(
        next(iter(loader_of(batch_size=8)))
    )
    again = guard(loader_of(), tmp_path / "run")
    again.load_state_dict(fresh)
    with again:
        next(iter(again))
    assert again.attempt is not None
    assert again.attempt.fork_step == 0
    require_good(tmp_path / "run")


def test_after_a_kill_a_trainer_that_counts_for_itself_goes_on(tmp_path: Path) -> None:
    job = {"run": str(tmp_path / "run"), "workers": 1, "epochs": 2, "die_after": 6}
    launch([{"jobs": [job]}], expected=-signal.SIGKILL)
    run = Run.open(tmp_path / "run")
    records = Index(run.layout).step(1, 5, num_ranks=1)
    assert (len(records.records), records.damage) == (4, ())
    # Its checkpoint was of step 5; it goes on from there, in the middle of an epoch that it skips into by itself.
    data = Rows(30)
    rest = DataLoader(data, batch_size=4, sampler=list(range(20, 30)))
    with guard(rest, run, start_step=5) as guarded:
        list(guarded)
    assert guarded.attempt is not None
    assert (guarded.attempt.parent, guarded.attempt.fork_step) == (1, 5)
    require_good(tmp_path / "run")
    labels = {(p.attempt, p.label) for row in (21, 22) for p in where_record(Lookup(run), "indices", row).places}
    assert (2, "live") in labels
    assert guarded.replay(0).status == "exact"
    assert guarded.replay(5).status == "exact"


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """Two ranks of one process group: a run of two epochs, one that halts, one that they disagree about."""
    folder = tmp_path_factory.mktemp("ranks")
    jobs = [
        {"run": str(folder / "run"), "epochs": 2, "accumulate": 2, "workers": 1, "store": "all"},
        {"run": str(folder / "halts"), "epochs": 3, "bad": [11], "action": "halt"},
        {"run": str(folder / "differs"), "batch_size": [4, 5]},
    ]
    words = {"world_size": 2, "store": f"file://{folder / 'store'}", "jobs": jobs}
    return folder, launch([{**words, "rank": rank} for rank in range(2)])


def test_two_ranks_share_a_run_and_any_of_them_replays_both(two_ranks: tuple[Path, list[list[Any]]]) -> None:
    folder, told = two_ranks
    answers = [answer[0] for answer in told]
    assert all("error" not in answer for answer in answers), answers
    run = Run.open(folder / "run")
    assert run.attempts().attempt(1).geometry.world_size == 2
    assert answers[0]["state"] == answers[1]["state"]
    for rank, answer in enumerate(answers):
        assert [address for address, _ in answer["handed"]] == [
            f"step {step}, rank {rank}, microbatch {microbatch}" for step in range(4) for microbatch in range(2)
        ]
        for address, rows in answer["handed"]:
            step, microbatch = int(address.split(",")[0].split()[1]), int(address.split()[-1])
            records = Index(run.layout).step(1, step, rank=rank, num_ranks=2).records
            mine = records[(records["microbatch"] == microbatch) & (records["status"] == 0)]
            assert mine["row"].tolist() == rows
    require_good(folder / "run")
    # Nobody closed it: the interpreters that ended did.
    assert [[seal.stop for seal in read_seals(run.layout.seals(1, rank))[1]] for rank in range(2)] == [[4], [4]]
    assert all(run.layout.store(1, step, rank).exists() for step in range(4) for rank in range(2))
    again = guard(DataLoader(Rows(30), batch_size=4), run).replay(1)
    assert again.status == "exact"
    assert sorted(again.batches) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_halt_on_one_rank_stops_both_at_one_step(two_ranks: tuple[Path, list[list[Any]]]) -> None:
    folder, told = two_ranks
    answers = [answer[1] for answer in told]
    assert {answer["kind"] for answer in answers} == {"AnswerNo"}
    assert len(answers[0]["handed"]) == len(answers[1]["handed"]) > 1
    require_good(folder / "halts")


def test_ranks_that_differ_end_together(two_ranks: tuple[Path, list[list[Any]]]) -> None:
    answers = [answer[2] for answer in two_ranks[1]]
    assert {answer["kind"] for answer in answers} == {"RanksDisagree"}
    assert all("microbatch size" in answer["error"] and not answer["handed"] for answer in answers)


def test_ranks_that_cannot_agree_on_the_size_of_a_batch_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nobody says how many samples"):
        list(guard(({"x": each} for each in [Rows(1)[0]["input_ids"]]), tmp_path / "run", rank=0, world_size=2))
