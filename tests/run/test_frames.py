"""Good, torn and damaged frames are told apart exactly, and a failed write leaves nothing behind."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dataguard.errors import RunDamaged, WriteFailed, WriterConflict
from dataguard.run import frames as frames_module
from dataguard.run.frames import HEADER_BYTES, FramesFile, FramesHeader, FramesReader, scan_frames
from dataguard.run.records import INDEX_RECORD, SEAL_RECORD
from tests.run.recording import header, microbatch
from tests.twins.frames import read_slowly

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

NUM_FRAMES = 7
FRAME_BYTES = 4 * INDEX_RECORD.itemsize + 8


def write(folder: Path, *, num_frames: int = NUM_FRAMES, name: str = "a.frames") -> Path:
    with FramesFile.create(folder / name, header(), tmp=folder / "tmp") as file:
        for step in range(num_frames):
            file.append(microbatch(step))
    return folder / name


def steps(records: NDArray[np.void]) -> list[int]:
    return records["step"][::4].tolist()


def altered(path: Path, content: bytes) -> Path:
    other = path.with_name("altered.frames")
    other.write_bytes(content)
    return other


def test_what_was_written_is_read(tmp_path: Path) -> None:
    scan = scan_frames(write(tmp_path), "index")
    assert scan.header == header()
    assert scan.num_frames == NUM_FRAMES
    assert scan.records.tobytes() == b"".join(microbatch(step).tobytes() for step in range(NUM_FRAMES))
    assert (scan.torn_bytes, scan.damage) == (0, ())
    assert scan.end_bytes == HEADER_BYTES + NUM_FRAMES * FRAME_BYTES


def test_numpy_alone_can_read_it(tmp_path: Path) -> None:
    layout = [("records", INDEX_RECORD, 4), ("checksum", "<u8")]
    read = np.fromfile(write(tmp_path), layout, offset=HEADER_BYTES)
    assert read["records"][3].tobytes() == microbatch(3).tobytes()


def test_the_header_is_text_people_can_read(tmp_path: Path) -> None:
    first = write(tmp_path).read_bytes()[:HEADER_BYTES].decode("ascii")
    assert first.endswith("\n")
    assert '"run_id":"run-of-the-tests"' in first


def test_unused_records_are_no_data(tmp_path: Path) -> None:
    with FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp") as file:
        file.append(microbatch(0))
        file.append(microbatch(1)[:2])
        file.append(microbatch(2)[:1])
        file.append(microbatch(3))
    scan = scan_frames(tmp_path / "a", "index")
    expected = [microbatch(0), microbatch(1)[:2], microbatch(2)[:1], microbatch(3)]
    assert scan.records.tobytes() == b"".join(part.tobytes() for part in expected)


def test_cut_at_every_length(tmp_path: Path) -> None:
    path = write(tmp_path)
    for length in range(path.stat().st_size, -1, -1):
        os.truncate(path, length)
        scan = scan_frames(path, "index")
        if length < HEADER_BYTES:
            assert scan.header is None
            assert [entry.ordinal for entry in scan.damage] == [None]
            assert f"after {length:,} of" in scan.damage[0].why
            assert len(scan.records) == 0
            continue
        num_whole, rest = divmod(length - HEADER_BYTES, FRAME_BYTES)
        assert steps(scan.records) == list(range(num_whole))
        assert (scan.torn_bytes, scan.damage) == (rest, ())


def test_a_flip_of_any_byte(tmp_path: Path) -> None:
    path = write(tmp_path)
    dice = random.Random(20)
    with path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(path.read_bytes()):
            os.pwrite(file.fileno(), bytes([byte ^ 1 << dice.randrange(8)]), at)
            scan = scan_frames(path, "index")
            os.pwrite(file.fileno(), bytes([byte]), at)
            assert scan.torn_bytes == 0
            if at < HEADER_BYTES:
                assert scan.header is None
                assert [entry.ordinal for entry in scan.damage] == [None]
                assert steps(scan.records) == list(range(NUM_FRAMES))
            else:
                hit = (at - HEADER_BYTES) // FRAME_BYTES
                assert [entry.ordinal for entry in scan.damage] == [hit]
                assert scan.damage[0].offset == HEADER_BYTES + hit * FRAME_BYTES
                assert steps(scan.records) == [step for step in range(NUM_FRAMES) if step != hit]


@given(data=st.data())
def test_any_mixture_of_flips_zeros_and_cuts_is_told_as_the_slow_reader_tells_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write(tmp_path_factory.mktemp("frames"))
    content = bytearray(path.read_bytes())
    places = st.integers(HEADER_BYTES, len(content) - 1)
    for at in data.draw(st.lists(places, max_size=4), "flips"):
        content[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    if data.draw(st.booleans(), "zeros in the middle"):
        at = data.draw(places, "zeros from")
        size = min(data.draw(st.integers(1, 900), "zeros"), len(content) - at)
        content[at : at + size] = bytes(size)
    del content[data.draw(places, "cut at") :]
    content += bytes(data.draw(st.sampled_from([0, 1, 7, 8, FRAME_BYTES - 1, FRAME_BYTES, 5000]), "zeros behind"))
    scan = scan_frames(altered(path, bytes(content)), "index")
    told = read_slowly(bytes(content))
    assert steps(scan.records) == list(told.good)
    assert tuple(entry.ordinal for entry in scan.damage) == told.damaged
    assert scan.torn_bytes == told.torn_bytes


@pytest.mark.parametrize("garbage", [17, FRAME_BYTES - 1])
def test_random_bytes_behind_are_torn(tmp_path: Path, garbage: int) -> None:
    path = write(tmp_path)
    scan = scan_frames(altered(path, path.read_bytes() + random.Random(3).randbytes(garbage)), "index")
    assert (scan.num_frames, scan.torn_bytes, scan.damage) == (NUM_FRAMES, garbage, ())


def frames_of(path: Path) -> tuple[bytes, list[bytes]]:
    content = path.read_bytes()
    return content[:HEADER_BYTES], [
        content[HEADER_BYTES + k * FRAME_BYTES : HEADER_BYTES + (k + 1) * FRAME_BYTES] for k in range(NUM_FRAMES)
    ]


def test_swapped_dropped_doubled_and_foreign_frames_show(tmp_path: Path) -> None:
    path = write(tmp_path)
    first, parts = frames_of(path)

    swapped = [*parts[:2], parts[3], parts[2], *parts[4:]]
    scan = scan_frames(altered(path, first + b"".join(swapped)), "index")
    assert [entry.ordinal for entry in scan.damage] == [2, 3]
    assert steps(scan.records) == list(range(NUM_FRAMES))

    dropped = parts[:2] + parts[3:]
    scan = scan_frames(altered(path, first + b"".join(dropped)), "index")
    assert [entry.ordinal for entry in scan.damage] == [2]
    assert "frame 3 stands in its place" in str(scan.damage[0])
    assert steps(scan.records) == [0, 1, 3, 4, 5, 6]

    doubled = [*parts[:3], parts[2], *parts[3:]]
    scan = scan_frames(altered(path, first + b"".join(doubled)), "index")
    assert [entry.ordinal for entry in scan.damage] == [3]
    assert "a second time" in str(scan.damage[0])
    assert steps(scan.records) == list(range(NUM_FRAMES))

    with FramesFile.create(tmp_path / "other", header(rank=1), tmp=tmp_path / "tmp") as file:
        for step in range(NUM_FRAMES):
            file.append(microbatch(step))
    foreign = [*parts[:4], frames_of(tmp_path / "other")[1][4], *parts[5:]]
    scan = scan_frames(altered(path, first + b"".join(foreign)), "index")
    assert [entry.ordinal for entry in scan.damage] == [4]
    assert steps(scan.records) == [0, 1, 2, 3, 5, 6]


def test_another_kind_and_a_newer_version_are_refused(tmp_path: Path) -> None:
    scan = scan_frames(write(tmp_path), "seals")
    assert scan.header is None
    assert "stands where seals belong" in scan.damage[0].why
    newer = header().encode()[: HEADER_BYTES - 17].replace(b'"version":1', b'"version":2')
    checksum = frames_module.frame_checksum(newer, 0, 0)
    scan = scan_frames(altered(tmp_path / "a", newer + f"{checksum:016x}\n".encode()), "index")
    assert scan.header is None
    assert "does not know" in scan.damage[0].why


def test_the_file_is_made_exclusively(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(WriterConflict, match="has had its one writer"):
        FramesFile.create(path, header(), tmp=tmp_path / "tmp")
    assert scan_frames(path, "index").num_frames == NUM_FRAMES
    assert list((tmp_path / "tmp").iterdir()) == []


def test_records_that_cannot_be_written(tmp_path: Path) -> None:
    with FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp") as file:
        for records in (microbatch(0)[:0], np.concatenate([microbatch(0), microbatch(1)])):
            with pytest.raises(ValueError, match="1 to 4 records"):
                file.append(records)
        with pytest.raises(ValueError, match="holds records of"):
            file.append(np.zeros(1, SEAL_RECORD))
        with pytest.raises(ValueError, match="all zero"):
            file.append(np.zeros(1, INDEX_RECORD))
    with pytest.raises(WriteFailed, match="closed"):
        file.append(microbatch(0))
    assert scan_frames(tmp_path / "a", "index").end_bytes == HEADER_BYTES


@pytest.mark.parametrize("way", ["short", "full", "fsync"])
def test_a_failed_write_is_cut_back_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    real = os.pwrite

    def short(descriptor: int, content: bytes, offset: int) -> int:
        return real(descriptor, bytes(content)[:100], offset)

    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp", fsync_each=way == "fsync") as file:
        file.append(microbatch(0))
        with monkeypatch.context() as patch:
            patch.setattr(frames_module.os, "fsync" if way == "fsync" else "pwrite", {"short": short}.get(way, full))
            with pytest.raises(WriteFailed, match="No space left on device") as caught:
                file.append(microbatch(1))
        assert caught.value.exit_code == 4
        assert "free space" in str(caught.value)
        assert (tmp_path / "a").stat().st_size == HEADER_BYTES + FRAME_BYTES
        file.append(microbatch(1))
    scan = scan_frames(tmp_path / "a", "index")
    assert (steps(scan.records), scan.torn_bytes, scan.damage) == ([0, 1], 0, ())


def test_a_file_that_cannot_be_cut_back_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp") as file:
        with monkeypatch.context() as patch:
            patch.setattr(frames_module.os, "pwrite", fail)
            patch.setattr(frames_module.os, "ftruncate", fail)
            with pytest.raises(WriteFailed, match="cannot cut back"):
                file.append(microbatch(0))
        with pytest.raises(WriteFailed, match="could not be cut back"):
            file.append(microbatch(0))


def test_a_limit_of_the_system_is_met_by_a_real_short_write(tmp_path: Path) -> None:
    """The kernel itself takes half a frame; nothing is patched."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            limit = HEADER_BYTES + 2 * FRAME_BYTES + 100
            file = FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp")
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            file.append(microbatch(0))
            file.append(microbatch(1))
            try:
                file.append(microbatch(2))
            except WriteFailed as error:
                code = error.exit_code
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    scan = scan_frames(tmp_path / "a", "index")
    assert (steps(scan.records), scan.torn_bytes, scan.damage) == ([0, 1], 0, ())


