"""What is decoded of a compressed stream, and what is said of its end?"""

from __future__ import annotations

import io
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.formats.streams import CHUNK_BYTES, DecodedStream, decode_head, detect_compression
from tests.corpus.formats.framing import gzip_member, skippable, zstd_frame

_A, _B = b"first member, twice twice\n" * 9, b"second\n" * 40


def _decode(packed: bytes, compression: Any = None, **options: Any) -> tuple[bytes, list[str], bool]:
    stream = DecodedStream(
        io.BytesIO(packed), len(packed), compression or detect_compression(packed[:8]), ScanOptions(**options)
    )
    content = b"".join(stream)
    assert stream.decoded_bytes == len(content)
    return content, [finding.code for finding in stream.findings], stream.is_cut


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        (gzip_member(_A), _A),
        (gzip_member(_A) + gzip_member(b"") + gzip_member(_B), _A + _B),
        (gzip_member(_A, name=b"a.jsonl", extra=b"BC\x02\x00\x00\x00"), _A),
        (gzip_member(_A) + bytes(5) + gzip_member(_B) + bytes(3_000_000), _A + _B),
        (gzip_member(_A, level=0) + gzip_member(_B, level=9), _A + _B),
        (zstd_frame(_A), _A),
        (skippable(b"12345") + zstd_frame(_A) + zstd_frame(b"", size=False) + zstd_frame(_B, checksum=False), _A + _B),
        (zstd_frame(_A, size=False, checksum=False) + skippable(bytes(3_000_000), 15), _A),
        (zstd_frame(b""), b""),
        (b"plain", b"plain"),
        (b"", b""),
    ],
)
def test_whole_streams_are_clean(packed: bytes, expected: bytes) -> None:
    assert _decode(packed) == (expected, [], False)


@pytest.mark.parametrize(("first", "second"), [(gzip_member(_A), gzip_member(_B)), (zstd_frame(_A), zstd_frame(_B))])
def test_cut_at_every_length(first: bytes, second: bytes) -> None:
    packed = first + second
    compression = detect_compression(packed)
    for length in range(len(packed)):
        content, codes, is_cut = _decode(packed[:length], compression)
        assert (_A + _B).startswith(content)
        if length == len(first):
            assert (content, codes, is_cut) == (_A, [], False)
        else:
            assert (codes, is_cut) == (["truncated-stream"], True), length
            assert content.startswith(_A) or length < len(first)


@pytest.mark.parametrize(
    "packed",
    [
        gzip_member(_A) + b"\x1f\x8b and then text",
        gzip_member(_A) + bytes(9) + b"x",
        gzip_member(_A) + b"garbage" + gzip_member(_B),
        zstd_frame(_A) + b"garbage" + zstd_frame(_B),
        zstd_frame(_A) + bytes(16),
        zstd_frame(_A) + gzip_member(_B),
    ],
)
def test_trailing_bytes(packed: bytes) -> None:
    assert _decode(packed) == (_A, ["trailing-bytes"], False)


def test_trailing_bytes_are_counted() -> None:
    packed = gzip_member(_A) + bytes(9) + b"x" * 3_000_000
    stream = DecodedStream(io.BytesIO(packed), len(packed), "gzip", ScanOptions())
    assert b"".join(stream) == _A
    assert stream.findings[0].detail == "trailing bytes after last gzip member (3,000,009 bytes)"


def test_wrong_checksums() -> None:
    member = gzip_member(_A)
    for at, what in ((-8, "CRC-32"), (-1, "length")):
        bad = bytearray(member)
        bad[at] ^= 1
        stream = DecodedStream(io.BytesIO(bytes(bad)), len(bad), "gzip", ScanOptions())
        b"".join(stream)
        assert [finding.code for finding in stream.findings] == ["bad-checksum"]
        assert what in stream.findings[0].detail
    bad = bytearray(zstd_frame(_A))
    bad[-1] ^= 1
    assert _decode(zstd_frame(_B) + bytes(bad))[1] == ["bad-checksum"]


def test_a_name_that_lies() -> None:
    for compression in ("gzip", "zstd"):
        assert _decode(b'{"text": "a"}\n', compression) == (b"", ["bad-stream-header"], True)
        assert _decode(b"", compression) == (b"", ["truncated-stream"], True)
    assert _decode(b"\x1f\x8b\x07 not deflate", "gzip")[1] == ["bad-stream-header"]


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
@pytest.mark.parametrize("packed", [gzip_member(_A) + gzip_member(_B), zstd_frame(_A) + zstd_frame(_B)])
def test_a_flipped_bit_never_passes_as_other_content(packed: bytes, at: int, bit: int) -> None:
    bad = bytearray(packed)
    bad[at % len(bad)] ^= 1 << bit
    content, codes, _ = _decode(bytes(bad), detect_compression(packed))
    assert codes or content == _A + _B


def test_memory_does_not_follow_the_ratio() -> None:
    size = 64 << 20
    for packed in (
        zlib.compress(bytes(size), 9, wbits=31),
        zstd_frame(bytes(size)),
        zstd_frame(bytes(size), size=False),
    ):
        assert len(packed) < size // 900
        stream = DecodedStream(io.BytesIO(packed), len(packed), detect_compression(packed), ScanOptions())
        lengths = [len(chunk) for chunk in stream]
        assert sum(lengths) == size
        assert max(lengths) <= 3 * CHUNK_BYTES
        assert stream.findings == ()


def test_many_small_members_are_read_in_pieces_of_their_size() -> None:
    line = b'{"text": "a"}\n'
    for unit in (gzip_member(line), zstd_frame(line)):
        assert _decode(unit * 3_000) == (line * 3_000, [], False)


def test_window_over_the_limit() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=22, write_checksum=1, write_content_size=0)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(_A) + packer.flush()
    assert _decode(packed) == (_A, [], False)
    assert _decode(packed, max_window_bytes=1 << 22) == (_A, [], False)
    assert _decode(packed, max_window_bytes=(1 << 22) - 1) == (b"", ["window-too-large"], True)


def test_a_frame_that_needs_a_dictionary_is_told() -> None:
    words = zstandard.train_dictionary(4096, [b"some words %d and more words %d" % (i, i * 7) for i in range(3000)])
    packed = zstandard.ZstdCompressor(dict_data=words).compress(b"some words 3 and more words 21" * 9)
    stream = DecodedStream(io.BytesIO(packed), len(packed), "zstd", ScanOptions())
    assert list(stream) == []
    assert stream.findings[0].code == "corrupt-stream"
    assert f"dictionary {words.dict_id()}" in stream.findings[0].detail


def test_detection_goes_by_bytes_alone() -> None:
    assert [detect_compression(gzip_member(b"")[:n]) for n in (0, 1, 2, 18)] == ["none", "gzip", "gzip", "gzip"]
    assert [detect_compression(zstd_frame(b"")[:n]) for n in (1, 3, 4)] == ["zstd"] * 3
    assert detect_compression(skippable(b"", 15)) == "zstd"
    assert [detect_compression(head) for head in (b"PAR1", b"\x93NUMPY", b'{"a"', b"\x60\x2a\x4d\x18")] == ["none"] * 4


def test_a_head_is_decoded_as_far_as_it_goes() -> None:
    assert decode_head(gzip_member(_A * 99)[:60], 20) == _A[:20]
    assert decode_head(skippable(b"x") + zstd_frame(_A), 1 << 16) == _A
    assert decode_head(b"plain", 3) == b"pla"
    assert decode_head(gzip_member(_A)[:4], 10) == b""
