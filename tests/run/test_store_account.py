"""Nothing vanishes from the store without a count: what stands, was let go of, pruned, or lost with its process."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import UsageError, WriteFailed
from dataguard.gate.policy import read_policy
from dataguard.gate.verdict import Verdict
from dataguard.loader.loader import Loader
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run import store as store_module
from dataguard.run.atomic import write_failed
from dataguard.run.index import Index, merge
from dataguard.run.run import Run
from dataguard.run.store_account import StoreOfRank, list_store
from dataguard.run.store_file import KeptMicrobatch, read_store
from dataguard.run.store_prune import prune_store
from tests.support.corpora import make_corpus
from tests.support.gated import documents, rule
from tests.support.processes import launch
from tests.support.runs import in_turns, make_run, open_loaders

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 70, "b.jsonl": 50}})


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents(tmp_path_factory.mktemp("gated"))


def walk(run: Run, **settings: Any) -> list[Loader]:
    loaders = open_loaders(run, **settings)
    for _ in in_turns(loaders):
        pass
    for loader in loaders:
        loader.close()
    return loaders


def stores(run: Run) -> dict[tuple[int, int], StoreOfRank]:
    return {(each.attempt, each.rank): each for each in list_store(run).ranks}


def stored(run: Run, step: int, rank: int, attempt: int = 1) -> list[KeptMicrobatch]:
    path = run.layout.store(attempt, step, rank)
    return read_store(path, run=run.run_id, attempt=attempt, rank=rank, step=step)[1]


@pytest.mark.parametrize("num_threads", [0, 2])
def test_all_that_two_ranks_delivered_stands(corpus: Corpus, tmp_path: Path, num_threads: int) -> None:
    run = make_run(tmp_path / "run", corpus, first_label=1)
    loaders = open_loaders(run, world_size=2, microbatch_size=2, steps=5, store="all", num_threads=num_threads)
    taken = [microbatch for step in in_turns(loaders) for microbatch in step]
    for loader in loaders:
        loader.close()
    assert {key: (each.steps, each.num_lost, each.live) for key, each in stores(run).items()} == {
        (1, 0): (((1, 6),), 0, False),
        (1, 1): (((1, 6),), 0, False),
    }
    for microbatch in taken:
        address = microbatch.address
        one = stored(run, address.step, address.rank)[address.microbatch]
        assert (one.digest, one.records(), one.slots) == (microbatch.digest, microbatch.records, microbatch.slots)


def test_windows_are_kept_as_ids(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"books": {"t.npy": 400}}), form="window", seq_len=8)
    (loader,) = open_loaders(run, microbatch_size=8, steps=2, store="all")
    taken = list(loader)
    for step, microbatch in enumerate(taken):
        (one,) = stored(run, step, 0)
        assert microbatch.ids is not None
        assert (one.form, one.digest, one.ids().tolist()) == ("ids", microbatch.digest, microbatch.ids.tolist())


def test_each_attempt_keeps_its_last_steps(corpus: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", corpus)
    walk(run, microbatch_size=4, steps=6, store="last:2")
    walk(run, microbatch_size=4, steps=3, store="last:2", from_step=4)
    walk(run, microbatch_size=4, steps=1, from_step=6, parent=2)
    assert {key: each.steps for key, each in stores(run).items()} == {(1, 0): ((4, 6),), (2, 0): ((5, 7),)}


def test_flagged_keeps_the_microbatches_that_a_verdict_is_about(gated: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", gated)
    walk(run, microbatch_size=2, steps=12, store="flagged", policy=read_policy(rule("mask"), name="test"))
    records = merge(list(Index(run.layout).records(1)))
    wanted: dict[int, set[int]] = {}
    for record in records[records["verdict"] >= Verdict.MASK]:
        wanted.setdefault(int(record["step"]), set()).add(int(record["microbatch"]))
    assert wanted
    assert len(wanted) < 12 or any(len(each) < 4 for each in wanted.values()), "not everything is flagged"
    found = {step: {one.microbatch for one in stored(run, step, 0)} for step in wanted}
    assert found == wanted
    (store,) = stores(run).values()
    assert (store.num_steps, store.num_lost) == (len(wanted), 0)


def test_flags_alone_are_no_reason_unless_their_rule_is_listed(gated: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", gated)
    flag = read_policy(rule("flag"), name="test")
    walk(run, microbatch_size=2, steps=6, store="flagged", policy=flag)
    walk(run, microbatch_size=2, steps=6, store="flagged:low", policy=flag, from_step=0)
    found = stores(run)
    assert found[1, 0].num_steps == 0
    assert found[2, 0].num_steps > 0
    assert found[2, 0].num_lost == 0


def test_rules_that_nobody_has_are_refused_before_anything_is_delivered(gated: Corpus, tmp_path: Path) -> None:
    for number, (settings, why) in enumerate(
        (
            ({"store": "flagged"}, "no policy judges"),
            ({"store": "flagged", "policy": "none"}, "no policy judges"),
            ({"store": "flagged:lo", "policy": read_policy(rule("mask"), name="test")}, "no rule 'lo'"),
            ({"store": "some"}, "last:N"),
            ({"store": "all", "store_budget_bytes": 0}, "at least 1"),
        )
    ):
        run = make_run(tmp_path / str(number), gated)
        with pytest.raises(UsageError, match=why):
            walk(run, microbatch_size=8, steps=1, **settings)
        assert stores(run) == {}
        assert not list(Index(run.layout).records(1))
        assert len(run.attempts()) == (number == 0), "where it can be told before, no attempt begins"


def test_what_a_budget_cuts_off_is_counted_and_said(corpus: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", corpus)
    (loader,) = walk(run, microbatch_size=8, steps=6, store="all", store_budget_bytes=1_500)
    (store,) = stores(run).values()
    assert 0 < store.num_steps < 6
    assert store.size_bytes <= 1_500
    assert store.let_go == {"budget": 6 - store.num_steps}
    assert store.num_lost == 0
    assert any(f"let go of {6 - store.num_steps} microbatches" in note for note in loader.notes)


@pytest.mark.parametrize("keep", ["all", "last:4"])
def test_a_kill_loses_nothing_without_a_count(corpus: Corpus, tmp_path: Path, keep: str) -> None:
    """The thread that writes is held up, so what was delivered waits in memory when the kill comes."""
    run = make_run(tmp_path / "run", corpus)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            (loader,) = open_loaders(run, microbatch_size=4, store=keep, num_threads=1)
            real, left = store_module.encode_store, [3]

            def slow(*args: Any) -> bytes:
                left[0] -= 1
                if left[0] < 0:
                    threading.Event().wait(60)
                return real(*args)

            store_module.encode_store = slow
            for microbatch in loader:
                if microbatch.step == 8:
                    os.write(write_end, b".")
                    signal.pause()
        finally:
            os._exit(1)
    assert os.read(read_end, 1) == b"."
    for _ in range(3_000):
        if run.layout.store(1, 2, 0).exists():
            break
        threading.Event().wait(0.01)
    (store,) = stores(run).values()
    assert store.live, "and what it lacks may be on its way"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read_end)
    os.close(write_end)
    (store,) = stores(run).values()
    assert not store.live
    delivered = 8 * 2 + 1
    if keep == "all":
        assert (store.steps, store.num_lost) == (((0, 3),), delivered - 3 * 2)
        assert store.lost_steps == tuple(range(3, 9))
    else:
        assert (store.steps, store.num_lost) == (((0, 3),), 3 * 2 + 1), "of the last four steps, in hand the last"


def test_a_file_that_somebody_removed_is_lost(corpus: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", corpus)
    walk(run, microbatch_size=4, steps=4, store="all")
    shutil.rmtree(run.layout.store(1, 2, 0).parent)
    (store,) = stores(run).values()
    assert (store.num_lost, store.lost_steps) == (2, (2,))


# -- pruning


@pytest.fixture
def two(corpus: Corpus, tmp_path: Path) -> Run:
    run = make_run(tmp_path / "run", corpus, first_label=1)
    walk(run, world_size=2, microbatch_size=4, steps=6, store="all")
    walk(run, microbatch_size=4, steps=3, store="all", from_step=2)
    return run


def steps_of(run: Run) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    return {key: each.steps for key, each in stores(run).items()}


def test_a_dry_run_removes_nothing(two: Run) -> None:
    before = steps_of(two)
    told = prune_store(two, attempt=1, dry_run=True)
    assert (told.num_steps, told.dry_run, told.size_bytes > 0) == (12, True, True)
    assert all((two.path / file).is_file() for file in told.files)
    assert steps_of(two) == before


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"attempt": 1}, {(1, 0): (), (1, 1): (), (2, 0): ((3, 6),)}),
        ({"steps": (2, 5)}, {(1, 0): ((1, 2), (5, 7)), (1, 1): ((1, 2), (5, 7)), (2, 0): ((5, 6),)}),
        ({"keep_last": 1}, {(1, 0): ((6, 7),), (1, 1): ((6, 7),), (2, 0): ((5, 6),)}),
        ({"attempt": 1, "rank": 1, "keep_last": 2}, {(1, 0): ((1, 7),), (1, 1): ((5, 7),), (2, 0): ((3, 6),)}),
        ({"steps": (0, 1)}, {(1, 0): ((1, 7),), (1, 1): ((1, 7),), (2, 0): ((3, 6),)}),
    ],
)
def test_what_is_asked_for_goes_and_is_not_lost(
    two: Run, asked: dict[str, Any], left: dict[tuple[int, int], tuple[tuple[int, int], ...]]
) -> None:
    before = sum(each.num_steps for each in stores(two).values())
    told = prune_store(two, **asked)
    assert steps_of(two) == left
    found = stores(two).values()
    assert told.num_steps == before - sum(each.num_steps for each in found) == sum(each.num_pruned for each in found)
    assert sum(each.num_lost for each in found) == 0
    assert prune_store(two, **asked).num_steps == 0 or "keep_last" in asked


def test_what_to_remove_must_be_said(two: Run) -> None:
    with pytest.raises(UsageError, match="--keep-last"):
        prune_store(two)


def test_a_rank_that_is_being_written_is_left_alone(corpus: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", corpus)
    (loader,) = open_loaders(run, microbatch_size=8, store="all")
    for _ in range(3):
        loader.take_step()
    told = prune_store(run, attempt=1)
    assert told.num_steps == 0
    assert prune_store(run, attempt=1, dry_run=True).num_steps == 0, "a dry run says what would happen"
    assert "rank 0 of attempt 1 was left alone: rank 0 of attempt 1 is still being written" in told.notes
    loader.close()
    assert prune_store(run, attempt=1).num_steps == 3


# -- damage


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def damage_settings(run: Run, how: str) -> None:
    layout = run.layout
    mine, theirs = layout.store_settings(1, 1), layout.store_settings(1, 0)
    match how:
        case "gone":
            mine.unlink()
        case "cut":
            mine.write_bytes(mine.read_bytes()[:40])
        case "no rule":
            rewrite(mine, b'"all"', b'"lots"')
        case "another run's":
            rewrite(mine, run.run_id.encode(), b"0" * 32)
        case "another rank's":
            shutil.copy(theirs, mine)
        case "of no rank":
            layout.store_settings(1, 7).write_bytes(theirs.read_bytes().replace(b'"rank":0', b'"rank":7'))


@pytest.mark.parametrize("how", ["gone", "cut", "no rule", "another run's", "another rank's", "of no rank"])
def test_settings_that_cannot_be_relied_on_are_told_and_stop_nothing(two: Run, how: str) -> None:
    damage_settings(two, how)
    found = stores(two)
    bad = (1, 7) if how == "of no rank" else (1, 1)
    assert {key for key, each in found.items() if each.problems} == {bad}
    assert (found[1, 0].steps, found[1, 0].num_lost) == (((1, 7),), 0)
    check = {each.name: each for each in verify_run(Lookup(two)).checks}["store"]
    assert [fault.kind for fault in check.faults] == ["damaged"]
    assert prune_store(two, attempt=1).num_steps == 12, "what nobody knows the rule of can be removed as well"


def test_a_ledger_that_is_another_ranks_is_told_and_never_written(two: Run) -> None:
    prune_store(two, attempt=1, rank=0, steps=(1, 3))
    mine, theirs = two.layout.store_ledger(1, 1), two.layout.store_ledger(1, 0)
    shutil.copy(theirs, mine)
    found = stores(two)
    assert found[1, 1].num_pruned == 0
    assert "another file in this one's place" in found[1, 1].problems[0]
    assert [fault.kind for check in verify_run(Lookup(two)).checks for fault in check.faults] == ["damaged"]
    before = mine.read_bytes()
    told = prune_store(two, attempt=1)
    assert told.num_steps == 4
    assert "rank 1 of attempt 1 was left alone" in told.notes[0]
    assert mine.read_bytes() == before


def test_what_is_no_step_folder_is_none_of_the_stores_business(two: Run) -> None:
    folder = two.layout.store_attempt(1)
    before = steps_of(two)
    (folder / "step-000000099").write_text("notes")
    (folder / "step-000000000" / "rank=00001.json").write_text("{}")
    assert steps_of(two) == before
    assert verify_run(Lookup(two)).ok


def test_files_without_their_ranks_seals_can_be_removed(two: Run) -> None:
    shutil.rmtree(two.layout.seals_attempt(1))
    assert prune_store(two, attempt=1, keep_last=2).num_steps == 8


# -- through the loader


def test_a_disk_that_fills_up_ends_the_attempt_with_its_words(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", corpus)
    real, left = store_module.publish, [2]

    def publish(path: Path, content: bytes, *, tmp: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise write_failed(path, OSError(errno.ENOSPC, "No space left on device"))
        real(path, content, tmp=tmp)

    monkeypatch.setattr(store_module, "publish", publish)
    (loader,) = open_loaders(run, microbatch_size=8, steps=9, store="all", num_threads=1)
    taken: list[Any] = []

    def train() -> None:
        while step := loader.take_step():
            taken.extend(step)
            for _ in range(3_000):  # as long as a step takes, the thread has time to write
                if not loader._walking.keeper._writer._shared.pending_bytes:  # type: ignore[union-attr]
                    break
                threading.Event().wait(0.01)

    with pytest.raises(WriteFailed, match="No space left on device") as told:
        train()
    assert told.value.exit_code == 4
    assert "keep less in the store" in str(told.value)
    assert [microbatch.step for microbatch in taken] == [0, 1, 2]
    with pytest.raises(WriteFailed):
        loader.close()
    (store,) = stores(run).values()
    assert (store.steps, store.let_go, store.num_lost) == (((0, 2),), {"disk": 1}, 0)
    assert len(merge(list(Index(run.layout).records(1)))) == 3 * 8, "what was handed over is on record"


def test_ranks_in_processes_of_their_own_share_step_folders(corpus: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", corpus)
    words = {"run": str(run.path), "world_size": 2, "microbatch_size": 4, "steps": 12, "launch_id": "one"}
    answers = launch([{**words, "rank": rank, "store": "last:2"} for rank in (0, 1)])
    assert all("error" not in answer for answer in answers)
    assert {key: (each.steps, each.num_lost) for key, each in stores(run).items()} == {
        (1, 0): (((10, 12),), 0),
        (1, 1): (((10, 12),), 0),
    }
    folders = sorted(path.name for path in run.layout.store_attempt(1).iterdir() if path.is_dir())
    assert folders == ["step-000000010", "step-000000011"]
