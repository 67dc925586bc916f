"""What ranks tell each other through a store: every value, every way not to come, and never a wait without a bound."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from dataguard.errors import AttemptError, RankMissing, RanksDisagree
from dataguard.torch.ranks.peers import StorePeers
from tests.support.thread_peers import in_threads


def peers(
    store: Any, rank: int, world_size: int = 3, *, seconds: float = 20, session: int = 0, **more: Any
) -> StorePeers:
    return StorePeers(
        store, rank=rank, world_size=world_size, name="all", timeout_seconds=seconds, session=session, **more
    )


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store_of(request, tmp_path: Path):
    """A store as each way to initialise a group has it: one for each rank."""
    if request.param == "file":
        return lambda _: dist.FileStore(str(tmp_path / "store"), 3)
    store = {
        "hash": dist.HashStore,
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, is_master=True),
        "prefix": lambda: dist.PrefixStore("/worker/attempt_1", dist.HashStore()),
    }[request.param]()
    return lambda _: store


def test_values_of_all_ranks_in_their_order(store_of) -> None:
    def work(rank: int) -> Any:
        mine = peers(store_of(rank), rank)
        time.sleep(0.02 * (2 - rank))
        return mine.gather({"rank": rank}), mine.broadcast(f"of {rank}"), mine.gather(rank * b"\x00\xff")

    told = ([{"rank": 0}, {"rank": 1}, {"rank": 2}], "of 0", [b"", b"\x00\xff", b"\x00\xff\x00\xff"])
    assert in_threads(3, work) == [told] * 3


@pytest.mark.parametrize("gone", [{0}, {1}, {2}, {0, 2}, {1, 2}])
@pytest.mark.parametrize("call", ["gather", "broadcast"])
def test_who_does_not_come_is_named_by_all_who_did(gone, call) -> None:
    store = dist.HashStore()

    def work(rank: int) -> Any:
        if rank in gone:
            return None
        mine = peers(store, rank, seconds=0.3)
        return mine.gather(rank) if call == "gather" else mine.broadcast(rank)

    for rank, answer in enumerate(in_threads(3, work)):
        if rank in gone:
            continue
        if call == "broadcast" and 0 not in gone:
            assert answer == 0, "a broadcast needs nobody but rank 0"
            continue
        assert isinstance(answer, RankMissing)
        named = gone if call == "gather" else {0}
        assert answer.asked == f"{', '.join(f'rank {one}' for one in sorted(named))} did not come (3 were to)"
        assert "waited 0.3 s" in str(answer)


def test_a_rank_that_comes_to_an_earlier_call_alone_is_named(store_of) -> None:
    def work(rank: int) -> Any:
        mine = peers(store_of(rank), rank, seconds=0.4)
        assert mine.gather(rank) == [0, 1, 2]
        return None if rank == 1 else mine.gather(rank)

    answers = in_threads(3, work)
    assert [str(answers[rank]).partition("\n")[0] for rank in (0, 2)] == ["rank 1 did not come (3 were to)"] * 2


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_a_rank_that_cannot_come_ends_all_at_once_in_its_words(store_of, odd, late) -> None:
    def work(rank: int) -> Any:
        mine = peers(store_of(rank), rank)
        if rank != odd:
            return mine.gather(rank)
        if late:
            time.sleep(0.2)
        with mine.announcing():
            raise AttemptError("this is no state", found="a shoe")

    answers = in_threads(3, work)
    assert isinstance(answers[odd], AttemptError)
    for rank in {0, 1, 2} - {odd}:
        assert isinstance(answers[rank], RanksDisagree)
        assert f"rank {odd} could not begin" in str(answers[rank])
        assert "AttemptError: this is no state" in str(answers[rank])
        assert "a shoe" in str(answers[rank])


def test_the_next_launch_of_the_same_ranks_hears_nothing_of_the_last() -> None:
    store = dist.HashStore()

    def work(rank: int) -> Any:
        first = peers(store, rank, session=0)
        if rank == 1:
            first.announce(ValueError("no"))
        else:
            with pytest.raises(RanksDisagree):
                first.gather(rank)
        return peers(store, rank, session=1).gather(rank)

    assert in_threads(3, work) == [[0, 1, 2]] * 3


def test_what_failed_stays_failed_whoever_asks_again() -> None:
    """Ranks fail in different calls, so their next ones would not be the same call."""
    store = dist.HashStore()

    def work(rank: int) -> Any:
        mine = peers(store, rank, seconds=0.3)
        return mine.gather(rank) if rank == 1 else mine.broadcast(rank)

    first = in_threads(3, lambda rank: work(rank) if rank else None)
    assert [type(error) for error in first[1:]] == [RankMissing] * 2
    for rank in range(3):
        for _ in range(2):
            with pytest.raises(RankMissing, match=r"^rank 0"):
                peers(store, rank).gather(rank)


def test_a_store_whose_process_died_is_said_to_be_gone() -> None:
    held = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=2))
    guest = dist.TCPStore("127.0.0.1", held.port, is_master=False, timeout=timedelta(seconds=2))
    mine = peers(guest, 1)
    del held
    with pytest.raises(RankMissing, match="store of the process group does not answer"):
        mine.gather(1)


def test_long_lists_of_the_missing_are_cut() -> None:
    with pytest.raises(RankMissing, match=r"rank 16 and 495 more did not come \(512 were to\)"):
        peers(dist.HashStore(), 0, 512, seconds=0.01).gather(0)
