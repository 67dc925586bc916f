"""GuardedLoader over a named stream: the same tensors at every evaluation, with any workers, each on record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.errors import UsageError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.events import EvaluatedAt
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, GuardedLoader
from tests.torch.making import SEQ_LEN, a_run, loader_of, told


@pytest.fixture
def run(tmp_path: Path, documents: Corpus) -> Run:
    return a_run(tmp_path / "run", documents)


def evaluating(run: Run, corpus: Corpus, *, num_workers: int = 0, **settings) -> GuardedLoader:
    geometry = Geometry(world_size=1, microbatch_size=4)
    stream = run.stream("valid", corpus, **settings)
    return stream.guarded(geometry=geometry, rank=0, transform=ByteTransform(SEQ_LEN), num_workers=num_workers)


def test_each_iteration_is_an_evaluation_of_its_own_where_the_training_stands(run: Run, documents: Corpus) -> None:
    valid = evaluating(run, documents)
    length, seen = len(valid), []
    with valid, loader_of(run, steps=3) as training:
        for step in range(3):
            training.take_step()
            if step != 1:
                seen.append([told(microbatch) for microbatch in valid])
    assert seen[0] == seen[1]
    assert len(seen[0]) == length == 40
    stream = run.stream("valid")
    assert [each.at for each in stream.evaluations()] == [EvaluatedAt(attempt=1, step=step) for step in (0, 2)]
    assert run.attempts().numbers == (1,)


def test_workers_change_nothing_and_an_evaluation_may_be_left(run: Run, documents: Corpus) -> None:
    with evaluating(run, documents, end=4) as valid:
        alone = [told(microbatch) for microbatch in valid]
        for microbatch in valid:  # left in its middle: the next one begins anew
            assert told(microbatch) == alone[0]
            break
        assert [told(microbatch) for microbatch in valid] == alone
    with evaluating(run, documents, num_workers=2, end=4) as valid:
        assert [[told(microbatch) for microbatch in valid] for _ in range(2)] == [alone, alone]
    assert len(run.stream("valid").evaluations()) == 5


def test_padding_behind_the_last_sample_has_no_labels(run: Run, documents: Corpus) -> None:
    valid = evaluating(run, documents, global_batch=64)
    with valid:
        *_, last = valid
    assert last.all_masked
    assert bool((last["labels"] == -100).all())
    assert int(last["attention_mask"].sum()) == 4  # one place a row, so that nothing is a softmax over nothing


def test_what_was_evaluated_is_verified_and_has_no_state(run: Run, documents: Corpus) -> None:
    with evaluating(run, documents, end=2) as valid:
        for microbatch in valid:
            assert isinstance(microbatch["input_ids"], torch.Tensor)
        with pytest.raises(UsageError, match="has no state"):
            valid.state_dict()
    answer = verify_run(Lookup(run), data=False)
    assert answer.ok
    assert {check.name: check.checked for check in answer.checks}["stream valid: fixed set"] == 16
    asked = {"geometry": Geometry(world_size=1, microbatch_size=4), "transform": ByteTransform(SEQ_LEN)}
    with pytest.raises(UsageError, match="steps_per_epoch cannot be given"):
        GuardedLoader(run.stream("valid"), steps_per_epoch=2, **asked)
    with GuardedLoader(run.stream("valid"), at_step=7, rank=0, **asked) as told_where:
        for _ in range(2):
            next(iter(told_where))
    assert [each.at.step for each in run.stream("valid").evaluations()] == [None, 7, None]
