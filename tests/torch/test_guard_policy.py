"""What a policy does to the batches of a loader that is only watched: it flags, masks labels, halts, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from dataguard.errors import AnswerNo, PolicyError, UsageError
from dataguard.gate.policy import read_policy
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.run.index import Index
from dataguard.run.run import Run
from dataguard.torch import guard
from tests.torch.guarded_data import LENGTH, VOCABULARY, Rows, loader_of, rows_of

BAD = (6, 13)


def policy_of(action: str, *, masks: str = "span", signal: str = "token_periodic_repeats", at_least: int = 32) -> Any:
    """A policy of one rule."""
    also = f'\nmasks = "{masks}"' if action == "mask" else ""
    text = f'[[rules]]\nname = "periods"\nsignal = "{signal}"\nat_least = {at_least}\naction = "{action}"{also}'
    return read_policy(text, name="test")


def records_of(run: Run) -> np.ndarray[Any, Any]:
    return np.concatenate(list(Index(run.layout).records(1, num_ranks=1, torn=[], damage=[])))


def bad_loader(**settings: Any) -> Any:
    return loader_of(dataset=Rows(23, bad=BAD), **settings)


def test_flagged_samples_are_recorded_as_such_and_not_touched(tmp_path: Path) -> None:
    plain = list(bad_loader())
    with guard(bad_loader(), tmp_path / "run", policy=policy_of("flag")) as guarded:
        ours = list(guarded)
    assert all(torch.equal(a["labels"], b["labels"]) for a, b in zip(ours, plain, strict=True))
    records = records_of(guarded.run)
    flagged = records[records["verdict"] == Verdict.FLAG]
    assert sorted(flagged["row"].tolist()) == list(BAD)
    assert set(flagged["status"].tolist()) == {SlotStatus.LIVE}
    assert guarded.account.fired.tolist() == [2]
    assert guarded.account.num_samples == 23


@pytest.mark.parametrize("masks", ["span", "sample"])
def test_masked_labels_are_those_of_the_span_or_of_the_sample_and_nothing_else_changes(
    masks: str, tmp_path: Path
) -> None:
    plain = list(bad_loader())
    with guard(bad_loader(), tmp_path / "run", policy=policy_of("mask", masks=masks)) as guarded:
        ours = list(guarded)
    num_masked = 0
    for a, b in zip(ours, plain, strict=True):
        assert torch.equal(a["input_ids"], b["input_ids"])
        for i, row in enumerate(rows_of(a)):
            wanted = b["labels"][i].clone()
            if row in BAD:
                wanted[1 if masks == "span" else 0 :] = -100
                num_masked += 1
            assert torch.equal(a["labels"][i], wanted)
    assert num_masked == 2
    records = records_of(guarded.run)
    assert sorted(records["row"][records["status"] == SlotStatus.REFUSED].tolist()) == list(BAD)
    assert {guarded.replay(step).status for step in range(6)} == {"exact"}


def test_labels_that_are_the_ids_themselves_leave_the_ids_as_they_are(tmp_path: Path) -> None:
    data = Rows(4, bad=(2,))
    batch = torch.stack([data[i]["input_ids"] for i in range(4)])
    shared = {"input_ids": batch, "labels": batch}
    before = batch.clone()
    with guard([shared], tmp_path / "run", policy=policy_of("mask", masks="sample")) as guarded:
        (ours,) = guarded
    assert ours is shared
    assert torch.equal(ours["input_ids"], before)
    assert (ours["labels"][2] == -100).all()
    assert torch.equal(ours["labels"][:2], before[:2])


def test_labels_deep_in_a_tuple_are_written_over_in_place(tmp_path: Path) -> None:
    data = Rows(4, bad=(2,))
    ids = torch.stack([data[i]["input_ids"] for i in range(4)])
    labels = ids.clone()
    batch = (ids, labels)
    with guard([batch], tmp_path / "run", policy=policy_of("mask"), tokens="0", labels="1") as guarded:
        (ours,) = guarded
    assert ours is batch
    assert ours[1] is labels
    assert (labels[2, 1:] == -100).all()
    assert torch.equal(labels[:2], ids[:2])


def test_padding_does_not_count_and_names_may_be_given(tmp_path: Path) -> None:
    ids = torch.stack([Rows(2)[i]["input_ids"] for i in range(2)])
    mask = torch.ones_like(ids)
    ids[1, 8:], mask[1, 8:] = 0, 0  # padding is one id over and over
    batch = {"text": {"tokens": ids, "counts": mask}}
    names = {"tokens": "text.tokens", "attention_mask": "counts"}
    with guard([batch], tmp_path / "run", policy=policy_of("flag"), **names) as guarded:
        list(guarded)
    records = records_of(guarded.run)
    assert records["verdict"].tolist() == [Verdict.PASS] * 2
    assert records["length"].tolist() == [LENGTH, 8]
    with guard([batch], tmp_path / "other", policy=policy_of("flag"), tokens="text.tokens") as guarded:
        list(guarded)
    assert records_of(guarded.run)["verdict"].tolist() == [Verdict.PASS, Verdict.FLAG]


def test_without_labels_nothing_is_masked_and_that_is_told(tmp_path: Path) -> None:
    data = Rows(4, bad=(2,))
    batch = {"input_ids": torch.stack([data[i]["input_ids"] for i in range(4)])}
    with guard([batch], tmp_path / "run", policy=policy_of("mask")) as guarded:
        list(guarded)
    records = records_of(guarded.run)
    assert records["verdict"].tolist() == [0, 0, Verdict.MASK, 0]
    assert set(records["status"].tolist()) == {SlotStatus.LIVE}
    assert any("no tensor of labels 'labels'" in note for note in guarded.notes)


def test_a_halt_stops_two_steps_on_and_the_journal_is_told(tmp_path: Path) -> None:
    loader = bad_loader(shuffle=False)
    batches: list[Any] = []
    guarded = guard(loader, tmp_path / "run", policy=policy_of("halt"), first_label=1)
    with pytest.raises(AnswerNo, match=r"stops before step 4.*gate says halt") as raised:
        batches.extend(guarded)
    assert "quarantine" not in str(raised.value)
    assert "row 6" in str(raised.value)
    assert [rows_of(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (batches[1]["labels"][2] == -100).all()
    with pytest.raises(AnswerNo):
        next(iter(guarded))
    run = Run.open(tmp_path / "run")
    assert run.read().entries[-1].event.__class__.__name__ == "Halted"
    # The record was sealed as at any other end, and the next attempt goes on where it stopped.
    with guard(loader, tmp_path / "run", policy=policy_of("flag"), start_step=3) as guarded:
        list(guarded)
    assert guarded.attempt.number == 2  # type: ignore[union-attr]


def test_a_policy_that_substitutes_is_refused_at_the_start_and_one_over_text_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="action substitute of periods"):
        guard(loader_of(), tmp_path / "run", policy=policy_of("substitute"))
    assert not (tmp_path / "run").exists()
    text = '[[rules]]\nname = "low"\nsignal = "byte_entropy"\nbelow = 2\naction = "substitute"\n'
    with guard(loader_of(), tmp_path / "run", policy=read_policy(text, name="text")) as guarded:
        list(guarded)
    assert guarded.account.evaluated.tolist() == [0]


def test_a_named_policy_works_and_stays_in_force(tmp_path: Path) -> None:
    for _ in range(2):
        with guard(bad_loader(), tmp_path / "run", policy="default", vocab_size=VOCABULARY) as guarded:
            list(guarded)
    with guard(bad_loader(), tmp_path / "run") as guarded:
        list(guarded)
    assert guarded.account.num_samples == 23
    with guard(bad_loader(), tmp_path / "run", policy="none") as guarded:
        list(guarded)
    assert guarded.account.num_samples == 0


def test_a_policy_needs_ids_and_says_what_there_is(tmp_path: Path) -> None:
    batch = {"pixels": torch.rand(4, 8), "labels": torch.arange(4)}
    with pytest.raises(UsageError, match=r"no tensor 'input_ids'.*\n.*'pixels' \(float32, \(4, 8\)\)"):
        list(guard([batch], tmp_path / "run", policy=policy_of("flag")))
    with pytest.raises(UsageError, match="holds no ids"):
        list(guard([batch], tmp_path / "other", policy=policy_of("flag"), tokens="pixels"))


def test_rules_over_global_batches_are_told_to_be_left_out(tmp_path: Path) -> None:
    with guard(loader_of(), tmp_path / "run", policy="seed-batch") as guarded:
        list(guarded)
    assert any("anomaly_mean, anomaly_max" in note and "not judged" in note for note in guarded.notes)


def test_a_data_set_without_batches_is_judged_by_the_item(tmp_path: Path) -> None:
    loader = DataLoader(Rows(5, bad=(3,)), batch_size=None)
    with guard(loader, tmp_path / "run", policy=policy_of("mask", masks="sample")) as guarded:
        ours = list(guarded)
    assert [bool((batch["labels"] == -100).all()) for batch in ours] == [False, False, False, True, False]
    assert guarded.replay(3).status == "exact"
