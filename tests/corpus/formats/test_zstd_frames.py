"""Frames of a zstd shard: found without decoding, believed only where they keep their word."""

from __future__ import annotations

import io
import itertools
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.formats import JsonLines, NumpyTokens, ScanOptions
from dataguard.corpus.formats.zstd_file import FramedFile, framed_file
from dataguard.corpus.formats.zstd_frames import Frames, distrust, frames_of
from dataguard.errors import ShardDamaged
from tests.corpus.formats.framing import pieces, seek_table, seekable, skippable, zstd_frame
from tests.corpus.formats.support import MemoryShard, look

PARTS = [bytes([65 + i]) * (100 + i) for i in range(6)]


def shard_of(content: bytes, *, is_local: bool = True) -> MemoryShard:
    shard = MemoryShard(content, compression="zstd")
    shard.local_path = "here" if is_local else None
    return shard


def sizes(parts: list[bytes]) -> list[tuple[int, int]]:
    return [(len(zstd_frame(part)), len(part)) for part in parts]


def opened(shard: MemoryShard, **options: Any) -> FramedFile:
    found = framed_file(shard, shard.open(), ScanOptions(**options))
    assert isinstance(found, FramedFile)
    return found


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("is_local", [False, True])
def test_a_seek_table_tells_the_frames_wherever_the_file_lies(checksums: bool, is_local: bool) -> None:
    shard = shard_of(seekable(PARTS, size=False, checksums=checksums), is_local=is_local)
    frames = frames_of(shard)
    assert frames is not None
    assert frames.decoded.tolist() == [0, *itertools.accumulate(len(part) for part in PARTS)]
    assert opened(shard).read() == b"".join(PARTS)


def test_headers_tell_the_frames_of_a_local_file() -> None:
    content = skippable(b"note") + b"".join(zstd_frame(part, checksum=i % 2 > 0) for i, part in enumerate(PARTS))
    content = zstd_frame(b"") + content + skippable(b"") + zstd_frame(bytes(200_000))
    shard = shard_of(content)
    frames = frames_of(shard)
    assert frames is not None
    assert frames.decoded_bytes == sum(map(len, PARTS)) + 200_000
    assert opened(shard).read() == b"".join(PARTS) + bytes(200_000)
    assert frames_of(shard_of(content, is_local=False)) is None


def test_of_files_with_tables_put_together_the_headers_tell() -> None:
    shard = shard_of(seekable(PARTS) + seekable(PARTS[::-1]))
    assert opened(shard).read() == b"".join(PARTS + PARTS[::-1])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        zstd_frame(b"one frame alone"),
        zstd_frame(b"a") + zstd_frame(b"b", size=False) + zstd_frame(b"c"),  # what the second decodes to is not said
        zstd_frame(b"a") + zstd_frame(b"b") + b"junk",
        (zstd_frame(PARTS[0]) + zstd_frame(random.Random(1).randbytes(999)))[:-20],
        zstd_frame(b"a") + zstd_frame(bytes((1 << 24) + 1)),  # too much for one block
        seekable(PARTS, size=False)[:-1],
        seekable(PARTS, size=False)[:-9] + struct.pack("<IBI", 6, 4, 0x8F92EAB1),  # a reserved bit
        seekable(PARTS, size=False)[:-9] + struct.pack("<IBI", 5, 0, 0x8F92EAB1),
        seekable(PARTS, size=False)[:-9] + struct.pack("<IBI", 1 << 31, 0, 0x8F92EAB1),
        b"x" + seekable(PARTS, size=False),
        seek_table([(5, 5)])[8:],
    ],
)
def test_frames_that_do_not_help_are_unknown(content: bytes) -> None:
    assert frames_of(shard_of(content)) is None


def test_other_compressions_have_none() -> None:
    assert frames_of(MemoryShard(b"plain")) is None


