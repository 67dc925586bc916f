"""Ranks with a process group begin together or fail together, whatever differs or fails, on whichever rank."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dataguard.core.address import Geometry
from dataguard.errors import AttemptError, InputError, RankMissing, RanksDisagree, UsageError, WriteFailed
from dataguard.loader.agreeing import all_or_none, differences
from dataguard.loader.loader import Loader
from dataguard.loader.walking import Walking
from dataguard.run.events import TransformIdentity
from dataguard.run.run import Run
from tests.support.corpora import make_corpus
from tests.support.runs import deliver, make_run, slots_of
from tests.support.thread_peers import ThreadGroup, ThreadPeers, in_threads

WORLD_SIZE = 4


def begin(
    runs: list[Run], common: dict[str, Any] | None = None, *, changes: dict[int, dict[str, Any]] | None = None
) -> list[Any]:
    """Take one microbatch on every rank at once: it, or the exception, by rank. `changes` are of single ranks."""
    group = ThreadGroup(WORLD_SIZE)

    def work(rank: int) -> Any:
        told = {"num_threads": 0, "microbatch_size": 1, **(common or {}), **(changes or {}).get(rank, {})}
        state, policy = told.pop("state", None), told.pop("policy", None)
        geometry = Geometry(world_size=told.pop("world_size", WORLD_SIZE), microbatch_size=told.pop("microbatch_size"))
        run = runs[rank % len(runs)]
        loader = Loader(
            Run.open(run.path, policy=policy),
            geometry=geometry,
            rank=rank,
            peers=ThreadPeers(group, rank),
            join_timeout_seconds=5,
            **told,
        )
        if state is not None:
            loader.load(state)
        with loader:
            return next(loader)

    return in_threads(WORLD_SIZE, work)


@pytest.fixture
def run(tmp_path, documents) -> Run:
    return make_run(tmp_path / "run", documents, lanes=4)


def test_all_ranks_begin_one_attempt_and_their_places_stand_in_it(run, unbroken) -> None:
    taken = begin([run])
    held = [slots_of(microbatch) for microbatch in taken]
    assert [held[rank][0] for rank in range(4)] == unbroken[0][::2]
    event = run.begun(1)
    assert event.launch_id.startswith("group ")
    assert [place.rank for place in event.ranks] == [0, 1, 2, 3]
    assert [place.device for place in event.ranks] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    assert {place.process for place in event.ranks} == {os.getpid()}
    assert {place.host for place in event.ranks} == {os.uname().nodename}


def transform(version: str) -> TransformIdentity:
    return TransformIdentity(name="train:tokenize", version=version)


DIFFERENCES = [
    ("microbatch size", {}, {"microbatch_size": 2}, "2", "1"),
    ("world size", {}, {"world_size": 8}, "8", "4"),
    ("epochs", {"epochs": 1}, {"epochs": 2}, "2", "1"),
    ("epochs", {}, {"epochs": 2}, "2", "no epochs"),
    ("start step", {"from_step": 2}, {"from_step": 1}, "1", "2"),
    ("parent", {"from_step": 1, "parent": 1}, {"parent": None}, "no parent", "1"),
    ("launch id", {"launch_id": "job 1"}, {"launch_id": "job 2"}, "job 2", "job 1"),
    ("global batch", {"from_step": 1}, {"global_batch": 16}, "16", "no global batch"),
    ("weights", {"from_step": 1, "weights": {"web": 1, "code": 1}}, {"weights": {"web": 2, "code": 1}}, "web=2", "web"),
    ("policy", {"from_step": 1}, {"policy": "default"}, "", "no policy"),
    ("vocabulary size", {"from_step": 1, "vocab_size": 9}, {"vocab_size": 10}, "10", "9"),
    ("transform", {"from_step": 1, "transform": transform("1")}, {"transform": transform("2")}, '"2"', '"1"'),
    ("transform", {"from_step": 1, "transform": transform("1")}, {"transform": None}, "no transform", "train:tokenize"),
    ("state", {"state": 2}, {"state": 1}, "of attempt 1, step 1", "of attempt 1, step 2"),
    ("state", {"state": 2}, {"state": None, "from_step": 2}, "no state", "of attempt 1, step 2"),
]


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize(("name", "common", "change", "theirs", "ours"), DIFFERENCES)
def test_each_difference_stops_every_rank_with_both_values(run, name, common, change, theirs, ours, odd) -> None:
    needs_attempt = "from_step" in common or "state" in common
    states = {}
    if needs_attempt:
        deliver(run, microbatch_size=8, steps=2)
        states = {step: _state(run, step) for step in (1, 2)}
    common = {**common, **({"state": states[common["state"]]} if "state" in common else {})}
    change = {**change, **({"state": states[change["state"]]} if change.get("state") else {})}
    errors = begin([run], common, changes={odd: change})
    assert [type(error) for error in errors] == [RanksDisagree] * 4, errors
    assert len({error.found for error in errors}) == 1, "all ranks are told the same"
    found = errors[0].found
    assert found.count(name) >= 1
    assert theirs in found
    assert ours in found
    assert f"rank {odd} has" in found if odd else "rank 3 has" in found
    assert "this is rank 3" in str(errors[3])
    assert run.attempts().newest == 1 if needs_attempt else not len(run.attempts()), "nothing was written"


def _state(run: Run, step: int):
    from dataguard.plan.state import JournalHead, LoaderState

    head = run.head()
    journal = JournalHead(number=head.number, sha256=head.sha256)
    return LoaderState(root_digest=run.plan.root.digest, attempt=1, next_step=step, journal_head=journal)


def test_another_corpus_on_one_rank(run, tmp_path, documents) -> None:
    deliver(run, microbatch_size=8, steps=2)
    grown = make_corpus(tmp_path / "grown", {"web": {"a.parquet": 80}, "code": {"d.parquet": 40}})
    errors = begin([run], {"from_step": 1, "corpus": documents}, changes={1: {"corpus": grown}})
    assert [type(error) for error in errors] == [RanksDisagree] * 4, errors
    wanted = f"rank 1 has manifest {grown.manifest.digest}, rank 0 has {documents.manifest.digest}"
    assert all(wanted in str(error) for error in errors)


def test_run_directories_of_their_own_and_another_seed(run, tmp_path, documents) -> None:
    other = make_run(tmp_path / "other", documents, lanes=4, seed=8)
    errors = begin([run, other])
    assert [type(error) for error in errors] == [RanksDisagree] * 4, errors
    for error in errors:
        assert "rank 1 has seed 8, rank 0 has 7" in str(error)
        assert f"rank 1 has run {other.run_id}, rank 0 has {run.run_id}" in str(error)
    assert run.head().number == other.head().number == 1


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_a_rank_that_cannot_prepare_ends_all_in_its_words(run, odd) -> None:
    errors = begin([run], changes={odd: {"roots": {"web": "/nowhere/at/all"}}})
    assert isinstance(errors[odd], InputError)
    for rank in {0, 1, 2, 3} - {odd}:
        assert isinstance(errors[rank], RanksDisagree)
        assert f"rank {odd} could not begin" in str(errors[rank])
        assert "/nowhere/at/all" in str(errors[rank])
    assert run.head().number == 1


def test_rank_zero_that_cannot_begin_ends_all_in_its_words(run) -> None:
    deliver(run, microbatch_size=8, steps=2)
    errors = begin([run])
    assert isinstance(errors[0], AttemptError)
    for error in errors[1:]:
        assert isinstance(error, RanksDisagree)
        assert "rank 0 could not begin the attempt" in str(error)
        assert "nothing says where to go on" in str(error)


@pytest.mark.parametrize("odd", [0, 2])
def test_a_rank_that_cannot_open_its_part_ends_all_and_no_file_stays_open(run, monkeypatch, odd) -> None:
    closed: list[int] = []
    real = Walking.__init__
    close = Walking.close

    def broken(self, *args, **settings) -> None:
        if settings["rank"] == odd:
            raise WriteFailed("no space left on the disk of rank 2")
        real(self, *args, **settings)

    def counted(self) -> None:
        closed.append(self.rank)
        close(self)

    monkeypatch.setattr(Walking, "__init__", broken)
    monkeypatch.setattr(Walking, "close", counted)
    errors = begin([run])
    assert isinstance(errors[odd], WriteFailed)
    others = {0, 1, 2, 3} - {odd}
    for rank in others:
        assert isinstance(errors[rank], RanksDisagree)
        assert f"rank {odd} could not open its part" in str(errors[rank])
        assert "WriteFailed: no space left" in str(errors[rank])
    assert set(closed) == others


def test_a_rank_that_never_comes_is_missed_by_all_others() -> None:
    group = ThreadGroup(3, wait_seconds=0.2)

    def work(rank: int) -> Any:
        if rank == 1:
            return "died"
        return all_or_none(ThreadPeers(group, rank), lambda: rank, what="join")

    first, second, third = in_threads(3, work)
    assert second == "died"
    assert isinstance(first, RankMissing)
    assert isinstance(third, RankMissing)


def test_what_failed_here_is_raised_here_even_where_the_others_are_gone() -> None:
    group = ThreadGroup(2, wait_seconds=0.1)

    def work(rank: int) -> Any:
        if rank == 1:
            return None
        return all_or_none(ThreadPeers(group, rank), lambda: int("no number"), what="join")

    assert isinstance(in_threads(2, work)[0], ValueError)


def test_what_was_done_is_undone_where_another_rank_failed() -> None:
    group, undone = ThreadGroup(3), []

    def work(rank: int) -> Any:
        def mine() -> int:
            if rank == 1:
                raise OSError("rank 1 has no disk")
            return rank

        return all_or_none(ThreadPeers(group, rank), mine, what="open", undo=undone.append)

    errors = in_threads(3, work)
    assert [type(error) for error in errors] == [RanksDisagree, OSError, RanksDisagree]
    assert sorted(undone) == [0, 2]


def test_many_differences_are_counted_and_not_all_listed() -> None:
    told = differences([("rank 0", {"seed": "1"}), *((f"rank {rank}", {"seed": "2"}) for rank in range(1, 512))])
    assert told.startswith("rank 1 has seed 2, rank 0 has 1; rank 2 has")
    assert told.endswith("; and 503 more")


def test_torchruns_id_none_is_no_launch(run, monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    loader = Loader(run, geometry=Geometry(world_size=2, microbatch_size=1), rank=1, num_threads=0)
    with pytest.raises(UsageError, match="torchrun's run id is 'none'") as caught:
        next(loader)
    assert "--rdzv-id" in str(caught.value)
