"""Reading ahead: in order, bounded, and errors where their result would have come."""

from __future__ import annotations

import threading
import time

import pytest

from dataguard.loader.prefetch import ahead


@pytest.mark.parametrize("num_threads", [0, 1, 4])
def test_results_come_in_order(num_threads) -> None:
    def slow_first(x: int) -> int:
        time.sleep(0.02 if x % 3 == 0 else 0.0)
        return x * x

    assert list(ahead(slow_first, range(20), num_threads=num_threads, depth=5)) == [x * x for x in range(20)]


@pytest.mark.parametrize("num_threads", [0, 3])
def test_an_error_comes_where_its_result_would_have_come(num_threads) -> None:
    def failing(x: int) -> int:
        if x in {4, 5}:
            raise ValueError(str(x))
        return x

    found = ahead(failing, range(9), num_threads=num_threads, depth=4)
    assert [next(found) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="4"):
        next(found)
    with pytest.raises(StopIteration):
        next(found)


@pytest.mark.parametrize("num_threads", [0, 3])
def test_an_error_of_the_items_comes_after_all_results_before_it(num_threads) -> None:
    def items():
        yield from range(3)
        raise KeyError("no more")

    found = ahead(lambda x: x, items(), num_threads=num_threads, depth=10)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="no more"):
        next(found)


def test_no_more_than_depth_is_ahead() -> None:
    begun: list[int] = []
    found = ahead(lambda x: begun.append(x) or x, range(100), num_threads=2, depth=3)
    for taken in range(1, 20):
        next(found)
        assert len(begun) <= taken + 3
    found.close()
    assert len(begun) <= 22


def test_closing_ends_the_threads_and_begins_nothing_more() -> None:
    before = set(threading.enumerate())
    begun: list[int] = []

    def slow(x: int) -> int:
        begun.append(x)
        time.sleep(0.01)
        return x

    found = ahead(slow, range(1000), num_threads=2, depth=50)
    next(found)
    found.close()
    assert set(threading.enumerate()) == before
    assert len(begun) < 60


def test_nothing_is_begun_before_the_first_result_is_asked_for() -> None:
    begun: list[int] = []
    before = set(threading.enumerate())
    found = ahead(begun.append, range(5), num_threads=2, depth=2)
    assert begun == []
    assert set(threading.enumerate()) == before
    found.close()
