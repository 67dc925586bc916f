"""One rank whose steps go wrong on one rank alone, as a process of its own (see tests.torch.forking).

It prints one JSON object: what became of each step on this rank, and the digest of the weights behind it.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dataguard.errors import AnswerNo, RanksDisagree
from dataguard.torch.stability import GradientHistory, nonfinite_ranks, train_step

VOCABULARY = 32


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


def loss(model: nn.Module, microbatch: dict[str, torch.Tensor]) -> torch.Tensor:
    losses = nn.functional.cross_entropy(
        model(microbatch["input_ids"]).flatten(0, 1), microbatch["labels"].flatten(), reduction="sum", ignore_index=-100
    )
    return losses * microbatch.get("times", torch.tensor(1.0))


def microbatch(seed: int, **more: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (2, 12), generator=generator)
    return {"input_ids": ids, "labels": ids.roll(-1, 1), **more}


def digest(model: nn.Module) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


class Repeats:
    """Refuses a batch of which a sample is one token."""

    def scores(self, microbatch: Any) -> Any:
        return (1 - microbatch["input_ids"].double().std(1).clamp(max=1)).numpy()

    def verdict(self, mean: float, largest: float) -> str | None:
        return "one token" if largest > 0.75 else None


class _FailsOnOne:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def scores(self, _: Any) -> Any:
        if self.rank == 1:
            raise KeyError("no such column")
        return torch.zeros(2).numpy()

    def verdict(self, mean: float, largest: float) -> str | None:
        return None


def main(words: dict[str, Any]) -> None:
    rank, world_size = words["rank"], words["world_size"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{words['init']}", rank=rank, world_size=world_size)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = GradientHistory(least=4)
    told: list[dict[str, Any]] = []

    def step(*microbatches: dict[str, torch.Tensor], **more: Any) -> None:
        words = {"judge": Repeats(), "max_skips": 99, **more}
        result = train_step(model, optimizer, microbatches, loss, history=history, **words)
        told.append({**result.to_dict(), "weights": digest(model)})

    sick = rank == 1
    for number in range(6):
        step(microbatch(4 * number + 2 * rank), microbatch(4 * number + 2 * rank + 1))
    period = torch.full((2, 12), 7)
    step(microbatch(90), {**microbatch(91), "input_ids": period} if sick else microbatch(91))  # bad data on rank 1
    step(microbatch(92), microbatch(93, times=torch.tensor(math.nan if sick else 1.0)))  # NaN on rank 1
    step(microbatch(94), microbatch(95, times=torch.tensor(1e3 if sick else 1.0)))  # a spike from rank 1
    ignored = {"labels": torch.full((2, 12), -100)}
    step(microbatch(96, **ignored), microbatch(97, **ignored))
    step(microbatch(98), microbatch(99, **(ignored if sick else {})))  # all ignored on rank 1 alone
    limits = [train_step(model, optimizer, [microbatch(100 + rank)], loss, history=history, grad_norm_limit=1e-9)]
    errors = []
    try:  # ranks that disagree about the limit still decide alike
        limit = 1e-9 if sick else None
        train_step(model, optimizer, [microbatch(102)], loss, history=history, grad_norm_limit=limit, max_skips=2)
    except AnswerNo as error:
        errors.append(str(error))
    try:
        train_step(model, optimizer, [microbatch(1)], loss, history=history, judge=_FailsOnOne(rank))
    except (KeyError, RanksDisagree) as error:
        errors.append(f"{type(error).__name__}: {error}")
    none = nonfinite_ranks(1.0, torch.ones(3))
    one = nonfinite_ranks(1.0, torch.tensor([0.0, math.inf if sick else 0.0]))
    both = nonfinite_ranks(math.nan)
    answer = {
        "steps": told,
        "limits": [each.outcome.value for each in limits],
        "errors": errors,
        "nonfinite": [none, one, both],
        "history": history.state_dict(),
        "weights": digest(model),
    }
    print(json.dumps(answer, allow_nan=False), flush=True)
    dist.barrier()
    dist.destroy_process_group()
