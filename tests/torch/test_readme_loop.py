"""The loop that the README shows runs as it stands there, on one rank and to an end, after the audit it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import pad

from dataguard.cli.main import main
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from dataguard.torch import Record, TensorMicrobatch
from tests.architecture.tree import TOP
from tests.support.lineage import delivered

LENGTH = 64


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def tokenize(record: Record) -> dict[str, torch.Tensor]:
    ids = torch.tensor(list(record.bytes[:LENGTH]), dtype=torch.int64)
    return {"input_ids": pad(ids, (0, LENGTH - len(ids))), "labels": pad(ids, (0, LENGTH - len(ids)), value=-100)}


def train_on(microbatches: Sequence[TensorMicrobatch]) -> tuple[float, float]:
    assert all(microbatch["input_ids"].shape == (2, LENGTH) for microbatch in microbatches)
    return 3.0, 1.0


@pytest.mark.parametrize("first_label", [0, 1])
def test_the_loop_of_the_readme(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_label: int) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    (snippet,) = [each for each in snippets if "GuardedLoader(" in each]
    for shown, tried in {
        "world_size=8": "world_size=1",
        "num_workers=4, epochs=1": "num_workers=0, epochs=1",
        "global_batch=64": f"global_batch=4, first_label={first_label}",
    }.items():
        assert shown in snippet
        snippet = snippet.replace(shown, tried)
    monkeypatch.chdir(tmp_path)
    for name in ("web", "code"):
        (tmp_path / "data" / name).mkdir(parents=True)
        documents = [f"Document {row} of {name} says that {row * 7919} is a number." for row in range(20)]
        lines = [json.dumps({"text": document}) + "\n" for document in documents]
        (tmp_path / "data" / name / "a.jsonl").write_text("".join(lines))
    assert main(["manifest", "build", "web=data/web", "code=data/code", "-o", "M.parquet"]) == 0
    assert main(["audit", "M.parquet", "-o", "AUDIT"]) == 0

    names = {"__name__": "__main__", "tokenize": tokenize, "train_on": train_on, "checkpoint": None}
    exec(compile(snippet, "README.md", "exec"), names)

    run = Run.open("runs/a")
    losses = telemetry_of_lineage(run, names=["loss"])
    steps = sorted({sample[0] for sample in delivered(run.path)})
    assert len(steps) in {10, 11}, "one epoch of 40 documents of two sources, the last step of which one may need alone"
    assert losses["step"].tolist() == steps == list(range(len(steps)))
    assert losses["value"].tolist() == [3.0] * len(steps)
