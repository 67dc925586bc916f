"""The batch store of one rank: what is kept stands whole, what is not is counted, and nothing waits."""

from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from dataguard.errors import UsageError, WriteFailed, WriterConflict
from dataguard.gate.policy import named_policy
from dataguard.run import store as store_module
from dataguard.run.layout import Layout
from dataguard.run.store import StoreWriter
from dataguard.run.store_account import standing
from dataguard.run.store_ledger import LetGo, read_let_go, read_settings
from dataguard.run.store_rule import FLAGGED_BUDGET_BYTES, StoreRule
from tests.run.dying import in_a_child, memory_folder
from tests.run.storing import contents, kept, open_store, put, read

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def let_go(root: Path, *, attempt: int = 1, rank: int = 0) -> list[tuple[int, int, str]]:
    records, damage = read_let_go(Layout(root), attempt, rank)
    assert damage == ()
    return [(step, number, LetGo(reason).text) for step, number, _, reason in records.tolist()]


# -- the rule


@pytest.mark.parametrize("text", ["none", "all", "last:1", "last:20", "flagged", "flagged:a,b"])
def test_a_rule_is_read_and_spelled_the_same(text: str) -> None:
    assert str(StoreRule.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "last", "last:0", "last:-1", "last:x", "flagged:", "flagged:a,,b", "all:3", "most"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="last:N"):
        StoreRule.parse(text)


def test_rules_of_a_policy_are_known() -> None:
    policy = named_policy("default")
    first, second = policy.rules[0].name, policy.rules[1].name
    assert StoreRule.parse(f"flagged:{second},{first}").bits(policy) == 0b11
    with pytest.raises(UsageError, match="no rule 'nonsense'"):
        StoreRule.parse(f"flagged:{first},nonsense").bits(policy)
    with pytest.raises(UsageError, match="no policy"):
        StoreRule.parse("flagged").bits(None)


# -- keeping


@pytest.mark.parametrize("background", [False, True])
def test_what_is_kept_comes_back(tmp_path: Path, background: bool) -> None:
    store = open_store(tmp_path, background=background)
    for step in range(3):
        put(store, step, 2)
    store.close()
    for step in range(3):
        assert [contents(each) for each in read(tmp_path, step)] == [contents(kept(step, n)) for n in range(2)]
    assert store.notes == ()
    assert list((tmp_path / "tmp").iterdir()) == []
    settings = read_settings(Layout(tmp_path), 1, 0)
    assert settings is not None
    assert settings.keep == "all"


def test_the_trainer_may_change_what_it_was_handed(tmp_path: Path) -> None:
    store = open_store(tmp_path, background=True)
    handed = kept(0)
    before = contents(handed)
    store.offer(0, lambda: handed, last_of_step=False)
    handed.tensors["input_ids"].data[:] = bytes(64)
    assert contents(handed) != before
    store.offer(0, None, last_of_step=True)
    store.close()
    assert contents(read(tmp_path, 0)[0]) == before


def test_only_what_is_wanted_is_in_the_file(tmp_path: Path) -> None:
    with_some = open_store(tmp_path)
    for number in range(4):
        with_some.offer(0, (lambda: kept(0, 2)) if number == 2 else None, last_of_step=number == 3)
    with_some.offer(1, None, last_of_step=True)
    with_some.close()
    assert [each.microbatch for each in read(tmp_path, 0)] == [2]
    assert list(standing(Layout(tmp_path), 1)[0]) == [0]


