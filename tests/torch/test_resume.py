"""Does every resumed walk equal the unbroken one, whatever stands between?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import AttemptError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from tests.support.corpora import make_corpus
from tests.torch.making import Delivered, a_run, loader_of, told

PER_EPOCH = 5
MICROBATCHES = 4


def part(run: Any, state: dict[str, Any] | None, num_microbatches: int, **settings: Any) -> tuple[list[Any], Any]:
    """So many microbatches from a state on, over as many epochs as it takes; and the state then."""
    taken: list[Delivered] = []
    with loader_of(run, steps_per_epoch=PER_EPOCH, **settings) as loader:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
            assert loader.state_dict() == state
        while len(taken) < num_microbatches:
            for microbatch in loader:
                taken.append(told(microbatch))
                if len(taken) == num_microbatches:
                    break
        return taken, loader.state_dict()


@pytest.mark.parametrize("first", [1, 6, 19, 20, 21, 40], ids=lambda n: f"after {n} microbatches")
def test_two_resumes_equal_the_unbroken_run(
    documents: Corpus, run_folder: Path, unbroken: list[Delivered], first: int
) -> None:
    run = a_run(run_folder, documents)
    taken, state = part(run, None, first)
    assert taken == unbroken[:first]
    at = first // MICROBATCHES * MICROBATCHES
    assert state["next_step"] == first // MICROBATCHES
    taken, state = part(run, state, 3)
    assert taken == unbroken[at : at + 3]
    taken, state = part(run, state, 7)
    assert taken == unbroken[at : at + 7]
    assert state["next_step"] == at // MICROBATCHES + 1
    assert verify_run(Lookup(run)).ok


def test_workers_and_world_size_may_change(documents: Corpus, run_folder: Path, unbroken: list[Delivered]) -> None:
    run = a_run(run_folder, documents)
    _, state = part(run, None, 9, num_workers=2)
    assert state["next_step"] == 2
    ids = [ids for each in unbroken[8:12] for ids in each[2]["input_ids"]]
    loaders = [loader_of(run, world_size=2, rank=rank, num_workers=rank, launch_id="wider") for rank in (0, 1)]
    found = []
    for loader in loaders:
        loader.load_state_dict(state)
        found += [ids for microbatch in loader.take_step() for ids in microbatch["input_ids"].tolist()]
    assert found == ids
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1]
    for loader in loaders:
        loader.close()
    taken, _ = part(run, states[0], 4, num_workers=1)
    assert taken == unbroken[12:16]


def test_what_was_prefetched_never_counts(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    with loader_of(run, num_workers=2, prefetch_factor=8) as loader:
        next(iter(loader))
        assert loader.state_dict()["next_step"] == 0
        for _ in range(3):
            next(iter(loader))
        assert loader.state_dict()["next_step"] == 1
    assert len(Lookup(run).index.step(1, 0, num_ranks=1).records) == 8
    assert len(Lookup(run).index.step(1, 1, num_ranks=1).records) == 0


def test_epochs_roll_over_and_nothing_moves_them(
    documents: Corpus, run_folder: Path, unbroken: list[Delivered]
) -> None:
    with loader_of(a_run(run_folder, documents), steps_per_epoch=PER_EPOCH) as loader:
        taken = []
        for epoch in range(2):
            loader.set_epoch(7 * epoch)
            assert len(loader) == 20
            taken += [told(microbatch) for microbatch in loader]
            assert loader.next_step == PER_EPOCH * (epoch + 1)
        # A second iterator goes on where the first one stands.
        first = iter(loader)
        taken += [told(next(first))]
        taken += [told(next(iter(loader)))]
        taken += [told(next(first))]
        assert taken == unbroken[:43]
        assert len(list(iter(loader))) == 17
        assert list(first) == []


def test_a_length_begins_no_attempt(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    with loader_of(run, steps=3) as loader, loader_of(run, steps=2, global_batch=16) as wider:
        assert (len(loader), len(wider)) == (12, 16)
        with pytest.raises(TypeError, match="endless loader has no length"):
            len(loader_of(run))
        assert len(run.attempts()) == 0
    with loader_of(run, epochs=1, microbatch_size=8) as loader:
        assert len(loader) == len(list(loader)) >= 20


def test_a_batch_size_that_changed_changes_the_length(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    with loader_of(run, steps=2) as loader:
        assert len(list(loader)) == 8
        state = loader.state_dict()
    with loader_of(run, global_batch=16, steps_per_epoch=3) as loader:
        loader.load_state_dict(state)
        assert len(loader) == 24
        assert len(list(loader)) == 8  # step 2 is the last of its epoch
        state = loader.state_dict()
    with loader_of(run, steps_per_epoch=3) as loader:
        loader.load_state_dict(state)
        assert len(loader) == 24
        assert len(list(loader)) == 24


def test_a_state_of_another_stream_is_refused(documents: Corpus, tmp_path: Path) -> None:
    other = make_corpus(tmp_path / "other", {"web": {"a.jsonl": 20}})
    with loader_of(a_run(tmp_path / "a", other), steps=1) as loader:
        list(loader)
        state = loader.state_dict()
    with (
        loader_of(a_run(tmp_path / "b", documents)) as loader,
        pytest.raises(AttemptError, match="belongs to another stream"),
    ):
        loader.load_state_dict(state)
