"""Skips, batch sizes and other corpora at an attempt: held against a walk of every position, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.corpus.corpus import Corpus
from dataguard.run import amend
from dataguard.run.run import Run
from tests.support.corpora import make_corpus, manifest_of, place_of, put_shard
from tests.support.runs import Slot, deliver, make_run, open_loaders, state_after
from tests.twins.steps import in_slots, is_skipped, walk

LANES = 4


@pytest.fixture(scope="module")
def held(unbroken) -> dict[int, Slot]:
    """What stands at each position, by the run that nobody disturbed."""
    return {
        position: slot
        for step, batch in unbroken.items()
        for position, slot in zip(in_slots(range(8 * step, 8 * step + 8), LANES), batch, strict=True)
    }


def expected(run: Run, held: dict[int, Slot], mode: str, stop: int) -> dict[int, list[Slot]]:
    """What the newest attempt's steps should hold, by the slow walk."""
    attempt = run.attempts().attempt(run.attempts().newest)
    walked = walk(run.attempts().lineage(), mode, stop)
    steps = {}
    for step in range(attempt.fork_step, stop):
        batch = in_slots(walked.steps[step], LANES)
        skipped = [mode == "hole" and is_skipped(attempt, position) for position in batch]
        if not all(skipped):
            steps[step] = [None if out else held[position] for position, out in zip(batch, skipped, strict=True)]
    return steps


@pytest.mark.parametrize("mode", ["jump", "hole"])
def test_the_example_of_a_jump_and_of_a_hole(tmp_path, documents, held, mode) -> None:
    run = make_run(tmp_path / "run", documents, lanes=LANES, skip_mode=mode)
    deliver(run, microbatch_size=8, steps=12)
    amend.skip(run, 10, 13, reason="spike")
    batches = deliver(run, world_size=2, microbatch_size=4, from_step=8, steps=4)
    if mode == "jump":
        assert list(batches) == [8, 9, 10, 11]
        assert batches[10] == [held[p] for p in in_slots(range(104, 112), LANES)]
    else:
        assert list(batches) == [8, 9, 13, 14]
        assert batches[13] == [held[p] for p in in_slots(range(104, 112), LANES)]
    assert batches == expected(run, held, mode, max(batches) + 1)


