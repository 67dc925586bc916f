"""The same global batches whatever the topology; every record once an epoch; what is handed over is recorded before."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.core.digests import sample_digest
from dataguard.errors import AttemptError, GeometryError, UsageError, WriteFailed, WriterConflict
from dataguard.loader.loader import Loader
from dataguard.loader.rehearse import planned_steps
from dataguard.plan.plan import Plan
from dataguard.run.index import Index
from dataguard.run.run import Run
from tests.loader.conftest import DOCUMENTS
from tests.run.dying import in_a_child
from tests.support.corpora import make_corpus, place_of
from tests.support.runs import deliver, in_turns, make_run, open_loaders, slots_of

VIEWS = [(1, 1, 0, 8), (1, 2, 3, 1), (2, 4, 0, 8), (2, 1, 2, 5), (4, 2, 1, 1), (8, 1, 1, 40)]


@pytest.mark.parametrize(("world_size", "microbatch_size", "num_threads", "prefetch"), VIEWS)
def test_topology_is_a_view_only(
    tmp_path, documents, unbroken, world_size, microbatch_size, num_threads, prefetch
) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    batches = deliver(
        run,
        world_size=world_size,
        microbatch_size=microbatch_size,
        num_threads=num_threads,
        prefetch=prefetch,
        steps=10,
    )
    assert batches == {step: unbroken[step] for step in range(10)}


@pytest.mark.parametrize(("world_size", "microbatch_size", "num_threads", "prefetch"), VIEWS[1:4])
def test_topology_is_a_view_of_windows_too(
    tmp_path, tokens, world_size, microbatch_size, num_threads, prefetch
) -> None:
    plan = {"lanes": 2, "form": "window", "seq_len": 20}
    alone = deliver(make_run(tmp_path / "alone", tokens, **plan), microbatch_size=8, steps=8)
    run = make_run(tmp_path / "run", tokens, **plan)
    batches = deliver(
        run, world_size=world_size, microbatch_size=microbatch_size, num_threads=num_threads, prefetch=prefetch, steps=8
    )
    assert batches == alone
    assert len({slot for batch in batches.values() for slot in batch}) > 40


def test_what_is_delivered_is_what_the_plan_shows(documents, unbroken) -> None:
    plan = Plan(documents, seed=7, global_batch=8, lanes=4)
    shown = planned_steps(plan, Geometry(world_size=2, microbatch_size=2), range(30))
    assert [(sample.step, sample.slot) for sample in shown.samples] == [(s, i) for s in range(30) for i in range(8)]
    for sample in shown.samples:
        assert place_of(unbroken[sample.step][sample.slot]) == (sample.shard, sample.row)


def test_an_epoch_holds_every_record_once(tmp_path, documents) -> None:
    batches = deliver(make_run(tmp_path / "run", documents, lanes=4), world_size=2, microbatch_size=4, epochs=1)
    places = [place_of(record) for batch in batches.values() for record in batch if record is not None]
    wanted = [(f"{s}/{p}", row) for s, paths in DOCUMENTS.items() for p, rows in paths.items() for row in range(rows)]
    assert sorted(places) == sorted(wanted)


def test_a_rank_keeps_its_lanes(tmp_path, documents) -> None:
    """Where lanes divide the batch and ranks divide lanes, no rank meets a position of another's lane."""
    run = make_run(tmp_path / "run", documents, lanes=4)
    lanes: dict[int, set[int]] = {0: set(), 1: set()}
    for taken in in_turns(open_loaders(run, world_size=2, microbatch_size=4, steps=12)):
        for microbatch in taken:
            lanes[microbatch.address.rank] |= set((microbatch.positions % 4).tolist())
    assert lanes == {0: {0, 1}, 1: {2, 3}}


