"""Attempts: how they begin, how ranks agree on one, and how an older one is fenced."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.errors import (
    AttemptError,
    DataguardError,
    GeometryError,
    NotInRun,
    PlanError,
    RankMissing,
    RanksDisagree,
    RunDamaged,
    WriterConflict,
)
from dataguard.plan.skips import SkippedBy
from dataguard.plan.state import JournalHead, LoaderState
from dataguard.run.begin import (
    begin_attempt,
    environment_launch_id,
    fence,
    idle_skips,
    join_attempt,
    propose,
)
from dataguard.run.events import AttemptBegun, Proposed, RankPlace, SkipAdded
from dataguard.run.journal import Journal
from dataguard.run.run import Run
from tests.run.small import WEB, begin, make_manifest, make_run, request


def state_of(run: Run, attempt: int, next_step: int) -> LoaderState:
    head = run.head()
    return LoaderState(
        root_digest=run.document.root,
        attempt=attempt,
        next_step=next_step,
        journal_head=JournalHead(number=head.number, sha256=head.sha256),
    )


def skip(run: Run, start: int, stop: int, reason: str = "spike") -> None:
    run.journal.append(
        SkipAdded(start=start, stop=stop, steps=None, batches=(start // 8, stop // 8), attempt=0, reason=reason)
    )


# -- the event


def test_a_fresh_attempt_is_written_down_with_all_that_decides_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    skip(run, 320, 360)
    attempt = begin_attempt(
        run,
        request(4, 2, launch_id="job 1 restart 0"),
        ranks=[RankPlace(rank=1, host="b"), RankPlace(rank=0, host="a", device="cuda:0", process=7)],
        roots={"web": "/data/web"},
    )
    assert (attempt.number, attempt.parent, attempt.fork_step, attempt.start_position) == (1, None, 0, 0)
    event = run.read().entries[-1].event
    assert isinstance(event, AttemptBegun)
    assert (event.world_size, event.microbatch_size, event.seed) == (4, 2, 7)
    assert (event.plan, event.root, event.manifests) == (run.document.plan, run.document.root, run.document.manifests)
    assert [(s.start, s.stop, s.event, s.reason) for s in event.skips] == [(320, 360, 2, "spike")]
    assert [place.rank for place in event.ranks] == [0, 1]
    assert event.roots == {"web": "/data/web"}
    assert run.attempts().attempt(1) == attempt


def test_a_geometry_that_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    run = make_run(tmp_path, global_batch=512)
    begin(run, world_size=512)
    for step in (0, 3):
        with pytest.raises(GeometryError, match="448 does not divide"):
            begin(run, world_size=448, fork_step=step, parent_next_step=3)
    assert run.attempts().numbers == (1,)


def test_a_second_attempt_says_where_it_goes_on(tmp_path: Path) -> None:
    run = make_run(tmp_path, first_label=1)
    with pytest.raises(AttemptError, match="no attempt of this run has begun"):
        begin(run, fork_step=3)
    begin(run)
    with pytest.raises(AttemptError, match="nothing says where to go on") as caught:
        begin(run)
    assert "fork from step 1" in str(caught.value)
    again = begin(run, fork_step=0)
    assert (again.parent, again.fork_step, again.start_position) == (1, 0, 0)


def test_a_state_names_parent_and_step(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=10)
    attempt = begin_attempt(run, request(state=state_of(run, 1, 35)))
    assert (attempt.parent, attempt.fork_step, attempt.start_position) == (1, 35, 280)


def test_a_fork_outside_the_parents_own_steps_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=35)
    for parent, step, reached in ((1, 61, 60), (2, 34, 70), (2, 71, 70)):
        with pytest.raises(AttemptError, match="allowed: a step from"):
            begin(run, parent=parent, fork_step=step, parent_next_step=reached)
    with pytest.raises(AttemptError, match="no attempt can begin at step 34 from attempt 2"):
        begin_attempt(run, request(state=state_of(run, 2, 34)))
    with pytest.raises(NotInRun, match="attempt 9 is not in this run"):
        begin(run, parent=9, fork_step=3)
    assert run.attempts().numbers == (1, 2)
    assert begin(run, parent=1, fork_step=60, parent_next_step=lambda attempt: {1: 60, 2: 70}[attempt]).number == 3


def test_a_step_without_a_parent_forks_from_its_owner_on_the_newest_lineage(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=35)
    assert begin(run, fork_step=34, parent_next_step=60).parent == 1
    assert begin(run, fork_step=20, parent_next_step=60).parent == 1


def test_a_state_of_another_stream_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    other = make_run(tmp_path / "other", seed=8)
    begin(run)
    begin(other)
    with pytest.raises(AttemptError, match="belongs to another stream") as caught:
        begin_attempt(run, request(state=state_of(other, 1, 3)))
    assert run.document.root in str(caught.value)
    assert other.document.root in str(caught.value)


def test_a_removed_tail_shows_against_the_loader_state(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 0, 8)
    state = state_of(run, 1, 3)
    run.layout.journal_event(3).unlink()
    with pytest.raises(RunDamaged, match="its tail was removed"):
        begin_attempt(Run.open(run.path), request(state=state))
    skip(run, 0, 16)
    with pytest.raises(RunDamaged, match="it was exchanged"):
        begin_attempt(Run.open(run.path), request(state=state))


# -- PLAN.md, examples, through the journal


def test_example_another_batch_size_and_a_skip(tmp_path: Path) -> None:
    """G = 8, skip batches 40:45 (320:360); a fork at step 30 with G = 16: 34 holds 304:320, 35 holds 360:376."""
    run = make_run(tmp_path)
    begin(run)
    skip(run, 320, 360)
    begin(run, fork_step=30, global_batch=16)
    steps = run.steps_of()
    assert sorted(steps.batch(34).positions) == list(range(304, 320))
    assert sorted(steps.batch(35).positions) == list(range(360, 376))


def test_example_a_jump_before_the_start_changes_nothing_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    skip(run, 320, 360)
    attempt = begin(run, fork_step=100)
    assert [skip.event for skip in idle_skips(attempt)] == [3]
    assert idle_skips(run.attempts().attempt(1)) == ()
    assert run.steps_of().batch(100).first_position == 800
    assert run.steps_of().batch(100).stop_position == 808


def test_example_the_tree_of_three_attempts(tmp_path: Path) -> None:
    """1 runs 0:60; 2 forks from 1 at 35 and runs to 70; 3 forks from 1 at 30 and dies at 33."""
    run = make_run(tmp_path)
    begin(run)
    begin(run, parent=1, fork_step=35, parent_next_step=60)
    begin(run, parent=1, fork_step=30, parent_next_step=60)
    tree, next_steps = Run.open(run.path).attempts(), {1: 60, 2: 70, 3: 33}
    with pytest.raises(NotInRun, match="attempts 1, 2"):
        tree.holder(50, next_steps)
    assert tree.label(2, 40, next_steps, leaf=2) == "live"
    assert tree.label(1, 40, next_steps, leaf=2) == "abandoned"
    assert [attempt.number for attempt in tree.lineage()] == [1, 3]


def test_a_skip_revoked_before_an_attempt_begins_does_not_apply_to_it(tmp_path: Path) -> None:
    from dataguard.run.events import Revoked

    run = make_run(tmp_path)
    begin(run)
    skip(run, 320, 360)
    begin(run, fork_step=30)
    run.journal.append(Revoked(event=3))
    begin(run, fork_step=30)
    located = run.steps_of(2).locate(330)
    assert isinstance(located, SkippedBy)
    assert located.events == (3,)
    assert not isinstance(run.steps_of(3).locate(330), SkippedBy)
    assert run.attempts().attempt(2).skips_over(330, 331)[0].reason == "spike"


def test_mixture_and_batch_size_are_amended_from_the_start_on(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    grown = make_manifest({**WEB, "web/c.jsonl": 80})
    begin(run, fork_step=10, manifest=grown, weights={"web": 2, "code": 1}, global_batch=4)
    document = run.plan_of(2).document
    assert [(mixture.start, mixture.manifest) for mixture in document.mixtures] == [
        (0, make_manifest(WEB).digest),
        (80, grown.digest),
    ]
    assert [(size.start, size.size) for size in document.batch_sizes] == [(0, 8), (80, 4)]
    assert run.begun(2).manifests == (make_manifest(WEB).digest, grown.digest)
    assert Run.open(run.path).manifest(grown.digest) == grown
    # Attempt 3 forks from 2 and amends nothing: it has what 2 had.
    begin(run, fork_step=12)
    assert run.plan_of(3).digest == run.plan_of(2).digest
    # Attempt 4 forks from 1, which never had it.
    begin(run, parent=1, fork_step=12)
    assert run.plan_of(4).digest == run.plan.digest
    # What is in force already is no amendment.
    begin(run, parent=2, fork_step=12, global_batch=4, weights={"web": 4, "code": 2}, manifest=grown)
    assert run.plan_of(5).digest == run.plan_of(2).digest


def test_the_beginning_of_a_run_has_no_other_mixture(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(AttemptError, match="a run begins with its own mixture"):
        begin(run, weights={"web": 1})
    begin(run, global_batch=16)
    assert run.steps_of().batch(0).size == 16
    with pytest.raises(PlanError, match="no source is called 'books'"):
        begin(run, fork_step=3, weights={"books": 1})
    assert len(run.attempts()) == 1


# -- one launch, one attempt


def test_the_same_launch_gets_the_same_attempt_again(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    first = begin(run, launch_id="job 1")
    assert begin(Run.open(run.path), launch_id="job 1") == first
    second = begin(run, launch_id="job 2", fork_step=3)
    skip(run, 320, 360)
    assert begin(run, launch_id="job 2", fork_step=3) == second
    assert run.attempts().numbers == (1, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"world_size": 2}, "this rank has world size 2, the attempt has 1"),
        ({"microbatch_size": 4}, "this rank has microbatch size 4, the attempt has 1"),
        ({"fork_step": 4}, "this rank has start step 5, the attempt has 4"),
        ({"global_batch": 16}, "this rank has global batch 16, the attempt has 4"),
        ({"weights": {"web": 2, "code": 1}}, "this rank has weights code=1, web=2, the attempt has code=1, web=3"),
        ({"seed": 8}, "differ in seed\n  found: this rank has seed 8\n  allowed: the run has seed 7"),
        ({"root_digest": "ab" * 32}, "this rank has root digest abab"),
        ({"parent": 2}, "this rank has parent 2, the attempt has 1"),
        ({"epochs": 2}, "this rank has epochs 2, the attempt has None"),
    ],
)
def test_every_fact_that_differs_is_named_with_both_values(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    run = make_run(tmp_path, first_label=1)
    begin(run)
    facts: dict[str, Any] = {
        "launch_id": "job 7",
        "fork_step": 3,
        "parent": 1,
        "global_batch": 4,
        "weights": {"web": 3, "code": 1},
        "seed": 7,
        "root_digest": run.document.root,
    }
    attempt = begin(run, **facts)
    assert join_attempt(run, request(**facts), rank=0) == attempt
    told = request(**{**facts, **change})
    calls: list[Callable[[], object]] = [
        lambda: join_attempt(run, told, rank=0, timeout_seconds=0),
        lambda: begin_attempt(run, told, parent_next_step=9),
    ]
    for call in calls:
        with pytest.raises(RanksDisagree) as caught:
            call()
        assert says in str(caught.value)
    assert run.attempts().numbers == (1, 2)


def test_a_source_left_out_by_weight_0_is_no_difference(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    facts: dict[str, Any] = {"launch_id": "job 7", "fork_step": 3, "weights": {"web": 0, "code": "0.5"}}
    attempt = begin(run, **facts)
    assert attempt.mixtures[-1].weights == {"code": 1}
    assert join_attempt(run, request(**facts), rank=0) == begin(run, **facts) == attempt


def test_all_differences_stand_in_one_message(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run, launch_id="job 7")
    with pytest.raises(RanksDisagree) as caught:
        join_attempt(run, request(2, 2, launch_id="job 7"), rank=1)
    assert "world size 2, the attempt has 1; this rank has microbatch size 2, the attempt has 1" in str(caught.value)


def test_states_that_differ_are_told(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin_attempt(run, request(launch_id="job 7", state=state_of(run, 1, 40)))
    with pytest.raises(RanksDisagree, match="this rank has start step 39, the attempt has 40"):
        join_attempt(run, request(launch_id="job 7", state=state_of(run, 1, 39)), rank=0)
    with pytest.raises(
        RanksDisagree, match="this rank has start step 0, the attempt has 40; this rank has parent None"
    ):
        join_attempt(run, request(launch_id="job 7"), rank=0)


def test_a_launch_that_was_overtaken_does_not_get_its_attempt_back(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run, launch_id="job 1")
    begin(run, launch_id="job 2", fork_step=0)
    with pytest.raises(WriterConflict, match="attempt 1 of launch 'job 1' is over: fenced by attempt 2"):
        begin(run, launch_id="job 1")


def test_a_launch_needs_an_id(tmp_path: Path) -> None:
    with pytest.raises(AttemptError, match="no launch id"):
        request(launch_id=" ")
    run = make_run(tmp_path)
    begin(run)
    with pytest.raises(AttemptError, match="beside"):
        request(state=state_of(run, 1, 3), fork_step=3)
    with pytest.raises(AttemptError, match="needs the step"):
        request(parent=1)


# -- waiting


class Time:
    """A clock that only sleeping moves; `then` happens at given times."""

    def __init__(self, then: dict[float, Callable[[], object]] | None = None) -> None:
        self.now = 0.0
        self.then = then or {}

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        for moment in [moment for moment in self.then if moment <= self.now]:
            self.then.pop(moment)()

    def clock(self) -> float:
        return self.now


def test_a_rank_waits_for_the_attempt_of_its_own_launch(tmp_path: Path) -> None:
    run, other = make_run(tmp_path), Run.open(tmp_path / "run")
    told = request(4, 2, launch_id="job 3", fork_step=5)
    time = Time(
        {
            1.0: lambda: begin(other, launch_id="job 2"),
            2.0: lambda: skip(other, 320, 360),
            3.0: lambda: begin(other, world_size=4, microbatch_size=2, launch_id="job 3", fork_step=5),
        }
    )
    attempt = join_attempt(run, told, rank=3, sleep=time.sleep, clock=time.clock)
    assert (attempt.number, attempt.fork_step) == (2, 5)
    assert 3.0 <= time.now < 3.3


def test_a_rank_that_waits_in_vain_says_who_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    time = Time()
    with pytest.raises(RankMissing, match=r"rank 1 waited 120 s for its attempt; rank 0 of 4 is missing") as caught:
        join_attempt(run, request(4, launch_id="job 3"), rank=1, sleep=time.sleep, clock=time.clock)
    assert "no attempt of launch 'job 3' has begun" in str(caught.value)
    assert time.now == pytest.approx(120)


def test_an_attempt_of_another_launch_is_named_when_the_wait_ends(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run, launch_id="yesterday")
    time = Time({5.0: lambda: begin(Run.open(run.path), launch_id="job 33", fork_step=0)})
    with pytest.raises(RankMissing, match="but attempt 2 by launch 'job 33'") as caught:
        join_attempt(run, request(launch_id="job 3"), rank=0, timeout_seconds=7, sleep=time.sleep, clock=time.clock)
    assert "yesterday" not in str(caught.value)
    assert "the same launch id" in str(caught.value)


def test_a_busy_journal_does_not_make_the_wait_endless(tmp_path: Path) -> None:
    run, other = make_run(tmp_path), Run.open(tmp_path / "run")
    time = Time()

    def busy(seconds: float) -> None:
        time.sleep(seconds)
        skip(other, 0, 8)

    with pytest.raises(RankMissing):
        join_attempt(run, request(), rank=0, timeout_seconds=2, sleep=busy, clock=time.clock)
    assert time.now < 2.5


def test_a_rank_outside_the_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GeometryError, match="rank 4 is not one of 4"):
        join_attempt(make_run(tmp_path), request(4), rank=4)


def test_nothing_is_joined_in_a_damaged_journal(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run, launch_id="job 1")
    skip(run, 0, 8)
    run.layout.journal_event(2).unlink()
    with pytest.raises(RunDamaged, match="joining an attempt is refused"):
        join_attempt(run, request(launch_id="job 1"), rank=0)


def rank_of_launch(path: str, rank: int, answers: Any) -> None:
    run = Run.open(path)
    told = request(4, 2, launch_id="job 1 restart 0")
    try:
        attempt = begin_attempt(run, told) if rank == 0 else join_attempt(run, told, rank=rank, timeout_seconds=60)
        answers.put((rank, os.getpid(), attempt))
    except DataguardError as error:
        answers.put((rank, os.getpid(), repr(error)))


def test_four_processes_agree_on_one_attempt(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    context = multiprocessing.get_context("forkserver")
    answers = context.Queue()
    processes = [context.Process(target=rank_of_launch, args=(str(run.path), rank, answers)) for rank in (3, 2, 1, 0)]
    for process in processes:
        process.start()
    got = sorted((answers.get(timeout=60) for _ in processes), key=lambda answer: answer[0])
    for process in processes:
        process.join(60)
    assert [rank for rank, _, _ in got] == [0, 1, 2, 3]
    assert len({process for _, process, _ in got}) == 4
    assert all(attempt == run.attempts().attempt(1) for _, _, attempt in got)
    assert run.attempts().numbers == (1,)


def test_two_launches_at_once_give_two_attempts_one_after_the_other(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    barrier = threading.Barrier(4)
    numbers: list[int] = []

    def launch() -> None:
        opened = Run.open(run.path)
        barrier.wait()
        numbers.append(begin(opened, fork_step=2, parent=1).number)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == [2, 3, 4, 5]
    assert run.problems() == ()


# -- fencing


def test_a_newer_attempt_fences_an_older_one(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    check = fence(run, 1)
    check()
    skip(run, 0, 8)
    check()
    begin(run, fork_step=0)
    for _ in range(2):
        with pytest.raises(WriterConflict, match="fenced by attempt 2"):
            check()
    fence(run, 2)()


def test_an_attempt_that_is_over_already_is_fenced_at_the_first_look(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=0)
    with pytest.raises(WriterConflict, match="fenced by attempt 2"):
        fence(run, 1)()


def test_the_fence_costs_one_look_at_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    begin(run)
    check = fence(run, 1)
    check()
    looked: list[int] = []
    really = Journal.next_exists

    def counted(journal: Journal, number: int) -> bool:
        looked.append(number)
        return really(journal, number)

    def forbidden(journal: Journal) -> object:
        raise AssertionError("the journal was read")

    monkeypatch.setattr(Journal, "next_exists", counted)
    monkeypatch.setattr(Journal, "read", forbidden)
    for _ in range(5):
        check()
    assert looked == [3] * 5


# -- proposals


def test_a_proposal_is_written_once(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    met = [
        Proposed(
            proposal="quarantine", attempt=1, shard="web/a.jsonl", rows=(3, 9), positions=(5, 70), reason="broken"
        ),
        Proposed(proposal="quarantine", attempt=1, shard="web/b.jsonl", rows=(1,), positions=(8,), reason="broken"),
    ]
    assert [entry.event for entry in propose(run, met)] == met
    assert propose(Run.open(run.path), met) == ()
    assert run.pending().withheld == ()
    assert len(run.read().entries) == 4


# -- the launcher's word


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"TORCHELASTIC_RUN_ID": "7f3a", "TORCHELASTIC_RESTART_COUNT": "0"}, "torchelastic 7f3a restart 0"),
        ({"TORCHELASTIC_RUN_ID": "7f3a"}, "torchelastic 7f3a restart 0"),
        ({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "3"}, None),
        ({"SLURM_JOB_ID": "4711"}, "slurm 4711 restart 0"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_RESTART_COUNT": "1"}, "slurm 4711.2 restart 1"),
        (
            {"SLURM_JOB_ID": "4711", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "3"},
            "slurm 4711 restart 0, torchelastic restart 3",
        ),
    ],
)
def test_the_launch_id_of_the_environment(environ: dict[str, str], expected: str | None) -> None:
    assert environment_launch_id(environ) == expected


@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=2, unique=True))
@pytest.mark.parametrize(
    ("fixed", "count"),
    [
        ({"TORCHELASTIC_RUN_ID": "x"}, "TORCHELASTIC_RESTART_COUNT"),
        ({"SLURM_JOB_ID": "1"}, "SLURM_RESTART_COUNT"),
        ({"SLURM_JOB_ID": "1", "TORCHELASTIC_RUN_ID": "none"}, "TORCHELASTIC_RESTART_COUNT"),
    ],
)
def test_a_restart_is_another_launch(fixed: dict[str, str], count: str, counts: list[int]) -> None:
    assert len({environment_launch_id({**fixed, count: str(each)}) for each in counts}) == 2
