"""Everything that must not depend on the process it is computed in, as one JSON line.

``python -m tests.support.fingerprint FOLDER`` builds the manifest of ``FOLDER/rows`` (with two workers), plans, makes a
run on two ranks, looks back, and prints digests of what it found. `spawned` does it in a spawned process.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.plan.plan import Plan
from dataguard.replay.inspect import inspect_step
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.replay.where import where_record
from dataguard.report.replay import render_verify
from dataguard.run import amend
from dataguard.run.index import Index
from tests.support.runs import deliver, make_run

SEEDS = [(0, 0), (0, 1), (1, 0), (1, 1), (2**32, 0), (2**32 + 1, 0)]


def order(corpus: Corpus, seed: int, epoch: int) -> list[int]:
    """Rows of one epoch of a corpus with one source, in the order of positions."""
    plan = Plan(corpus, seed=seed, global_batch=8, lanes=4)
    num_rows = int(corpus.manifest.num_deliverable.sum())
    samples = plan.stream().samples(np.arange(4 * num_rows))
    mine = samples.epoch == epoch
    starts = np.cumsum([0, *(shard.num_rows for shard in corpus.manifest.shards)])
    rows: list[int] = (starts[samples.shard[mine]] + samples.row[mine]).tolist()
    assert sorted(rows) == list(range(num_rows))
    return rows


def fingerprint(folder: str) -> dict[str, Any]:
    """See the module."""
    with tempfile.TemporaryDirectory() as scratch:
        build_manifest_file(
            [f"rows={folder}/rows"],
            Path(scratch) / "M.parquet",
            num_workers=2,
            options=ScanOptions(block_bytes=300),
        )
        corpus = Corpus.open(Path(scratch) / "M.parquet")
        run = make_run(Path(scratch) / "run", corpus, lanes=4, fill="substitute")
        first = deliver(run, world_size=2, microbatch_size=2, steps=4)
        amend.skip(run, 5, 7, reason="spike")
        amend.quarantine(run, corpus.manifest.shard_name(0), reason="damaged")
        second = deliver(run, world_size=4, microbatch_size=1, num_threads=3, from_step=3, steps=5)
        records = [
            np.concatenate(list(Index(run.layout).records(number, num_ranks=ranks)))
            for number, ranks in ((1, 2), (2, 4))
        ]
        lookup = Lookup(run)
        answers = [inspect_step(lookup, step) for step in range(8)]
        where = where_record(lookup, corpus.manifest.shard_name(0), 3)
        verified = verify_run(lookup)
        assert verified.ok
        steps = [run.attempts().attempt(number) for number in (1, 2)]
        found = {
            "manifest": corpus.manifest.digest,
            "names": [corpus.manifest.shard_name(i) for i in range(len(corpus.manifest.shards))],
            "plan": run.plan.digest,
            "attempts": [run.begun(attempt.number).attempt_digest for attempt in steps],
            "delivered": _digest(repr((first, second)).encode()),
            "index": [_digest(np.sort(each, order=("step", "slot")).tobytes()) for each in records],
            "inspect": _digest(b"".join(msgspec.json.encode(_timeless(answer)) for answer in answers)),
            "where": _digest(msgspec.json.encode(_timeless(where))),
            "verify": list(render_verify(verified)),
            "orders": [order(corpus, seed, epoch) for seed, epoch in SEEDS],
        }
        shutil.rmtree(Path(scratch) / "run")
        return found


def _timeless(answer: Any) -> Any:
    """An answer without times."""
    if isinstance(answer, msgspec.Struct):
        return _timeless(msgspec.to_builtins(answer))
    if isinstance(answer, dict):
        return {name: _timeless(value) for name, value in answer.items() if name != "time"}
    return [_timeless(value) for value in answer] if isinstance(answer, list | tuple) else answer


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def spawned(folder: str) -> dict[str, Any]:
    """The same in a process that multiprocessing spawns."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(fingerprint, (folder,))


if __name__ == "__main__":
    print(json.dumps((spawned if "--spawn" in sys.argv else fingerprint)(sys.argv[1])))
