"""What a notebook shows of a run, whole, growing and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.run.amend import quarantine, skip
from dataguard.run.index import Index
from dataguard.run.run import Run
from tests.core.test_notebook import HOSTILE, require_harmless
from tests.run.small import begin, make_run
from tests.support import runs
from tests.support.corpora import make_corpus


def facts(run: Run) -> dict[str, str]:
    """Names and values of the card's first table, and beside them the texts of all of it."""
    texts = require_harmless(run._repr_html_()).texts
    names = ["run", "folder", "plan", "attempts", "evaluations", "steps", "policy", "skips", "quarantine", "last event"]
    return {name: texts[texts.index(name) + 1] for name in names if name in texts} | {"all": " ".join(texts)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.jsonl": 40, "b.jsonl": 40}})


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert repr(run) == f"<Run {str(run.path)!r} {run.run_id[:16]}>"
    shown = facts(run)
    assert (shown["attempts"], shown["steps"]) == ("0", "none begun")
    assert shown["policy"] == "none: nothing is judged"
    assert (shown["skips"], shown["quarantine"]) == ("none", "none")
    assert shown["last event"].startswith("1: run-created, ")
    assert "seed 7, document, batches of 8, fill mask, skip mode jump" in shown["plan"]


def test_how_far_it_came_and_what_was_decided(tmp_path: Path, corpus: Corpus) -> None:
    run = runs.make_run(tmp_path / "run", corpus, first_label=1, lanes=2)
    state = runs.state_after(run, world_size=2, microbatch_size=2, steps=5)
    runs.deliver(run, microbatch_size=4, steps=2, state=state)
    skip(run, 9, 11, reason="spike <b>")
    quarantine(run, "web/b.jsonl", reason="bad")
    quarantine(run, "web/a.jsonl:3", reason="worse")
    shown = facts(run)
    assert shown["attempts"] == "2"
    assert shown["steps"] == "1:8 are complete on the lineage of attempt 2"
    assert shown["skips"].startswith("1; the newest of positions ")
    assert shown["skips"].endswith(": spike <b>")
    assert shown["quarantine"] == "1 shards, 1 rows; event 6 withholds web/a.jsonl:3: worse"
    assert shown["last event"].startswith("6: quarantined, ")
    assert "2 attempt 1 6 1 4 launch" in shown["all"]


def test_of_many_ranks_the_first_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, global_batch=64, lanes=64)
    begin(run, world_size=64)
    asked = []
    next_steps = Index.next_steps

    def counted(self: Index, attempt: int, num_ranks: int, needed: object) -> list[int | None]:
        asked.append(num_ranks)
        return next_steps(self, attempt, num_ranks, needed)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "next_steps", counted)
    assert facts(run)["steps"] == "0:0 are complete on the lineage of attempt 1, by ranks 0:8 of 64"
    assert asked == [8]


def test_its_size_is_bounded(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    for _ in range(30):
        begin(run, fork_step=0)
    assert "and 11 more" in facts(run)["all"]
    assert len(run._repr_html_()) < 40_000


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\ud800" not in name])  # no event takes that
def test_reasons_may_hold_anything(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    quarantine(run, "web/a.jsonl", reason=name)
    begin(run, launch_id=name)
    require_harmless(run._repr_html_())


def test_a_damaged_journal_is_shown_to_be(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    quarantine(run, "web/a.jsonl", reason="bad")
    path = run.layout.journal_event(2)
    path.write_bytes(path.read_bytes().replace(b"launch", b"launcH", 1))
    shown = facts(run)
    assert "the journal is damaged: " in shown["all"]
    assert "000002.json" in shown["all"]
    assert facts(Run.open(run.path))["all"] == shown["all"]


@pytest.mark.parametrize("gone", ["plan", "manifest", "seals", "journal"])
def test_whatever_is_missing_it_is_told_and_not_raised(tmp_path: Path, corpus: Corpus, gone: str) -> None:
    run = runs.make_run(tmp_path / "run", corpus, lanes=2)
    runs.deliver(run, steps=3)
    folder = run.path / gone
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    text = Run(run.layout, run.journal, run.document)._repr_html_()
    said = " ".join(require_harmless(text).texts)
    expected = {
        "plan": "not known (",
        "manifest": "0:3 are complete",
        "seals": "0:0 are complete",
        "journal": "cannot be shown",
    }
    assert expected[gone] in said


def test_a_stream_is_shown_as_one(tmp_path: Path, corpus: Corpus) -> None:
    run = runs.make_run(tmp_path / "run", corpus, lanes=2)
    stream = run.stream("valid", corpus, end=2)
    with stream.loader(geometry=Geometry(world_size=1, microbatch_size=8)) as loader:
        assert sum(1 for _ in loader) == 2
    shown = facts(stream.run)
    assert shown["evaluations"] == "1"
    assert shown["steps"] == "0:2 are complete on the lineage of attempt 1"
    assert "stream 'valid'" in repr(stream.run)


def test_looking_changes_nothing(tmp_path: Path, corpus: Corpus) -> None:
    run = runs.make_run(tmp_path / "run", corpus, lanes=2)
    runs.deliver(run, steps=3)

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()}

    before = files()
    run._repr_html_()
    assert files() == before
