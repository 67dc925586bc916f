"""torchrun, as people start it: with a process group, and without one, where only its environment speaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dataguard.run.run import Run
from tests.architecture.tree import TOP
from tests.support.processes import environment
from tests.support.runs import make_run
from tests.torch.distributed.conftest import batches_of

_SCRIPT = """
import json, sys
from datetime import timedelta
from pathlib import Path
import torch.distributed as dist
from tests.torch.distributed.rank import walk

lone, grouped, folder = sys.argv[1:]
words = {"world_size": 2, "microbatch_size": 4, "steps": 3, "seconds": 60}
told = [walk({**words, "run": lone, "meet": False}, None, None)]
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
told.append(walk({**words, "run": grouped}, None, None))
Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(told))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory, corpus) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("torchrun")
    runs = [make_run(folder / name, corpus, lanes=4) for name in ("lone", "grouped")]
    script = folder / "train.py"
    script.write_text(_SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
        + [str(run.path) for run in runs]
        + [str(folder)],
        env=environment(
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="lo",
            SLURM_JOB_ID=None,
            RANK=None,
            WORLD_SIZE=None,
            PYTHONPATH=str(TOP),
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return {"runs": runs, "lone": [rank[0] for rank in ranks], "grouped": [rank[1] for rank in ranks]}


def test_both_ways_deliver_the_same(told) -> None:
    assert batches_of(told["lone"]) == batches_of(told["grouped"])
    assert [answer["rank"] for answer in told["lone"]] == [0, 1]


def test_the_launch_is_told_apart_by_torchruns_id_with_its_restart_count(told) -> None:
    lone, grouped = told["runs"]
    launch = Run.open(lone.path).begun(1).launch_id
    assert launch.startswith("torchelastic ")
    assert launch.endswith(" restart 0")
    assert Run.open(grouped.path).begun(1).launch_id.startswith("group ")


def test_places_are_known_where_ranks_can_speak(told) -> None:
    lone, grouped = (Run.open(run.path).begun(1).ranks for run in told["runs"])
    assert [place.rank for place in lone] == [0]
    assert [place.rank for place in grouped] == [0, 1]
    assert all(place.host and place.process for place in grouped)
