"""A source that is not there at all is refused before an attempt begins, on every rank, and not fed as padding."""

from __future__ import annotations

import pytest

from dataguard.cli.main import main
from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.errors import InputError, PlanError
from dataguard.loader.places import check_places
from dataguard.loader.rehearse import rehearse
from dataguard.run import amend
from tests.support.corpora import make_corpus, place_of
from tests.support.runs import deliver, make_run, open_loaders

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    return make_corpus(tmp_path, {"web": {"a.jsonl": 20, "b.jsonl": 20}, "code": {"c.jsonl": 20}})


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_source_begins_no_attempt(tmp_path, corpus, is_mounted, rank) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / "web").rename(tmp_path / "gone")
    if is_mounted:
        (tmp_path / "web").mkdir()
    loader = open_loaders(run, world_size=2, steps=2)[rank]
    with pytest.raises(InputError, match="source 'web' is not where it is looked for") as caught:
        next(loader)
    assert str(tmp_path / "web") in str(caught.value.found)
    assert "--root web=PATH" in str(caught.value.todo)
    assert not len(run.attempts())


def test_told_where_it_lies_now_it_goes_on(tmp_path, corpus) -> None:
    plain = deliver(make_run(tmp_path / "plain", corpus, lanes=1), microbatch_size=8, steps=3)
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / "web").rename(tmp_path / "moved")
    assert deliver(run, microbatch_size=8, steps=3, roots={"web": str(tmp_path / "moved")}) == plain


def test_a_source_of_which_nothing_will_be_read_is_not_missed(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / "web").rename(tmp_path / "gone")
    amend.quarantine(run, "web/a.jsonl", reason="lost")
    with pytest.raises(InputError, match="'web'"):
        check_places(run)
    amend.quarantine(run, "web/b.jsonl", reason="lost")
    batches = deliver(run, microbatch_size=8, steps=3)
    assert {place_of(slot)[0] for batch in batches.values() for slot in batch if slot} == {"code/c.jsonl"}


def test_a_source_that_is_left_out_from_now_on_is_not_missed(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    deliver(run, microbatch_size=8, steps=1)
    (tmp_path / "web").rename(tmp_path / "gone")
    check_places(run, weights={"web": "0", "code": "1.5"})
    with pytest.raises(InputError, match="'web'"):
        check_places(run, weights={"web": "1/2", "code": 1})
    with pytest.raises(PlanError):
        deliver(run, microbatch_size=8, steps=1, from_step=1, weights={"web": "much", "code": 1})


def test_the_corpus_of_an_amended_attempt_is_looked_for_where_it_lies(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    deliver(run, microbatch_size=8, steps=1)
    other = make_corpus(tmp_path, {"code": {"c.jsonl": 20}, "new": {"d.jsonl": 8}}, output="N.parquet")
    (tmp_path / "new").rename(tmp_path / "lost")
    with pytest.raises(InputError, match="source 'new' is not where"):
        check_places(run, corpus=other)
    check_places(run, corpus=other, roots={"new": str(tmp_path / "lost")})


@pytest.mark.parametrize("fill", ["mask", "substitute"])
def test_a_rehearsal_with_unreadable_rows_is_no_success(tmp_path, corpus, fill, capsysbinary) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1, fill=fill)
    (tmp_path / "web/b.jsonl").rename(tmp_path / "lost.jsonl")
    answer = rehearse(run, geometry=Geometry(world_size=2, microbatch_size=2), steps=4)
    assert answer.unreadable_shards == ("web/b.jsonl",)
    assert any(note.startswith("web/b.jsonl: ") for note in answer.notes)
    assert main(["rehearse", "--run", str(tmp_path / "run"), "--steps", "2", "--json"]) == 3
    assert b'"unreadable_shards":["web/b.jsonl"]' in capsysbinary.readouterr().out
    (tmp_path / "lost.jsonl").rename(tmp_path / "web/b.jsonl")
    assert main(["rehearse", "--run", str(tmp_path / "run"), "--steps", "2"]) == 0


def test_a_new_source_is_placed_as_it_comes(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    deliver(run, microbatch_size=8, steps=1)
    make_corpus(tmp_path, {"code": {"c.jsonl": 20}, "new": {"d.jsonl": 8}}, output="N.parquet")
    (tmp_path / "new").rename(tmp_path / "moved")
    asked = ["rehearse", f"{tmp_path}/N.parquet", "--run", f"{tmp_path}/run", "--steps", "2"]
    assert main(asked) == 3
    assert main([*asked, "--root", f"new={tmp_path}/moved"]) == 0
    assert run.roots()["new"] == str(tmp_path / "moved")
