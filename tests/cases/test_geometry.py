"""K8, batch geometry (G15, G16): what does not divide is refused; no reader is too many for the shards there are."""

from __future__ import annotations

import math

import pytest

from dataguard.core.address import Geometry
from dataguard.errors import GeometryError
from dataguard.loader.loader import Loader
from tests.support.corpora import make_corpus
from tests.support.rows import id_of, rows_in
from tests.support.runs import deliver, in_turns, make_run, open_loaders

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def hundred(tmp_path_factory):
    return rows_in(tmp_path_factory.mktemp("hundred"), [100])


# -- G15


@pytest.mark.parametrize(
    ("global_batch", "world_size", "microbatch_size"),
    [(10, 4, 1), (8, 2, 3), (8, 16, 1), (8, 1, 16), (1, 2, 1), (512, 448, 1), (6, 2, 2), (7, 7, 2)],
)
def test_a_batch_that_cannot_be_cut_is_refused_before_anything_is_written(
    tmp_path, hundred, global_batch, world_size, microbatch_size
) -> None:
    run = make_run(tmp_path / "run", hundred, global_batch=global_batch)
    with pytest.raises(GeometryError) as caught:
        open_loaders(run, world_size=world_size, microbatch_size=microbatch_size)
    for number in (global_batch, world_size, microbatch_size):
        assert str(number) in str(caught.value)
    assert run.head().number == 1


@pytest.mark.parametrize("world_size", [0, -1, True, 1.5])
def test_a_world_that_cannot_be(world_size) -> None:
    with pytest.raises(GeometryError, match=f"world size {world_size!r} cannot be"):
        Geometry(world_size=world_size, microbatch_size=1)


@pytest.mark.parametrize("microbatch_size", [0, -2])
def test_a_microbatch_that_cannot_be(microbatch_size) -> None:
    with pytest.raises(GeometryError, match=f"microbatch size {microbatch_size} cannot be"):
        Geometry(world_size=1, microbatch_size=microbatch_size)


@pytest.mark.parametrize("rank", [4, 5, -1])
def test_a_rank_outside_its_world(tmp_path, hundred, rank) -> None:
    run = make_run(tmp_path / "run", hundred, global_batch=8)
    with pytest.raises(GeometryError, match=rf"rank {rank} is not one of 4 ranks\n  allowed: 0:4"):
        Loader(run, geometry=Geometry(world_size=4, microbatch_size=1), rank=rank)


@pytest.mark.parametrize("global_batch", [4, 6, 12])
def test_every_geometry_that_divides_is_taken_and_every_other_one_refused(tmp_path, hundred, global_batch) -> None:
    """The whole kind: all pairs up to past the batch; a step always holds the whole batch."""
    run = make_run(tmp_path / "run", hundred, global_batch=global_batch)
    for world_size in range(1, global_batch + 2):
        for microbatch_size in range(1, global_batch + 2):
            geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
            if global_batch % (world_size * microbatch_size) == 0:
                loader = Loader(run, geometry=geometry, launch_id="any")
                assert geometry.num_microbatches(global_batch) * world_size * microbatch_size == global_batch
                loader.close()
            else:
                with pytest.raises(GeometryError):
                    Loader(run, geometry=geometry, launch_id="any")


def test_a_batch_size_of_a_later_attempt_is_held_to_the_same(tmp_path, hundred) -> None:
    run = make_run(tmp_path / "run", hundred, global_batch=8)
    deliver(run, world_size=4, microbatch_size=2, steps=2)
    with pytest.raises(GeometryError, match="global batch of 10"):
        open_loaders(run, world_size=4, microbatch_size=2, from_step=2, global_batch=10)
    batches = deliver(run, world_size=4, microbatch_size=1, from_step=2, global_batch=12, steps=2)
    assert [len(batch) for batch in batches.values()] == [12, 12]


# -- G16


@pytest.mark.parametrize("num_threads", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("prefetch", [1, 50])
def test_more_threads_than_shards_drop_repeat_and_reorder_nothing(tmp_path, num_threads, prefetch) -> None:
    run = make_run(tmp_path / "run", rows_in(tmp_path, [5, 3]), global_batch=2, lanes=1, shuffle="none")
    loader = open_loaders(run, microbatch_size=2, num_threads=num_threads, prefetch=prefetch, epochs=1)[0]
    assert len(loader) == 4
    delivered = [id_of(record) for microbatch in loader for record in microbatch.records]
    assert delivered == list(range(8))


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize("num_threads", [0, 3])
def test_more_ranks_than_shards(tmp_path, world_size, num_threads) -> None:
    run = make_run(tmp_path / "run", rows_in(tmp_path, [5, 3]), global_batch=8, lanes=1, shuffle="none")
    loaders = open_loaders(run, world_size=world_size, num_threads=num_threads, epochs=1)
    by_rank: dict[int, list[int]] = {rank: [] for rank in range(world_size)}
    for taken in in_turns(loaders):
        for microbatch in taken:
            by_rank[microbatch.address.rank] += [id_of(record) for record in microbatch.records]
    for loader in loaders:
        loader.close()
    assert [number for rank in range(world_size) for number in by_rank[rank]] == list(range(8))
    assert {len(numbers) for numbers in by_rank.values()} == {8 // world_size}


@pytest.mark.parametrize("sizes", [[1], [1, 1], [1, 0, 2], [0, 5, 0, 0, 1], [2, 9, 2]])
@pytest.mark.parametrize("world_size", [1, 4])
def test_shards_of_no_row_and_fewer_rows_than_ranks(tmp_path, sizes, world_size) -> None:
    """Idle ranks get padding, whole batches stay whole, and every row comes once."""
    run = make_run(tmp_path / "run", rows_in(tmp_path, sizes), global_batch=4, lanes=4)
    batches = deliver(run, world_size=world_size, microbatch_size=1, num_threads=2, epochs=1)
    assert len(batches) >= math.ceil(sum(sizes) / 4)
    assert {len(batch) for batch in batches.values()} == {4}
    numbers = [id_of(slot) for batch in batches.values() for slot in batch if slot is not None]
    assert sorted(numbers) == list(range(sum(sizes)))


def test_more_ranks_than_rows_go_on_into_the_next_epochs_together(tmp_path) -> None:
    run = make_run(tmp_path / "run", rows_in(tmp_path, [3]), global_batch=8)
    batches = deliver(run, world_size=8, steps=3)
    numbers = [id_of(slot) for batch in batches.values() for slot in batch]
    assert sorted(numbers) == sorted(list(range(3)) * 8)


def test_more_ranks_than_windows(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"books": {"t.npy": 25}})
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=10, global_batch=8, lanes=8)
    batches = deliver(run, world_size=8, num_threads=3, epochs=1)
    assert [len(batch) for batch in batches.values()] == [8]
    assert sorted(slot[0] & 1023 for slot in batches[0] if slot is not None) == [0, 10]
