"""Which attempt delivered a step, on which lineage: the example of PLAN.md through real runs."""

from __future__ import annotations

import pytest

from dataguard.errors import NotInRun
from dataguard.replay.answers import SkippedBatch
from dataguard.replay.inspect import inspect_step
from dataguard.replay.lookup import Lookup
from dataguard.run import amend
from dataguard.run.index import Index
from tests.support.runs import deliver, make_run


def test_what_each_attempt_reached(story) -> None:
    lookup = Lookup(story.run)
    assert lookup.complete == {1: 60, 2: 70, 3: 33}
    assert (lookup.lineage(None), lookup.lineage(2), lookup.lineage(1)) == ((1, 3), (1, 2), (1,))


def test_a_step_that_the_newest_lineage_lacks_names_the_attempts_that_have_it(story) -> None:
    with pytest.raises(NotInRun, match=r"step 50 was not delivered on the lineage of attempt 3\n.*attempts 1, 2"):
        Lookup(story.run).find(50)
    with pytest.raises(NotInRun, match="no attempt has delivered it"):
        Lookup(story.run).find(70)


@pytest.mark.parametrize(
    ("step", "asked", "owner", "label"),
    [
        (29, None, 1, "live"),
        (30, None, 3, "live"),
        (33, None, 3, "unfinished"),
        (34, 2, 1, "live"),
        (40, 2, 2, "live"),
        (40, 1, 1, "live"),
        (69, 2, 2, "live"),
    ],
)
def test_owner_and_label(story, step, asked, owner, label) -> None:
    found = Lookup(story.run).find(step, attempt=asked)
    assert (found.attempt.number, found.label) == (owner, label)


def test_a_delivery_that_a_rewind_left_behind_is_abandoned(story) -> None:
    lookup = Lookup(story.run)
    assert lookup.tree.label(1, 40, lookup.complete, leaf=2) == "abandoned"


def test_batches_find_their_steps_and_skipped_ones_their_event(story) -> None:
    lookup = Lookup(story.run)
    assert lookup.labels_of_batch(42, attempt=1) == range(42, 43)
    assert lookup.labels_of_batch(47, attempt=2) == range(42, 43)
    skipped = lookup.labels_of_batch(42, attempt=2)
    assert isinstance(skipped, SkippedBatch)
    assert (skipped.batch, skipped.attempt, skipped.positions) == (42, 2, (168, 172))
    assert [(each.reason, each.positions, each.batches) for each in skipped.skips] == [("spike", (160, 180), (40, 45))]


def test_a_rank_that_took_no_part(story) -> None:
    with pytest.raises(NotInRun, match="rank 2 did not take part in attempt 1"):
        Lookup(story.run).find(5, rank=2)
    assert Lookup(story.run).find(40, attempt=2, rank=3).records.records["rank"].tolist() == [3]


def test_looking_up_lists_no_folder_of_the_record(story, monkeypatch) -> None:
    from pathlib import Path

    def forbidden(self, *args):
        raise AssertionError(f"{self} was listed")

    for name in ("iterdir", "glob", "rglob"):
        monkeypatch.setattr(Path, name, forbidden)
    assert len(Index(story.run.layout).step(2, 40, num_ranks=4).records) == 4


def test_holes_are_skipped_and_never_another_batch(holes) -> None:
    lookup = Lookup(holes.run)
    for label in range(41, 46):
        found = lookup.find(label, attempt=2)
        assert isinstance(found, SkippedBatch)
        assert (found.step, found.status) == (label, "skipped")
    assert lookup.find(46, attempt=2).step == 45
    assert lookup.find(41, attempt=1).step == 40, "attempt 1 had delivered it"


def test_steps_below_the_first_label_are_refused(holes) -> None:
    with pytest.raises(NotInRun, match="steps count from 1"):
        Lookup(holes.run).find(0)
    with pytest.raises(NotInRun, match=r"batch 0 is not in this run\n.*batches count from 1"):
        Lookup(holes.run).labels_of_batch(0)


def test_a_run_without_attempts_says_what_to_do(tmp_path, story) -> None:
    run = make_run(tmp_path / "run", story.corpus)
    with pytest.raises(NotInRun, match="no attempt of this run has begun"):
        inspect_step(Lookup(run), 0)


def test_a_lookup_sees_what_stood_when_it_was_made_and_a_new_one_what_came_since(tmp_path, story) -> None:
    run = make_run(tmp_path / "run", story.corpus)
    deliver(run, microbatch_size=8, steps=2)
    amend.skip(run, 1, 2, reason="spike")
    deliver(run, microbatch_size=8, from_step=1, steps=2)
    assert Lookup(run).complete == {1: 2, 2: 3}
