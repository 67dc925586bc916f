"""K1, compressed-stream framing: members and frames, padding, garbage, cuts. Cases G01, G02, G30."""

from __future__ import annotations

import hashlib
import json

import pytest

from dataguard.corpus.formats import JsonLines
from tests.corpus.formats.framing import gzip_member, gzip_members, skippable, zstd_frame, zstd_frames
from tests.corpus.formats.support import MemoryShard, Seen, look

_ROWS = [b'{"id": %d, "text": "row %d"}\n' % (i, i) for i in range(7)]
_ALL = b"".join(_ROWS)
_HEAD, _TAIL = b"".join(_ROWS[:3]), b"".join(_ROWS[3:])


def _ids(seen: Seen) -> list[int]:
    return [int(text.split()[1]) for text in seen.documents]


def _look(packed: bytes, path: str = "x.jsonl") -> Seen:
    return look(JsonLines(), MemoryShard(packed, path))


@pytest.mark.parametrize(
    "packed",
    [
        zstd_frame(_HEAD) + skippable(b"12345") + zstd_frame(_TAIL, size=False) + zstd_frame(b""),
        zstd_frame(_ALL[:40]) + zstd_frame(_ALL[40:]),
        zstd_frame(_HEAD) + zstd_frame(b"") + zstd_frame(b"", size=False) + zstd_frame(_TAIL),
        zstd_frames([bytes([byte]) for byte in _ALL]),
        gzip_members([bytes([byte]) for byte in _ALL]),
        gzip_members([b"", _ALL[:40], b"", _ALL[40:], b""]),
    ],
    ids=["frames", "line across frames", "empty frames", "a frame a byte", "a member a byte", "empty members"],
)  # fmt: skip
def test_g01_every_frame_and_member_is_read(packed: bytes) -> None:
    seen = _look(packed)
    assert _ids(seen) == list(range(7))
    assert seen.effect == "clean"
    assert hashlib.sha256(b"".join(seen.documents)).digest() == hashlib.sha256(
        b"".join(json.loads(row)["text"].encode() for row in _ROWS)
    ).digest()  # fmt: skip


def test_g02_padding_is_clean_and_garbage_is_flagged() -> None:
    member = gzip_member(b"".join(_ROWS[:3]))
    padded = _look(member + bytes(512))
    assert (_ids(padded), padded.effect, padded.codes) == ([0, 1, 2], "clean", [])
    garbage = _look(member + b"sixty-six bytes of text, as some tools leave them after the member")
    assert (_ids(garbage), garbage.effect, garbage.codes) == ([0, 1, 2], "flagged", ["trailing-bytes"])
    assert garbage.end.findings[0].detail == "trailing bytes after last gzip member (66 bytes)"


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_garbage_and_cuts_in_any_compression(kind: str) -> None:
    one = gzip_member if kind == "gzip" else zstd_frame
    packed = one(_ALL[:100]) + one(_ALL[100:])
    assert _look(packed + b"garbage").codes == ["trailing-bytes"]
    assert _ids(_look(packed + b"garbage")) == list(range(7))
    cut = _look(packed[:-1])
    assert (cut.codes, cut.effect) == (["truncated-stream"], "flagged")
    assert _ids(cut) == list(range(len(cut.rows)))
    assert len(cut.rows) >= _ALL[:100].count(b"\n")
    flipped = bytearray(packed)
    flipped[-1 if kind == "zstd" else -5] ^= 1
    assert (_look(bytes(flipped)).codes, _look(bytes(flipped)).effect) == (["bad-checksum"], "excluded")


def test_the_record_at_a_cut_is_told_with_its_place() -> None:
    # stored, not deflated: every byte up to the cut can be had
    packed = gzip_member(_ALL, level=0)[: 10 + 5 + 40]
    seen = _look(packed)
    assert _ids(seen) == [0]
    assert "the record that begins at decoded byte 27 is cut after 13 bytes" in seen.end.findings[0].detail


def test_g30_plain_text_under_a_name_that_says_gzip() -> None:
    text = b"not gzip at all\n" * 4
    by_bytes = _look(text, "bad.jsonl.gz")
    assert (by_bytes.effect, by_bytes.codes) == ("excluded", ["not-json-lines"])
    by_name = look(JsonLines(), MemoryShard(text, "bad.jsonl.gz", compression="gzip"))
    assert (by_name.effect, by_name.codes) == ("excluded", ["bad-stream-header"])
    assert "not a gzip file" in by_name.end.findings[0].detail


def test_json_lines_under_a_name_that_says_gzip_are_read_by_content() -> None:
    assert _ids(_look(_ALL, "x.jsonl.gz")) == list(range(7))
    assert _ids(_look(zstd_frame(_ALL), "x.jsonl.gz")) == list(range(7))
