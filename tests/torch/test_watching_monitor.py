"""A watched model beside a real loader and monitor: what is sampled lands in the telemetry of the step delivered."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from dataguard.corpus.corpus import Corpus
from dataguard.errors import AttemptError, UsageError
from dataguard.run.telemetry_reading import telemetry_of_lineage
from dataguard.torch import Monitor
from tests.support.runs import make_run
from tests.torch.making import loader_of


class Small(nn.Module):
    """A byte-level model of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(300, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 300)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@pytest.mark.parametrize("first_label", [0, 1])
def test_what_is_sampled_is_kept_with_its_step(documents: Corpus, run_folder: Path, first_label: int) -> None:
    run = make_run(run_folder, documents, first_label=first_label)
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with loader_of(run, steps=6) as loader, Monitor(run, loader=loader, every=5) as monitor:
        watched = monitor.watch(model, optimizer, every=2)
        for microbatch in loader:
            logits = model(microbatch["input_ids"])
            nn.functional.cross_entropy(logits.flatten(0, 1), microbatch["labels"].flatten()).backward()
            if microbatch.address.microbatch == 3:
                optimizer.step()
                optimizer.zero_grad()
                assert monitor.step_in_hand == microbatch.step + first_label
                monitor.log(monitor.step_in_hand, loss=1.0)
        with pytest.raises(AttemptError):
            monitor.record(0, {"x": 1.0})
    assert watched.notes == ()
    assert not model._forward_hooks
    rows = telemetry_of_lineage(run)
    for name in ("log_z", "activation_rms/blocks.0", "grad_norm/blocks.1", "update_ratio_max/head", "param_norm/embed"):
        own = rows[rows["name"] == name.encode()]
        labels = sorted(set((own["step"] + first_label).tolist()))
        assert labels == [label for label in range(first_label, 6 + first_label) if label % 2 == 0]
        assert all(math.isfinite(value) for value in own["value"].tolist())
    assert len(rows[rows["name"] == b"log_z"]) == 4 * 3, "told after each of four microbatches, the last covering all"
    assert len(rows[rows["name"] == b"param_norm/embed"]) == 3


def test_a_trainer_that_fetches_ahead_says_its_step(documents: Corpus, run_folder: Path) -> None:
    run = make_run(run_folder, documents)
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with loader_of(run, steps=6, microbatch_size=8) as loader, Monitor(run, loader=loader, ahead=1) as monitor:
        with pytest.raises(UsageError, match="cannot be told"):
            monitor.watch(model, optimizer)
        trained = 0
        monitor.watch(model, optimizer, every=2, step=lambda: trained)
        batches = iter(loader)
        following = next(batches, None)
        while (microbatch := following) is not None:
            following = next(batches, None)
            model(microbatch["input_ids"]).square().mean().backward()
            optimizer.step()
            trained += 1
    own = telemetry_of_lineage(run, names=["param_norm/head"])
    assert own["step"].tolist() == [0, 2, 4]
