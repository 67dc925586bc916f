"""When was a record trained on, and when will it be? Held against a look at every position of every attempt."""

from __future__ import annotations

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import NotInRun
from dataguard.replay.lookup import Lookup
from dataguard.replay.where import where_record
from dataguard.run import amend
from dataguard.run.tidy import compact_run, seal_run
from tests.corpus.making import put
from tests.support.corpora import make_corpus, manifest_of, put_shard
from tests.support.runs import deliver, make_run, open_loaders
from tests.support.story import SHARDS, Story
from tests.twins.places import Place, all_places

COMPLETE = {1: 60, 2: 70, 3: 33}
RECORDS = [(f"{s}/{p}", row) for s, paths in SHARDS.items() for p, rows in paths.items() for row in range(rows)]


def told(story: Story, shard: str, row: int, first_label: int = 0, **asked) -> list[Place]:
    lookup = Lookup(story.run)
    return sorted(
        Place(
            place.position,
            place.attempt,
            place.label,
            None if place.step is None else place.step - first_label,
            place.slot,
            place.status,
        )
        for place in where_record(lookup, shard, row, **asked).places
    )


@pytest.mark.parametrize("which", ["story", "substituted"])
@pytest.mark.parametrize(("leaf", "until"), [(3, 50), (2, 90)])
def test_every_record_against_a_look_at_every_position(request, which, leaf, until) -> None:
    story = request.getfixturevalue(which)
    wanted = all_places(story, leaf, COMPLETE, until)
    for shard, row in RECORDS[leaf::8]:
        found = told(story, shard, row, attempt=leaf, until=until)
        assert found == wanted.get((shard, row), []), (shard, row)
    labels = {place.label for each in wanted.values() for place in each}
    assert labels == {"live", "abandoned", "unfinished", "planned", "skipped"}


def test_holes_and_labels_from_one(holes) -> None:
    complete = Lookup(holes.run).complete
    wanted = all_places(holes, 2, complete, 80)
    for shard, row in RECORDS[::4]:
        assert told(holes, shard, row, first_label=1, attempt=2, until=81) == wanted.get((shard, row), [])


def test_where_it_stands_in_its_step(story) -> None:
    handed = story.of_step(50, 2)[3]
    shard, row = handed.place
    (place,) = [
        p for p in where_record(Lookup(story.run), shard, row, attempt=2).places if p.step == 50 and p.attempt == 2
    ]
    assert (place.rank, place.microbatch, place.slot, place.position) == (3, 0, 3, handed.position)
    assert (place.batch, place.label) == (55, "live")


def test_what_is_planned_ends_with_the_epoch_where_no_end_is_given(story) -> None:
    for shard, row in RECORDS[::9]:
        answer = where_record(Lookup(story.run), shard, row)
        planned = [place for place in answer.places if place.label == "planned"]
        assert len(planned) <= 2
        assert all(place.epoch <= 2 for place in planned)
        assert any(place.epoch == max(p.epoch for p in answer.places) for place in answer.places)


def test_a_sealed_and_a_compacted_record_answer_the_same(copy) -> None:
    story = copy()
    asked = RECORDS[3::17]
    before = [told(story, *record) for record in asked]
    list(seal_run(story.run))
    assert [told(story, *record) for record in asked] == before
    list(compact_run(story.run))
    assert [told(story, *record) for record in asked] == before


def test_a_short_name_will_do_and_a_wrong_one_says_what_is_near(story) -> None:
    answer = where_record(Lookup(story.run), "d.parquet", 3)
    assert answer.shard == "code/d.parquet"
    with pytest.raises(NotInRun, match=r"web/a.parque"):
        where_record(Lookup(story.run), "web/a.parque", 3)
    with pytest.raises(NotInRun, match=r"row 26 is not in shard code/d.parquet\n  allowed: 0:26"):
        where_record(Lookup(story.run), "code/d.parquet", 26)


def test_a_rejected_record_has_no_place_and_says_why(tmp_path) -> None:
    put(tmp_path / "web" / "a.jsonl", b'{"text": "one"}\n7\n{"text": "three"}\n')
    corpus = Corpus.open(manifest_of(tmp_path, ["web"]))
    run = make_run(tmp_path / "run", corpus, global_batch=2)
    deliver(run, microbatch_size=2, steps=2)
    answer = where_record(Lookup(run), "web/a.jsonl", 1)
    assert (answer.deliverable, answer.places) == (False, ())
    assert answer.reason.startswith("rejected at the scan: ")
    assert len(where_record(Lookup(run), "web/a.jsonl", 2).places) == 2


