"""One call is one optimizer step."""

from __future__ import annotations

from dataguard.run import amend
from tests.support.runs import make_run, open_loaders, slots_of


def test_a_step_is_all_microbatches_of_this_rank(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    loaders = open_loaders(run, world_size=2, microbatch_size=1, steps=3)
    for step in range(3):
        taken = [loader.take_step() for loader in loaders]
        assert [[m.address.microbatch for m in each] for each in taken] == [[0, 1, 2, 3]] * 2
        assert {m.step for each in taken for m in each} == {step}
        assert [slot for each in taken for m in each for slot in slots_of(m)] == unbroken[step]
        assert {loader.next_step for loader in loaders} == {step + 1}
    assert [loader.take_step() for loader in loaders] == [[], []]
    assert [loader.take_step() for loader in loaders] == [[], []], "an ended walk stays ended"


def test_what_is_left_of_a_step_that_was_begun_by_iterating(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    with open_loaders(run, microbatch_size=2)[0] as loader:
        next(loader)
        next(loader)
        assert [(m.step, m.address.microbatch) for m in loader.take_step()] == [(0, 2), (0, 3)]
        assert [m.step for m in loader.take_step()] == [1] * 4
        assert (next(loader).step, loader.next_step) == (2, 2)


def test_holes_are_passed_over(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4, skip_mode="hole")
    amend.skip(run, 1, 3, reason="spike")
    with open_loaders(run, microbatch_size=4, steps=3)[0] as loader:
        assert [[m.step for m in loader.take_step()] for _ in range(4)] == [[0, 0], [3, 3], [4, 4], []]
        assert loader.next_step == 5