def test_a_step_in_hand_is_kept_at_the_end(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.offer(0, lambda: kept(0, 0), last_of_step=False)
    store.close()
    store.close()
    assert [each.microbatch for each in read(tmp_path, 0)] == [0]


def test_a_rank_of_an_attempt_has_one_store_ever(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(WriterConflict, match="has had its writer"):
        open_store(tmp_path)


# -- last:N


def test_older_steps_go_when_the_newer_one_stands(tmp_path: Path) -> None:
    old = open_store(tmp_path, "last:2", attempt=1)
    for step in range(5):
        put(old, step)
    old.close()
    ranks = [
        open_store(tmp_path, "last:2", attempt=2, rank=rank, first_step=3, background=rank == 1) for rank in (0, 1)
    ]
    for step in (3, 4, 6):
        for rank in ranks:
            put(rank, step)
    for rank in ranks:
        rank.close()
    layout = Layout(tmp_path)
    assert {rank: list(steps) for rank, steps in standing(layout, 1).items()} == {0: [3, 4]}, "another attempt's files"
    assert {rank: list(steps) for rank, steps in standing(layout, 2).items()} == {0: [4, 6], 1: [4, 6]}
    folders = sorted(path.name for path in layout.store_attempt(2).iterdir() if path.is_dir())
    assert folders == ["step-000000004", "step-000000006"], "no empty folder is left"


def test_nothing_older_goes_while_the_newer_one_does_not_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, "last:1")
    put(store, 0)

    def full(*args: object, **kwargs: object) -> None:
        raise WriteFailed("cannot write: No space left on device")

    monkeypatch.setattr(store_module, "publish", full)
    with pytest.raises(WriteFailed, match="No space left"):
        put(store, 1)
    assert list(standing(Layout(tmp_path), 1)[0]) == [0]
    assert let_go(tmp_path) == [(1, 0, "disk")]


@pytest.mark.parametrize("background", [True, False])
def test_whatever_fails_while_a_step_is_kept_is_told_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    def short(*args: object) -> bytes:
        raise MemoryError("no room for a compressor")

    monkeypatch.setattr(store_module, "encode_store", short)
    store = open_store(tmp_path, "all", background=background)

    def walk() -> None:
        for step in range(2):
            put(store, step)
        store.close()

    with pytest.raises(WriteFailed, match="no room for a compressor"):
        walk()
    assert (0, 0, "disk") in let_go(tmp_path)
    with pytest.raises(WriteFailed):
        store.check()


def test_ranks_that_remove_and_make_the_same_folders_meet_without_harm(tmp_path: Path) -> None:
    """Each removes what it no longer keeps, and the folder with it, while the other is about to use that."""

    def walk(rank: int) -> None:
        store = open_store(tmp_path, "last:1", rank=rank)
        for step in range(60):
            put(store, step)
        store.close()

    threads = [threading.Thread(target=walk, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {rank: list(steps) for rank, steps in standing(Layout(tmp_path), 1).items()} == {r: [59] for r in range(3)}


# -- what does not fit


def test_a_full_queue_lets_go_and_counts_and_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = store_module.encode_store

    def slow(*args: object) -> bytes:
        assert gate.wait(30)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store_module, "encode_store", slow)
    one = kept(0).num_bytes
    store = open_store(tmp_path, background=True, queue_bytes=3 * one)
    for step in range(6):
        put(store, step)  # would hang here if it waited
    assert let_go(tmp_path) == [(step, 0, "queue") for step in (3, 4, 5)], "before anything is written"
    gate.set()
    store.close()
    assert list(standing(Layout(tmp_path), 1)[0]) == [0, 1, 2]
    assert store.notes == ("the store of rank 0 let go of 3 microbatches (3 queue): see `dataguard store list`",)


def test_a_budget_is_never_exceeded(tmp_path: Path) -> None:
    size = 4_000
    first = open_store(tmp_path / "unbounded")
    put(first, 0, num_bytes=size)
    first.close()
    (one,) = standing(Layout(tmp_path / "unbounded"), 1)[0].values()
    budget = 3 * one + one // 2
    store = open_store(tmp_path, "flagged", budget_bytes=budget)
    for step in range(5):
        put(store, step, num_bytes=size)
    put(store, 5, num_bytes=64)  # a small one still fits
    store.close()
    stands = standing(Layout(tmp_path), 1)[0]
    assert list(stands) == [0, 1, 2, 5]
    assert sum(stands.values()) <= budget
    assert let_go(tmp_path) == [(3, 0, "budget"), (4, 0, "budget")]


def test_what_is_flagged_has_a_budget_unless_told(tmp_path: Path) -> None:
    open_store(tmp_path, "flagged").close()
    settings = read_settings(Layout(tmp_path), 1, 0)
    assert settings is not None
    assert settings.budget_bytes == FLAGGED_BUDGET_BYTES


def test_what_no_file_may_hold_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_BYTES", 200)
    store = open_store(tmp_path)
    put(store, 0, 2)
    store.close()
    assert [each.microbatch for each in read(tmp_path, 0)] == [0]
    assert let_go(tmp_path) == [(0, 1, "too large")]


# -- the disk


def full_disk(folder: Path, *, background: bool) -> None:
    """Child: a limit on file sizes stands for the disk, and comes in the midst of a write."""
    store = open_store(folder, background=background)
    put(store, 0)
    if background:
        store._shared.jobs.put(None)  # written before the limit comes
        assert store._thread is not None
        store._thread.join()
        store._thread = threading.Thread(target=store_module._serve, args=(store._shared,), daemon=True)
        store._thread.start()
    # The ledger is made while there is room, as it is on a disk that fills up.
    store._shared.ledger.add(9, 9, 1, LetGo.QUEUE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192))
    told = []
    for step in (1, 2):
        try:
            put(store, step, num_bytes=1 << 15 if step == 1 else 64)
            if background:
                deadline = 3_000
                while store._shared.failure is None and deadline:
                    threading.Event().wait(0.01)
                    deadline -= 1
        except WriteFailed as error:
            told.append((step, str(error)))
    try:
        store.close()
    except WriteFailed as error:
        told.append((99, str(error)))
    assert [step for step, _ in told] == ([2, 99] if background else [1, 2, 99]), told
    assert all("File too large" in text and "keep less in the store" in text for _, text in told), told


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_is_told_at_the_next_hand_over_and_counted(background: bool) -> None:
    with memory_folder() as folder:
        assert in_a_child(lambda: full_disk(folder, background=background)) == 0
        assert list(standing(Layout(folder), 1)[0]) == [0], "what stood stands, and nothing half"
        assert (1, 0, "disk") in let_go(folder)
        assert list((folder / "tmp").iterdir()) == []


# -- processes


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, background=True)
    store.offer(0, lambda: kept(0), last_of_step=False)

    def child() -> None:
        with pytest.raises(WriterConflict, match="forked child"):
            store.offer(0, lambda: kept(0, 1), last_of_step=True)
        store.close()

    assert in_a_child(child) == 0
    assert standing(Layout(tmp_path), 1) == {}
    store.close()
    assert [each.microbatch for each in read(tmp_path, 0)] == [0]


