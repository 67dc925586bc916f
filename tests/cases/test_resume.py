"""K9, resume state (G17, G18): in new processes, a second time, with other ranks and threads."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from dataguard.run.run import Run
from tests.support.processes import launch
from tests.support.rows import id_of, rows_in
from tests.support.runs import deliver, in_turns, make_run, open_loaders, slots_of, state_after


def in_a_new_process(
    run: Run, state: dict[str, Any] | None, steps: int, **changes: Any
) -> tuple[list[int], dict[str, Any]]:
    """Ids handed over by one rank, and the state saved behind them."""
    words = {"run": str(run.path), "world_size": 1, "microbatch_size": 2, "steps": steps, "state": state, **changes}
    (answer,) = launch([words])
    assert "error" not in answer, answer["error"]
    return [id_of(slot.encode()) for slot in answer["slots"]], answer["state"]


@pytest.fixture
def rows100(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", rows_in(tmp_path, [100]), global_batch=2)


def test_the_second_resume_in_one_epoch_goes_on_and_not_from_a_delta(tmp_path, rows100) -> None:
    unbroken = deliver(
        make_run(tmp_path / "whole", rows_in(tmp_path, [100]), global_batch=2), microbatch_size=2, steps=45
    )
    ids = [id_of(slot) for batch in unbroken.values() for slot in batch]
    first, state = in_a_new_process(rows100, None, 30)
    assert state["next_step"] == 30
    second, state = in_a_new_process(rows100, state, 10)
    assert state["next_step"] == 40
    third, state = in_a_new_process(rows100, state, 5)
    assert (first, second, third) == (ids[:60], ids[60:80], ids[80:90])
    assert len(set(ids)) == 90


def test_saved_right_after_loading_it_is_the_same_state(rows100) -> None:
    state = state_after(rows100, microbatch_size=2, steps=30)
    for _ in range(3):
        loader = open_loaders(rows100, microbatch_size=2, state=state)[0]
        assert loader.state() == state
        state = loader.state()
        loader.close()
    assert len(rows100.attempts()) == 1, "loading and saving begins nothing"


@pytest.mark.parametrize("cuts", [[1, 1, 1, 1, 1], [7, 1, 13], [49, 1, 1], [50, 50, 3]])
def test_any_number_of_resumes_is_the_unbroken_run(tmp_path, rows100, cuts) -> None:
    """The kind: cut anywhere, also at the border of an epoch."""
    whole = make_run(tmp_path / "whole", rows_in(tmp_path, [100]), global_batch=2)
    unbroken = deliver(whole, microbatch_size=2, steps=sum(cuts))
    state, joined = None, {}
    for steps in cuts:
        loader = open_loaders(rows100, microbatch_size=2, steps=steps, state=state)[0]
        for taken in in_turns([loader]):
            joined[taken[0].step] = [slot for microbatch in taken for slot in slots_of(microbatch)]
        state = loader.state()
        loader.close()
    assert joined == unbroken


@pytest.fixture(scope="module")
def rows64(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows64")
    rows_in(folder, [64])
    return folder


def corpus_of(folder: Path):
    from dataguard.corpus.corpus import Corpus

    return Corpus.open(folder / "M.parquet")


def test_other_ranks_and_threads_at_resume_change_nothing(tmp_path, rows64) -> None:
    corpus = corpus_of(rows64)
    unbroken = deliver(make_run(tmp_path / "whole", corpus), microbatch_size=8, steps=8)
    run = make_run(tmp_path / "run", corpus)
    state = state_after(run, world_size=2, microbatch_size=2, num_threads=2, steps=3)
    numbers = [id_of(slot) for batch in unbroken.values() for slot in batch]
    assert sorted(numbers) == list(range(64)), "an epoch is every row once"
    for world_size, num_threads in itertools.product((1, 2, 4), (0, 1, 3, 7)):
        batches = deliver(run, world_size=world_size, microbatch_size=2, num_threads=num_threads, state=state, steps=5)
        assert batches == {step: unbroken[step] for step in range(3, 8)}, (world_size, num_threads)
    assert len(run.attempts()) == 13


def test_four_new_processes_go_on_where_two_stopped(tmp_path, rows64) -> None:
    corpus = corpus_of(rows64)
    unbroken = deliver(make_run(tmp_path / "whole", corpus), microbatch_size=8, steps=8)
    run = make_run(tmp_path / "run", corpus)
    state = state_after(run, world_size=2, microbatch_size=2, num_threads=2, steps=3).to_dict()
    common = {"run": str(run.path), "microbatch_size": 1, "launch_id": "again", "state": state, "steps": 5}
    answers = launch([{**common, "world_size": 4, "rank": rank, "num_threads": rank} for rank in range(4)])
    joined = [answers[rank]["slots"][2 * step : 2 * step + 2] for step in range(5) for rank in range(4)]
    wanted = [slot.decode() for step in range(3, 8) for slot in unbroken[step]]
    assert [slot for part in joined for slot in part] == wanted
    assert {answer["state"]["next_step"] for answer in answers} == {8}


def test_a_microbatch_of_another_size_within_a_step_in_hand(tmp_path, rows64) -> None:
    """Stopped inside a step, resumed with microbatches that cut it elsewhere: the step begins again, whole."""
    corpus = corpus_of(rows64)
    unbroken = deliver(make_run(tmp_path / "whole", corpus), microbatch_size=8, steps=8)
    run = make_run(tmp_path / "run", corpus)
    loader = open_loaders(run, microbatch_size=1)[0]
    for _ in range(13):
        next(loader)
    state = loader.state()
    loader.close()
    assert state.next_step == 1
    assert deliver(run, world_size=2, microbatch_size=4, state=state, steps=2) == {1: unbroken[1], 2: unbroken[2]}