def test_windows(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"books": {"t.npy": 95}})
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=10, global_batch=3, lanes=1)
    deliver(run, microbatch_size=3, steps=3)
    lookup = Lookup(run)
    places = [where_record(lookup, "t.npy", window).places for window in range(9)]
    assert sorted((place.step, place.slot) for (place,) in places) == [
        (step, slot) for step in range(3) for slot in range(3)
    ]
    with pytest.raises(NotInRun, match=r"window 9 is not in shard books/t.npy\n(.*\n)?  allowed: 0:9"):
        where_record(lookup, "t.npy", 9)


def test_a_shard_that_only_an_abandoned_attempt_read(tmp_path) -> None:
    small = make_corpus(tmp_path, {"web": {"a.jsonl": 8}})
    put_shard(tmp_path, "web", "z.jsonl", 8)
    more = Corpus.open(manifest_of(tmp_path, ["web"], output="N.parquet"))
    run = make_run(tmp_path / "run", small, global_batch=4, lanes=1)
    deliver(run, microbatch_size=4, steps=2)
    deliver(run, microbatch_size=4, from_step=2, steps=4, corpus=more)
    deliver(run, microbatch_size=4, from_step=1, steps=2)
    places = [p for row in range(8) for p in where_record(Lookup(run), "web/z.jsonl", row).places]
    assert {(place.attempt, place.label) for place in places} == {(2, "abandoned")}
    assert len(places) == 8


def test_ranks_that_ran_ahead_of_one_that_died(tmp_path, story) -> None:
    """Rank 1 died in step 2, rank 0 was handed steps up to 4: all of that was delivered, none of it is finished."""
    run = make_run(tmp_path / "run", story.corpus, global_batch=4, lanes=1)
    loaders = open_loaders(run, world_size=2, microbatch_size=1)
    log = Story(folder=tmp_path, corpus=story.corpus, run=run)
    for _ in range(2):
        for loader in loaders:
            log.note(loader.take_step())
    for _ in range(3):
        log.note(loaders[0].take_step())
    state = loaders[0].state()
    del loaders, loader
    deliver(run, microbatch_size=4, steps=4, from_step=2)
    lookup = Lookup(run)
    assert (state.next_step, lookup.complete) == (5, {1: 2, 2: 6})
    for handed in log.log:
        places = [
            p for p in where_record(lookup, *handed.place).places if p.attempt == 1 and p.position == handed.position
        ]
        assert [place.label for place in places] == ["live" if handed.step < 2 else "unfinished"]
    handed_over = {handed.place for handed in log.log}
    for handed in log.log[-1:]:
        assert handed.place in handed_over
    for shard, row in {r for r in RECORDS if r not in handed_over}:
        assert not [p for p in where_record(lookup, shard, row).places if p.attempt == 1], "it never came to that"


def test_a_finite_attempt_plans_padding_past_its_end(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 10}})
    run = make_run(tmp_path / "run", corpus, global_batch=4, lanes=1)
    loader = open_loaders(run, microbatch_size=4, epochs=1)[0]
    next(loader)
    loader.close()
    statuses = {p.epoch: p.status for p in where_record(Lookup(run), "web/a.jsonl", 3, until=6).places}
    assert statuses == {0: "live", 1: "ended", 2: "ended"} or statuses == {0: "live", 1: "ended"}


def test_a_quarantined_record_is_planned_as_such(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 10}})
    run = make_run(tmp_path / "run", corpus, global_batch=5, lanes=1)
    deliver(run, microbatch_size=5, steps=2)
    amend.quarantine(run, "web/a.jsonl:3", reason="damaged")
    loader = open_loaders(run, microbatch_size=5, from_step=2)[0]
    next(loader)
    loader.close()
    places = where_record(Lookup(run), "web/a.jsonl", 3, until=4).places
    assert [place.status for place in places] == ["live", "quarantined"]


def test_only_so_many_positions_to_come_are_walked_for_planned_substitutes_and_that_is_told(
    substituted, monkeypatch
) -> None:
    monkeypatch.setattr("dataguard.replay.where._WALKED", 8)
    lookup = Lookup(substituted.run)
    answer = where_record(lookup, "web/a.parquet", 3, attempt=2, until=90)
    assert answer.notes == ("planned substitutes are told up to position 308 alone",)
    assert where_record(lookup, "web/a.parquet", 3, attempt=2, until=71).notes == ()
