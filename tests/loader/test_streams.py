"""Named streams: a fixed set, the same batches from any process and on any ranks, each evaluation on record."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.core.manifest import ManifestSet
from dataguard.corpus.corpus import Corpus
from dataguard.errors import GeometryError, RanksDisagree, UsageError
from dataguard.loader.loader import Loader
from dataguard.plan.slots import SlotStatus
from dataguard.run.events import EvaluatedAt
from dataguard.run.index import Index
from dataguard.run.run import Run
from dataguard.run.streams import NamedStream
from dataguard.run.tidy import compact_ended
from tests.loader.conftest import DOCUMENTS
from tests.support.corpora import damage, make_corpus, place_of, text_of
from tests.support.processes import launch
from tests.support.runs import Slot, deliver, in_turns, make_run, open_loaders, slots_of

VALID = {"valid": {"v.parquet": 21, "w.jsonl.gz": 9}}
_LAUNCHES = itertools.count(1)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """30 records of one source."""
    return make_corpus(tmp_path_factory.mktemp("valid"), VALID)


@pytest.fixture
def run(tmp_path: Path, documents: Corpus) -> Run:
    """A run of its own, of which nothing has begun."""
    return make_run(tmp_path / "run", documents, lanes=4)


def evaluate(
    stream: NamedStream, *, world_size: int = 1, microbatch_size: int = 8, **settings: object
) -> dict[int, list[Slot]]:
    """One evaluation on all ranks, in turns: what each step held, slot by slot."""
    batches: dict[int, list[Slot]] = {}
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    told = {"num_threads": 0, "launch_id": f"evaluating {next(_LAUNCHES)}", **settings}
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(stream.loader(geometry=geometry, rank=rank, **told)) for rank in range(world_size)
        ]
        for taken in in_turns(loaders):
            for microbatch in taken:
                batches.setdefault(microbatch.step, []).extend(slots_of(microbatch))
    return batches


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_one_pass_holds_every_record_once_in_order_and_ends_in_padding(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    batches = evaluate(stream)
    assert list(batches) == [0, 1, 2, 3]
    assert stream.num_steps == 4
    slots = [slot for batch in batches.values() for slot in batch]
    assert slots[30:] == [None, None]
    wanted = [(f"valid/{path}", row) for path, rows in VALID["valid"].items() for row in range(rows)]
    assert [place_of(record) for record in slots[:30] if record is not None] == wanted
    records = Index(stream.run.layout).step(1, 3, num_ranks=1).records
    assert records["status"].tolist() == [SlotStatus.LIVE] * 6 + [SlotStatus.ENDED] * 2


VIEWS = [(1, 2, 0), (2, 1, 2), (2, 4, 0), (4, 2, 1), (8, 1, 0)]


@pytest.mark.parametrize(("world_size", "microbatch_size", "num_threads"), VIEWS)
def test_any_number_of_ranks_gives_the_same_batches(
    run: Run, documents: Corpus, world_size: int, microbatch_size: int, num_threads: int
) -> None:
    stream = run.stream("valid", documents)
    alone = evaluate(stream)
    ranks = evaluate(stream, world_size=world_size, microbatch_size=microbatch_size, num_threads=num_threads)
    assert ranks == alone
    held = [place_of(slot) for batch in alone.values() for slot in batch if slot is not None]
    assert sorted(held) == sorted(
        (f"{source}/{path}", row)
        for source, paths in DOCUMENTS.items()
        for path, rows in paths.items()
        for row in range(rows)
    )


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_a_pass_over_several_sources_pads_next_to_nothing(tmp_path: Path, documents: Corpus, lanes: int) -> None:
    corpus = make_corpus(tmp_path / "several", {"a": {"x.parquet": 200}, "b": {"y.jsonl": 1}, "c": {"z.parquet": 37}})
    stream = make_run(tmp_path / "run", documents).stream("valid", corpus, lanes=lanes)
    slots = [slot for batch in evaluate(stream).values() for slot in batch]
    held = [place_of(slot)[0] for slot in slots if slot is not None]
    assert [name for name, _ in itertools.groupby(held)] == ["a/x.parquet", "b/y.jsonl", "c/z.parquet"]
    assert len(set(slots) - {None}) == len(held) == 238
    assert len(slots) - len(held) <= 2 * lanes + 7


def test_windows_are_evaluated_as_the_run_has_them(tmp_path: Path, tokens: Corpus) -> None:
    run = make_run(tmp_path / "run", tokens, form="window", seq_len=20)
    batches = evaluate(run.stream("valid", tokens), world_size=2, microbatch_size=2)
    windows = [slot for batch in batches.values() for slot in batch if slot is not None]
    assert len(windows) == len(set(windows)) == 480 // 20 + 363 // 20 + 207 // 20


def test_steps_of_a_stream_are_mixed_and_the_same_in_every_run(tmp_path: Path, documents: Corpus) -> None:
    first = make_run(tmp_path / "a", documents, seed=7).stream("some", documents, end=3, weights={"web": 1, "code": 1})
    second = make_run(tmp_path / "b", documents, seed=8).stream("some", documents, end=3, weights={"web": 1, "code": 1})
    batches = evaluate(first)
    assert len(batches) == first.num_steps == 3
    assert evaluate(second, microbatch_size=2) == batches
    assert {place_of(slot)[0].split("/")[0] for batch in batches.values() for slot in batch if slot} == {"web", "code"}
    assert first.digest == second.digest
    other = make_run(tmp_path / "c", documents).stream("some", documents, end=3, seed=1, weights={"web": 1, "code": 1})
    assert evaluate(other) != batches


def test_each_evaluation_is_a_record_of_its_own_beside_the_training(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    (training,) = open_loaders(run, microbatch_size=8, steps=6)
    for step in range(6):
        training.take_step()
        if step % 2:
            evaluate(stream)
    training.close()
    evaluate(stream, at_step=3)
    assert [evaluation.at for evaluation in stream.evaluations()] == [
        EvaluatedAt(attempt=1, step=1),
        EvaluatedAt(attempt=1, step=3),
        EvaluatedAt(attempt=1, step=5),
        EvaluatedAt(attempt=1, step=3),
    ]
    assert run.attempts().numbers == (1,)
    tree = stream.run.attempts()
    assert [attempt.parent for attempt in map(tree.attempt, tree.numbers)] == [None] * 4
    assert {tree.label(number, 2, dict.fromkeys(tree.numbers, 4)) for number in tree.numbers} == {"live"}
    index = Index(stream.run.layout)
    samples = [np.concatenate(list(index.records(number)))[["position", "shard", "row", "digest"]] for number in (1, 4)]
    assert samples[0].tolist() == samples[1].tolist()
    assert len(samples[0]) == 32


def test_streams_change_nothing_of_what_is_trained_on(tmp_path: Path, documents: Corpus, valid: Corpus) -> None:
    plain = make_run(tmp_path / "plain", documents, lanes=4)
    wanted = deliver(plain, microbatch_size=8, steps=4)
    run = make_run(tmp_path / "run", documents, lanes=4)
    stream = run.stream("valid", valid)
    batches: dict[int, list[Slot]] = {}
    (training,) = open_loaders(run, microbatch_size=8, steps=4)
    with training:
        for microbatch in training:
            batches.setdefault(microbatch.step, []).extend(slots_of(microbatch))
            evaluate(stream)
    assert batches == wanted
    first, second = (np.concatenate(list(Index(each.layout).records(1))).tolist() for each in (plain, run))
    assert first == second
    own = {name for name in files_under(tmp_path / "run") if not name.startswith("streams/")}
    assert {name.partition("/")[0] for name in own} == {name.partition("/")[0] for name in files_under(plain.path)}


def test_evaluations_go_on_beside_each_other(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    geometry = Geometry(world_size=2, microbatch_size=4)
    both = [
        [stream.loader(geometry=geometry, rank=rank, num_threads=0, launch_id=name) for rank in range(2)]
        for name in ("here", "there")
    ]
    taken: list[list[Slot]] = [[], []]
    for _ in range(4):
        for loaders, slots in zip(both, taken, strict=True):
            slots += [slot for loader in loaders for microbatch in loader.take_step() for slot in slots_of(microbatch)]
    for loader in itertools.chain(*both):
        assert next(loader, None) is None
    assert taken[0] == taken[1]
    assert {place_of(slot) for slot in taken[0] if slot} == {
        (f"valid/{path}", row) for path, rows in VALID["valid"].items() for row in range(rows)
    }


def test_a_rank_that_comes_late_finds_its_evaluation_uncompacted(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    geometry = Geometry(world_size=2, microbatch_size=4)

    def rank_of(rank: int) -> Loader:
        return stream.loader(geometry=geometry, rank=rank, num_threads=0, launch_id="one launch")

    with rank_of(0) as first:
        before = [slot for microbatch in first for slot in slots_of(microbatch)]
    evaluate(stream)  # would compact what is over
    assert compact_ended(stream.run, 3) == ()
    with rank_of(1) as late:
        assert next(late).address.rank == 1
        assert late.attempt is not None
        assert late.attempt.number == 1
        for _ in late:
            pass
    assert len(np.concatenate(list(Index(stream.run.layout).records(1)))) == 32
    assert compact_ended(stream.run, 3) == ()
    assert stream.run.layout.compacted(1, 0, 4).exists()
    assert len(np.concatenate(list(Index(stream.run.layout).records(1)))) == 32
    assert len(before) == 16


def test_one_launch_evaluates_many_times(run: Run, valid: Corpus) -> None:
    """A launch has one id, and each of its evaluations all ranks, which meet in the order in which they come."""
    stream = run.stream("valid", valid)
    sets = [evaluate(stream, world_size=2, microbatch_size=4, launch_id="job 7", at_step=step) for step in (10, 20)]
    assert sets[0] == sets[1]
    assert [evaluation.at.step for evaluation in stream.evaluations()] == [10, 20]


def test_ranks_that_stand_elsewhere_are_told_so(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    geometry = Geometry(world_size=2, microbatch_size=4)
    next(stream.loader(geometry=geometry, rank=0, num_threads=0, launch_id="job", at_step=10))
    with pytest.raises(RanksDisagree, match=r"training at step 20 .* the attempt has step 10"):
        next(stream.loader(geometry=geometry, rank=1, num_threads=0, launch_id="job", at_step=20))


def test_a_row_that_cannot_be_read_is_masked_and_nothing_is_proposed(run: Run, tmp_path: Path, impatient: None) -> None:
    corpus = make_corpus(tmp_path / "own", {"valid": {"v.jsonl": 12}})
    stream = run.stream("valid", corpus)
    whole = evaluate(stream)
    damage(
        tmp_path / "own/valid/v.jsonl",
        text_of("valid/v.jsonl", 3).encode(),
        text_of("valid/v.jsonl", 3).upper().encode(),
    )
    hurt = evaluate(stream)
    assert [slot for slot in hurt[0] if slot is None] == [None] * len(hurt[0])  # one block holds them all
    assert whole != hurt
    assert [type(entry.event).__name__ for entry in stream.run.read().entries] == [
        "RunCreated", "AttemptBegun", "AttemptBegun",
    ]  # fmt: skip


def test_what_would_change_the_set_is_refused(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    with pytest.raises(UsageError, match="epochs cannot be given"):
        stream.loader(epochs=2)
    with pytest.raises(GeometryError):
        stream.loader(geometry=Geometry(world_size=3, microbatch_size=1))
    with stream.loader(num_threads=0) as loader:
        next(loader)
        with pytest.raises(UsageError, match="has no state"):
            loader.state()
    with pytest.raises(UsageError, match="not gone on with"):
        stream.loader().load(b"{}")
    with pytest.raises(UsageError, match="it is evaluated, and has no attempts"):
        next(Loader(stream.run, geometry=Geometry(world_size=1, microbatch_size=8), num_threads=0))
    with pytest.raises(UsageError, match="no named stream"):
        next(Loader(run, geometry=Geometry(world_size=1, microbatch_size=8), evaluation=EvaluatedAt()))


def test_ranks_in_processes_of_their_own_evaluate_together(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    wanted = [slot.decode() if slot else None for batch in evaluate(stream).values() for slot in batch]
    words = {"run": str(run.path), "stream": "valid", "world_size": 2, "microbatch_size": 4, "launch_id": "a job"}
    answers = launch([{**words, "rank": rank} for rank in range(2)], timeout=60)
    held = [each for answer in answers for each in answer["slots"]]
    assert sorted(held, key=str) == sorted(wanted, key=str)
    assert [answer["attempt"] for answer in answers] == [2, 2]


def test_shards_are_numbered_by_the_streams_own_manifest(run: Run, valid: Corpus) -> None:
    stream = run.stream("valid", valid)
    evaluate(stream)
    names = ManifestSet(list(stream.plan.manifests.values()))
    records = np.concatenate(list(Index(stream.run.layout).records(1)))
    assert {names.shard_name(shard) for shard in records["shard"].tolist()} == {"valid/v.parquet", "valid/w.jsonl.gz"}
