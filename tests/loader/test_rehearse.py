"""What will my run be fed? A rehearsal is a real attempt, and its account is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.core.address import Geometry
from dataguard.errors import GeometryError, NotInRun, UsageError
from dataguard.loader.demand import CACHE_LIMIT_BYTES, demand_of, shared_cache_bytes
from dataguard.loader.rehearse import continued_geometry, planned_steps, rehearse
from dataguard.plan.plan import Plan
from dataguard.replay.lookup import Lookup
from dataguard.replay.replay import replay_step
from dataguard.run import amend
from tests.support.corpora import make_corpus
from tests.support.runs import make_run


def geometry(world_size: int, microbatch_size: int) -> Geometry:
    return Geometry(world_size=world_size, microbatch_size=microbatch_size)


def test_the_account_of_a_rehearsal(tmp_path, documents, unbroken) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4, first_label=1)
    told = []
    answer = rehearse(run, geometry=geometry(2, 2), steps=6, progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 6) for i in range(1, 7)]
    assert (answer.attempt, answer.parent, answer.steps, answer.num_steps) == (1, None, (1, 7), 6)
    assert (answer.num_samples, answer.num_withheld, answer.num_unreadable) == (48, 0, 0)
    assert answer.content_bytes == sum(len(slot) for step in range(6) for slot in unbroken[step])
    assert (answer.global_batch, answer.world_size, answer.microbatch_size, answer.num_microbatches) == (8, 2, 2, 2)
    assert answer.corpus_bytes == sum(shard.size_bytes for shard in documents.manifest.shards)
    assert {(each.source, each.num_samples) for each in answer.mixture} == {("web", 120), ("code", 40)}
    assert sum(each.share for each in answer.mixture) == pytest.approx(1)
    assert replay_step(Lookup(run), 6)[0].status == "exact"


def test_the_next_one_goes_on_where_the_newest_stopped(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    rehearse(run, geometry=geometry(2, 2), steps=4)
    amend.quarantine(run, "web/a.parquet", reason="damaged")
    second = rehearse(run, geometry=geometry(4, 2), steps=3)
    assert (second.attempt, second.parent, second.steps) == (2, 1, (4, 7))
    assert second.num_withheld > 0
    third = rehearse(run, geometry=geometry(1, 8), steps=2, from_step=2, parent=1)
    assert (third.attempt, third.parent, third.steps) == (3, 1, (2, 4))
    fourth = rehearse(run, geometry=geometry(1, 8), steps=1, parent=2)
    assert (fourth.attempt, fourth.parent, fourth.steps) == (4, 2, (7, 8))


def test_a_whole_epoch(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    answer = rehearse(run, geometry=geometry(2, 4), epochs=1)
    assert (answer.num_samples, answer.num_withheld) == (160, 0)
    assert answer.num_samples + answer.num_padding == 8 * answer.num_steps


def test_what_is_left_out_of_a_geometry_follows_the_newest_attempt(tmp_path, documents) -> None:
    run = make_run(tmp_path / "run", documents, lanes=4)
    with pytest.raises(UsageError, match="no attempt yet, and no world size and no microbatch size is given"):
        continued_geometry(run, world_size=None, microbatch_size=None, global_batch=None)
    with pytest.raises(UsageError, match="and no microbatch size is given"):
        continued_geometry(run, world_size=4, microbatch_size=None, global_batch=None)
    rehearse(run, geometry=geometry(4, 2), steps=1)
    assert continued_geometry(run, world_size=2, microbatch_size=None, global_batch=None) == geometry(2, 2)
    assert continued_geometry(run, world_size=None, microbatch_size=1, global_batch=None) == geometry(4, 1)
    with pytest.raises(GeometryError, match="global batch of 12"):
        continued_geometry(run, world_size=None, microbatch_size=None, global_batch=12)


def test_planned_steps_need_no_run(documents) -> None:
    plan = Plan(documents, seed=7, global_batch=8, lanes=4, first_label=1)
    answer = planned_steps(plan, geometry(4, 1), [5], rank=2)
    assert answer.steps == (6, 7)
    assert [(s.step, s.rank, s.microbatch, s.slot) for s in answer.samples] == [(6, 2, 0, 4), (6, 2, 1, 5)]
    with pytest.raises(GeometryError, match="rank 4 is not one of 4 ranks"):
        planned_steps(plan, geometry(4, 1), [5], rank=4)
    with pytest.raises(GeometryError):
        planned_steps(plan, geometry(3, 1), [5])
    with pytest.raises(NotInRun):
        planned_steps(plan, geometry(4, 1), [-1])


def test_ranks_of_one_process_share_a_budget_of_memory(tmp_path: Path) -> None:
    run = make_run(tmp_path / "RUN", make_corpus(tmp_path, {"web": {"a.jsonl": 64}}))
    alone, many = (Geometry(world_size=world_size, microbatch_size=1) for world_size in (1, 512))
    plan, stream = run.plan, run.stream_of()
    assert shared_cache_bytes(plan, stream, alone) == demand_of(plan, stream, alone).cache_bytes
    assert 512 * shared_cache_bytes(plan, stream, many) <= 2 * CACHE_LIMIT_BYTES
