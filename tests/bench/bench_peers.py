"""Resume to the first batch, after k batches: ours beside its peers on the same Parquet shards.

    pytest tests/bench/bench_peers.py --benchmark-enable -m long

Every contender delivers batches of 16 documents from the same shards and is asked, in turns, for the first batch behind
k delivered ones, from objects made anew (files are warm, libraries imported, reading ahead without processes):

- Hugging Face ``IterableDataset.skip(k * 16)``; its ``load_state_dict``; a shuffle buffer and then ``skip``;
- torchdata's ``StatefulDataLoader`` over an iterable dataset, and over a shuffled map-style one (no workers);
- Grain's ``MapDataset``, shuffled, over a list in memory and over ArrayRecord files;
- MosaicML Streaming's ``StreamingDataset``, shuffled, under its ``StreamingDataLoader``, over MDS shards;
- ours: open the run, load the state, first microbatch, with the attempt written to the journal and the microbatch
  recorded: the documents (`Loader`), and tensors of 128 byte ids each made of them (`GuardedLoader`). None of the
  others records anything, or makes tensors.

Grain and Streaming do not read Parquet: the documents are converted before, shard by shard, and each of the two is a
process of an environment of its own (`tests.bench.resume_peer`), made at the first run.

What counts is growth: k = 100, 1,000, 3,000 and 10,000. Times are on the wall, since all read files and ours waits for
the disk to have what it wrote; processor time stands beside them, and is what a busy machine leaves alone.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.plan.plan import Plan
from tests.bench import bench_resume, resume_peer
from tests.bench.bench_resume import KINDS, close, first_microbatch, run_that_reached
from tests.bench.conftest import Claims, Interleaved, is_measured
from tests.bench.corpora import parquet_corpus
from tests.bench.other_process import OtherProcess, python_with

BATCH = 16
SEQ_LEN = 128
ROUNDS = 5
pytestmark = pytest.mark.long

BATCHES = [100, 1_000, 3_000, 10_000]
CALLED = {"grain": "Grain", "streaming": "MosaicML Streaming"}


class Meter:
    """What contenders took, on the wall and of the processor, in this process or in another."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """On the wall, of all calls so far."""
        self.processor: dict[str, list[float]] = {}
        """Seconds of each call, by contender."""

    def here(self, name: str, work: Callable[[], object]) -> Callable[[], object]:
        """What this process does."""

        def call() -> object:
            began, processor = time.perf_counter(), time.process_time()
            made = work()
            self._add(name, time.perf_counter() - began, time.process_time() - processor)
            return made

        return call

    def there(self, name: str, peer: OtherProcess, words: dict[str, Any], check: Callable[[Any], object]) -> Any:
        """What another process says of itself; its answer is checked."""

        def call() -> None:
            answer = peer.ask(words)
            self._add(name, answer["seconds"], answer["processor_seconds"])
            check(answer)

        return call

    def _add(self, name: str, seconds: float, processor: float) -> None:
        self.seconds += seconds
        self.processor.setdefault(name, []).append(processor)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Corpus:
    """400,000 short documents: room for 10,000 batches of 16 and more; a hundredth of that in a smoke test."""
    rows = 1_000 if is_measured(request.config) else 10
    return parquet_corpus(
        tmp_path_factory.mktemp("peers"), num_shards=8, groups_of_shard=50, rows_of_group=rows, words_of_document=25
    )


@pytest.fixture(params=BATCHES, ids="{:,} batches".format)
def k(request: pytest.FixtureRequest) -> int:
    """Batches that were delivered."""
    batches: int = request.param
    return batches if is_measured(request.config) else batches // 100


@pytest.fixture
def ours(
    corpus: Corpus, tmp_path: Path, k: int, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Meter], dict[str, Callable[[], object]]]:
    """Our contenders, each with a run of its own that has come as far."""
    monkeypatch.setattr(bench_resume, "SEQ_LEN", SEQ_LEN)
    plan = Plan(corpus, seed=17, global_batch=BATCH, lanes=1, window_blocks=16)

    def contender(meter: Meter, kind: str) -> Callable[[], object]:
        path = tmp_path / f"{kind} {k}"
        state = run_that_reached(path, plan, k, kind)
        return meter.here(kind, lambda: first_microbatch(path, state, kind))

    return lambda meter: {kind: contender(meter, kind) for kind in KINDS}


def paths_of(corpus: Corpus) -> list[str]:
    return [str(path) for path in sorted(Path(corpus.roots["web"]).glob("*.parquet"))]


def test_hugging_face(
    corpus: Corpus,
    tmp_path: Path,
    claims: Claims,
    interleaved: Interleaved,
    monkeypatch: Any,
    measured: bool,
    ours: Any,
    k: int,
) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    datasets.disable_progress_bars()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    paths = paths_of(corpus)
    buffer_size = 10_000 if measured else 100

    def fresh() -> Any:
        return datasets.load_dataset(
            "parquet", data_files=paths, split="train", streaming=True, cache_dir=str(tmp_path / "hf")
        )

    walked = fresh()
    for _ in itertools.islice(walked, k * BATCH):
        pass
    state = walked.state_dict()

    def from_state() -> object:
        again = fresh()
        again.load_state_dict(state)
        return begun(again)

    works: dict[str, Callable[[], object]] = {
        "skip": lambda: begun(fresh().skip(k * BATCH)),
        "state_dict": from_state,
        "shuffle, skip": lambda: begun(fresh().shuffle(seed=1, buffer_size=buffer_size).skip(k * BATCH)),
    }
    meter = Meter()
    contenders = {name: meter.here(name, work) for name, work in works.items()} | ours(meter)
    report(claims, interleaved, meter, contenders, k, "Hugging Face ")


def test_torchdata(corpus: Corpus, claims: Claims, interleaved: Interleaved, ours: Any, k: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'dataguard[torch]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torchdata's own, on import
        stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    loader_of = stateful.StatefulDataLoader
    paths = paths_of(corpus)

    def state_after(make: Callable[[], Any]) -> dict[str, Any]:
        loader = make()
        iterator = iter(loader)
        for _ in range(k):
            next(iterator)
        state: dict[str, Any] = loader.state_dict()
        return state

    def resumed(make: Callable[[], Any], state: dict[str, Any]) -> object:
        loader = make()
        loader.load_state_dict(state)
        return next(iter(loader))

    from torch.utils.data import Dataset, IterableDataset

    class Streamed(IterableDataset):  # type: ignore[misc, type-arg]
        def __iter__(self) -> Iterator[str]:
            return documents(paths)

    class Mapped(Dataset):  # type: ignore[misc, type-arg]
        """Row groups, all of one size, are read when a row of theirs is asked for, and kept."""

        def __init__(self) -> None:
            import pyarrow.parquet as pq

            self.files = [pq.ParquetFile(path) for path in paths]
            self.rows_of_group = self.files[0].metadata.row_group(0).num_rows
            self.kept: dict[int, list[str]] = {}

        def __len__(self) -> int:
            return sum(file.metadata.num_rows for file in self.files)

        def __getitem__(self, row: int) -> str:
            group = row // self.rows_of_group
            if group not in self.kept:
                file = self.files[group // 50]
                self.kept[group] = file.read_row_group(group % 50, columns=["text"]).column("text").to_pylist()
            return self.kept[group][row % self.rows_of_group]

    def streamed() -> Any:
        return loader_of(Streamed(), batch_size=BATCH, num_workers=0, collate_fn=list)

    def mapped() -> Any:
        import torch

        generator = torch.Generator()
        generator.manual_seed(1)
        return loader_of(Mapped(), batch_size=BATCH, num_workers=0, shuffle=True, generator=generator, collate_fn=list)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        states = {make: state_after(make) for make in (streamed, mapped)}
        works: dict[str, Callable[[], object]] = {
            "iterable": lambda: resumed(streamed, states[streamed]),
            "map-style, shuffled": lambda: resumed(mapped, states[mapped]),
        }
        meter = Meter()
        contenders = {name: meter.here(name, work) for name, work in works.items()} | ours(meter)
        report(claims, interleaved, meter, contenders, k, "torchdata ")


@pytest.fixture(scope="module", params=sorted(resume_peer.REQUIREMENTS))
def peer(
    request: pytest.FixtureRequest, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, OtherProcess, list[str]]]:
    """Grain's process and Streaming's, each with the documents in its own format, and what it can resume."""
    name: str = request.param
    requirements = resume_peer.REQUIREMENTS[name]
    python = python_with(request.config, requirements[0].replace("==", "-"), requirements)
    folder = tmp_path_factory.mktemp(name)
    (folder / "shards").mkdir()
    process = OtherProcess([str(python), "-I", resume_peer.__file__], folder / "log")
    begun = process.ask(
        {"peer": name, "shards": paths_of(corpus), "folder": str(folder / "shards"), "batch_size": BATCH}
    )
    assert begun["documents"] == corpus.manifest.num_deliverable.sum()
    yield name, process, begun["contenders"]
    process.close()


def test_processes(
    peer: tuple[str, OtherProcess, list[str]], claims: Claims, interleaved: Interleaved, ours: Any, k: int
) -> None:
    name, process, its_contenders = peer
    meter = Meter()
    contenders: dict[str, Callable[[], object]] = ours(meter)
    follow = set()
    for each in its_contenders:
        following = process.ask({"do": "reach", "contender": each, "k": k})["first"]
        follow.add(following)

        def check(answer: dict[str, Any], following: str = following) -> None:
            assert (answer["first"], answer["size"]) == (following, BATCH), "it resumed elsewhere"

        contenders[each] = meter.there(each, process, {"do": "resume", "contender": each, "k": k}, check)
    assert len(follow) == 1, "the same documents in the same order, wherever they lie"
    report(claims, interleaved, meter, contenders, k, f"{CALLED[name]}, ")


def documents(paths: list[str]) -> Iterator[str]:
    import pyarrow.parquet as pq

    for path in paths:
        for part in pq.ParquetFile(path).iter_batches(1_000, columns=["text"]):
            yield from part.column("text").to_pylist()


def begun(rows: Any) -> Iterator[Any]:
    """The iterator behind its first batch. It is closed when time is taken no more: where it shuffles, Hugging Face's
    waits 5 s for its threads."""
    iterator = iter(rows)
    for _ in range(BATCH):
        next(iterator)
    return iterator


def report(
    claims: Claims,
    interleaved: Interleaved,
    meter: Meter,
    contenders: dict[str, Callable[[], object]],
    k: int,
    peer: str,
) -> None:
    turns = interleaved(contenders, rounds=ROUNDS, clock=lambda: meter.seconds, after=close)
    for name in turns.seconds:
        whose = name if name in KINDS else peer + name
        processor = median(meter.processor[name][-ROUNDS:])  # without the round that does not count
        compared = "" if name in KINDS else f", {turns.ratio(name, 'GuardedLoader'):.3g} x GuardedLoader's time"
        claims(
            f"resume behind {k:,} batches: {whose}", turns.seconds_of(name) * 1e3, "ms",
            detail=f"{processor * 1e3:.3g} ms of the processor{compared}",
        )  # fmt: skip
