"""The journal: one unbroken chain whoever writes, and every way to break it is told."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from dataguard.errors import RunDamaged, UsageError, WriteFailed
from dataguard.run import atomic
from dataguard.run import journal as journal_module
from dataguard.run.events import Event, Revoked, SkipAdded
from dataguard.run.journal import Head, Journal, JournalRead
from dataguard.run.layout import Layout


def skip(number: int, reason: str = "spike") -> SkipAdded:
    return SkipAdded(
        start=number * 8, stop=number * 8 + 8, steps=(number, number + 1), batches=(number, number + 1), attempt=0,
        reason=reason,
    )  # fmt: skip


def journal_of(root: Path, **options: object) -> Journal:
    return Journal(Layout(root), by="ada@host", clock=lambda: 1_767_323_045_000_006_000, **options)  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    journal = journal_of(tmp_path)
    for number in range(5):
        journal.append(skip(number))
    return tmp_path


def path_of(root: Path, number: int) -> Path:
    return Layout(root).journal_event(number)


def test_an_empty_journal_has_head_zero(tmp_path: Path) -> None:
    read = journal_of(tmp_path / "nothing").read()
    assert (read.entries, read.problems, read.head) == ((), (), Head(number=0, sha256=""))
    assert not journal_of(tmp_path / "nothing").next_exists(1)


def test_events_stand_in_order_linked_by_their_raw_bytes(written: Path) -> None:
    read = journal_of(written).read()
    assert [entry.number for entry in read.entries] == [1, 2, 3, 4, 5]
    assert [entry.event for entry in read.entries] == [skip(number) for number in range(5)]
    before = None
    for entry in read.entries:
        raw = path_of(written, entry.number).read_bytes()
        assert json.loads(raw)["prev"] == before
        before = hashlib.sha256(raw).hexdigest()
        assert entry.sha256 == before
    assert read.head == Head(number=5, sha256=before or "")
    assert read.problems == ()
    assert read.entries[0].time == "2026-01-02T03:04:05.000006Z"
    assert read.entries[0].by == "ada@host"


def test_append_returns_what_a_reader_sees_and_leaves_no_temporary(written: Path) -> None:
    entry = journal_of(written).append(Revoked(event=2))
    assert entry == journal_of(written).read().entries[-1]
    assert list(Layout(written).tmp.iterdir()) == []


def test_next_exists_tells_a_fenced_writer(written: Path) -> None:
    journal = journal_of(written)
    assert not journal.next_exists(6)
    journal_of(written).append(skip(9))
    assert journal.next_exists(6)


def test_one_journal_object_sees_what_others_append_and_damage(written: Path) -> None:
    journal = journal_of(written)
    assert journal.read().problems == ()
    journal_of(written).append(skip(7))
    assert journal.head().number == 6
    raw = bytearray(path_of(written, 2).read_bytes())
    raw[40] ^= 1
    path_of(written, 2).write_bytes(raw)
    assert [problem.number for problem in journal.read().problems] == [2, 3]


# -- every way to break it


def problems(root: Path, *heads: Head) -> list[tuple[int, str]]:
    return [(problem.number, problem.kind) for problem in journal_of(root).check(heads)]


def test_a_gap_is_told_and_reading_goes_on(written: Path) -> None:
    path_of(written, 3).unlink()
    read = journal_of(written).read()
    assert [(p.number, p.kind) for p in read.problems] == [(3, "gap")]
    assert "event 3 is missing" in read.problems[0].message
    assert [entry.number for entry in read.entries] == [1, 2, 4, 5]
    assert read.head.number == 5


def test_a_wide_gap_is_one_problem(written: Path) -> None:
    for number in (1, 2, 3):
        path_of(written, number).unlink()
    found = journal_of(written).read().problems
    assert [(p.number, p.kind) for p in found] == [(1, "gap")]
    assert "events 1 to 3 are missing" in found[0].message


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_flipped_byte_is_told_wherever_it_is(written: Path, number: int) -> None:
    raw = path_of(written, number).read_bytes()
    for place in range(0, len(raw), 37):
        damaged = bytearray(raw)
        damaged[place] ^= 0x20
        path_of(written, number).write_bytes(damaged)
        expected = [(number, "unreadable")] + ([(number + 1, "mismatch")] if number < 5 else [])
        assert problems(written) == expected
        assert [entry.number for entry in journal_of(written).read().entries] == [n for n in range(1, 6) if n != number]


def test_two_events_exchanged_are_told(written: Path) -> None:
    second, third = path_of(written, 2).read_bytes(), path_of(written, 3).read_bytes()
    path_of(written, 2).write_bytes(third)
    path_of(written, 3).write_bytes(second)
    assert {number for number, _ in problems(written)} == {2, 3, 4}


def test_an_edited_event_with_a_new_check_is_told_by_the_next(written: Path) -> None:
    forged = journal_of(written / "elsewhere")
    for number in range(5):
        forged.append(skip(number, reason="edited" if number == 2 else "spike"))
    shutil.copy(path_of(written / "elsewhere", 3), path_of(written, 3))
    assert problems(written) == [(4, "mismatch")]


def test_a_removed_tail_shows_against_a_head_kept_elsewhere(written: Path) -> None:
    head = journal_of(written).head()
    path_of(written, 5).unlink()
    path_of(written, 4).unlink()
    assert problems(written) == []
    assert problems(written, head) == [(5, "tail-removed")]
    told = journal_of(written).check([head])[0]
    assert "ends with event 3" in told.message


def test_an_exchanged_tail_shows_against_a_head_kept_elsewhere(written: Path) -> None:
    head = journal_of(written).head()
    path_of(written, 5).unlink()
    journal_of(written).append(skip(77))
    assert problems(written) == []
    assert problems(written, head, Head(number=0, sha256="")) == [(5, "mismatch")]


def test_an_older_head_is_no_problem(written: Path) -> None:
    heads = [Head(number=e.number, sha256=e.sha256) for e in journal_of(written).read().entries]
    assert problems(written, *heads) == []


@pytest.mark.parametrize("harm", ["gap", "flip", "empty", "folder"])
def test_nothing_is_appended_to_a_damaged_journal(written: Path, harm: str) -> None:
    path = path_of(written, 3)
    raw = path.read_bytes()
    path.unlink()
    if harm == "flip":
        path.write_bytes(raw[:50] + b"!" + raw[51:])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "folder":
        path.mkdir()
    before = sorted(Layout(written).journal.iterdir())
    with pytest.raises(RunDamaged, match="appending an event is refused") as caught:
        journal_of(written).append(skip(9))
    assert "event 3" in str(caught.value) or "000003.json" in str(caught.value)
    assert sorted(Layout(written).journal.iterdir()) == before


def test_leftover_temporaries_and_strange_names_are_ignored(written: Path) -> None:
    (Layout(written).tmp / "000006.json.0123").write_bytes(b"half an ev")
    (Layout(written).journal / "000006.json.swp").write_bytes(b"")
    (Layout(written).journal / "6.json").write_bytes(b"")
    assert problems(written) == []
    assert journal_of(written).append(skip(6)).number == 6


def test_an_event_that_is_a_link_to_nothing_is_told(written: Path) -> None:
    path_of(written, 3).unlink()
    path_of(written, 3).symlink_to(written / "nothing")
    read = journal_of(written).read()
    assert [(p.number, p.kind) for p in read.problems] == [(3, "unreadable")]
    assert [entry.number for entry in read.entries] == [1, 2, 4, 5]


# -- writers beside each other


def test_a_newcomer_is_read_and_the_event_made_again(written: Path) -> None:
    journal = journal_of(written)
    seen: list[int] = []

    def make(read: JournalRead) -> Event:
        seen.append(len(read.entries))
        if len(seen) == 1:
            journal_of(written).append(skip(50))
        return skip(len(read.entries))

    entry = journal.append(make)
    assert seen == [5, 6]
    assert (entry.number, entry.event) == (7, skip(6))
    assert problems(written) == []


def test_what_may_no_longer_be_written_is_not(written: Path) -> None:
    journal = journal_of(written)

    def make(read: JournalRead) -> Event:
        if any(isinstance(entry.event, Revoked) for entry in read.entries):
            raise UsageError("it was revoked already")
        journal_of(written).append(Revoked(event=2))
        return Revoked(event=2)

    with pytest.raises(UsageError, match="revoked already"):
        journal.append(make)
    assert journal.head().number == 6
    assert list(Layout(written).tmp.iterdir()) == []


def test_a_link_that_worked_and_reported_that_it_did_not_counts_once(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may repeat a link whose answer was lost, and find its own."""
    really = os.link

    def link_twice(source: Path, target: Path) -> None:
        really(source, target)
        really(source, target)

    monkeypatch.setattr(atomic.os, "link", link_twice)
    assert journal_of(written).append(skip(5)).number == 6
    assert problems(written) == []
    assert journal_of(written).head().number == 6


