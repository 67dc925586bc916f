"""What the tests of this room share: a corpus of documents, one of tokens, and what an unbroken run delivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.corpus.problems import Retry
from tests.support.corpora import make_corpus
from tests.support.runs import Slot, deliver, make_run

DOCUMENTS = {"web": {"a.parquet": 70, "b.jsonl.gz": 30, "c.jsonl.zst": 20}, "code": {"d.parquet": 40}}
TOKENS = {"books": {"t.npy": 480, "u.npy": 363}, "wiki": {"v.npy": 207}}


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """160 records in four formats; nobody changes it."""
    return make_corpus(tmp_path_factory.mktemp("documents"), DOCUMENTS)


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """1,050 tokens in three shards of two sources; nobody changes it."""
    return make_corpus(tmp_path_factory.mktemp("tokens"), TOKENS)


@pytest.fixture(scope="session")
def unbroken(documents: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Slot]]:
    """Steps 0:30 of the documents on one rank, with one microbatch a step."""
    run = make_run(tmp_path_factory.mktemp("unbroken") / "run", documents, lanes=4)
    return deliver(run, microbatch_size=8, steps=30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test writes a corpus of its own."""
    return tmp_path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that fails is not asked again: nobody waits in a test."""
    monkeypatch.setattr("dataguard.corpus.reader.Retry", lambda: Retry(attempts=1, pause_seconds=0.0))
