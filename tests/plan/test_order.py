"""The order of a source's samples in an epoch, and its inverse."""

from __future__ import annotations

import numpy as np
import pytest

from dataguard.core.permute_kernels import permute_bulk
from dataguard.plan.document import Shuffle
from dataguard.plan.lanes import LaneSplit
from dataguard.plan.order import SourceOrder, window_samples
from dataguard.plan.tables import SourceTable
from tests.plan.stream_cases import ShardSpec, make_manifest, wide_manifest

TABLE = SourceTable.of(
    make_manifest({"a": [ShardSpec(p, ("..x.", ".", "x.....", "..") * 8) for p in ("p", "q")]}), "a", "document", None
)


def order(
    shuffle: Shuffle = "blocks", *, lanes: int = 4, source_lanes: int = 4, window_blocks: int = 8, seed: int = 1
) -> SourceOrder:
    split = LaneSplit(lanes=lanes, source_lanes=source_lanes, num_samples=TABLE.num_samples)
    return SourceOrder(TABLE, split, seed=seed, window_blocks=window_blocks, shuffle=shuffle)


def whole_epoch(made: SourceOrder, epoch: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    lane = np.concatenate([np.full(made.split.length(a), a) for a in range(made.split.source_lanes)])
    s = np.concatenate([np.arange(made.split.length(a)) for a in range(made.split.source_lanes)])
    place = made.places(np.full(len(s), epoch), lane, s)
    _, shard, row = made.samples(np.full(len(s), epoch), place)
    return place, list(zip(shard.tolist(), row.tolist(), strict=True))


@pytest.mark.parametrize("shuffle", ["blocks", "all", "none"])
@pytest.mark.parametrize("source_lanes", [1, 2, 4])
def test_an_epoch_is_every_sample_once_and_find_goes_back(shuffle: Shuffle, source_lanes: int) -> None:
    made = order(shuffle, source_lanes=source_lanes)
    lane = np.concatenate([np.full(made.split.length(a), a) for a in range(source_lanes)])
    s = np.concatenate([np.arange(made.split.length(a)) for a in range(source_lanes)])
    for epoch in (0, 1, 7):
        place, rows = whole_epoch(made, epoch)
        assert sorted(place.tolist()) == list(range(TABLE.num_samples))
        assert len(set(rows)) == TABLE.num_samples
        for i, (shard, row) in enumerate(rows):
            at = TABLE.find(shard, row)
            assert at is not None
            assert made.find(epoch, *at) == (place[i], lane[i], s[i])


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    # (seed, epoch) that sums would mix up: 0 + 1 and 1 + 0, and past 32 bits.
    seen = {
        tuple(whole_epoch(order(seed=seed), epoch)[1])
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1), (2**32, 0), (2**32 + 1, 0)]
    }
    assert len(seen) == 6
    assert whole_epoch(order(seed=3), 5)[1] == whole_epoch(order(seed=3), 5)[1]


def test_windows_keep_to_their_blocks() -> None:
    made = order(source_lanes=1, window_blocks=4)
    assert made.window == 4 * TABLE.num_samples // TABLE.num_blocks
    place, _ = whole_epoch(made, 0)
    for first in range(0, TABLE.num_samples, made.window):
        window = place[first : first + made.window]
        assert sorted(window.tolist()) == list(range(first, min(first + made.window, TABLE.num_samples)))
    assert not np.array_equal(place, np.arange(TABLE.num_samples))


def test_all_shuffles_across_the_whole_part() -> None:
    made = order("all", source_lanes=2)
    place, _ = whole_epoch(made, 0)
    half = int(made.split.length(0))
    assert sorted(place[:half].tolist()) == list(range(half))
    assert np.abs(place[:half] - np.arange(half)).max() > half // 2


def test_none_is_file_order() -> None:
    place, rows = whole_epoch(order("none", source_lanes=1), 3)
    assert place.tolist() == list(range(TABLE.num_samples))
    assert rows == sorted(rows)


@pytest.mark.parametrize(
    ("window_blocks", "source_lanes", "num_samples", "num_blocks", "expected"),
    [(256, 1, 1000, 10, 25_600), (256, 512, 10**6, 10**4, 200), (1, 1, 10, 10, 2), (8, 8, 7, 7, 2), (2, 1, 3, 2, 3)],
)
def test_samples_of_a_window(window_blocks, source_lanes, num_samples, num_blocks, expected) -> None:
    found = window_samples(
        window_blocks=window_blocks, source_lanes=source_lanes, num_samples=num_samples, num_blocks=num_blocks
    )
    assert found == expected


def test_many_epochs_at_once_and_kernels_give_the_same() -> None:
    split = LaneSplit(lanes=64, source_lanes=32, num_samples=40_000)
    table = SourceTable.of(wide_manifest({"w": (10, 40, 100)}), "w", "document", None)
    one, other = (
        SourceOrder(table, split, seed=9, window_blocks=16, shuffle="blocks", permutation=permutation)
        for permutation in (permute_bulk, order()._permute)
    )
    epoch, lane, s = np.arange(3000) % 7, np.arange(3000) % 32, (np.arange(3000) * 37) % 1250
    place = one.places(epoch, lane, s)
    assert np.array_equal(place, other.places(epoch, lane, s))
    for mine, theirs in zip(one.samples(epoch, place), other.samples(epoch, place), strict=True):
        assert np.array_equal(mine, theirs)
