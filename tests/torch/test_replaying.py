"""Are the tensors of a past step made again bit by bit, and is it told where they are not?"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dataguard.cli.main import main
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.problems import Retry
from dataguard.errors import UsageError
from dataguard.gate.policy import read_policy
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, Record, TensorMicrobatch, WindowTransform
from dataguard.torch.replaying import imported, rebuild_tensors
from dataguard.torch.transform import name_of
from tests.support.corpora import make_corpus
from tests.support.gated import documents as gated_documents
from tests.support.gated import rule
from tests.support.runs import make_run
from tests.torch.making import a_run, augmented, loader_of


def odd(record: Record) -> dict[str, torch.Tensor]:
    """Dtypes that NumPy does not have, a scalar a slot, and random numbers of the record's own."""
    made = ByteTransform(8)(record)
    noise = torch.rand(3, generator=record.generator)
    return {
        "input_ids": made["input_ids"].to(torch.uint16),
        "labels": made["labels"],
        "scale": noise.to(torch.bfloat16),
        "fine": noise.to(torch.float8_e4m3fn),
        "mask": made["attention_mask"].bool(),
        "none": torch.empty(0, 2),
    }


def other(record: Record) -> dict[str, torch.Tensor]:
    """Another function, which gives nearly the same."""
    made = odd(record)
    made["scale"] = made["scale"] + 1
    return made


