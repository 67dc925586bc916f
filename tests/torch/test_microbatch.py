"""Does a microbatch of tensors keep knowing what it is, and say so where it does not?"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch

from dataguard.corpus.corpus import Corpus
from dataguard.torch import TensorMicrobatch
from tests.torch.making import a_run, loader_of

FACTS = (
    *("address", "step", "attempt", "slots", "positions", "status", "names", "rows", "digest"),
    *("all_masked", "num_loss_tokens"),
)


@pytest.fixture
def microbatch(documents: Corpus, run_folder: Path) -> TensorMicrobatch:
    with loader_of(a_run(run_folder, documents), steps=1) as loader:
        return next(iter(loader))


def test_what_moves_it_keeps_what_it_is(microbatch: TensorMicrobatch) -> None:
    same = [
        microbatch.to("cpu"),
        microbatch.to(torch.device("cpu"), non_blocking=True),
        copy.copy(microbatch),
        microbatch.copy(),
        pickle.loads(pickle.dumps(microbatch)),
        microbatch | {"more": torch.zeros(2)},
    ]
    for other in same:
        assert isinstance(other, TensorMicrobatch)
        assert other.address == microbatch.address
        assert other.digest == microbatch.digest
        assert torch.equal(other["input_ids"], microbatch["input_ids"])
    assert microbatch.to("meta")["labels"].is_meta


def test_a_copy_by_a_framework_says_what_it_lacks(microbatch: TensorMicrobatch) -> None:
    made = type(microbatch)({name: tensor + 1 for name, tensor in microbatch.items()})
    assert torch.equal(made["input_ids"], microbatch["input_ids"] + 1)
    assert not hasattr(made, "address")
    for name in FACTS:
        assert getattr(microbatch, name) is not None
        with pytest.raises(AttributeError, match=f"does not know its {name}"):
            getattr(made, name)


def test_frameworks_move_it_by_its_own_method(microbatch: TensorMicrobatch) -> None:
    accelerate = pytest.importorskip("accelerate.utils")
    moved = accelerate.send_to_device(microbatch, torch.device("cpu"))
    assert moved.address == microbatch.address
