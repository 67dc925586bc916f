"""What a rank records: claims, segments, fences, failures, forks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from dataguard.errors import RunDamaged, WriteFailed, WriterConflict
from dataguard.run import frames, writer
from dataguard.run.exceptions import ExceptionReason, exception_record
from dataguard.run.frames import HEADER_BYTES, scan_frames
from dataguard.run.index import Index
from dataguard.run.layout import Layout
from dataguard.run.seal import read_seals
from tests.run.dying import in_a_child
from tests.run.recording import DIGESTS, HEAD, RUN_ID, microbatch, open_writer

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

FRAME_BYTES = 4 * 108 + 8


def sealed_spans(root: Path) -> list[tuple[int, int]]:
    return [(seal.first, seal.stop) for seal in read_seals(Layout(root).seals(1, 0))[1]]


def recorded(root: Path, attempt: int = 1) -> list[int]:
    return [step for part in Index(Layout(root)).records(attempt) for step in part["step"][::4].tolist()]


def hot_names(root: Path) -> list[str]:
    return sorted(path.name for path in Layout(root).hot_rank(1, 0).iterdir())


def test_an_attempt_and_rank_has_one_writer_ever(tmp_path: Path) -> None:
    open_writer(tmp_path).close()
    with pytest.raises(WriterConflict, match="rank 0 of attempt 1 has had its writer"):
        open_writer(tmp_path)
    open_writer(tmp_path, rank=1).close()
    open_writer(tmp_path, attempt=2).close()


def test_a_frame_is_with_the_system_when_append_returns(tmp_path: Path) -> None:
    with open_writer(tmp_path) as rank:
        for step in range(3):
            rank.append(microbatch(step))
            scan = scan_frames(Layout(tmp_path).hot_segment(1, 0, 0), "index")
            assert scan.num_frames == step + 1
            assert scan.header is not None
            assert (scan.header.run_id, scan.header.digests, scan.header.journal_head) == (RUN_ID, DIGESTS, HEAD)


def test_segments_end_at_fixed_steps(tmp_path: Path) -> None:
    with open_writer(tmp_path, first_step=7, segment_steps=10) as rank:
        for step in range(7, 33):
            rank.append(microbatch(step))
            assert hot_names(tmp_path) == [f"{max(7, step // 10 * 10):09d}.frames"]
    assert sealed_spans(tmp_path) == [(7, 10), (10, 20), (20, 30), (30, 33)]
    assert hot_names(tmp_path) == []
    assert recorded(tmp_path) == list(range(7, 33))


def test_segments_follow_each_other_without_a_gap_where_steps_have_holes(tmp_path: Path) -> None:
    steps = [0, 1, 8, 9, 47, 48, 50]
    with open_writer(tmp_path, segment_steps=10) as rank:
        for step in steps:
            rank.append(microbatch(step))
    assert sealed_spans(tmp_path) == [(0, 10), (10, 49), (49, 51)]
    assert recorded(tmp_path) == steps


def test_segments_end_past_their_size_but_never_inside_a_step(tmp_path: Path) -> None:
    with open_writer(tmp_path, segment_bytes=HEADER_BYTES + 4 * FRAME_BYTES) as rank:
        for step in range(7):
            for number in range(3):
                rank.append(microbatch(step, number, num_microbatches=3))
    assert sealed_spans(tmp_path) == [(0, 2), (2, 4), (4, 6), (6, 7)]
    assert recorded(tmp_path) == [step for step in range(7) for _ in range(3)]


def test_sealing_in_the_background_ends_in_the_same_files(tmp_path: Path) -> None:
    for name, background in (("a", False), ("b", True)):
        with open_writer(tmp_path / name, segment_steps=10, background=background) as rank:
            for step in range(35):
                rank.append(microbatch(step))
    files = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.parquet")}
        for name in "ab"
    ]
    assert len(files[0]) >= 4
    assert files[0] == files[1]


@pytest.mark.parametrize("records", [microbatch(4), microbatch(5, 1), microbatch(5)])
def test_records_must_follow_those_before(tmp_path: Path, records: np.ndarray) -> None:
    with open_writer(tmp_path) as rank:
        rank.append(microbatch(5, 0))
        rank.append(microbatch(5, 1))
        with pytest.raises(ValueError, match="does not follow step 5, microbatch 1"):
            rank.append(records)
    assert recorded(tmp_path) == [5, 5]


def test_a_step_before_the_attempt_is_refused(tmp_path: Path) -> None:
    with open_writer(tmp_path, first_step=5) as rank, pytest.raises(ValueError, match="begins at step 5"):
        rank.append(microbatch(4))


def test_a_fence_stops_the_next_frame(tmp_path: Path) -> None:
    newer = False

    def fence() -> None:
        if newer:
            raise WriterConflict("attempt 2 has begun")

    with open_writer(tmp_path, fence=fence) as rank:
        rank.append(microbatch(0))
        newer = True
        with pytest.raises(WriterConflict, match="attempt 2 has begun"):
            rank.append(microbatch(1))
        with pytest.raises(WriterConflict, match="attempt 2 has begun"):
            rank.append_exception(exception_record(step=1, position=4, reason=ExceptionReason.UNREADABLE))
    assert recorded(tmp_path) == [0]


def test_a_full_disk_hands_nothing_over_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_writer(tmp_path) as rank:
        rank.append(microbatch(0))
        with monkeypatch.context() as patch:
            patch.setattr(frames.os, "pwrite", full)
            with pytest.raises(WriteFailed, match="No space left"):
                rank.append(microbatch(1))
        rank.append(microbatch(1))
    assert recorded(tmp_path) == [0, 1]


def test_no_room_for_the_next_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kwargs: object) -> bool:
        raise WriteFailed("cannot write: No space left on device")

    with open_writer(tmp_path, segment_steps=10) as rank:
        for step in range(10):
            rank.append(microbatch(step))
        with monkeypatch.context() as patch:
            patch.setattr(frames, "publish_new", full)
            with pytest.raises(WriteFailed, match="No space left"):
                rank.append(microbatch(10))
        rank.append(microbatch(10))
    assert sealed_spans(tmp_path) == [(0, 10), (10, 11)]
    assert recorded(tmp_path) == list(range(11))


def test_what_fails_in_the_background_is_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise WriteFailed("cannot write: No space left on device")

    monkeypatch.setattr(writer, "seal_segment", fail)
    rank = open_writer(tmp_path, segment_steps=10, background=True)
    for step in range(11):
        rank.append(microbatch(step))
    assert isinstance(rank._sealing[0].exception(), WriteFailed)
    with pytest.raises(WriteFailed, match="No space left"):
        rank.append(microbatch(11))
    with pytest.raises(WriteFailed, match="No space left"):
        rank.close()
    assert recorded(tmp_path) == list(range(11))


def test_damaged_frames_are_not_sealed(tmp_path: Path) -> None:
    rank = open_writer(tmp_path)
    for step in range(5):
        rank.append(microbatch(step))
    hot = Layout(tmp_path).hot_segment(1, 0, 0)
    with hot.open("r+b") as file:
        file.seek(HEADER_BYTES + 2 * FRAME_BYTES + 9)
        file.write(b"\xff")
    with pytest.raises(RunDamaged, match="frame 2 at byte"):
        rank.close()
    assert hot.exists()
    assert sealed_spans(tmp_path) == []


def test_closing_without_sealing_leaves_the_frames(tmp_path: Path) -> None:
    rank = open_writer(tmp_path)
    rank.append(microbatch(0))
    rank.close(seal=False)
    rank.close()
    assert hot_names(tmp_path) == ["000000000.frames"]
    assert recorded(tmp_path) == [0]


def test_nothing_recorded_leaves_no_files(tmp_path: Path) -> None:
    open_writer(tmp_path).close()
    assert hot_names(tmp_path) == []
    assert sealed_spans(tmp_path) == []
    assert list(Layout(tmp_path).tmp.iterdir()) == []


@pytest.mark.parametrize("fsync", ["each", "seal"])
def test_when_the_disk_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str) -> None:
    with open_writer(tmp_path, fsync=fsync) as rank:
        asked: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(frames.os, "fsync", asked.append)
            rank.append(microbatch(0))
            rank.append(microbatch(1))
        assert len(asked) == (2 if fsync == "each" else 0)


def test_a_fork_of_the_writer_does_nothing(tmp_path: Path) -> None:
    with open_writer(tmp_path, segment_steps=3) as rank:
        rank.append(microbatch(0))
        rank.append(microbatch(2))

        def child() -> None:
            for work in (
                lambda: rank.append(microbatch(2, 1)),
                lambda: rank.append(microbatch(3)),
                lambda: rank.append_exception(exception_record(step=1, position=4, reason=ExceptionReason.CHANGED)),
            ):
                with pytest.raises(WriterConflict, match="forked child"):
                    work()
            rank.close()

        assert in_a_child(child) == 0
        rank.append(microbatch(3))
    assert recorded(tmp_path) == [0, 2, 3]
    assert sealed_spans(tmp_path) == [(0, 3), (3, 4)]
    assert not Layout(tmp_path).exceptions(1, 0).exists()
