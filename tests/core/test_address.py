"""Addresses and geometries: slots, and the arithmetic of what does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.address import Address, Geometry
from dataguard.errors import GeometryError


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_the_slots_of_all_addresses_are_the_batch_in_order(world_size, microbatch_size, num_microbatches) -> None:
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    global_batch = world_size * microbatch_size * num_microbatches
    assert geometry.num_microbatches(global_batch) == num_microbatches
    slots = [
        slot
        for rank in range(world_size)
        for microbatch in range(num_microbatches)
        for slot in geometry.slots(global_batch=global_batch, rank=rank, microbatch=microbatch)
    ]
    assert slots == list(range(global_batch))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 400))
def test_a_batch_fits_exactly_when_the_product_divides_it(world_size, microbatch_size, global_batch) -> None:
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    if global_batch % (world_size * microbatch_size) == 0:
        geometry.check(global_batch)
        return
    with pytest.raises(GeometryError) as refused:
        geometry.check(global_batch)
    message = str(refused.value)
    assert f"{global_batch:,} cannot be cut into {world_size} ranks * microbatches of {microbatch_size}" in message
    assert "nearest that fit" in message


@pytest.mark.parametrize(
    ("global_batch", "world_size", "microbatch_size", "says"),
    [
        (512, 448, 1, ["512 = 1 * 448 + 64", "world size 256 or 512", "global batch 448 or 896"]),
        (10, 4, 1, ["10 = 2 * 4 + 2", "world size 2 or 5", "global batch 8 or 12"]),
        (8, 2, 3, ["each of 2 ranks holds 4 slots", "microbatch size 2 or 4", "global batch 6 or 12"]),
    ],
)
def test_the_message_does_the_arithmetic(global_batch, world_size, microbatch_size, says) -> None:
    with pytest.raises(GeometryError) as refused:
        Geometry(world_size=world_size, microbatch_size=microbatch_size).check(global_batch)
    for each in says:
        assert each in str(refused.value)


@pytest.mark.parametrize(("world_size", "microbatch_size"), [(0, 1), (1, 0), (-2, 1), (True, 1), (1, 2.0), ("4", 1)])
def test_a_geometry_counts_from_one(world_size, microbatch_size) -> None:
    with pytest.raises(GeometryError, match="cannot be"):
        Geometry(world_size=world_size, microbatch_size=microbatch_size)


def test_ranks_and_microbatches_outside_are_refused() -> None:
    geometry = Geometry(world_size=4, microbatch_size=2)
    for rank in (-1, 4):
        with pytest.raises(GeometryError, match=f"rank {rank} is not one of 4 ranks"):
            geometry.check_rank(rank)
        with pytest.raises(GeometryError, match="is not one of 4 ranks"):
            geometry.slots(global_batch=16, rank=rank, microbatch=0)
    for microbatch in (-1, 2):
        with pytest.raises(GeometryError, match=f"microbatch {microbatch} is not one of 2"):
            geometry.slots(global_batch=16, rank=0, microbatch=microbatch)
    with pytest.raises(GeometryError):
        Address(step=0, rank=-1, microbatch=0)


def test_addresses_sort_by_step_then_rank_then_microbatch() -> None:
    addresses = [
        Address(step=step, rank=rank, microbatch=microbatch)
        for step in (0, 1)
        for rank in (0, 1)
        for microbatch in (0, 1)
    ]
    assert sorted(addresses, reverse=True) == addresses[::-1]
    assert str(addresses[3]) == "step 0, rank 1, microbatch 1"
