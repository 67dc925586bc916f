"""What every rank was fed at a step, worst first, answered without the corpus."""

from __future__ import annotations

import shutil

import pytest

from dataguard.core.digests import sample_digest
from dataguard.replay.answers import InspectAnswer
from dataguard.replay.inspect import inspect_step
from dataguard.replay.lookup import Lookup
from dataguard.report.replay import render_inspect
from dataguard.run.tidy import compact_run, seal_run
from tests.replay.conftest import roots_of


def shown(answer: InspectAnswer) -> list[tuple[object, ...]]:
    return sorted(
        (s.slot, s.rank, s.microbatch, s.position, s.status, (s.shard, s.row), s.length, s.digest)
        for s in answer.samples
    )


def handed(story, step: int, attempt: int) -> list[tuple[object, ...]]:
    manifests = story.run.stream_of(attempt).manifest_set
    samples = story.run.stream_of(attempt).samples
    import numpy as np

    rows = []
    for h in story.of_step(step, attempt):
        planned = samples(np.array([h.position]))
        place = (manifests.shard_name(int(planned.shard[0])), int(planned.row[0]))
        digest = sample_digest(h.content)[:8].hex() if h.content is not None else "00" * 8
        status = h.status.name.lower()
        rows.append((h.slot, h.rank, h.microbatch, h.position, status, place, len(h.content or b""), digest))
    return rows


@pytest.mark.parametrize(("step", "attempt"), [(0, 1), (29, 1), (40, 2), (59, 1), (69, 2), (31, 3), (33, 3)])
def test_every_slot_as_it_was_handed_over(story, step, attempt) -> None:
    answer = inspect_step(Lookup(story.run), step, attempt=attempt)
    assert isinstance(answer, InspectAnswer)
    assert shown(answer) == handed(story, step, attempt)
    assert (answer.step, answer.attempt, answer.global_batch) == (step, attempt, 4)


def test_substitutes_name_what_was_delivered_instead(substituted) -> None:
    lookup = Lookup(substituted.run)
    met = 0
    for step in range(35, 70):
        answer = inspect_step(lookup, step, attempt=2)
        by_slot = {sample.slot: sample for sample in answer.samples}
        for h in substituted.of_step(step, 2):
            sample = by_slot[h.slot]
            if sample.status == "substituted":
                met += 1
                assert (sample.delivered.shard, sample.delivered.row) == h.place
                assert sample.shard == "web/b.jsonl.gz"
                assert sample.event == 4
            else:
                assert sample.delivered is None
                assert (sample.shard, sample.row) == h.place
    assert met > 5


def test_worst_first(story) -> None:
    for step in range(35, 70):
        answer = inspect_step(Lookup(story.run), step, attempt=2)
        statuses = [sample.status for sample in answer.samples]
        assert statuses == sorted(statuses, key=lambda status: status == "live")
        for status in set(statuses):
            slots = [sample.slot for sample in answer.samples if sample.status == status]
            assert slots == sorted(slots)


def test_what_was_jumped_over_is_told_from_there_on(story) -> None:
    lookup = Lookup(story.run)
    assert inspect_step(lookup, 39, attempt=2).skips == ()
    after = inspect_step(lookup, 42, attempt=2)
    assert (after.batch, after.positions) == (47, (188, 192))
    assert [(skip.event, skip.batches, skip.reason) for skip in after.skips] == [(3, (40, 45), "spike")]
    assert inspect_step(lookup, 42, attempt=1).batch == 42


def test_one_rank_only(story) -> None:
    answer = inspect_step(Lookup(story.run), 40, attempt=2, rank=2)
    assert [sample.rank for sample in answer.samples] == [2]
    assert answer.missing_ranks == ()


def test_an_unfinished_step_names_the_ranks_that_lack_something(story) -> None:
    answer = inspect_step(Lookup(story.run), 33)
    assert (answer.label, answer.missing_ranks) == ("unfinished", (1,))


def test_the_corpus_may_be_gone_and_the_record_may_lie_anywhere(copy) -> None:
    story = copy()
    for root in roots_of(story).values():
        shutil.rmtree(root)
    before = [shown(inspect_step(Lookup(story.run), step, attempt=a)) for step, a in ((5, 1), (50, 2), (33, 3))]
    assert [each.num_records for each in seal_run(story.run)][2] == 3 * 4 + 2
    sealed = [shown(inspect_step(Lookup(story.run), step, attempt=a)) for step, a in ((5, 1), (50, 2), (33, 3))]
    list(compact_run(story.run))
    compacted = [shown(inspect_step(Lookup(story.run), step, attempt=a)) for step, a in ((5, 1), (50, 2), (33, 3))]
    assert before == sealed == compacted


def test_a_hole_moves_no_batch_and_nothing_is_said_to_be_jumped(holes) -> None:
    lookup = Lookup(holes.run)
    for step in (46, 50):
        answer = inspect_step(lookup, step, attempt=2)
        assert (answer.skip_mode, answer.batch, answer.skips) == ("hole", step, ())
        assert "jumped" not in next(render_inspect(answer))
    jumped = inspect_step(Lookup(holes.run), 39, attempt=1)
    assert jumped.skips == ()


def test_what_was_jumped_is_said(story) -> None:
    answer = inspect_step(Lookup(story.run), 42, attempt=2)
    assert answer.skip_mode == "jump"
    assert "batch 47, since 40:45 was jumped by event 3" in next(render_inspect(answer))
