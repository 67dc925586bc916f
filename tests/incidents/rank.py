"""One rank of an incident, as a process of its own (see tests.torch.forking)."""

from __future__ import annotations

import atexit
import platform
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.incidents.plants import incident_named
from tests.incidents.stage import Stage
from tests.incidents.training import Training


def main(words: dict[str, Any]) -> None:
    """Join the others, train, leave together."""
    torch.set_num_threads(1)
    platform.node = lambda: f"node-{words['rank']}"  # each rank is a machine of its own
    incident = incident_named(words["incident"])
    settings = incident.settings(words["seed"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{words['init']}",
        rank=words["rank"],
        world_size=settings.world_size,
        timeout=timedelta(seconds=settings.timeout_seconds),
    )
    stage = Stage(Path(words["stage"]), words["seed"], Path(words["warm"]))
    try:
        Training(stage, settings, rank=words["rank"]).go()
        dist.barrier()
        dist.destroy_process_group()
    finally:
        atexit._run_exitfuncs()  # a fork ends without, and a trainer that fails does not