spans = st.lists(st.tuples(st.integers(0, 18), st.integers(1, 5), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=10)
@given(
    mode=st.sampled_from(["jump", "hole"]), skips=spans, start=st.integers(0, 6), size=st.sampled_from([8, 8, 4, 16])
)
def test_skips_in_any_order_and_overlap(tmp_path_factory, documents, held, mode, skips, start, size) -> None:
    run = make_run(tmp_path_factory.mktemp("skips") / "run", documents, lanes=LANES, skip_mode=mode)
    deliver(run, microbatch_size=8, steps=6)
    for first, length, by_batch in skips:
        amend.skip(run, first, first + length, reason="any", batches=by_batch)
    batches = deliver(run, world_size=2, microbatch_size=2, from_step=start, steps=4, global_batch=size)
    assert len(batches) == 4
    assert batches == expected(run, held, mode, max(batches) + 1)


def test_a_batch_that_is_skipped_in_part_keeps_its_slots(tmp_path, documents, held) -> None:
    """Steps of another batch size cut across the grid, so that a hole begins inside a batch."""
    run = make_run(tmp_path / "run", documents, lanes=LANES, skip_mode="hole", global_batch=4)
    deliver(run, microbatch_size=4, steps=6)
    amend.skip(run, 3, 5, reason="spike")  # positions 12:20
    batches = deliver(run, microbatch_size=8, from_step=0, steps=3, global_batch=8)
    assert batches[1] == [None if 12 <= p < 20 else held[p] for p in in_slots(range(8, 16), LANES)]
    assert batches[2] == [None if 12 <= p < 20 else held[p] for p in in_slots(range(16, 24), LANES)]


def test_a_skip_before_the_start_changes_nothing_and_is_told(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "run", documents, lanes=LANES)
    deliver(run, microbatch_size=8, steps=12)
    answer = amend.skip(run, 4, 6, reason="too late")
    loader = open_loaders(run, microbatch_size=8, from_step=10)[0]
    next(loader)
    loader.close()
    (note,) = [note for note in loader.notes if "changes nothing" in note]
    assert f"event {answer.event} (positions 32:48) lies before position 80" in note
    assert deliver(run, microbatch_size=8, from_step=10, steps=2) == {10: unbroken[10], 11: unbroken[11]}
    again = open_loaders(run, microbatch_size=8, from_step=11)[0]
    next(again)
    again.close()
    assert not any("changes nothing" in note for note in again.notes), "told once, not at every restart"


def test_a_revoked_skip_is_delivered_again(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "run", documents, lanes=LANES)
    deliver(run, microbatch_size=8, steps=3)
    event = amend.skip(run, 3, 5, reason="spike").event
    assert deliver(run, microbatch_size=8, from_step=3, steps=1) == {3: unbroken[5]}
    assert event is not None
    amend.revoke(run, event, reason="no spike after all")
    assert deliver(run, microbatch_size=8, from_step=3, steps=2) == {3: unbroken[3], 4: unbroken[4]}


def test_another_batch_size_moves_no_sample(tmp_path, documents, held) -> None:
    run = make_run(tmp_path / "run", documents, lanes=LANES)
    state = state_after(run, microbatch_size=8, steps=3)
    batches = deliver(run, world_size=4, microbatch_size=2, state=state, steps=3, global_batch=16)
    assert batches == {
        s: [held[p] for p in in_slots(range(24 + 16 * i, 40 + 16 * i), LANES)] for i, s in enumerate((3, 4, 5))
    }
    after = deliver(run, microbatch_size=8, from_step=5, steps=1, global_batch=8)
    assert after == {5: [held[p] for p in in_slots(range(56, 64), LANES)]}


def grown(folder) -> tuple[Corpus, Corpus, Corpus]:
    """A corpus, the same with a shard and a source more, and the same with a shard less."""
    small = make_corpus(folder, {"web": {"a.jsonl": 12, "b.jsonl": 12}})
    put_shard(folder, "web", "c.jsonl", 16)
    put_shard(folder, "new", "d.jsonl", 10)
    more = Corpus.open(manifest_of(folder, ["web", "new"], output="more.parquet"))
    (folder / "web" / "a.jsonl").rename(folder / "a.jsonl")
    less = Corpus.open(manifest_of(folder, ["web"], output="less.parquet"))
    (folder / "a.jsonl").rename(folder / "web" / "a.jsonl")
    return small, more, less


def test_a_grown_corpus_begins_anew_and_repeats_nothing(tmp_path) -> None:
    small, more, _ = grown(tmp_path)
    run = make_run(tmp_path / "run", small, global_batch=4, lanes=1)
    before = deliver(run, microbatch_size=4, steps=3)
    after = deliver(run, microbatch_size=2, from_step=3, steps=3, corpus=more, weights={"web": 1, "new": 0})
    first = [place_of(slot) for batch in (*before.values(), *after.values()) for slot in batch]
    assert sorted(first) == sorted(("web/" + shard, row) for shard in ("a.jsonl", "b.jsonl") for row in range(12))
    later = deliver(run, microbatch_size=4, from_step=6, steps=10)
    places = [place_of(slot) for batch in later.values() for slot in batch]
    assert len(set(places)) == 40, "the next epoch is of all three shards"


def test_a_new_source_comes_in_from_its_attempt_on(tmp_path) -> None:
    small, more, _ = grown(tmp_path)
    run = make_run(tmp_path / "run", small, global_batch=4, lanes=1)
    deliver(run, microbatch_size=4, steps=2)
    batches = deliver(run, microbatch_size=4, from_step=2, steps=4, corpus=more, weights={"web": 1, "new": 1})
    places = [place_of(slot) for batch in batches.values() for slot in batch]
    assert len(set(places)) == len(places) == 16
    assert 6 <= sum(name == "new/d.jsonl" for name, _ in places) <= 10


@pytest.mark.parametrize("fill", ["mask", "substitute"])
def test_a_removed_shard_is_withheld_from_its_attempt_on(tmp_path, fill) -> None:
    small, _, less = grown(tmp_path)
    run = make_run(tmp_path / "run", small, global_batch=4, lanes=1, fill=fill)
    whole = make_run(tmp_path / "whole", small, global_batch=4, lanes=1)
    plain = deliver(whole, microbatch_size=4, steps=6)
    deliver(run, microbatch_size=4, steps=2)
    batches = deliver(run, microbatch_size=4, from_step=2, steps=4, corpus=less)
    for step, batch in batches.items():
        for slot, planned in zip(batch, plain[step], strict=True):
            if place_of(planned)[0] != "web/a.jsonl":
                assert slot == planned
            elif fill == "mask":
                assert slot is None
            else:
                assert place_of(slot)[0] == "web/b.jsonl"


def test_the_text_field_of_a_grown_corpus_is_remembered(tmp_path) -> None:
    """The run's own copy of the manifest must say how its shards are read."""
    from tests.corpus.making import put

    put(tmp_path / "web" / "a.jsonl", b'{"body": "one"}\n{"body": "two"}\n')
    small = Corpus.open(manifest_of(tmp_path, ["web"], text_field="body", max_record_bytes=1000))
    put(tmp_path / "web" / "b.jsonl", b'{"body": "three"}\n{"body": "four"}\n')
    more = Corpus.open(manifest_of(tmp_path, ["web"], output="N.parquet", text_field="body", max_record_bytes=1000))
    run = make_run(tmp_path / "run", small, global_batch=2, lanes=1)
    deliver(run, microbatch_size=2, steps=1)
    batches = deliver(run, microbatch_size=2, from_step=1, steps=2, corpus=more)
    assert {slot for batch in batches.values() for slot in batch} == {b"one", b"two", b"three", b"four"}
    assert run.corpora(2)[-1].options == more.options
