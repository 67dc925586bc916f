"""The cache of decoded blocks: bounded, least recently used, one load for all."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.block_cache import BlockCache


@dataclass
class Kept:
    num_bytes: int


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 40)), max_size=60))
def test_it_keeps_what_a_naive_cache_keeps(asked: list[tuple[int, int]]) -> None:
    cache: BlockCache[Kept] = BlockCache(100)
    naive: list[tuple[int, int]] = []  # least recently used first
    for key, num_bytes in asked:
        known = dict(naive).get(key)
        loads: list[int] = []
        value = cache.get(key, lambda n=num_bytes, seen=loads: seen.append(n) or Kept(n))
        assert bool(loads) == (known is None)
        naive = [entry for entry in naive if entry[0] != key] + [(key, known or num_bytes)]
        while sum(size for _, size in naive) > 100:
            naive.pop(0)
        assert value.num_bytes == (known or num_bytes)
        assert cache.held_bytes == sum(size for _, size in naive)
        assert [k for k in range(9) if k in cache] == sorted(k for k, _ in naive)


def test_what_is_larger_than_the_limit_is_handed_out_and_not_kept() -> None:
    cache: BlockCache[Kept] = BlockCache(10)
    cache.get("small", lambda: Kept(9))
    assert cache.get("large", lambda: Kept(11)).num_bytes == 11
    assert "large" not in cache
    assert "small" in cache


def test_one_load_serves_all_who_wait() -> None:
    cache: BlockCache[Kept] = BlockCache(10)
    loads: list[float] = []
    barrier = threading.Barrier(6)

    def load() -> Kept:
        loads.append(time.monotonic())
        time.sleep(0.05)
        return Kept(1)

    def ask(_: int) -> Kept:
        barrier.wait(timeout=10)
        return cache.get("key", load)

    with ThreadPoolExecutor(6) as pool:
        values = list(pool.map(ask, range(6)))
    assert len(loads) == 1
    assert all(value is values[0] for value in values)


def test_a_load_that_fails_fails_for_all_and_is_tried_anew() -> None:
    cache: BlockCache[Kept] = BlockCache(10)
    barrier = threading.Barrier(2)

    def failing() -> Kept:
        barrier.wait(timeout=10)
        time.sleep(0.05)
        raise OSError("gone")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "key", failing)
        barrier.wait(timeout=10)
        second = pool.submit(cache.get, "key", lambda: Kept(2))
        with pytest.raises(OSError, match="gone"):
            first.result()
        assert isinstance(second.exception(), OSError | None)  # it waited for the failure, or came after it
    assert cache.get("key", lambda: Kept(3)).num_bytes in {2, 3}


def test_a_forked_child_is_not_locked_out() -> None:
    cache: BlockCache[Kept] = BlockCache(10)
    cache.get("key", lambda: Kept(1))
    with cache._lock:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if "key" not in cache and cache.get("key", lambda: Kept(5)).num_bytes == 5 else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.get("key", lambda: Kept(9)).num_bytes == 1