@pytest.mark.parametrize("keep", ["all", "last:3"])
def test_a_kill_leaves_whole_files_or_none(keep: str) -> None:
    """SIGKILL at many moments of writing: each file that has its final name is whole."""
    stood = set()
    with memory_folder() as folder:
        for number in range(12):
            root = folder / str(number)
            read_end, write_end = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    store = open_store(root, keep, background=True)
                    os.write(write_end, b".")
                    for step in range(100_000):
                        put(store, step, num_bytes=1 << 16)
                finally:
                    os._exit(1)
            os.read(read_end, 1)
            threading.Event().wait(0.004 * number)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read_end)
            os.close(write_end)
            steps = list(standing(Layout(root), 1).get(0, {}))
            for step in steps:
                assert contents(read(root, step)[0]) == contents(kept(step, num_bytes=1 << 16))
            if keep != "all":
                assert len(steps) <= 4, "a newer one stands before the oldest goes"
            stood.add(len(steps))
    assert len(stood) > 1, "the kills came at different moments"


def test_a_store_that_is_dropped_ends_its_thread(tmp_path: Path) -> None:
    store: StoreWriter | None = open_store(tmp_path, background=True)
    assert store is not None
    thread = store._thread
    assert thread is not None
    put(store, 0)
    store = None
    thread.join(30)
    assert not thread.is_alive()
    assert list(standing(Layout(tmp_path), 1)[0]) == [0]
