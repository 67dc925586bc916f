"""A past batch made again, from plan, exceptions and shards alone: exact on every step of every attempt."""

from __future__ import annotations

import io
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataguard.replay.answers import ReplayAnswer
from dataguard.replay.lookup import Lookup
from dataguard.replay.rebuild import Rebuilder
from dataguard.replay.replay import replay_step
from dataguard.replay.writing import write_samples
from tests.replay.conftest import roots_of
from tests.support.corpora import make_corpus, window_place
from tests.support.runs import deliver, make_run, slots_of

STEPS = {1: range(60), 2: range(35, 70), 3: range(30, 34)}


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize("which", ["story", "substituted"])
def test_every_step_of_every_attempt(request, which, attempt) -> None:
    story = request.getfixturevalue(which)
    rebuilder = Rebuilder(story.run, attempt)
    for step in STEPS[attempt]:
        rebuilt = list(rebuilder.step(step))
        held = {m.address: slots_of(m) for m in (each.microbatch for each in rebuilt)}
        for h in story.of_step(step, attempt):
            mine = [each for each in rebuilt if h.slot in each.microbatch.slots][0].microbatch  # noqa: RUF015
            assert (mine.address.rank, mine.address.microbatch) == (h.rank, h.microbatch)
            i = h.slot - mine.slots.start
            assert held[mine.address][i] == h.content
            assert (int(mine.positions[i]), int(mine.status[i])) == (h.position, h.status)
        assert not any(each.problems for each in rebuilt)
    rebuilder.close()


@pytest.mark.parametrize("step", [36, 39, 46, 47, 60])
def test_holes(holes, step) -> None:
    answer, rebuilt = replay_step(Lookup(holes.run), step + 1, attempt=2)
    assert answer.status == "exact"
    assert [s for each in rebuilt for s in slots_of(each.microbatch)] == [h.content for h in holes.of_step(step, 2)]


def test_a_skipped_step_answers_skipped_and_never_another_batch(holes) -> None:
    answer, rebuilt = replay_step(Lookup(holes.run), 43, attempt=2)
    assert (answer.status, answer.step, answer.microbatches, rebuilt) == ("skipped", 43, (), [])
    assert [skip.reason for skip in answer.skips] == ["spike"]


def test_nothing_recorded_of_a_step_is_used_to_rebuild_it(copy) -> None:
    """Rebuilding needs plan, journal and exceptions; comparing needs the record. So the record may be gone."""
    story = copy()
    for name in ("index", "hot", "notable"):
        shutil.rmtree(story.run.path / name)
    rebuilder = Rebuilder(story.run, 2, roots=roots_of(story))
    rebuilt = [slot for each in rebuilder.step(50) for slot in slots_of(each.microbatch)]
    assert rebuilt == [h.content for h in story.of_step(50, 2)]


def test_other_roots(copy, tmp_path) -> None:
    story = copy()
    moved = tmp_path / "elsewhere"
    for name in ("web", "code"):
        shutil.move(story.folder / name, moved / name)
    answer, _ = replay_step(Lookup(story.run), 20, roots={name: str(moved / name) for name in ("web", "code")})
    assert answer.status == "exact"


def test_an_unfinished_step_is_compared_as_far_as_it_is_recorded(story) -> None:
    answer, _ = replay_step(Lookup(story.run), 33)
    assert answer.status == "exact"
    assert [each.recorded is not None for each in answer.microbatches] == [True, True, False, False]
    assert "2 of 4 microbatches have no record" in answer.notes[-1]


def test_one_rank(story) -> None:
    answer, rebuilt = replay_step(Lookup(story.run), 40, attempt=2, rank=2)
    assert [each.rank for each in answer.microbatches] == [2]
    assert [s for each in rebuilt for s in slots_of(each.microbatch)] == [story.of_step(40, 2)[2].content]


def rows_of(path) -> list[dict[str, object]]:
    return pq.read_table(io.BytesIO(path.read_bytes())).to_pylist()


def test_what_is_written_for_people_to_look_at(substituted, tmp_path) -> None:
    answer, rebuilt = replay_step(Lookup(substituted.run), 50, attempt=2)
    rows = rows_of(write_samples(answer, rebuilt, tmp_path / "deep" / "out"))
    handed = substituted.of_step(50, 2)
    assert [(r["rank"], r["microbatch"], r["slot"], r["position"], r["text"]) for r in rows] == [
        (h.rank, h.microbatch, h.slot, h.position, h.content) for h in handed
    ]
    assert {r["step"] for r in rows} == {50}
    for row in rows:
        assert row["digest"] == row["recorded_digest"]
    assert [path.name for path in (tmp_path / "deep" / "out").iterdir()] == ["samples.parquet"]


def test_windows_are_rebuilt_and_written_as_ids(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"books": {"t.npy": 100, "u.npy": 60}}, block_tokens=32)
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=10, global_batch=4, lanes=2)
    batches = deliver(run, world_size=2, microbatch_size=1, steps=6)
    lookup = Lookup(run)
    for step, batch in batches.items():
        answer, rebuilt = replay_step(lookup, step)
        assert isinstance(answer, ReplayAnswer)
        assert answer.status == "exact"
        assert [slot for each in rebuilt for slot in slots_of(each.microbatch)] == batch
        rows = rows_of(write_samples(answer, rebuilt, tmp_path / "out"))
        assert [tuple(row["ids"]) for row in rows] == batch
        for row in rows:
            assert window_place(np.array(row["ids"]), ["books/t.npy", "books/u.npy"]) == (row["shard"], 10 * row["row"])
