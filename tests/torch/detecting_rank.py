"""One rank that trains under a detector, as a process of its own (see tests.torch.forking).

The words: run, world_size, rank, init, steps; ``faults`` (step -> rank -> what is added to the rank's
loss, or "nan"); ``save_at`` (a step before which both states are printed); ``state`` (what was printed so); ``budget``;
``detects`` (false on a rank whose monitor has no detector). It prints a line a step, and one with what ended it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from dataguard.core.address import Geometry
from dataguard.core.trainer import PlannedChange, TrainerFacts
from dataguard.errors import DataguardError
from dataguard.loader.loader import Loader
from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import SkipBudget
from dataguard.torch.monitoring.monitor import Monitor
from dataguard.triage.detect import Detector, Noticed

FACTS = TrainerFacts(changes=(PlannedChange(step=5, what="nothing that can be seen"),))


class Kept(Detector):
    """The default one, which shows what it was given."""

    given: Mapping[str, float] = {}

    def observe(self, step: int, *, more: Mapping[str, float] | None = None, **values: Any) -> tuple[Noticed, ...]:
        self.given = more or {}
        return super().observe(step, more=more, **values)


class Attending(nn.Module):
    """One block of attention, whose logits grow with the rank's inputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x, x, x, need_weights=False)[0]
        return x


def noise(step: int) -> float:
    """Normal, the same on all ranks and in every launch."""
    return float(np.random.default_rng(step).standard_normal())


def loss_of(step: int, rank: int, faults: dict[str, dict[str, float | str]]) -> float:
    """What a rank logs."""
    added = faults.get(str(step), {}).get(str(rank), 0.0)
    return math.nan if isinstance(added, str) else 3.0 + 0.01 * noise(step) + added


def main(words: dict[str, Any]) -> None:
    """Walk the steps, log each, and say what was decided."""
    torch.set_num_threads(1)
    rank, world_size, faults = words["rank"], words["world_size"], words.get("faults", {})
    dist.init_process_group("gloo", init_method=f"file://{words['init']}", rank=rank, world_size=world_size)
    run = Run.open(words["run"])
    geometry = Geometry(world_size=world_size, microbatch_size=2)
    launch = str(words["init"])
    loader = Loader(run, geometry=geometry, rank=rank, launch_id=launch, steps=words["steps"], num_threads=0)
    state = words.get("state")
    if state is not None:
        loader.load(state["loader"])
    detector, model = Kept(), Attending()
    monitor = Monitor(
        run,
        detector=detector,
        alerts=[lambda alert: print(json.dumps({"alert": alert.key, "step": alert.step}), flush=True)],
        budget=SkipBudget(**words.get("budget", {})),
    )
    monitor.watch(model, every=10, logits=lambda output: output)
    if state is not None:
        monitor.load_state_dict(state["monitor"])
    step = 0 if state is None else words["state"]["step"]
    try:
        while loader.take_step():
            if step == words.get("describe_at"):
                monitor.describe(FACTS)
            if step % 10 < 2:  # on the second of them nothing is sampled
                model(torch.full((1, 2, 8), 1.0 + rank)).sum().backward()
            decision = monitor.log(
                step, loss=torch.tensor(loss_of(step, rank, faults), dtype=torch.float64), grad_norm=1.0
            )
            assert decision is not None
            assert decision is monitor.decision
            said = {
                "step": decision.step,
                "began": [[event.event_class, event.start, event.peak, event.rank] for event in decision.began],
                "ended": [[event.event_class, event.start, event.stop, event.rank] for event in decision.ended],
                "skip": decision.skip_update,
                "more": dict(detector.given),
                "nonfinite": decision.nonfinite_ranks,
                "outliers": [[each.signal, each.rank, each.is_persistent] for each in decision.outliers],
            }
            print(json.dumps(said), flush=True)
            step += 1
            if step == words.get("save_at"):
                both = {"loader": loader.state().to_dict(), "monitor": monitor.state_dict(), "step": step}
                print(json.dumps({"state": both}), flush=True)
                monitor.checkpoint(step, f"ckpt/{step}")
    except DataguardError as error:
        print(json.dumps({"error": type(error).__name__, "at": step, "text": str(error)}), flush=True)
    monitor.close()
    loader.close()
    dist.barrier()
    dist.destroy_process_group()