def test_a_microbatch_is_recorded_before_it_is_handed_over(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    index = Index(run.layout)
    loader = open_loaders(run, microbatch_size=2, steps=3, num_threads=2, prefetch=20)[0]
    handed = 0
    for microbatch in loader:
        handed += len(microbatch)
        recorded = np.concatenate(list(index.records(1, num_ranks=1)))
        assert len(recorded) == handed, "and nothing that was only prefetched"
        last = recorded[-2:]
        assert last["position"].tolist() == microbatch.positions.tolist()
        assert [digest.tobytes() for digest in last["digest"]] == [
            sample_digest(record)[:8] for record in slots_of(microbatch)
        ]
    assert handed == 24


def test_nothing_happens_before_the_first_microbatch(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents)
    loader = open_loaders(run, microbatch_size=2)[0]
    assert loader.attempt is None
    assert loader.notes == ()
    assert loader.bytes_read == 0
    loader.close()
    assert len(run.attempts()) == 0
    assert run.head().number == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"steps": 0}, "steps 0 cannot be"),
        ({"epochs": 0}, "epochs 0 cannot be"),
        ({"num_threads": -1}, "num_threads -1 cannot be"),
        ({"prefetch": 0}, "prefetch 0 cannot be"),
        ({"steps": 1, "epochs": 1}, "steps and epochs cannot both be given"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, documents, settings, told) -> None:
    run = make_run(tmp_path / "run", documents)
    with pytest.raises(UsageError, match=told):
        open_loaders(run, **settings)


def test_a_batch_size_given_to_the_first_attempt_is_the_one_that_must_fit(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents)
    with pytest.raises(GeometryError, match="global batch of 8 cannot be cut into 3 ranks"):
        open_loaders(run, world_size=3)
    with pytest.raises(GeometryError, match="global batch of 10 cannot be cut into 4 ranks"):
        open_loaders(run, world_size=4, global_batch=10)
    batches = deliver(run, world_size=3, microbatch_size=2, global_batch=12, steps=2)
    assert [len(batch) for batch in batches.values()] == [12, 12]


def test_a_failed_write_hands_nothing_over_and_is_never_passed_over(tmp_path, documents, unbroken, monkeypatch) -> None:
    """The disk is full for one write: going on would leave a gap in what the model saw."""
    run = make_run(tmp_path / "run", documents, lanes=4)
    loader = open_loaders(run, microbatch_size=8)[0]
    assert slots_of(next(loader)) == unbroken[0]
    real = loader._walking.writer.append

    def full(records):
        monkeypatch.setattr(loader._walking.writer, "append", real)
        raise WriteFailed("no space left")

    monkeypatch.setattr(loader._walking.writer, "append", full)
    with pytest.raises(WriteFailed):
        next(loader)
    state = loader.state()
    assert state.next_step == 1
    with pytest.raises(AttemptError, match=r"has failed on rank 0, in step 1\n.*no space left"):
        next(loader)
    loader.close()
    again = open_loaders(run, microbatch_size=8, state=state)[0]
    with again:
        assert slots_of(next(again)) == unbroken[1]


def test_an_older_attempt_stops_at_its_next_frame(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents)
    old = open_loaders(run, microbatch_size=8)[0]
    old.take_step()
    state = old.state()
    new = open_loaders(Run.open(run.path), microbatch_size=8, state=state)[0]
    new.take_step()
    with pytest.raises(WriterConflict, match="attempt 1 is over: fenced by attempt 2"):
        next(old)
    new.take_step()
    old.close()
    new.close()
    assert len(np.concatenate(list(Index(run.layout).records(1, num_ranks=1)))) == 8


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_forked_child_can_neither_go_on_nor_spoil_the_record(tmp_path, documents, unbroken, num_threads) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    loader = open_loaders(run, microbatch_size=8, num_threads=num_threads, steps=3)[0]
    assert slots_of(next(loader)) == unbroken[0]

    def child() -> None:
        with pytest.raises(WriterConflict, match="forked child"):
            next(loader)
        loader.close()

    assert in_a_child(child) == 0
    assert [slots_of(microbatch) for microbatch in loader] == [unbroken[1], unbroken[2]]
    assert len(np.concatenate(list(Index(run.layout).records(1, num_ranks=1)))) == 24