def test_an_event_that_cannot_be_made_durable_does_not_stand(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(WriteFailed, match="No space left"):
        journal_of(written).append(skip(5))
    monkeypatch.undo()
    assert journal_of(written).head().number == 5
    assert list(Layout(written).tmp.iterdir()) == []


def append_fifty(root: str, writer: int, start: object) -> None:
    journal = Journal(Layout(Path(root)), by=f"writer-{writer}@host")
    start.wait()  # type: ignore[attr-defined]
    for turn in range(50):
        journal.append(lambda read, turn=turn: skip(len(read.entries), reason=f"{writer}:{turn}"))


def test_eight_processes_appending_400_events_leave_an_unbroken_chain(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(8)
    writers = [context.Process(target=append_fifty, args=(str(tmp_path), writer, start)) for writer in range(8)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(120)
    assert [process.exitcode for process in writers] == [0] * 8
    read = journal_of(tmp_path).read()
    assert read.problems == ()
    assert [entry.number for entry in read.entries] == list(range(1, 401))
    # Each was made from exactly what stands before it.
    assert [entry.event.start for entry in read.entries] == [8 * n for n in range(400)]  # type: ignore[union-attr]
    reasons = [entry.event.reason for entry in read.entries]
    assert sorted(reasons) == sorted(f"{writer}:{turn}" for writer in range(8) for turn in range(50))
    for writer in range(8):
        turns = [int(reason.split(":")[1]) for reason in reasons if reason.startswith(f"{writer}:")]
        assert turns == list(range(50))
    assert list(Layout(tmp_path).tmp.iterdir()) == []


def test_the_writer_has_a_name_even_where_the_system_knows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(journal_module.getpass, "getuser", nameless)
    assert journal_module.writer_name().split("@")[0] == str(os.getuid())
