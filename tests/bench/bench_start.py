"""How long until a command answers, start of the process included?

    pytest tests/bench/bench_start.py --benchmark-enable

Processes take turns: ``dataguard --help``, ``inspect`` and ``where`` on a run of 60 steps and four ranks, beside a bare
``python -c pass`` and one that imports what any look-up needs (NumPy and pyarrow).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dataguard.core.address import Geometry
from dataguard.loader.rehearse import rehearse
from dataguard.plan.plan import Plan
from dataguard.run.run import Run
from tests.bench.conftest import Claims, Interleaved
from tests.bench.corpora import parquet_corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    corpus = parquet_corpus(folder, num_shards=4, groups_of_shard=16, rows_of_group=50)
    made = Run.create(folder / "run", Plan(corpus, seed=17, global_batch=16))
    rehearse(made, geometry=Geometry(world_size=4, microbatch_size=2), steps=60)
    return made.path


def python(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def test_start(run: Path, claims: Claims, interleaved: Interleaved) -> None:
    turns = interleaved(
        {
            "bare": lambda: python("-c", "pass"),
            "libraries": lambda: python("-c", "import numpy, pyarrow, pyarrow.parquet"),
            "help": lambda: python("-m", "dataguard", "--help"),
            "inspect": lambda: python("-m", "dataguard", "inspect", str(run), "--step", "17"),
            "json": lambda: python("-m", "dataguard", "inspect", str(run), "--step", "17", "--json"),
            "where": lambda: python("-m", "dataguard", "where", str(run), "00000.parquet:7"),
        },
        rounds=11,
    )
    bare, libraries = turns.seconds_of("bare"), turns.seconds_of("libraries")
    claims("python -c pass", bare, "s")
    claims("python -c 'import numpy, pyarrow.parquet'", libraries, "s")
    claims("dataguard --help", turns.seconds_of("help"), "s", target=0.15)
    claims("dataguard --help / python -c pass", turns.ratio("help", "bare"))
    claims("dataguard inspect RUN --step 17", turns.seconds_of("inspect"), "s", target=0.6)
    claims("dataguard inspect RUN --step 17 --json", turns.seconds_of("json"), "s", target=0.6)
    claims("dataguard where RUN SHARD:ROW", turns.seconds_of("where"), "s")
    claims("dataguard inspect / the imports of numpy and pyarrow", turns.ratio("inspect", "libraries"))