@given(st.binary(max_size=400), st.lists(st.integers(0, 10_000), max_size=6), st.integers(0, 400), st.integers(0, 400))
def test_any_range_is_what_decoding_everything_gives(content: bytes, cuts: list[int], start: int, size: int) -> None:
    for packed in (seekable(pieces(content, cuts)), b"".join(map(zstd_frame, pieces(content, cuts)))):
        shard = shard_of(packed)
        if frames_of(shard) is None:
            assert sum(bool(part) for part in pieces(content, cuts)) < 2
            continue
        file = opened(shard)
        assert file.seek(start) == file.tell() == start
        assert file.read(size) == content[start : start + size]
        assert file.seek(-1, io.SEEK_END) == len(content) - 1
        assert file.read() == content[-1:]
        file.seek(0)
        assert b"".join(file.read(7) for _ in range(len(content) // 7 + 2)) == content


def test_only_the_frames_of_a_range_are_read() -> None:
    parts = [random.Random(i).randbytes(1000) for i in range(50)]
    shard = shard_of(seekable(parts))

    class Spy(io.BytesIO):
        total = 0

        def read(self, size: int | None = -1, /) -> bytes:
            content = super().read(size)
            self.total += len(content)
            return content

    spy = Spy(shard.content)
    file = framed_file(shard, spy, ScanOptions())
    assert file is not None
    file.seek(20_500)
    assert file.read(1_000) == parts[20][500:] + parts[21][:500]
    assert spy.total == sum(len(zstd_frame(part)) for part in parts[20:22])
    assert file.read(400) == parts[21][500:900]  # held from before
    assert spy.total == sum(len(zstd_frame(part)) for part in parts[20:22])


@pytest.mark.parametrize(
    "told",
    [
        [(a, b + 1) for a, b in sizes(PARTS)],
        [(a, b - 1) for a, b in sizes(PARTS)],
        [(a, b) for (a, _), (_, b) in zip(sizes(PARTS), sizes(PARTS[1:] + PARTS[:1]), strict=True)],
        [(a + (1, -1)[i % 2], b) for i, (a, b) in enumerate(sizes(PARTS))],
        [(sum(a for a, _ in sizes(PARTS)) - 5, 1000), (5, 1000)],
    ],
)
def test_a_table_that_lies_is_found_out(told: list[tuple[int, int]]) -> None:
    shard = shard_of(b"".join(map(zstd_frame, PARTS)) + seek_table(told))
    frames = frames_of(shard)
    assert frames is not None
    file = opened(shard)
    file.seek(101)
    with pytest.raises(ShardDamaged, match="not as they were said to be"):
        file.read(300)
    distrust(shard)
    assert frames_of(shard) is None


def test_a_frame_that_decodes_to_far_more_than_was_said_is_not_held() -> None:
    """Nor decoded to its end: the table says 10 bytes, the frame 300 MB."""
    bomb = zstd_frame(bytes(300 << 20))
    shard = shard_of(bomb + zstd_frame(b"x") + seek_table([(len(bomb), 10), (len(zstd_frame(b"x")), 1)]))
    with pytest.raises(ShardDamaged, match="allowed: 10 decoded bytes") as told:
        opened(shard).read(5)
    (found,) = [line for line in str(told.value).splitlines() if "found" in line]
    assert len(found) < 60


def test_a_changed_byte_is_found_by_the_check_sum_of_its_frame() -> None:
    parts = [random.Random(i).randbytes(500) for i in range(4)]
    content = bytearray(seekable(parts))
    content[700] ^= 1
    shard = shard_of(bytes(content))
    file = opened(shard)
    file.seek(700)
    with pytest.raises(ShardDamaged, match="checksum"):
        file.read(10)
    file.seek(1_600)
    assert file.read(100) == parts[3][100:200]


def test_windows_beyond_the_limit_are_refused_here_too() -> None:
    content = seekable([bytes(5_000), b"x"])
    with pytest.raises(ShardDamaged, match="a window of"):
        opened(shard_of(content), max_window_bytes=2_000).read(1)


def test_formats_read_a_framed_shard_as_they_scan_it() -> None:
    lines = b"".join(b'{"id":%d,"text":"%b"}\n' % (i, b"word" * (i % 30)) for i in range(300))
    shard = shard_of(seekable(pieces(lines, range(0, 99_999, 777))))
    seen = look(JsonLines(), shard, block_bytes=1500)
    assert len(seen.documents) == 300
    sink = io.BytesIO()
    np.save(sink, np.arange(3_000, dtype=">u2"))
    shard = shard_of(seekable(pieces(sink.getvalue(), range(0, 99_999, 500))))
    assert frames_of(shard) is not None
    assert look(NumpyTokens(), shard, block_tokens=512).tokens == list(range(3_000))


def test_frames_are_found_by_their_decoded_bytes() -> None:
    frames = Frames(stored=np.array([0, 4, 8, 12]), decoded=np.array([0, 0, 5, 5]))
    assert frames.holding(0, 5) == (1, 2)
    assert frames.largest_bytes == 5
