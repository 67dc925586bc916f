"""Rank and world size: from the group, the arguments, or the launcher; two that say otherwise are never reconciled."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.errors import GeometryError, UsageError
from dataguard.torch.ranks.place import group_of, place_of


def geometry(world_size: int) -> Geometry:
    return Geometry(world_size=world_size, microbatch_size=1)


def torchrun(rank: object, world_size: object) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": "0"}


def told(world_size: int, **settings) -> tuple[int, int]:
    place = place_of(geometry(world_size), **settings)
    assert place.peers is None
    return place.rank, place.world_size


@pytest.mark.parametrize(
    ("world_size", "rank", "environ", "wanted"),
    [
        (1, None, {}, (0, 1)),
        (4, 3, {}, (3, 4)),
        (4, 0, {}, (0, 4)),
        (4, None, torchrun(2, 4), (2, 4)),
        (4, 2, torchrun(2, 4), (2, 4)),
        (1, None, torchrun(0, 1), (0, 1)),
        (4, 1, {"RANK": "2"}, (1, 4)),
        (4, 1, {"WORLD_SIZE": "8"}, (1, 4)),
    ],
)
def test_without_a_group(world_size, rank, environ, wanted) -> None:
    assert told(world_size, rank=rank, environ=environ) == wanted


@pytest.mark.parametrize(
    ("world_size", "rank", "environ", "error", "values"),
    [
        (4, None, {}, UsageError, ["4 ranks"]),
        (4, None, torchrun(1, 2), GeometryError, ["world size 4", "WORLD_SIZE=2"]),
        (1, None, torchrun(1, 2), GeometryError, ["world size 1", "WORLD_SIZE=2", "data_parallel_group="]),
        (4, 1, torchrun(2, 4), UsageError, ["rank=1", "RANK=2"]),
        (4, None, torchrun(4, 4), UsageError, ["RANK=4", "WORLD_SIZE=4"]),
        (4, None, torchrun("one", 4), UsageError, ["RANK=one"]),
        (4, None, torchrun(-1, 4), UsageError, ["RANK=-1"]),
    ],
)
def test_what_is_said_twice_and_otherwise(world_size, rank, environ, error, values) -> None:
    with pytest.raises(error) as caught:
        place_of(geometry(world_size), rank=rank, environ=environ)
    assert [value for value in values if value not in str(caught.value)] == []


@pytest.fixture
def alone():
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_group_counts_whatever_the_environment_says(alone, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    place = place_of(geometry(1))
    assert (place.rank, place.world_size) == (0, 1)
    assert place.peers is not None
    assert place.peers.gather("x") == ["x"]
    assert place.peers.device == "cpu"


def test_the_group_and_arguments_that_say_otherwise(alone) -> None:
    with pytest.raises(GeometryError) as caught:
        place_of(geometry(2))
    assert "world size 2, a group of 1" in str(caught.value)
    with pytest.raises(UsageError, match="rank 1 was given, and this process is rank 0"):
        place_of(geometry(1), rank=1)
    with pytest.raises(GeometryError, match="the data-parallel group says 1"):
        place_of(geometry(2), group=dist.group.WORLD)


def test_a_group_that_this_process_is_not_in(alone) -> None:
    with pytest.raises(UsageError, match="no member of its data-parallel group"):
        place_of(geometry(1), group=dist.GroupMember.NON_GROUP_MEMBER)


def test_a_device_mesh_is_its_group(alone) -> None:
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    assert group_of(mesh["dp"]) is mesh.get_group("dp")
    assert place_of(geometry(1), group=mesh["dp"]).rank == 0
