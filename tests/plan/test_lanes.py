"""Lanes of a source and of a new root, and how stream lanes share them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.errors import PlanError
from dataguard.plan.lanes import LaneSplit, default_lanes, lanes_of_source
from tests.plan.stream_cases import ShardSpec, make_manifest, wide_manifest


@pytest.mark.parametrize(
    ("num_blocks", "lanes", "expected"),
    [(1, 1, 1), (1, 64, 1), (15, 64, 1), (16, 64, 2), (31, 64, 2), (32, 64, 4), (10_000, 64, 64), (10_000, 2048, 1024)],
)
def test_a_source_keeps_8_blocks_a_lane(num_blocks: int, lanes: int, expected: int) -> None:
    assert lanes_of_source(num_blocks, lanes) == expected


@pytest.mark.parametrize(
    ("num_blocks", "global_batch", "expected"),
    [(16, 64, 2), (5, 64, 1), (8192, 512, 512), (8192, 96, 32), (8192, 7, 1), (2**14, 4096, 1024), (4096, 4096, 512)],
)
def test_default_lanes(num_blocks: int, global_batch: int, expected: int) -> None:
    manifest = wide_manifest({"a": (1, num_blocks, 2), "b": (1, 3, 1000)})
    assert default_lanes(manifest, "document", None, global_batch) == expected


def test_default_lanes_count_blocks_with_samples_alone() -> None:
    manifest = make_manifest({"a": [ShardSpec("p", ("." * 2, "x") * 16)]})
    assert default_lanes(manifest, "document", None, 64) == 2
    tokens = make_manifest({"a": [ShardSpec("p", ("...",) * 32)]}, kind="tokens")
    assert default_lanes(tokens, "window", 3, 64) == 4
    assert default_lanes(tokens, "window", 6, 64) == 2
    with pytest.raises(PlanError, match="global batch of 0"):
        default_lanes(manifest, "document", None, 0)


@st.composite
def splits(draw: st.DrawFn) -> LaneSplit:
    lanes = 2 ** draw(st.integers(0, 5))
    source_lanes = 2 ** draw(st.integers(0, lanes.bit_length() - 1))
    return LaneSplit(lanes=lanes, source_lanes=source_lanes, num_samples=draw(st.integers(source_lanes, 300)))


@given(splits())
def test_parts_are_a_partition_and_owner_says_whose(split: LaneSplit) -> None:
    owners = [a for a in range(split.source_lanes) for _ in range(*split.part(a))]
    assert len(owners) == split.num_samples
    assert [split.owner(place) for place in range(split.num_samples)] == owners
    assert sum(split.length(a) for a in range(split.source_lanes)) == split.num_samples
    assert min(split.length(a) for a in range(split.source_lanes)) >= 1


@given(splits(), st.integers(0, 5))
def test_first_draw_of_an_epoch(split: LaneSplit, epoch: int) -> None:
    def epoch_of(lane: int, turn: int) -> int:
        return (turn * split.turns + lane // split.source_lanes) // split.length(lane % split.source_lanes)

    for lane, turn in enumerate(split.first_draws(epoch).tolist()):
        assert turn >= 0
        assert epoch_of(lane, turn) >= epoch
        assert turn == 0 or epoch_of(lane, turn - 1) < epoch


def test_stream_lanes_take_turns() -> None:
    split = LaneSplit(lanes=8, source_lanes=2, num_samples=100)
    ordinals = {}
    for lane in range(8):
        for turn in range(10):
            ordinals.setdefault(lane % 2, []).append(turn * split.turns + lane // 2)
    assert all(sorted(found) == list(range(40)) for found in ordinals.values())
    assert np.array_equal(split.first_draws(0), np.zeros(8))
