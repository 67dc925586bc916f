"""A resumed run is the unbroken one, wherever it stopped, however often, whatever the next geometry."""

from __future__ import annotations

import json

import pytest

from dataguard.errors import AttemptError, GeometryError, RunDamaged
from dataguard.run import amend
from dataguard.run.run import Run
from tests.support.runs import deliver, make_run, open_loaders, slots_of, state_after


@pytest.fixture
def run(tmp_path, documents) -> Run:
    return make_run(tmp_path / "run", documents, lanes=4)


@pytest.mark.parametrize("step", [1, 2, 5, 11])
def test_resume_at_any_step(run, unbroken, step) -> None:
    state = state_after(run, world_size=2, microbatch_size=2, steps=step)
    assert (state.attempt, state.next_step) == (1, step)
    batches = deliver(run, world_size=4, microbatch_size=1, state=state, steps=4)
    assert batches == {s: unbroken[s] for s in range(step, step + 4)}


def test_twice_in_a_row_and_saved_right_after_loading(run, unbroken) -> None:
    first = state_after(run, microbatch_size=4, steps=3)
    loader = open_loaders(run, microbatch_size=4, state=first)[0]
    assert loader.state() == first, "loading and saving gives the same state"
    assert loader.next_step == 3
    second = state_after(run, microbatch_size=2, state=loader.state(), steps=4)
    assert (second.attempt, second.next_step) == (2, 7)
    third = state_after(run, world_size=2, microbatch_size=2, state=second, steps=1)
    assert (third.attempt, third.next_step) == (3, 8)
    assert deliver(run, microbatch_size=8, state=third, steps=2) == {8: unbroken[8], 9: unbroken[9]}
    assert [run.attempts().attempt(number).parent for number in (1, 2, 3, 4)] == [None, 1, 2, 3]


def test_a_state_goes_through_json_and_plain_dicts(run, unbroken) -> None:
    state = state_after(run, microbatch_size=8, steps=2)
    for form in (state.to_dict(), json.loads(json.dumps(state.to_dict())), state.encode(), state.encode().decode()):
        loader = open_loaders(run, microbatch_size=8)[0]
        loader.load(form)
        assert loader.state() == state
    with loader:
        assert slots_of(next(loader)) == unbroken[2]


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_step_in_hand_starts_again_and_what_is_prefetched_never_counts(run, unbroken, num_threads) -> None:
    loader = open_loaders(run, microbatch_size=2, num_threads=num_threads, prefetch=20)[0]
    told = []
    for _ in range(9):
        next(loader)
        told.append(loader.state().next_step)
    assert told == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    state = loader.state()
    loader.close()
    assert loader.state() == state, "a closed loader still says where it stood"
    assert deliver(run, microbatch_size=8, state=state, steps=1) == {2: unbroken[2]}


def test_no_state_can_be_loaded_once_something_was_handed_over(run) -> None:
    state = state_after(run, microbatch_size=8, steps=1)
    loader = open_loaders(run, microbatch_size=8, state=state)[0]
    next(loader)
    with pytest.raises(AttemptError, match="has begun attempt 2 already"):
        loader.load(state)
    loader.close()


def test_a_state_of_another_stream_is_refused(run, tmp_path, documents) -> None:
    other = make_run(tmp_path / "other", documents, lanes=4, seed=8)
    state = state_after(other, microbatch_size=8, steps=1)
    with pytest.raises(AttemptError, match="belongs to another stream"):
        open_loaders(run, state=state)
    with pytest.raises(AttemptError, match="no loader state"):
        open_loaders(run, state={"version": 1})


