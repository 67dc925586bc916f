"""``dataguard report RUN -o FILE``: what it answers, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataguard.cli.main import main
from dataguard.report.html import PAGE_START
from tests.corpus.making import flip
from tests.support.commands import dataguard
from tests.support.corpora import make_corpus
from tests.support.runs import make_run
from tests.triage.localise.planted import ordinary, walk, write

KEYS = ["path", "size_bytes", "of", "folder", "verdict", "attempt", "num_events", "damage"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 70 steps whose loss is raised at three of them; nobody changes it."""
    folder = tmp_path_factory.mktemp("made")
    corpus = write(folder, {"web/a": ordinary(np.random.default_rng(3), 200)})
    run = walk(folder / "run", corpus, num_ranks=2, steps=70)
    run.losses[(run.records["step"] >= 60) & (run.records["step"] < 63)] += 3.0
    run.log(samples=False)
    return run.run.path


def test_the_document_is_frozen_and_the_page_is_one_file(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    told = json.loads(dataguard("report", made, "-o", out, "--json", code=0).stdout)
    assert list(told) == KEYS
    assert told["size_bytes"] == out.stat().st_size
    assert (told["of"], told["folder"], told["attempt"]) == ("run", str(made), 1)
    assert (told["verdict"], told["damage"]) == ("hard_batch", [])
    assert told["num_events"] >= 1
    content = out.read_bytes()
    assert content.startswith(PAGE_START)
    assert b"hard_batch" in content
    assert b"dataguard inspect" in content


def test_how_it_ends(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run.html")
    assert main(["report", str(made), "-o", out, "--step", "20", "--attempt", "1"]) == 0
    assert "the run in" in capsys.readouterr().out
    assert main(["report", str(made), "-o", out, "--step", "20"]) == 0, "a page of ours is replaced"
    capsys.readouterr()
    for words in (["--step", "9000"], ["--attempt", "7"], ["--root", "nowhere=/x"]):
        other = tmp_path / "other.html"
        code = main(["report", str(made), "-o", str(other), *words])
        said = capsys.readouterr()
        assert (code, other.exists()) == (2, False), said
    (tmp_path / "thesis").write_text("mine")
    assert main(["report", str(made), "-o", str(tmp_path / "thesis")]) == 2
    assert (tmp_path / "thesis").read_text() == "mine"


def test_what_is_damaged_is_told_and_the_page_is_written(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(made, tmp_path / "run")
    (path,) = copied.glob("index/attempt=0001/rank=00001/*.parquet")
    steps = pq.read_metadata(path).row_group(0).column(0)
    flip(path, steps.data_page_offset + steps.total_compressed_size - 2)
    out = tmp_path / "run.html"
    assert main(["report", str(copied), "-o", str(out), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert any("rank=00001" in text for text in told["damage"])
    assert b"rank=00001" in out.read_bytes(), "the page says so as well"
    assert main(["report", str(copied), "-o", str(out)]) == 3
    assert "damaged: the record of attempt 1" in capsys.readouterr().out


def test_a_run_without_anything_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.jsonl": 8}}))
    out = tmp_path / "run.html"
    assert main(["report", str(run.path), "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["attempt"], told["num_events"]) == (None, 0)
    assert out.read_bytes().startswith(PAGE_START)
