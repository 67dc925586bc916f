"""Do journal, index, plan and data agree? The good passes, a torn tail is told, every kind of damage is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dataguard.errors import InputError
from dataguard.replay.answers import VerifyAnswer
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run import amend
from dataguard.run.frames import FramesFile, FramesReader
from dataguard.run.index import Index
from dataguard.run.records import without_rank
from dataguard.run.run import Run
from dataguard.run.tidy import compact_run, seal_run
from tests.corpus.making import flip
from tests.replay.conftest import roots_of
from tests.support.corpora import damage, make_corpus
from tests.support.runs import deliver, make_run, open_loaders
from tests.support.story import Story

pytestmark = pytest.mark.usefixtures("impatient")

HOT = "hot/attempt=0003/rank=00000/000000030.frames"


def verify(story: Story, **asked) -> VerifyAnswer:
    return verify_run(Lookup(Run.open(story.run.path)), roots=roots_of(story), **asked)


def faults(answer: VerifyAnswer) -> dict[str, list[str]]:
    return {check.name: [f"{f.kind}: {f.message}" for f in check.faults] for check in answer.checks if check.faults}


@pytest.mark.parametrize("attempt", [None, 1, 2])
@pytest.mark.parametrize("which", ["story", "substituted"])
def test_a_killed_run_agrees_along_every_lineage(request, which, attempt) -> None:
    story = request.getfixturevalue(which)
    answer = verify_run(Lookup(story.run), attempt=attempt)
    assert (answer.ok, faults(answer)) == (True, {})
    checked = {check.name: check.checked for check in answer.checks}
    steps = {None: 33, 1: 60, 2: 70}[attempt]
    assert checked["journal"] == 6
    assert checked["index"] == 4 * 60 + 4 * 35 + 4 * 3 + 2
    assert checked["exactly once"] == checked["plan"] == checked["data"] == 4 * steps


@pytest.mark.parametrize("attempt", [1, 2])
def test_holes(holes, attempt) -> None:
    answer = verify_run(Lookup(holes.run), attempt=attempt)
    assert (answer.ok, faults(answer)) == (True, {})


def test_sealed_and_compacted_runs_agree_too(copy) -> None:
    story = copy()
    list(seal_run(story.run))
    assert verify(story).ok
    list(compact_run(story.run))
    answer = verify(story)
    assert answer.ok
    assert {check.name: check.checked for check in answer.checks}["index"] == 4 * 60 + 4 * 35 + 4 * 3 + 2


@pytest.mark.parametrize("cut", [1, 100, "to the header", "zeros"])
def test_a_torn_tail_is_told_and_is_no_failure(copy, cut) -> None:
    story = copy()
    path = story.run.path / HOT
    content = path.read_bytes()
    with FramesReader(path, "index") as reader:
        frame = reader.frame_bytes
    path.write_bytes({
        1: content[:-1], 100: content[:-100], "to the header": content[: 4096 + 7 * frame + 3],
        "zeros": content[:-frame] + bytes(frame),
    }[cut])  # fmt: skip
    answer = verify(story)
    (index,) = [check for check in answer.checks if check.name == "index"]
    assert (answer.ok, faults(answer)) == (True, {})
    assert len(index.notes) == 1
    assert index.notes[0].endswith("bytes dropped")


def test_nothing_is_rebuilt_where_data_is_not_asked_for(copy) -> None:
    story = copy()
    for root in roots_of(story).values():
        shutil.rmtree(root)
    answer = verify(story, data=False)
    assert answer.ok
    assert [check.name for check in answer.checks] == ["journal", "index", "exactly once", "plan"]
    assert not verify(story).ok


def removed(pattern: str) -> Callable[[Path], None]:
    def remove(run: Path) -> None:
        (path,) = run.glob(pattern)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def flipped(pattern: str, offset: int) -> Callable[[Path], None]:
    def flip_it(run: Path) -> None:
        (path,) = run.glob(pattern)
        flip(path, offset if offset >= 0 else path.stat().st_size + offset)

    return flip_it


def doubled_frame(run: Path) -> None:
    path = run / HOT
    with FramesReader(path, "index") as reader:
        frame = reader.frame_bytes
    path.write_bytes((content := path.read_bytes()) + content[-frame:])


DAMAGES = {
    "frames of a rank": (removed(HOT), "index"),
    "the whole hot record of a rank": (removed("hot/attempt=0003/rank=00000"), "index"),
    "everything of a rank": (lambda run: [each(run) for each in (
        removed("hot/attempt=0003/rank=00000"), removed("seals/attempt=0003/rank=00000.frames"))], "index"),
    "a sealed file": (removed("index/attempt=0002/rank=00001/*.parquet"), "index"),
    "a compacted file": (removed("index/attempt=0001/*.parquet"), "index"),
    "a seal's list": (removed("seals/attempt=0001/rank=00000.frames"), "index"),
    "the notable samples": (removed("notable/attempt=0002/rank=00002/*.parquet"), "index"),
    "the end of the journal": (removed("journal/000006.json"), "journal"),
    "an event in the middle": (removed("journal/000003.json"), "journal"),
    "a byte of an event": (flipped("journal/000003.json", 60), "journal"),
    "a byte of a frame": (flipped(HOT, 4096 + 40), "index"),
    "a byte of a sealed file": (flipped("index/attempt=0002/rank=00000/*.parquet", 1000), "index"),
    "a byte of a compacted file": (flipped("index/attempt=0001/*.parquet", 1000), "index"),
    "a byte of a frames header": (flipped(HOT, 20), "index"),
    "a frame once more": (doubled_frame, "index"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_lost_or_changed_is_found(copy, what) -> None:
    story = copy()
    do, where = DAMAGES[what]
    do(story.run.path)
    answer = verify(story)
    assert not answer.ok
    found = faults(answer)
    assert where in found, found


@pytest.mark.parametrize("pattern", ["plan/*.json", "manifest/*.parquet", "journal/000001.json"])
def test_without_its_first_documents_a_run_cannot_be_verified_and_says_so(copy, pattern) -> None:
    story = copy()
    for path in story.run.path.glob(pattern):
        path.unlink()
    with pytest.raises(InputError):
        verify(story)


def test_an_attempt_whose_event_was_removed_is_missed(copy) -> None:
    """Nothing of the journal tells that there was an attempt 3, but its record does."""
    story = copy()
    story.run.layout.journal_event(6).unlink()
    (fault,) = faults(verify(story))["journal"]
    assert "6" in fault


def test_a_changed_shard_is_found_by_row(copy) -> None:
    story = copy()
    from tests.corpus.making import parquet
    from tests.support.corpora import text_of

    texts = [text_of("code/d.parquet", row) for row in range(26)]
    texts[5] = texts[5].upper()
    parquet(story.folder / "code" / "d.parquet", texts)
    answer = verify(story)
    found = faults(answer)
    assert list(found) == ["data"]
    assert all("code/d.parquet row 5, digest" in fault for fault in found["data"])
    assert found["data"][0].startswith("differs: step ")


def test_a_lost_shard_is_found(copy) -> None:
    story = copy()
    (story.folder / "code" / "d.parquet").unlink()
    found = faults(verify(story))
    assert list(found) == ["data"]
    assert all(fault.startswith("unreadable: ") and " recorded, none rebuilt; " in fault for fault in found["data"])


@pytest.mark.parametrize("what", ["row", "digest", "position", "microbatch_digest", "step", "slot", "source"])
def test_a_record_rewritten_with_a_checksum_that_fits_is_found(tmp_path, what) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 40}, "code": {"b.jsonl": 40}})
    run = make_run(tmp_path / "run", corpus, lanes=2)
    loader = open_loaders(run, microbatch_size=4)[0]
    for _ in range(3):
        loader.take_step()
    del loader
    assert verify_run(Lookup(run)).ok
    path = run.layout.hot_segment(1, 0, 0)
    records = without_rank(np.concatenate(list(Index(run.layout).records(1, num_ranks=1))))
    if records.dtype[what].kind == "V":
        records[what][8] = np.void(bytes([7] * records.dtype[what].itemsize))
    else:
        records[what][9] ^= 1
    with FramesReader(path, "index") as reader:
        header = reader.header
    path.unlink()
    with FramesFile.create(path, header, tmp=run.layout.tmp) as file:
        for first in range(0, len(records), 4):
            file.append(records[first : first + 4])
    answer = verify_run(Lookup(run))
    assert not answer.ok, "and what differs is said"
    assert faults(answer)


@pytest.mark.parametrize(("lag", "agrees"), [(0, True), (1, True), (2, False), (5, False)])
def test_ranks_part_by_one_step_at_a_kill_and_by_more_where_something_was_lost(tmp_path, story, lag, agrees) -> None:
    run = make_run(tmp_path / "run", story.corpus, global_batch=4, lanes=1)
    loaders = open_loaders(run, world_size=2, microbatch_size=1)
    for _ in range(6):
        loaders[0].take_step()
    next(loaders[0])
    for _ in range(6 - lag):
        loaders[1].take_step()
    del loaders
    answer = verify_run(Lookup(run))
    assert answer.ok == agrees
    if not agrees:
        assert f"the record of rank 1 ends before step {6 - lag}, that of rank 0 before step 6" in str(faults(answer))


def test_a_gap_where_the_next_attempt_goes_on(tmp_path, story) -> None:
    """A state of a step that the record does not reach, as after the death of a node: the gap stays told for ever."""
    run = make_run(tmp_path / "run", story.corpus, global_batch=4, lanes=1)
    loader = open_loaders(run, microbatch_size=4)[0]
    for _ in range(5):
        next(loader)
    state = loader.state()
    del loader
    path = run.layout.hot_segment(1, 0, 0)
    with FramesReader(path, "index") as reader:
        frame = reader.frame_bytes
    path.write_bytes(path.read_bytes()[: 4096 + 3 * frame])
    deliver(run, microbatch_size=4, state=state, steps=2)
    assert verify_run(Lookup(run), attempt=1).ok, "nobody knows of more than was recorded"
    found = faults(verify_run(Lookup(run)))
    assert "gap: attempt 1 is recorded to step 3, but the next attempt goes on from step 5" in found["exactly once"]


def test_a_run_without_attempts_says_that_nothing_else_was_checked(tmp_path, story) -> None:
    answer = verify_run(Lookup(make_run(tmp_path / "run", story.corpus)))
    assert [(check.name, check.checked) for check in answer.checks] == [("journal", 1), ("index", 0)]
    assert answer.checks[1].notes == ("no attempt has begun",)


def test_exceptions_and_quarantine_are_part_of_the_plan(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 20, "b.jsonl": 20}})
    run = make_run(tmp_path / "run", corpus, lanes=1, fill="substitute")
    damage(tmp_path / "web" / "a.jsonl", b'"web/a.jsonl:7 ', b'"web/a.jsonl:X ')
    deliver(run, microbatch_size=8, steps=3)
    amend.quarantine(run, "web/a.jsonl", reason="damaged")
    deliver(run, microbatch_size=8, from_step=3, steps=4)
    answer = verify_run(Lookup(run))
    assert (answer.ok, faults(answer)) == (True, {})
    notes = [note for check in answer.checks for note in check.notes]
    assert any(note.endswith("substitutes") for note in notes)
    run.layout.exceptions(1, 0).unlink()
    assert "data" in faults(verify_run(Lookup(run)))


def test_progress_counts_steps(story) -> None:
    told = []
    verify_run(Lookup(story.run), progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 33) for i in range(1, 34)]
