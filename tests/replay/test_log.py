"""The journal for people: every event in a sentence, with what became of it."""

from __future__ import annotations

import pytest

from dataguard.replay.log import read_log
from dataguard.report.replay import render_log
from dataguard.run import amend
from dataguard.run.begin import propose
from dataguard.run.events import Proposed
from dataguard.run.run import Run
from tests.support.runs import deliver, make_run


def test_the_story(story) -> None:
    lines, problems = read_log(story.run)
    assert problems == ()
    assert [(line.number, line.kind, line.state) for line in lines] == [
        (1, "run-created", "done"),
        (2, "attempt-begun", "done"),
        (3, "skip-added", "applied"),
        (4, "quarantined", "applied"),
        (5, "attempt-begun", "done"),
        (6, "attempt-begun", "done"),
    ]
    assert lines[1].text == "attempt 1: steps 0:60, 2 ranks * microbatches of 1"
    assert lines[2].text == "skip steps 40:45 of attempt 1 (batches 40:45, positions 160:180): spike"
    assert lines[3].text == "quarantine web/b.jsonl.gz: damaged"
    assert lines[4].text.startswith(
        "attempt 2 from attempt 1: steps 35:70, 4 ranks * microbatches of 1, 1 skips, 1 withheld"
    )
    assert lines[5].text.startswith("attempt 3 from attempt 1: steps 30:33")
    assert {line.by for line in lines[2:4]} <= {lines[0].by, "ada@host"}


def test_labels_are_the_trainers(holes) -> None:
    lines, _ = read_log(holes.run)
    assert lines[1].text.startswith("attempt 1: steps 1:61")
    assert lines[2].text.startswith("skip steps 41:46 of attempt 1 (batches 41:46, positions 160:180)")


def test_what_is_pending_revoked_released_and_proposed(tmp_path, story) -> None:
    run = make_run(tmp_path / "run", story.corpus)
    deliver(run, microbatch_size=8, steps=2)
    first = amend.skip(run, 3, 4, reason="spike").event
    assert first is not None
    amend.quarantine(run, "web/a.parquet:3", reason="odd", evidence="a look")
    amend.revoke(run, first, reason="no spike")
    amend.release(run, "web/a.parquet:3")
    for rows, shard in (
        ((), None),
        ((), "web/a.parquet"),
        ((7,), "web/a.parquet"),
        (tuple(range(20)), "web/a.parquet"),
    ):
        propose(run, [Proposed(proposal="quarantine", attempt=1, shard=shard, rows=rows, positions=(5, 6), reason="r")])
    lines, _ = read_log(run)
    told = [(line.state, line.text) for line in lines[2:]]
    assert told == [
        ("revoked", "skip steps 3:4 of attempt 1 (batches 3:4, positions 24:32): spike"),
        ("pending", "quarantine web/a.parquet:3: odd (a look)"),
        ("pending", f"revoke event {first}: no spike"),
        ("pending", "release web/a.parquet:3"),
        ("proposed", "propose to quarantine 2 positions: r"),
        ("proposed", "propose to quarantine web/a.parquet: r"),
        ("proposed", "propose to quarantine web/a.parquet:7: r"),
        ("proposed", "propose to quarantine web/a.parquet (rows 0, 1, 2, 3, 4, 5, 6, 7 ...): r"),
    ]
    assert "[from the next attempt on]" in render_log(lines[3])
    assert "[revoked]" in render_log(lines[2])
    deliver(run, microbatch_size=8, from_step=2, steps=1)
    assert [line.state for line in read_log(run)[0][2:6]] == ["revoked", "applied", "applied", "applied"]


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_damaged_journal_is_listed_as_far_as_it_can_be_read(copy, how) -> None:
    story = copy()
    path = story.run.layout.journal_event(3)
    if how == "removed":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content.replace(b"spike", b"spikE"))
    lines, problems = read_log(Run.open(story.run.path))
    assert problems
    assert {line.number for line in lines} >= {1, 2}