def test_a_state_taken_before_the_first_iteration_is_a_fresh_start(run, unbroken) -> None:
    loader = open_loaders(run, microbatch_size=8)[0]
    state = loader.state()
    assert (state.attempt, state.next_step) == (0, 0)
    assert deliver(run, microbatch_size=8, state=state, steps=2) == {0: unbroken[0], 1: unbroken[1]}
    # The same state again, once attempts exist, is the same start again: a fork from step 0.
    assert deliver(run, world_size=2, microbatch_size=4, state=state, steps=2) == {0: unbroken[0], 1: unbroken[1]}
    second = run.attempts().attempt(2)
    assert (second.parent, second.fork_step) == (1, 0)


@pytest.mark.parametrize("parent", [None, 1])
def test_a_state_taken_before_a_fork_says_where_it_forks(run, unbroken, parent) -> None:
    deliver(run, microbatch_size=8, steps=6)
    deliver(run, microbatch_size=8, steps=1, from_step=5)
    loader = open_loaders(run, microbatch_size=8, from_step=3, parent=parent)[0]
    assert loader.next_step == 3
    state = loader.state()
    assert (state.attempt, state.next_step) == (1, 3)
    assert deliver(run, microbatch_size=8, state=state, steps=2) == {3: unbroken[3], 4: unbroken[4]}


def test_a_fresh_run_told_to_begin_at_step_0_has_the_state_of_a_fresh_start(run, unbroken) -> None:
    loader = open_loaders(run, microbatch_size=8, from_step=0)[0]
    state = loader.state()
    assert (state.attempt, state.next_step) == (0, 0)
    assert deliver(run, microbatch_size=8, state=state, steps=1) == {0: unbroken[0]}


def test_a_run_with_attempts_wants_to_be_told_where_to_go_on(run) -> None:
    deliver(run, microbatch_size=8, steps=2)
    loader = open_loaders(run, microbatch_size=8)[0]
    with pytest.raises(AttemptError, match="nothing says where to go on"):
        next(loader)


@pytest.mark.parametrize(("step", "parent"), [(4, 1), (9, 1), (1, 2), (7, 2)])
def test_a_fork_outside_the_parents_own_steps_is_refused(run, step, parent) -> None:
    deliver(run, microbatch_size=8, steps=3)
    deliver(run, microbatch_size=8, steps=4, from_step=2)
    loader = open_loaders(run, microbatch_size=8, from_step=step, parent=parent)[0]
    with pytest.raises(AttemptError, match=rf"no attempt can begin at step {step} from attempt {parent}"):
        next(loader)
    assert run.attempts().newest == 2


def test_a_geometry_that_does_not_divide_the_batch_is_refused_at_resume_too(run) -> None:
    state = state_after(run, microbatch_size=8, steps=1)
    loader = open_loaders(run, world_size=3, state=state)[0]
    with pytest.raises(GeometryError, match="global batch of 8 cannot be cut into 3 ranks"):
        next(loader)
    assert run.attempts().newest == 1


def test_a_state_knows_a_journal_whose_tail_was_removed(run) -> None:
    deliver(run, microbatch_size=8, steps=2)
    amend.skip(run, 5, 6, reason="spike")
    state = state_after(run, microbatch_size=8, steps=1, from_step=2)
    run.layout.journal_event(run.head().number).unlink()
    loader = open_loaders(Run.open(run.path), microbatch_size=8, state=state)[0]
    with pytest.raises(RunDamaged, match="not the one that the loader state was written with"):
        next(loader)


def test_a_run_in_holes_says_the_next_step_that_will_be_delivered(tmp_path, documents) -> None:
    run = make_run(tmp_path / "holes", documents, lanes=4, skip_mode="hole")
    amend.skip(run, 2, 5, reason="spike")
    state = state_after(run, microbatch_size=8, steps=2)
    assert state.next_step == 5
    assert list(deliver(run, microbatch_size=8, state=state, steps=2)) == [5, 6]


def test_labels_from_one_do_not_shift_a_state(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "ones", documents, lanes=4, first_label=1)
    state = state_after(run, microbatch_size=8, steps=3)
    assert state.next_step == 3
    assert deliver(run, microbatch_size=8, state=state, steps=1) == {3: unbroken[3]}
