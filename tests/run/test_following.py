"""A file that grows is read once, frame by frame: what a follower gives is what a full read gives."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.run.following import FramesFollower
from dataguard.run.frames import HEADER_BYTES, FramesFile, scan_frames
from dataguard.run.records import INDEX_RECORD
from tests.run.recording import header, microbatch

NUM_FRAMES = 24
FRAME_BYTES = 4 * INDEX_RECORD.itemsize + 8
SIZE = HEADER_BYTES + NUM_FRAMES * FRAME_BYTES


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("frames")
    with FramesFile.create(folder / "a.frames", header(), tmp=folder / "tmp") as file:
        for step in range(NUM_FRAMES):
            file.append(microbatch(step)[: 1 + step % 4])
    return (folder / "a.frames").read_bytes()


def steps(records: object) -> list[int]:
    return sorted(set(records["step"].tolist()))  # type: ignore[index]


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(0, SIZE), max_size=12),
    tail=st.one_of(st.none(), st.integers(1, NUM_FRAMES + 3)),
    zeros=st.booleans(),
)
def test_whatever_the_cuts_the_parts_are_the_whole(
    content: bytes, cuts: list[int], tail: int | None, zeros: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.frames"
        follower = FramesFollower(path, "index", tail_frames=tail)
        parts = [follower.added()]
        for cut in sorted(cuts):
            # What a system has not written yet reads as the end of the file, or as zeros.
            path.write_bytes(content[:cut] + bytes(min(FRAME_BYTES, SIZE - cut)) * zeros)
            parts.append(follower.added())
        path.write_bytes(content)
        parts.append(follower.added())
        while not follower.is_whole:
            earlier, size = follower.earlier(2 * FRAME_BYTES)
            assert 0 < size <= 2 * FRAME_BYTES
            parts.insert(0, earlier)
        whole = scan_frames(path, "index").records
        assert b"".join(part.tobytes() for part in parts) == whole.tobytes()
        assert (follower.num_records, follower.damage) == (len(whole), [])
        assert len(follower.added()) == 0


def test_the_first_look_reads_the_newest_frames_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(content)
    follower = FramesFollower(tmp_path / "b", "index", tail_frames=3)
    assert steps(follower.added()) == [NUM_FRAMES - 3, NUM_FRAMES - 2, NUM_FRAMES - 1]
    assert not follower.is_whole
    assert steps(follower.earlier(FRAME_BYTES)[0]) == [NUM_FRAMES - 4]


def test_what_a_later_attempt_goes_on_from_ends_before_its_first_step(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(content)
    follower = FramesFollower(tmp_path / "b", "index", tail_frames=4, before_step=10)
    assert steps(follower.added()) == [6, 7, 8, 9]
    assert len(follower.added()) == 0


def test_a_bad_frame_is_waited_for_while_it_is_the_last_and_told_once_something_stands_behind_it(
    content: bytes, tmp_path: Path
) -> None:
    path, place = tmp_path / "b", HEADER_BYTES + 5 * FRAME_BYTES + 17
    damaged = bytearray(content)
    damaged[place] ^= 1
    follower = FramesFollower(path, "index")
    path.write_bytes(damaged[: HEADER_BYTES + 6 * FRAME_BYTES])
    assert steps(follower.added()) == [0, 1, 2, 3, 4]
    assert follower.damage == []
    path.write_bytes(content[: HEADER_BYTES + 6 * FRAME_BYTES])  # of the same size, and whole by now
    assert steps(follower.added()) == [5]
    other = FramesFollower(path, "index")
    path.write_bytes(damaged)
    assert steps(other.added()) == [0, 1, 2, 3, 4, *range(6, NUM_FRAMES)]
    assert other.damage == [f"{path}: frame 5: its checksum does not fit"]


def test_a_file_that_has_not_grown_is_not_opened(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").write_bytes(content)
    follower = FramesFollower(tmp_path / "b", "index")
    assert len(follower.added())
    monkeypatch.setattr("dataguard.run.following.FramesReader", lambda *_: pytest.fail("it was opened"))
    assert len(follower.added()) == 0
