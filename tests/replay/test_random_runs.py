"""Runs with everything at once: forks anywhere, skips, quarantines, lost shards, other corpora and batch sizes.

Whatever came of it, every lineage verifies, and every step of every attempt is rebuilt as it was handed over.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import UsageError
from dataguard.replay.lookup import Lookup
from dataguard.replay.replay import replay_step
from dataguard.replay.verify import verify_run
from dataguard.run import amend
from dataguard.run.run import Run
from tests.support.corpora import make_corpus, manifest_of, put_shard
from tests.support.runs import Slot, deliver, make_run, slots_of

pytestmark = pytest.mark.usefixtures("impatient")


def amend_somehow(run: Run, chance: random.Random) -> None:
    what = chance.random()
    if what < 0.5:
        first = chance.randint(0, 9) + run.first_label
        amend.skip(run, first, first + chance.randint(1, 3), reason="spike", batches=chance.random() < 0.5)
    elif what < 0.8:
        names = ["web/a.parquet:3", "web/b.jsonl.gz", "code/d.jsonl:1"]
        with contextlib.suppress(UsageError):  # withheld already
            amend.quarantine(run, chance.choice(names), reason="damaged")
    else:
        with contextlib.suppress(UsageError):  # not withheld
            amend.release(run, "web/b.jsonl.gz")


def attempt_somehow(run: Run, chance: random.Random, folder: Path, corpora: list[Corpus]) -> dict[int, list[Slot]]:
    """Fork somewhere, with one shard lost for a while; what was handed over."""
    lookup = Lookup(run)
    parent = chance.choice(lookup.tree.numbers)
    fork = chance.randint(lookup.tree.attempt(parent).fork_step, lookup.complete[parent])
    settings: dict[str, Any] = {}
    if chance.random() < 0.4:
        settings["global_batch"] = chance.choice([2, 4, 8])
    if chance.random() < 0.3 and fork > 0:  # from step 0 on, another corpus is another plan, and refused
        settings["corpus"] = chance.choice(corpora)
    shard, lost = folder / "web" / "c.jsonl", chance.random() < 0.3
    if lost:
        shard.rename(folder / "lost")
    try:
        return deliver(
            run,
            world_size=chance.choice([1, 2]),
            microbatch_size=1,
            parent=parent,
            from_step=fork,
            steps=chance.randint(1, 6),
            **settings,
        )
    finally:
        if lost:
            (folder / "lost").rename(shard)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.long) for s in range(4, 80))])
def test_whatever_happens_every_lineage_agrees(tmp_path, seed) -> None:
    chance = random.Random(seed)
    rows = {"a.parquet": chance.randint(9, 30), "b.jsonl.gz": chance.randint(3, 15), "c.jsonl": 7}
    small = make_corpus(tmp_path, {"web": rows, "code": {"d.jsonl": chance.randint(2, 9)}})
    put_shard(tmp_path, "web", "e.jsonl", 11)
    more = Corpus.open(manifest_of(tmp_path, ["web", "code"], output="N.parquet"))
    run = make_run(
        tmp_path / "run",
        small,
        global_batch=4,
        lanes=chance.choice([1, 2, 4]),
        skip_mode=chance.choice(["jump", "hole"]),
        fill=chance.choice(["mask", "substitute"]),
        first_label=chance.choice([0, 1]),
        shuffle=chance.choice(["blocks", "all", "none"]),
    )
    handed = {1: deliver(run, world_size=2, microbatch_size=1, steps=chance.randint(5, 12))}
    for _ in range(chance.randint(2, 5)):
        for _ in range(chance.randint(0, 2)):
            amend_somehow(run, chance)
        batches = attempt_somehow(run, chance, tmp_path, [small, more])
        handed[run.newest_leaf()] = batches
    lookup = Lookup(run)
    for attempt in lookup.tree.numbers:
        answer = verify_run(lookup, attempt=attempt)
        assert answer.ok, (attempt, [fault.message for check in answer.checks for fault in check.faults][:3])
        for step, batch in handed[attempt].items():
            answered, rebuilt = replay_step(lookup, step + run.first_label, attempt=attempt)
            assert answered.attempt == attempt
            assert answered.status in {"exact", "withheld", "skipped"}
            assert [slot for each in rebuilt for slot in slots_of(each.microbatch)] == batch
