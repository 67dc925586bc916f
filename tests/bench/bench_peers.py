"""Resume to the first batch, after k batches: ours beside its peers on the same Parquet shards.

    pytest tests/bench/bench_peers.py --benchmark-enable -m long

Every contender delivers batches of 16 documents from the same shards and is asked, in turns, for the first batch behind
k delivered ones, from objects made anew (files are warm, libraries imported):

- Hugging Face ``IterableDataset.skip(k * 16)``; its ``load_state_dict``; a shuffle buffer and then ``skip``;
- torchdata's ``StatefulDataLoader`` over an iterable dataset, and over a shuffled map-style one (no workers);
- ours: open the run, load the state, first microbatch, with the attempt written to the journal and the microbatch
  recorded. None of the others records anything, or shuffles over the whole corpus in constant memory.

What counts is growth: k = 100, 1,000, 3,000 and 10,000.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.plan.plan import Plan
from tests.bench.bench_resume import close, first_microbatch, run_that_reached
from tests.bench.conftest import Claims, Interleaved
from tests.bench.corpora import parquet_corpus

BATCH = 16
pytestmark = pytest.mark.long

BATCHES = [100, 1_000, 3_000, 10_000]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """400,000 short documents: room for 10,000 batches of 16 and more."""
    return parquet_corpus(
        tmp_path_factory.mktemp("peers"), num_shards=8, groups_of_shard=50, rows_of_group=1_000, words_of_document=25
    )


def paths_of(corpus: Corpus) -> list[str]:
    return [str(path) for path in sorted(Path(corpus.roots["web"]).glob("*.parquet"))]


def ours(corpus: Corpus, folder: Path, k: int) -> Callable[[], object]:
    plan = Plan(corpus, seed=17, global_batch=BATCH, lanes=1, window_blocks=16)
    path = folder / f"run-{k}"
    state = run_that_reached(path, plan, k)
    return lambda: first_microbatch(path, state)


@pytest.mark.parametrize("k", BATCHES, ids="{:,} batches".format)
def test_hugging_face(
    corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    datasets.disable_progress_bars()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    paths = paths_of(corpus)

    def fresh() -> Any:
        return datasets.load_dataset(
            "parquet", data_files=paths, split="train", streaming=True, cache_dir=str(tmp_path / "hf")
        )

    walked = fresh()
    iterator = iter(walked)
    for _ in range(k * BATCH):
        next(iterator)
    state = walked.state_dict()

    def from_state() -> object:
        again = fresh()
        again.load_state_dict(state)
        return batch(again)

    contenders: dict[str, Callable[[], object]] = {
        "skip": lambda: batch(fresh().skip(k * BATCH)),
        "state_dict": from_state,
        "shuffle, skip": lambda: batch(fresh().shuffle(seed=1, buffer_size=10_000).skip(k * BATCH)),
        "dataguard": ours(corpus, tmp_path, k),
    }
    report(claims, interleaved(contenders, rounds=5, after=close), k, "HF ")


@pytest.mark.parametrize("k", BATCHES, ids="{:,} batches".format)
def test_torchdata(corpus: Corpus, tmp_path: Path, claims: Claims, interleaved: Interleaved, k: int) -> None:
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
        """Row groups are read when a row of theirs is asked for, the last few kept."""

        def __init__(self) -> None:
            import pyarrow.parquet as pq

            self.files = [pq.ParquetFile(path) for path in paths]
            self.kept: dict[int, list[str]] = {}

        def __len__(self) -> int:
            return 8 * 50 * 1_000

        def __getitem__(self, row: int) -> str:
            group = row // 1_000
            if group not in self.kept:
                file = self.files[group // 50]
                self.kept[group] = file.read_row_group(group % 50, columns=["text"]).column("text").to_pylist()
            return self.kept[group][row % 1_000]

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
        contenders: dict[str, Callable[[], object]] = {
            "iterable": lambda: resumed(streamed, states[streamed]),
            "map-style, shuffled": lambda: resumed(mapped, states[mapped]),
            "dataguard": ours(corpus, tmp_path, k),
        }
        turns = interleaved(contenders, rounds=5, after=close)
    report(claims, turns, k, "torchdata ")


def documents(paths: list[str]) -> Iterator[str]:
    import pyarrow.parquet as pq

    for path in paths:
        for part in pq.ParquetFile(path).iter_batches(1_000, columns=["text"]):
            yield from part.column("text").to_pylist()


def batch(rows: Any) -> list[Any]:
    iterator = iter(rows)
    return [next(iterator) for _ in range(BATCH)]


def report(claims: Claims, turns: Any, k: int, peer: str) -> None:
    for name in turns.seconds:
        whose = name if name == "dataguard" else peer + name
        detail = "" if name == "dataguard" else f"{turns.ratio(name, 'dataguard'):.3g} x dataguard's time"
        claims(f"resume behind {k:,} batches: {whose}", turns.seconds_of(name) * 1e3, "ms", detail=detail)
