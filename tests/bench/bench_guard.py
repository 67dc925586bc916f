"""What does `guard` around a DataLoader cost, by itself and with the default policy?

    pytest tests/bench/bench_guard.py --benchmark-enable

Batches of 8 samples of 2,048 tokens with labels and attention mask. The data set tokenizes text as it is asked, which
is what people's do; beside it stands one that only copies rows, and so shows the cost of a batch itself. Processor
time, everything in one process: with workers a DataLoader does less in this one, and waits.
"""

from __future__ import annotations

import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from dataguard.torch import guard
from tests.bench.conftest import Claims, Interleaved

SEQ_LEN = 2_048
BATCH = 8
VOCABULARY = 4_096


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Python sources of the standard library, cut to what makes about `SEQ_LEN` tokens."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.py"))[:120])
    return [text[start : start + 9_000] for start in range(0, len(text) - 9_000, 9_000)]


class Tokenized(Dataset[dict[str, torch.Tensor]]):
    """Text, tokenized when it is asked for."""

    def __init__(self, texts: list[str]) -> None:
        tokenizers = pytest.importorskip("tokenizers")
        self._texts = texts
        self._tokenizer = tokenizers.ByteLevelBPETokenizer()
        self._tokenizer.train_from_iterator(texts[:40], vocab_size=VOCABULARY, show_progress=False)
        self._tokenizer.enable_truncation(SEQ_LEN)
        self._tokenizer.enable_padding(length=SEQ_LEN)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        made = self._tokenizer.encode(self._texts[row])
        ids = torch.tensor(made.ids)
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.tensor(made.attention_mask)}


class Copied(Dataset[dict[str, torch.Tensor]]):
    """Rows of ids that are there already."""

    def __init__(self, num_rows: int) -> None:
        dice = np.random.Generator(np.random.PCG64(1))
        self._ids = torch.from_numpy(dice.integers(0, VOCABULARY, (num_rows, SEQ_LEN)))
        self._mask = torch.ones(SEQ_LEN, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._ids[row], "labels": self._ids[row], "attention_mask": self._mask}


class Contender:
    """Takes so many batches a round, over epoch after epoch."""

    def __init__(self, loader: Any, num_batches: int) -> None:
        self._loader = loader
        self._num_batches = num_batches
        self._batches: Iterator[Any] = iter(())

    def __call__(self) -> None:
        for _ in range(self._num_batches):
            if next(self._batches, None) is None:
                self._batches = iter(self._loader)
                next(self._batches)


def contenders_of(make: Callable[[], Any], folder: Path, num_batches: int) -> dict[str, Callable[[], object]]:
    """A DataLoader, the same guarded, and guarded with the default policy."""
    loaders = {
        "plain": make(),
        "guarded": guard(make(), folder / "guarded"),
        "judged": guard(make(), folder / "judged", policy="default", vocab_size=VOCABULARY),
    }
    return {name: Contender(loader, num_batches) for name, loader in loaders.items()}


def test_guard_in_turns(
    tmp_path: Path, texts: list[str], claims: Claims, interleaved: Interleaved, measured: bool
) -> None:
    data = Tokenized(texts)

    def make() -> Any:
        return DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)

    num_batches = 4 if measured else 1
    turns = interleaved(contenders_of(make, tmp_path, num_batches), rounds=15, clock=time.process_time)
    each = {name: turns.seconds_of(name) / num_batches * 1e6 for name in turns.seconds}
    told = ", ".join(f"{name} {value:,.0f} us" for name, value in each.items())
    claims(
        "guard() around a DataLoader that tokenizes / without",
        turns.ratio("guarded", "plain"),
        target=1.03,
        detail=told,
    )
    claims("the same with the default policy / without", turns.ratio("judged", "plain"), detail=told)


def test_a_batch_in_turns(tmp_path: Path, claims: Claims, interleaved: Interleaved, measured: bool) -> None:
    data = Copied(512)

    def make() -> Any:
        return DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)

    num_batches = 30 if measured else 1
    turns = interleaved(contenders_of(make, tmp_path, num_batches), rounds=15, clock=time.process_time)
    plain = turns.seconds_of("plain")
    for name in ("guarded", "judged"):
        cost = (turns.seconds_of(name) - plain) / num_batches * 1e6
        claims(f"a batch of 8 x 2,048, {name}: more than the DataLoader", cost, "us")
