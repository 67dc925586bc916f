"""C2, C11, C12, C16 on real ranks: what goes wrong on one of them is decided by all, and nobody waits for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tests.torch.forking import Launch
from tests.torch.stability.step_rank import Model, loss, microbatch

UPDATES = 6


@pytest.fixture(scope="module")
def answers(ranks: Launch, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("group")
    return [json.loads(out) for out in ranks("tests.torch.stability.step_rank", folder, 2)]


def test_every_rank_decides_the_same(answers: list[dict[str, Any]]) -> None:
    first, second = ([{**step, "own_loss": None} for step in each["steps"]] for each in answers)
    assert first == second, "outcomes, losses, norms and weights"
    assert answers[0]["history"] == answers[1]["history"]
    assert [each["outcome"] for each in answers[0]["steps"]] == [
        *["updated"] * UPDATES,
        "skipped_bad_data",
        "skipped_nonfinite",
        "skipped_grad_spike",
        "skipped_no_labels",
        "updated",
    ]


def test_a_skip_changes_nothing_and_training_goes_on(answers: list[dict[str, Any]]) -> None:
    steps = answers[0]["steps"]
    weights = [each["weights"] for each in steps]
    assert len(set(weights[:UPDATES])) == UPDATES
    assert set(weights[UPDATES - 1 : UPDATES + 4]) == {weights[UPDATES - 1]}
    assert weights[-1] != weights[-2]
    assert [each["num_skips"] for each in steps[UPDATES:]] == [1, 2, 3, 4, 0]
    assert answers[0]["weights"] == answers[1]["weights"] == weights[-1]


def test_the_rank_is_named(answers: list[dict[str, Any]]) -> None:
    bad, nan, spike, empty, partly = answers[0]["steps"][UPDATES:]
    assert nan["nonfinite_ranks"] == [1]
    assert (nan["loss"], nan["grad_norm"]) == (None, None)
    assert bad["loss"] is None
    assert bad["anomaly_max"] > 0.75
    assert spike["grad_norm"] > 10 * spike["grad_norm_limit"]
    assert empty["num_labels"] == 0
    assert partly["num_labels"] == 72, "the rank that has none adds nothing, and no NaN"
    for answer in answers:
        assert answer["nonfinite"] == [[], [1], [0, 1]]


def test_the_recorder_is_given_each_rank_s_own(answers: list[dict[str, Any]]) -> None:
    """A mean over ranks would hide the one that is ill (row A5)."""
    own = [[step["own_loss"] for step in each["steps"][:UPDATES]] for each in answers]
    assert all(mine != theirs for mine, theirs in zip(*own, strict=True))
    nan = [each["steps"][UPDATES + 1] for each in answers]
    assert nan[0]["own_loss"] is not None
    assert nan[1]["own_loss"] is None
    updated = answers[0]["steps"][0]
    assert updated["loss"] == pytest.approx(sum(each["steps"][0]["own_loss"] for each in answers) / 2)


def test_a_limit_of_one_rank_counts_for_all_and_a_cap_ends_all(answers: list[dict[str, Any]]) -> None:
    for answer in answers:
        assert answer["limits"] == ["skipped_grad_spike"]
        assert answer["errors"][0].startswith("2 steps in a row were skipped")
    assert answers[1]["errors"][1] == "KeyError: 'no such column'"
    assert answers[0]["errors"][1].startswith("RanksDisagree: rank 1 failed before the step")


def test_it_is_the_step_of_one_process_over_all_microbatches(answers: list[dict[str, Any]]) -> None:
    """The mean over the tokens of the global batch, by hand."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for told in answers[0]["steps"][:2]:
        number = answers[0]["steps"].index(told)
        total = sum(loss(model, microbatch(4 * number + each)) for each in range(4))
        assert isinstance(total, torch.Tensor)
        mean = total / (4 * 24)
        optimizer.zero_grad()
        mean.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert told["loss"] == pytest.approx(mean.item(), rel=1e-6)
        assert told["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
