"""Watched inside the wrappers of torch.distributed: each rank by itself, before and after the gradients are reduced."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.support.processes import environment
from tests.twins.transformer import Transformer, loss_of, microbatch

PARTS = ("embed.", "blocks.0.", "blocks.1.")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    init = tmp_path_factory.mktemp("group") / "init"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.torch.watched", str(init), str(rank), "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
        )
        for rank in range(2)
    ]
    found = []
    try:
        for process in ranks:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            found.append(json.loads(out))
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return found


def gradients(*numbers: int, share: int) -> dict[str, torch.Tensor]:
    """Of the sum of the losses of these microbatches, divided by `share`, on one process."""
    model = Transformer()
    for number in numbers:
        ids = microbatch(number)
        (loss_of(model(ids), ids) / share).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def norm_of(found: dict[str, torch.Tensor], beginning: str) -> float:
    return math.sqrt(
        sum(float(each.double().square().sum()) for name, each in found.items() if name.startswith(beginning))
    )


def test_a_rank_of_a_replicated_model_sees_its_own_gradient_and_the_reduced_one(answers: list[dict[str, Any]]) -> None:
    whole = gradients(0, 1, 2, 3, share=4)
    for rank, answer in enumerate(answers):
        values, notes = answer["reduced"]
        own = [gradients(2 * rank + number, share=2) for number in range(2)]
        assert notes == []
        for part in PARTS:
            name = part.removesuffix(".")
            assert values[f"local_grad_norm/{name}"] == pytest.approx(
                max(norm_of(each, part) for each in own), rel=1e-4
            )
            assert values[f"grad_norm/{name}"] == pytest.approx(norm_of(whole, part), rel=1e-4)
        assert "attention_logit_max/blocks.1" in values
    first, second = (answer["reduced"][0] for answer in answers)
    assert first["grad_norm/embed"] == second["grad_norm/embed"]
    assert first["local_grad_norm/embed"] != second["local_grad_norm/embed"]
    assert first["log_z"] != second["log_z"]


def test_shards_of_a_parameter_make_the_whole_norm_together(answers: list[dict[str, Any]]) -> None:
    """The head is no longer tied here, so that its gradient and that of the embedding make the tied one."""
    whole = gradients(0, 1, 2, 3, share=4)
    for answer in answers:
        values, notes = answer["sharded"]
        assert notes == ["parameters are sharded over ranks: norms are of this rank's shards"]
        assert not any(name.startswith("local_grad_norm") for name in values)
        assert values["log_z"] == pytest.approx(answer["reduced"][0]["log_z"], rel=1e-5)
        assert values["activation_rms/blocks.1"] == pytest.approx(answer["reduced"][0]["activation_rms/blocks.1"])
    for metric, wanted in (
        ("grad_norm", [norm_of(whole, part) for part in PARTS[1:]]),
        ("param_norm", [answers[0]["reduced"][0][f"param_norm/{part.removesuffix('.')}"] for part in PARTS[1:]]),
    ):
        for part, value in zip(PARTS[1:], wanted, strict=True):
            shards = [answer["sharded"][0][f"{metric}/{part.removesuffix('.')}"] for answer in answers]
            assert math.hypot(*shards) == pytest.approx(value, rel=1e-4)
            assert max(shards) < value
    for part in ("embed", "head"):
        assert all(answer["sharded"][0][f"grad_norm/{part}"] > 0 for answer in answers)
