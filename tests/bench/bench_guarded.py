"""What does a trainer pay for `GuardedLoader` instead of a plain DataLoader?

    pytest tests/bench/bench_guarded.py --benchmark-enable

Both feed the same documents of the same Parquet shards, in an order of their own, through the same tokenizer (a BPE of
4,000 ids, trained here) into microbatches of eight sequences of 2,048 tokens; in the trainer's process, and by two
workers. The plain one is what people write: a Hugging Face dataset, shuffled, under `torch.utils.data.DataLoader`. The
guarded one reads, digests and records besides, and with the default policy it scores and judges every document.

Both run endlessly; a measurement takes many microbatches from each in turn, so that neither starting nor reading ahead
counts. Four short documents of 1,024 tokens at most are the hardest case there is for what costs the same for every
microbatch; and a cheap transform (the bytes of a document) shows what is left when tokenizing costs nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dataguard.core.address import Geometry  # noqa: E402
from dataguard.corpus.corpus import Corpus  # noqa: E402
from dataguard.plan.plan import Plan  # noqa: E402
from dataguard.run.run import Run  # noqa: E402
from dataguard.torch import GuardedLoader, Record  # noqa: E402
from tests.bench.conftest import Claims, Interleaved  # noqa: E402
from tests.bench.corpora import parquet_corpus  # noqa: E402

TARGET = 1.05


@dataclass(frozen=True)
class Shape:
    """What is fed."""

    size: int
    """Slots of a microbatch."""
    seq_len: int
    words: int
    """Of a document, on average; four bytes each."""
    number: int
    """Microbatches of one measurement."""

    def __str__(self) -> str:
        return f"{self.size} x {self.seq_len:,}"


WIDE = Shape(size=8, seq_len=2_048, words=2_000, number=40)
NARROW = Shape(size=4, seq_len=1_024, words=400, number=200)


@cache
def _tokenizer(path: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)


@dataclass(frozen=True)
class Tokenize:
    """Text to ids, cut and padded: the same for both."""

    path: str
    seq_len: int

    def of_text(self, text: str) -> dict[str, Any]:
        ids = _tokenizer(self.path).encode(text).ids[: self.seq_len]
        padded = torch.zeros(self.seq_len, dtype=torch.int64)
        padded[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        labels = padded.clone()
        labels[len(ids) :] = -100
        return {"input_ids": padded, "labels": labels}

    def __call__(self, record: Record) -> dict[str, Any]:
        return self.of_text(record.text)


@dataclass(frozen=True)
class Bytes:
    """The cheapest transform there is."""

    seq_len: int

    def of_text(self, text: str) -> dict[str, Any]:
        ids = torch.full((self.seq_len,), 256, dtype=torch.int64)
        content = bytearray(text.encode()[: self.seq_len])
        ids[: len(content)] = torch.frombuffer(content, dtype=torch.uint8)
        labels = ids.clone()
        labels[len(content) :] = -100
        return {"input_ids": ids, "labels": labels}

    def __call__(self, record: Record) -> dict[str, Any]:
        return self.of_text(record.text)


class Plain(torch.utils.data.Dataset):  # type: ignore[misc]
    """What people write."""

    def __init__(self, dataset: Any, transform: Any) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.transform.of_text(self.dataset[index]["text"])


@pytest.fixture(scope="module", params=[WIDE, NARROW], ids=["wide", "narrow"])
def shape(request: pytest.FixtureRequest) -> Shape:
    return request.param


@pytest.fixture(scope="module")
def corpus(shape: Shape, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Corpus:
    rows = 200_000 // shape.words if request.config.getoption("benchmark_enable") else 20
    folder = tmp_path_factory.mktemp("guarded")
    return parquet_corpus(folder, num_shards=4, groups_of_shard=8, rows_of_group=rows, words_of_document=shape.words)


@pytest.fixture(scope="module")
def dataset(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from datasets import Dataset

    files = sorted(str(path) for path in Path(corpus.roots["web"]).glob("*.parquet"))
    return Dataset.from_parquet(files, cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def tokenizer(dataset: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    tokenizers = pytest.importorskip("tokenizers")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=4_000, special_tokens=["<unk>"], show_progress=False)
    bpe.train_from_iterator((dataset[i]["text"] for i in range(min(200, len(dataset)))), trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    bpe.save(str(path))
    return str(path)


def _taken(batches: Iterator[Any], number: int) -> Callable[[], object]:
    def take() -> int:
        return sum(next(batches)["input_ids"].shape[0] for _ in range(number))

    return take


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("what", ["tokens", "bytes"])
def test_guarded_against_plain(
    what: str,
    num_workers: int,
    shape: Shape,
    corpus: Corpus,
    dataset: Any,
    tokenizer: str,
    tmp_path: Path,
    interleaved: Interleaved,
    claims: Claims,
    measured: bool,
) -> None:
    transform = Tokenize(tokenizer, shape.seq_len) if what == "tokens" else Bytes(shape.seq_len)
    plan = Plan(corpus, seed=17, global_batch=shape.size)
    geometry = Geometry(world_size=1, microbatch_size=shape.size)
    settings = {"num_workers": num_workers, "start_method": "fork"}
    with contextlib.ExitStack() as stack:
        plain = torch.utils.data.DataLoader(
            Plain(dataset, transform),
            batch_size=shape.size,
            prefetch_factor=8 if num_workers else None,
            sampler=torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=10**9),
            num_workers=num_workers,
            multiprocessing_context="fork" if num_workers else None,
        )
        batches: dict[str, Iterator[Any]] = {"plain": iter(plain)}
        for policy in ("none", "default"):
            run = Run.create(tmp_path / policy, plan, policy=policy)
            loader = GuardedLoader(run, geometry=geometry, transform=transform, **settings)
            batches[policy] = iter(stack.enter_context(loader))
        number = shape.number if measured else 2
        turns = interleaved(
            {name: _taken(each, number) for name, each in batches.items()},
            rounds=7,
            # Where nothing waits for another process, processor time is the same on a busy machine.
            clock=time.perf_counter if num_workers else time.process_time,
        )
        del batches
    where = f"{num_workers} workers" if num_workers else "no workers"
    for policy in ("none", "default"):
        claims(
            f"guarded / plain DataLoader, {shape}, {what}, {where}, policy {policy}",
            turns.ratio(policy, "plain"),
            target=TARGET if what == "tokens" else None,
            detail=f"{turns.seconds_of('plain') / number * 1e3:.2f} ms a microbatch, plain",
        )
