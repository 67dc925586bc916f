"""Small manifests and plans made in memory, for tests of what a run decides; no shard's bytes exist."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dataguard.core.address import Geometry
from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.plan import Plan
from dataguard.run.begin import AttemptRequest, begin_attempt
from dataguard.run.run import Run

ROWS_A_BLOCK = 8


def make_manifest(shards: dict[str, int], *, kind: str = "text", salt: int = 0) -> Manifest:
    """A manifest of shards ``SOURCE/path`` with so many rows each, in blocks of 8."""
    names = sorted({name.partition("/")[0] for name in shards})
    entries, blocks = [], []
    for number, name in enumerate(sorted(shards)):
        source, _, path = name.partition("/")
        entries.append(
            Shard(
                source=names.index(source),
                path=path,
                format="jsonl" if kind == "text" else "npy",
                compression="none",
                item_type="" if kind == "text" else "<u2",
                size_bytes=10 * shards[name],
                digest=f"{number + salt:032x}",
                num_rows=shards[name],
                effect="clean",
            )
        )
        for first in range(0, max(shards[name], 1), ROWS_A_BLOCK):
            rows = min(ROWS_A_BLOCK, shards[name] - first)
            blocks.append((number, first, rows, 0, first * 10, rows * 10, -1, rows * 10, bytes(16)))
    return Manifest(
        sources=tuple(Source(name=name, kind=kind, text_field="text") for name in names),  # type: ignore[arg-type]
        shards=tuple(entries),
        blocks=np.array(blocks, BLOCK_DTYPE),
        rejected=np.zeros(0, REJECTED_DTYPE),
        codes=(),
    )


WEB = {"web/a.jsonl": 100, "web/b.jsonl": 60, "code/a.jsonl": 40}


def make_plan(**settings: Any) -> Plan:
    defaults: dict[str, Any] = {"seed": 7, "global_batch": 8, "lanes": 2}
    return Plan(make_manifest(WEB), **{**defaults, **settings})


def make_run(folder: Path, **settings: Any) -> Run:
    """A run at ``folder/run``."""
    return Run.create(folder / "run", make_plan(**settings), by="ada@host")


_LAUNCHES = itertools.count(1)


def request(world_size: int = 1, microbatch_size: int = 1, **facts: Any) -> AttemptRequest:
    """What a rank of a launch of its own was told."""
    facts.setdefault("launch_id", f"launch {next(_LAUNCHES)}")
    return AttemptRequest(geometry=Geometry(world_size=world_size, microbatch_size=microbatch_size), **facts)


def begin(run: Run, *, parent_next_step: int | Callable[[int], int] | None = None, **facts: Any) -> AttemptPlan:
    """Begin an attempt; with a fork step every parent has delivered enough."""
    if parent_next_step is None and facts.get("fork_step") is not None:
        parent_next_step = facts["fork_step"]
    return begin_attempt(run, request(**facts), parent_next_step=parent_next_step)