def test_closing_early_ends_threads_and_leaves_a_sealed_record(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents)
    before = set(threading.enumerate())
    loader = open_loaders(run, microbatch_size=2, num_threads=3)[0]
    next(loader)
    loader.close()
    loader.close()
    assert set(threading.enumerate()) == before
    with pytest.raises(StopIteration):
        next(loader)
    assert [path.suffix for path in (run.path / "index").rglob("*") if path.is_file()] == [".parquet"]
    assert [path for path in (run.path / "hot").rglob("*") if path.is_file()] == []


@pytest.mark.filterwarnings("error")
def test_a_loader_that_is_dropped_ends_its_threads_and_loses_nothing(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents)
    before = set(threading.enumerate())
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    loader = open_loaders(run, microbatch_size=2, num_threads=3)[0]
    for _ in range(5):
        next(loader)
    del loader
    gc.collect()
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("dataguard-read")]
    assert left == []
    assert len(np.concatenate(list(Index(run.layout).records(1, num_ranks=1)))) == 10
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1


def test_ranks_with_lanes_of_their_own_read_the_corpus_about_once(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"web": {f"{i}.jsonl": 512 for i in range(4)}}, block_bytes=512)
    assert len(corpus.manifest.blocks) > 16 * 8
    run = make_run(tmp_path / "run", corpus, global_batch=16, lanes=16, window_blocks=64)
    loaders = open_loaders(run, world_size=16, epochs=1)
    for _ in in_turns(loaders):
        pass
    read = sum(loader.bytes_read for loader in loaders)
    size = sum(shard.size_bytes for shard in corpus.manifest.shards)
    for loader in loaders:
        loader.close()
    assert size <= read <= 1.5 * size


def test_more_ranks_than_lanes_are_told_what_it_costs(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=1)
    loader = open_loaders(run, world_size=4, microbatch_size=2)[0]
    next(loader)
    loader.close()
    assert loader.notes[0].startswith("4 ranks share 1 lane: about 4.0 ranks read each block")


def test_one_process_of_several_ranks_needs_a_launch_id(tmp_path, documents, monkeypatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    run = make_run(tmp_path / "run", documents)
    loader = Loader(run, geometry=Geometry(world_size=2, microbatch_size=1), rank=1)
    with pytest.raises(UsageError, match="2 ranks cannot know each other's launch"):
        next(loader)


def test_a_source_that_nobody_placed_is_refused_before_an_attempt_begins(tmp_path: Path) -> None:
    manifest = make_corpus(tmp_path, {"web": {"a.jsonl": 8}}).manifest
    run = Run.create(tmp_path / "RUN", Plan(manifest, seed=7, global_batch=4))
    loader = Loader(run, geometry=Geometry(world_size=1, microbatch_size=2), num_threads=0)
    with pytest.raises(UsageError, match="--root"):
        next(loader)
    assert not len(run.attempts())


def test_who_reads_ahead_is_ended_where_the_record_cannot_be_opened(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    ended = []

    def reading(_feeding, feeder, planned):
        def read():
            try:
                for each in planned:
                    yield feeder.feed(each)
            finally:
                ended.append(True)

        reader = read()
        next(reader)  # under way, as workers are from the start
        kept.append(reader)
        return reader

    kept: list[object] = []
    seals = run.layout.seals(1, 0)
    seals.parent.mkdir(parents=True)
    seals.touch()
    loader = open_loaders(run, microbatch_size=8, steps=2, reading=reading)[0]
    with pytest.raises(WriterConflict, match="has had its writer"):
        next(loader)
    assert ended == [True], "and not only once it is collected: it is kept here"
