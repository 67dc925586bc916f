"""Does a transform see what it should, and is what it makes checked, counted and digested?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dataguard.core.keys import derive_key
from dataguard.corpus.corpus import Corpus
from dataguard.errors import ShardDamaged, TransformFailed, UsageError
from dataguard.torch import ByteTransform, Record
from tests.corpus.making import jsonl, parquet
from tests.support.corpora import manifest_of, text_of
from tests.support.runs import make_run
from tests.torch.making import SEQ_LEN, a_run, all_of, augmented, loader_of


class Seen:
    """Notes what it sees of each record; works where there are no workers."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}

    def __call__(self, record: Record) -> dict[str, torch.Tensor]:
        self.records[record.position] = record
        return ByteTransform(SEQ_LEN)(record)


def test_a_record_says_where_it_comes_from(documents: Corpus, run_folder: Path) -> None:
    seen = Seen()
    with loader_of(a_run(run_folder, documents), transform=seen, steps=2) as loader:
        microbatches = list(loader)
    for microbatch in microbatches:
        for i, position in enumerate(microbatch.positions.tolist()):
            record = seen.records[position]
            assert record.address == microbatch.address
            assert record.slot == microbatch.slots[i]
            assert (record.shard, record.row) == (microbatch.names[i], int(microbatch.rows[i]))
            assert record.source == record.shard.split("/")[0]
            assert record.text == text_of(record.shard, record.row)
            assert record.seed == derive_key("transform", 7, position)
            assert not record.is_padding
            assert bool(record.mask)
            assert str(record.row) in repr(record)
            with pytest.raises(UsageError, match="a document has no ids"):
                _ = record.ids


def test_other_fields_are_read_when_asked_for(tmp_path: Path) -> None:
    jsonl(tmp_path / "web" / "a.jsonl", ["one", "two", "three"], url="u", n=3)
    parquet(tmp_path / "web" / "b.parquet", ["four", "five", "six", "seven", "eight"])
    run = make_run(tmp_path / "run", Corpus.open(manifest_of(tmp_path, ["web"])))
    fields: dict[str, Mapping[str, Any]] = {}

    def transform(record: Record) -> dict[str, torch.Tensor]:
        fields[record.text] = record.fields
        return ByteTransform(8)(record)

    with loader_of(run, transform=transform, steps=1, num_workers=0) as loader:
        assert len(list(loader)) == 4
        seen = Seen()
    assert fields == {
        **{text: {"url": "u", "n": 3} for text in ("one", "two", "three")},
        **{text: {"id": i} for i, text in enumerate(("four", "five", "six", "seven", "eight"))},
    }
    with loader_of(run, transform=seen, from_step=0, steps=1) as loader:
        list(loader)
        (tmp_path / "web" / "b.parquet").unlink()
        record = next(record for record in seen.records.values() if record.shard.endswith("parquet"))
        with pytest.raises(ShardDamaged, match="fields of row"):
            _ = record.fields


def test_random_numbers_follow_the_position(documents: Corpus, tmp_path: Path) -> None:
    ones = all_of(a_run(tmp_path / "a", documents), transform=augmented, steps=3)
    others = all_of(a_run(tmp_path / "b", documents), world_size=2, transform=augmented, steps=3, num_workers=1)
    assert len(others) == 6
    by_position = {
        position: noise
        for _, positions, tensors, *_ in ones
        for position, noise in zip(positions, tensors["input_ids"], strict=True)
    }
    assert len({tuple(noise) for noise in by_position.values()}) == 24
    for _, positions, tensors, *_ in others:
        for position, noise in zip(positions, tensors["input_ids"], strict=True):
            assert by_position[position] == noise


def python_random(record: Record) -> dict[str, torch.Tensor]:
    return {"labels": torch.tensor([random.randrange(10**9)])}


def numpy_random(record: Record) -> dict[str, torch.Tensor]:
    return {"labels": torch.tensor([np.random.randint(10**9)])}  # noqa: NPY002


def torch_random(record: Record) -> dict[str, torch.Tensor]:
    return {"labels": torch.zeros(1), "dropped": torch.rand(1) * 0}


CALLS = [0]


def counting(record: Record) -> dict[str, torch.Tensor]:
    CALLS[0] += 1
    return {"labels": torch.tensor(CALLS)}


@pytest.mark.parametrize(
    ("transform", "found"),
    [
        (python_random, "process-global generator of random"),
        (numpy_random, "process-global generator of NumPy"),
        (torch_random, "process-global generator of torch"),
        (counting, "called twice with the same records it gave different tensors"),
    ],
)
def test_what_cannot_be_made_again_is_refused(documents: Corpus, run_folder: Path, transform: Any, found: str) -> None:
    run = a_run(run_folder, documents)
    with loader_of(run, transform=transform) as loader, pytest.raises(UsageError, match=found) as caught:
        next(iter(loader))
    assert "draw from record.generator" in str(caught.value)


def test_so_it_is_in_a_worker(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    with loader_of(run, transform=python_random, num_workers=1) as loader, pytest.raises(UsageError, match="random"):
        next(iter(loader))


def ragged(record: Record) -> dict[str, Any]:
    """Tensors of the text's own length, given as whatever can be a tensor."""
    ids = list(record.bytes)
    return {"input_ids": ids, "labels": np.array(ids, np.int64), "length": len(ids), "score": np.float32(0.5)}


def padded(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Pads to the longest."""
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": pad([sample["input_ids"] for sample in samples], batch_first=True),
        "labels": pad([sample["labels"] for sample in samples], batch_first=True, padding_value=-100),
        "length": torch.stack([sample["length"] for sample in samples]),
    }


def test_a_collate_function_puts_samples_together(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    with loader_of(run, transform=ragged, collate=padded, steps=2, num_workers=1) as loader:
        for microbatch in loader:
            lengths = microbatch["length"].tolist()
            assert microbatch["input_ids"].shape == (2, max(lengths))
            assert microbatch.num_loss_tokens == sum(lengths)
    transform = run.begun(1).transform
    assert transform
    assert transform.parts["collate"] == "tests.torch.test_making:padded"


def test_a_collate_function_that_fails(documents: Corpus, run_folder: Path) -> None:
    def broken(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        raise KeyError("pixels")

    with (
        loader_of(a_run(run_folder, documents), collate=broken) as loader,
        pytest.raises(TransformFailed, match=r"microbatch 0: .*broken failed"),
    ):
        next(iter(loader))


def test_a_collate_function_that_loses_the_slots(documents: Corpus, run_folder: Path) -> None:
    def flat(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {"labels": torch.cat([sample["labels"] for sample in samples])}

    with (
        loader_of(a_run(run_folder, documents), collate=flat) as loader,
        pytest.raises(UsageError, match=r"'labels' of shape \(64,\) for 2 slots"),
    ):
        next(iter(loader))


def test_without_label_names_nothing_is_masked(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)

    def only_ids(record: Record) -> dict[str, torch.Tensor]:
        return {"ids": ByteTransform(8)(record)["input_ids"]}

    with loader_of(run, transform=only_ids, label_names=(), steps=1) as loader:
        microbatch = next(iter(loader))
    assert not microbatch.all_masked
    with pytest.raises(AttributeError, match="has no labels"):
        _ = microbatch.num_loss_tokens
