"""What the tests of this room share: a corpus of documents, one of tokens, and what an unbroken run delivers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dataguard.corpus.corpus import Corpus
from tests.support.corpora import make_corpus
from tests.torch.making import Delivered, a_run, all_of

DOCUMENTS = {"web": {"a.parquet": 70, "b.jsonl.gz": 30, "c.jsonl.zst": 20}, "code": {"d.parquet": 40}}
TOKENS = {"books": {"t.npy": 480, "u.npy": 363}, "wiki": {"v.npy": 207}}

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """160 records in four formats; nobody changes it."""
    return make_corpus(tmp_path_factory.mktemp("documents"), DOCUMENTS)


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """1,050 tokens in three shards of two sources; nobody changes it."""
    return make_corpus(tmp_path_factory.mktemp("tokens"), TOKENS)


@pytest.fixture(scope="session")
def unbroken(documents: Corpus, tmp_path_factory: pytest.TempPathFactory) -> list[Delivered]:
    """Steps 0:12 of the documents on one rank, four microbatches a step, read at hand-over."""
    return all_of(a_run(tmp_path_factory.mktemp("unbroken") / "run", documents), steps=12)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Where a test makes its run."""
    return tmp_path / "run"
