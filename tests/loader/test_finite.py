"""Where a walk ends: lengths, padding, and never a repeat."""

from __future__ import annotations

from collections import Counter

import pytest

from dataguard.plan.slots import SlotStatus
from dataguard.run import amend
from tests.support.corpora import make_corpus, place_of
from tests.support.runs import deliver, in_turns, make_run, open_loaders, state_after


@pytest.fixture(scope="module")
def thirteen(tmp_path_factory):
    """13 records: no global batch of 4 divides them."""
    return make_corpus(tmp_path_factory.mktemp("thirteen"), {"web": {"a.jsonl": 6, "b.jsonl": 7}})


def test_an_endless_loader_has_no_length_and_no_end(tmp_path, thirteen) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4)
    loader = open_loaders(run, microbatch_size=4)[0]
    with pytest.raises(TypeError, match="endless loader has no length"):
        len(loader)
    counts = Counter(place_of(record) for _ in range(13) for record in next(loader).records)
    loader.close()
    assert sorted(counts.values()) == [4] * 13, "13 steps of 4 are 4 epochs of 13"


@pytest.mark.parametrize(("world_size", "microbatch_size"), [(1, 4), (2, 1), (4, 1)])
def test_steps_end_where_they_say(tmp_path, thirteen, world_size, microbatch_size) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4)
    loaders = open_loaders(run, world_size=world_size, microbatch_size=microbatch_size, steps=5)
    lengths = {len(loader) for loader in loaders}
    delivered = list(in_turns(loaders))
    assert len(delivered) == 5
    assert lengths == {5 * 4 // (world_size * microbatch_size)}
    for loader in loaders:
        loader.close()
        assert loader.state().next_step == 5


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("shuffle", ["blocks", "none"])
def test_the_last_batch_of_whole_epochs_is_filled_with_padding(tmp_path, thirteen, epochs, shuffle) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4, shuffle=shuffle)
    loader = open_loaders(run, microbatch_size=2, epochs=epochs)[0]
    length = len(loader)
    microbatches = list(loader)
    assert len(microbatches) == length
    assert length % 2 == 0, "whole steps"
    slots = [slot for microbatch in microbatches for slot in zip(microbatch.records, microbatch.status, strict=True)]
    counts = Counter(place_of(record) for record, status in slots if status == SlotStatus.LIVE)
    assert sorted(counts.values()) == [epochs] * 13
    rest = [(record, status) for record, status in slots if status != SlotStatus.LIVE]
    assert rest == [(b"", SlotStatus.ENDED)] * (-(13 * epochs) % 4)
    assert microbatches[-1].all_masked == (epochs != 3), "the rest of 4 is 3, 2 and 1 slots"


def test_sources_of_other_lengths_end_together(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"long": {"a.jsonl": 20}, "short": {"b.jsonl": 3}})
    run = make_run(tmp_path / "run", corpus, global_batch=4, weights={"long": 1, "short": 1})
    batches = deliver(run, microbatch_size=4, epochs=1)
    places = [place_of(slot) for batch in batches.values() for slot in batch if slot is not None]
    assert Counter(name for name, _ in places) == {"long/a.jsonl": 20, "short/b.jsonl": 3}
    assert len(set(places)) == 23


def test_a_skip_up_to_the_end_of_the_epoch_leaves_no_step_of_padding_alone(tmp_path, thirteen) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4, lanes=1)
    deliver(run, microbatch_size=4, steps=1)
    amend.skip(run, 2, 4, reason="the tail")  # positions 8:16, and the epoch ends at 13
    batches = deliver(run, microbatch_size=4, from_step=0, epochs=1)
    assert [len(batch) for batch in batches.values()] == [4, 4]
    assert all(slot is not None for batch in batches.values() for slot in batch)


def test_a_skip_up_to_the_end_in_holes(tmp_path, thirteen) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4, lanes=1, skip_mode="hole")
    deliver(run, microbatch_size=4, steps=1)
    amend.skip(run, 2, 4, reason="the tail")
    batches = deliver(run, microbatch_size=4, from_step=0, epochs=1)
    assert list(batches) == [0, 1]
    longer = deliver(run, microbatch_size=4, from_step=0, epochs=2)
    assert list(longer) == [0, 1, 4, 5, 6]


def test_resuming_a_finite_walk_ends_where_the_unbroken_one_does(tmp_path, thirteen) -> None:
    whole = deliver(make_run(tmp_path / "whole", thirteen, global_batch=4), microbatch_size=4, epochs=2)
    run = make_run(tmp_path / "run", thirteen, global_batch=4)
    loader = open_loaders(run, microbatch_size=4, epochs=2)[0]
    for _ in range(5):
        next(loader)
    state = loader.state()
    loader.close()
    rest = open_loaders(run, world_size=2, microbatch_size=1, epochs=2, state=state)
    assert len(rest[0]) == (len(whole) - 5) * 2
    rest[0].close()
    batches = deliver(run, world_size=2, microbatch_size=1, epochs=2, state=state)
    assert batches == {step: whole[step] for step in range(5, len(whole))}


def test_a_state_at_the_end_delivers_nothing_more(tmp_path, thirteen) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4)
    state = state_after(run, microbatch_size=4, epochs=1)
    assert state.next_step == 4
    loader = open_loaders(run, microbatch_size=4, epochs=1, state=state)[0]
    assert len(loader) == 0
    assert list(loader) == []
    assert deliver(run, microbatch_size=4, epochs=2, state=state).keys() == {4, 5, 6}


@pytest.mark.parametrize("mode", ["jump", "hole"])
@pytest.mark.parametrize("ending", [{"steps": 5}, {"epochs": 2}])
@pytest.mark.parametrize("skips", [[], [(1, 3)], [(0, 2), (4, 6)]])
def test_a_length_is_what_is_delivered_whatever_is_skipped(tmp_path, thirteen, mode, ending, skips) -> None:
    run = make_run(tmp_path / "run", thirteen, global_batch=4, lanes=1, skip_mode=mode)
    for start, stop in skips:
        amend.skip(run, start, stop, reason="any")
    loader = open_loaders(run, microbatch_size=1, **ending)[0]
    assert len(loader) == len(list(loader)) > 0