def test_a_forked_child_never_writes(tmp_path: Path) -> None:
    with FramesFile.create(tmp_path / "a", header(), tmp=tmp_path / "tmp", lock=True) as file:
        file.append(microbatch(0))
        child = os.fork()
        if child == 0:
            told = 0
            for call in (lambda: file.append(microbatch(1)), file.sync):
                try:
                    call()
                except WriterConflict:
                    told += 1
            file.close()
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        file.append(microbatch(1))
    assert steps(scan_frames(tmp_path / "a", "index").records) == [0, 1]


def test_reopening_cuts_the_torn_tail_and_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path)
    with path.open("ab") as file:
        file.write(b"torn")
    with FramesFile.reopen(path, "index") as again:
        assert again.num_frames == NUM_FRAMES
        again.append(microbatch(NUM_FRAMES))
    scan = scan_frames(path, "index")
    assert (steps(scan.records), scan.torn_bytes, scan.damage) == (list(range(NUM_FRAMES + 1)), 0, ())


def test_a_file_without_its_header_is_not_gone_on_with(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(RunDamaged, match="cannot be gone on with"):
        FramesFile.reopen(altered(path, b"x" + path.read_bytes()[1:]), "index")


def test_single_frames_by_ordinal(tmp_path: Path) -> None:
    with FramesReader(write(tmp_path), "index") as reader:
        frames, good = reader.read(2, 4)
        assert good.tolist() == [True, True]
        assert frames["records"][:, 0]["step"].tolist() == [2, 3]
        frames, good = reader.read(NUM_FRAMES - 1, NUM_FRAMES + 5)
        assert len(frames) == 1
        assert len(reader.read(NUM_FRAMES, NUM_FRAMES + 1)[0]) == 0


def test_records_of_another_version_are_told_and_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "a.frames"
    header = msgspec.structs.replace(
        FramesHeader.of(
            "seals",
            records_per_frame=1,
            run_id="r",
            attempt=1,
            rank=0,
            first_step=0,
            digests={},
            journal_head=(1, "ab"),
            created="",
        ),
        record_version=2,
        dtype=(("first_step", "<u8"), ("size_bytes", "<u8")),
        frame_bytes=24,
    )
    path.write_bytes(header.encode() + bytes(24))
    scan = scan_frames(path, "seals")
    assert scan.header is None
    assert "record version 2" in str(scan.damage[0])
