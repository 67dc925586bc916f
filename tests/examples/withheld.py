"""The run of an example, created before the example runs, of which shards are withheld."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from dataguard.corpus.corpus import Corpus
from dataguard.plan.plan import Plan
from dataguard.run.amend import quarantine
from dataguard.run.run import Run
from tests.architecture.tree import TOP


def create(folder: Path, *shards: int, **plan: Any) -> None:
    """Create it, with the text of `texts`, and withhold these of its two shards."""
    spec = spec_from_file_location("texts", TOP / "examples" / "texts.py")
    assert spec is not None
    assert spec.loader is not None
    texts = module_from_spec(spec)
    spec.loader.exec_module(texts)
    run = Run.create(folder / "run", Plan(Corpus.open(texts.manifest_of_python(folder)), seed=17, **plan))
    for shard in shards:
        quarantine(run, f"python/part-{shard}.jsonl", reason="a test")
