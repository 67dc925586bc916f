"""K11, randomness (G21, G22): nothing depends on the process, and no two seeds, epochs or ranks share an order."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.errors import PlanError
from dataguard.plan.plan import Plan
from tests.support.fingerprint import SEEDS, fingerprint, order
from tests.support.processes import environment
from tests.support.rows import id_of, rows_in
from tests.support.runs import in_turns, make_run, open_loaders, slots_of


def found(folder: Path, hash_seed: str | None, *words: str) -> dict[str, Any]:
    """The fingerprint that a fresh process computes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fingerprint", str(folder), *words],
        env=environment(PYTHONHASHSEED=hash_seed),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made: Path = tmp_path_factory.mktemp("rows64")
    rows_in(made, [10, 20, 30, 4], block_bytes=300)
    return made


@pytest.fixture(scope="module")
def fingerprints(folder) -> dict[str, dict[str, Any]]:
    asked: dict[str, Callable[[], dict[str, Any]]] = {
        "0": lambda: found(folder, "0"),
        "1": lambda: found(folder, "1"),
        "12345": lambda: found(folder, "12345"),
        "unset": lambda: found(folder, None),
        "spawn": lambda: found(folder, None, "--spawn"),
    }
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(asked, pool.map(lambda ask: ask(), asked.values()), strict=True))


# -- G21


@pytest.mark.parametrize("which", ["1", "12345", "unset", "spawn"])
def test_nothing_depends_on_the_process(fingerprints, which) -> None:
    assert fingerprints[which] == fingerprints["0"]


def test_the_fingerprint_would_tell(fingerprints, tmp_path) -> None:
    """What was compared holds what it should: another corpus changes all of it."""
    rows_in(tmp_path, [10, 20, 31, 4], block_bytes=300)
    other = json.loads(json.dumps(fingerprint(str(tmp_path))))
    same = {name for name, value in other.items() if value == fingerprints["0"][name]}
    assert same <= {"names", "verify"}


# -- G22


def test_orders_differ_pairwise_and_repeat_exactly_in_another_process(folder, fingerprints) -> None:
    corpus = rows_in_again(folder)
    orders = [order(corpus, seed, epoch) for seed, epoch in SEEDS]
    for one, other in itertools.combinations(orders, 2):
        assert one != other
    assert orders == fingerprints["12345"]["orders"] == fingerprints["spawn"]["orders"]


def rows_in_again(folder: Path):
    from dataguard.corpus.corpus import Corpus

    return Corpus.open(folder / "M.parquet")


def test_each_epoch_is_64_different_rows_over_four_ranks(tmp_path, folder) -> None:
    run = make_run(tmp_path / "run", rows_in_again(folder), lanes=4, seed=0)
    loaders = open_loaders(run, world_size=4, microbatch_size=1, epochs=2)
    held: dict[int, list[int]] = {rank: [] for rank in range(4)}
    for taken in in_turns(loaders):
        for microbatch in taken:
            held[microbatch.address.rank] += [id_of(slot) for slot in slots_of(microbatch) if slot is not None]
    for loader in loaders:
        loader.close()
    for epoch in range(2):
        rows = [row for rank in range(4) for row in held[rank][16 * epoch : 16 * epoch + 16]]
        assert sorted(rows) == list(range(64))
    assert all(held[rank][:16] != held[rank][16:] for rank in range(4)), "no rank goes the same way twice"
    assert all(held[a][:16] != held[b][:16] for a, b in itertools.combinations(range(4), 2))


def test_seeds_that_addition_would_confuse(folder) -> None:
    """The kind: seed + rank, seed + epoch, seed * epoch, seed ^ epoch, truncation to 32 or 64 bits."""
    corpus = rows_in_again(folder)
    seeds = [0, 1, 2, 3, 4, 7, 2**31, 2**32, 2**32 + 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1]
    orders = {(seed, epoch): tuple(order(corpus, seed, epoch)) for seed in seeds for epoch in range(3)}
    assert len(set(orders.values())) == len(orders)


def test_lanes_of_neighbouring_seeds_share_nothing_but_chance(folder) -> None:
    """Were lanes keyed by seed + lane, lane 1 of seed 0 would go the way of lane 0 of seed 1."""
    corpus = rows_in_again(folder)
    ways: dict[tuple[int, int], tuple[int, ...]] = {}
    for seed in range(4):
        samples = Plan(corpus, seed=seed, global_batch=8, lanes=4).stream().samples(np.arange(64))
        for lane in range(4):
            mine = samples.lane == lane
            ways[seed, lane] = tuple((samples.shard[mine] * 100 + samples.row[mine]).tolist())
    places = {key: tuple(np.argsort(np.argsort(way)).tolist()) for key, way in ways.items()}
    assert len(set(places.values())) == 16, "not even the shuffle within a lane is another's"


@pytest.mark.parametrize("seed", [-1, -(2**40), 2**63, 2**64])
def test_a_seed_that_would_wrap_is_refused(folder, seed) -> None:
    with pytest.raises(PlanError, match=f"{seed:,}|{seed}"):
        Plan(rows_in_again(folder), seed=seed, global_batch=8)


@pytest.mark.parametrize("seed", [True, 1.0, "7", None])
def test_a_seed_that_is_no_integer_is_refused(folder, seed) -> None:
    with pytest.raises((PlanError, TypeError)):
        Plan(rows_in_again(folder), seed=seed, global_batch=8)
