"""The loop that the README shows runs as it stands there, on one rank and to an end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dataguard.corpus import build_manifest_file
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.architecture.tree import TOP
from tests.support.lineage import delivered


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


class Tokenizer:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())


@pytest.mark.parametrize("first_label", [0, 1])
def test_the_loop_of_the_readme(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_label: int) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    (snippet,) = [each for each in snippets if "def tokenize" in each]
    for shown, tried in {
        "world_size=8": "world_size=1",
        "num_workers=4, pin_memory=True": "num_workers=0, steps=2",
        "global_batch=64": f"global_batch=4, first_label={first_label}",
    }.items():
        assert shown in snippet
        snippet = snippet.replace(shown, tried)
    monkeypatch.chdir(tmp_path)
    web = tmp_path / "web"
    web.mkdir()
    documents = [f"Document {row} says that {row * 7919} is a number." for row in range(40)]
    (web / "a.jsonl").write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    build_manifest_file([str(web)], "M.parquet")

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256))
    names = {
        "__name__": "__main__",
        "tokenizer": Tokenizer(),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "checkpoint": None,
    }
    exec(compile(snippet, "README.md", "exec"), names)

    run = Run.open("runs/a")
    assert {sample[0] for sample in delivered(run.path)} == {0, 1}
    losses = telemetry_of_lineage(run, names=["loss"])["value"]
    assert len(losses) == 2
    assert ((losses > 4) & (losses < 7)).all(), losses