def last_first(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A collate function of somebody's own."""
    return {name: torch.stack([sample[name] for sample in samples]).flip(-1) for name in ("mask", "labels")}


@dataclass
class Vocabulary:
    """A transform with a state: a stand-in for a tokenizer that somebody trained again."""

    shift: int = 0

    def __call__(self, record: Record) -> dict[str, torch.Tensor]:
        made = ByteTransform(8)(record)
        return {**made, "input_ids": made["input_ids"] + self.shift}


def delivered(run: Run, **settings: Any) -> list[TensorMicrobatch]:
    with loader_of(run, **{"steps": 3, **settings}) as loader:
        return list(loader)


def assert_same(again: tuple[TensorMicrobatch, ...], before: list[TensorMicrobatch]) -> None:
    assert [one.address for one in again] == [one.address for one in before]
    for one, other_one in zip(again, before, strict=True):
        assert set(one) == set(other_one)
        for name, tensor in one.items():
            assert (tensor.dtype, tensor.shape) == (other_one[name].dtype, other_one[name].shape)
            assert torch.equal(tensor.contiguous().view(torch.uint8), other_one[name].contiguous().view(torch.uint8))
        assert one.num_loss_tokens == other_one.num_loss_tokens
        assert one.all_masked == other_one.all_masked
        assert (one.positions == other_one.positions).all()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_tensors_of_any_dtype_are_made_again(documents: Corpus, run_folder: Path, num_workers: int) -> None:
    run = a_run(run_folder, documents)
    before = delivered(run, transform=odd, num_workers=num_workers)
    for step in range(3):
        again = rebuild_tensors(run, step, transform=odd)
        assert (again.answer.status, again.answer.origin, again.answer.notes) == ("exact", "rebuilt", ())
        assert all(each.digest == each.recorded != each.made_of for each in again.answer.microbatches)
        assert_same(again.microbatches, [one for one in before if one.step == step])


def test_what_comes_with_dataguard_is_found_by_itself(documents: Corpus, tokens: Corpus, tmp_path: Path) -> None:
    run = a_run(tmp_path / "documents", documents)
    before = delivered(run, transform=ByteTransform(24, ignore_index=-7), ignore_index=-7)
    assert_same(rebuild_tensors(run, 1).microbatches, [one for one in before if one.step == 1])
    windows = make_run(tmp_path / "windows", tokens, form="window", seq_len=10)
    before = delivered(windows)
    again = rebuild_tensors(windows, 2)
    assert again.answer.status == "exact"
    assert_same(again.microbatches, [one for one in before if one.step == 2])


def test_one_rank_alone(documents: Corpus, run_folder: Path) -> None:
    run = make_run(run_folder, documents)
    ranks = [
        loader_of(run, world_size=2, rank=rank, steps=2, transform=odd, launch_id="one launch") for rank in range(2)
    ]
    before = [one for _ in range(2) for loader in ranks for one in loader.take_step()]
    for loader in ranks:
        loader.close()
    again = rebuild_tensors(run, 1, rank=1, transform=odd)
    assert_same(again.microbatches, [one for one in before if one.step == 1 and one.address.rank == 1])


def test_withheld_slots_are_masked_as_they_were(tmp_path: Path) -> None:
    for number, action in enumerate(("mask", "substitute")):
        run = make_run(tmp_path / str(number) / "run", gated_documents(tmp_path / str(number)), fill=action)
        before = delivered(run, policy=read_policy(rule(action), name="test"))
        assert any(int(status) for one in before for status in one.status), "something was withheld"
        for step in range(3):
            again = rebuild_tensors(run, step)
            assert all(each.digest == each.recorded for each in again.answer.microbatches)
            assert_same(again.microbatches, [one for one in before if one.step == step])


def test_another_transform_differs_and_is_named(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    delivered(run, transform=odd)
    answer = rebuild_tensors(run, 1, transform=other).answer
    assert answer.status == "differs"
    assert all("are not those that were delivered" in str(each.problem) for each in answer.microbatches)
    assert all(sample.status == "exact" for each in answer.microbatches for sample in each.samples)
    (note,) = answer.notes
    assert "tests.torch.test_replaying:odd recorded" in note
    assert "tests.torch.test_replaying:other given" in note
    assert "source" in note


def test_another_state_of_a_transform_is_told(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    delivered(run, transform=Vocabulary())
    assert rebuild_tensors(run, 1, transform=Vocabulary()).answer.notes == ()
    answer = rebuild_tensors(run, 1, transform=Vocabulary(shift=1)).answer
    assert answer.status == "differs"
    assert "state" in answer.notes[0]
    assert "name" not in answer.notes[0]


def test_a_collate_function_has_to_be_given_again(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    before = delivered(run, transform=odd, collate=last_first)
    with pytest.raises(UsageError, match="--collate MODULE:NAME"):
        rebuild_tensors(run, 1, transform=odd)
    again = rebuild_tensors(run, 1, transform=odd, collate=last_first)
    assert (again.answer.status, again.answer.notes) == ("exact", ())
    assert_same(again.microbatches, [one for one in before if one.step == 1])


def test_without_the_transform_samples_are_compared_and_it_is_said(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    delivered(run, transform=augmented)
    again = rebuild_tensors(run, 1)
    assert (again.answer.status, again.microbatches) == ("exact", ())
    assert all(each.digest is None for each in again.answer.microbatches)
    assert "tests.torch.making:augmented" in again.answer.notes[0]


def test_the_store_gives_tensors_where_shards_and_transform_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataguard.corpus.reader.Retry", lambda: Retry(attempts=1, pause_seconds=0.0))
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 40}}))
    before = delivered(run, transform=odd, store="last:2", num_workers=1)
    assert_same(rebuild_tensors(run, 2).microbatches, [one for one in before if one.step == 2])
    assert rebuild_tensors(run, 2).answer.origin == "both"
    assert verify_run(Lookup(run)).ok
    shutil.rmtree(tmp_path / "web")
    again = rebuild_tensors(run, 2)
    assert (again.answer.status, again.answer.origin) == ("exact", "fetched")
    assert_same(again.microbatches, [one for one in before if one.step == 2])
    assert rebuild_tensors(run, 0).answer.status == "unreadable"


# -- by name


def test_what_a_name_can_be() -> None:
    assert imported("dataguard.torch.transform:name_of") is name_of
    assert imported("dataguard.torch.transforms:WindowTransform") == WindowTransform()
    for name, why in (
        ("train", "names no function"),
        (":f", "names no function"),
        ("no.such.module:f", "ModuleNotFoundError"),
        ("tests.torch.test_replaying:nothing", "has no attribute 'nothing'"),
        ("dataguard.torch.transforms:ByteTransform", "seq_len"),
    ):
        with pytest.raises(UsageError, match=why):
            imported(name)


def test_the_command_makes_tensors_with_a_named_transform(
    documents: Corpus, run_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = a_run(run_folder, documents)
    before = delivered(run, transform=odd)
    words = ["replay", str(run_folder), "--step", "1"]
    assert main([*words, "--json"]) == 0
    without = json.loads(capfd.readouterr().out)
    assert (without["status"], without["microbatches"][0]["digest"]) == ("exact", None)
    assert "not comparable without the transform" in without["microbatches"][0]["problem"]
    out = tmp_path / "out"
    named = [*words, "--transform", "tests.torch.test_replaying:odd"]
    assert main([*named, "-o", str(out), "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert all(each["digest"] == each["recorded"] for each in answer["microbatches"])
    for one in before:
        if one.step == 1:
            loaded = load_file(out / "rank=0" / f"microbatch={one.address.microbatch}.safetensors")
            assert set(loaded) == set(one)
            assert torch.equal(loaded["fine"].view(torch.uint8), one["fine"].view(torch.uint8))
    assert main([*words, "--transform", "tests.torch.test_replaying:other"]) == 1
    told = capfd.readouterr().out
    assert "note: this is not the transform" in told
    assert "are not those that were delivered" in told
    assert main([*words, "--transform", "nonsense"]) == 2


def fails(record: Record) -> dict[str, torch.Tensor]:
    raise ValueError(f"no tokenizer for row {record.row}")


def test_a_transform_that_fails_is_told_by_the_trainers_label(
    documents: Corpus, run_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = a_run(run_folder, documents, first_label=1)
    delivered(run)
    assert main(["replay", str(run_folder), "--step", "2", "--transform", "tests.torch.test_replaying:fails"]) == 4
    told = capfd.readouterr().err
    assert "step 2, rank 0, microbatch 0, slot 0" in told
    assert "ValueError: no tokenizer" in told
    assert "leave --transform out" in told


def test_the_command_finds_what_comes_with_dataguard(
    documents: Corpus, run_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = a_run(run_folder, documents)
    delivered(run)
    assert main(["replay", str(run_folder), "--step", "2", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert all(each["digest"] == each["recorded"] for each in answer["microbatches"])
    assert answer["notes"] == []
