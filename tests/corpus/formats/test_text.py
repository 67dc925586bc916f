"""Plain text files, one record each: only where they are asked for, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataguard.cli.main import main
from dataguard.corpus.build import build_manifest
from dataguard.corpus.formats import ScanOptions
from dataguard.corpus.formats.text import PlainText, text_trouble
from dataguard.errors import ShardDamaged, UsageError
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import MemoryShard, Seen, look
from tests.corpus.making import jsonl, npy, parquet, put


def _look(content: bytes, **options: int) -> Seen:
    return look(PlainText(), MemoryShard(content), **options)


@pytest.mark.parametrize("pack", [bytes, gzip_member, zstd_frame], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize(
    "content",
    [b"", b"a", b"one\r\ntwo\rthree\n\n", "caf\u00e9\u2028\U0001f600".encode(), b"a\0b", b"a\0", b"\x1a" * 3_000_000],
)
def test_the_record_is_the_whole_file(pack: type, content: bytes) -> None:
    seen = _look(pack(content))
    assert (seen.rows, seen.effect, seen.codes) == ([content], "clean", [])
    marked = _look(pack(b"\xef\xbb\xbf" + content))
    assert marked.rows == [content]


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"abc\xffdef", 3), (b"a" * 3_000_000 + b"\xe2\x82", 3_000_000), (b"\xed\xa0\x80", 0),
        ("text".encode("utf-16"), 0), ("text".encode("utf-16-le"), 1), ("text".encode("utf-16-be"), 0),
    ],
)  # fmt: skip
def test_what_is_not_utf8_is_rejected_with_its_place(content: bytes, offset: int) -> None:
    for packed in (content, gzip_member(content)):
        seen = _look(packed)
        (finding,) = seen.rejected
        assert (finding.code, finding.offset_bytes, seen.rows) == ("invalid-utf8", offset, [None])
        assert seen.effect == "clean"


def test_text_with_a_few_nul_bytes_is_text() -> None:
    for content in (b"a\0b\0cc", b"\0\0\0\0", b"a\0", b"ab\0\0ab\0\0", "\0é".encode()):
        assert text_trouble(content) is None, content


def test_a_file_over_the_limit_is_rejected_unheld() -> None:
    for packed in (b"x" * 5_000, gzip_member(b"x" * 5_000)):
        seen = _look(packed, max_record_bytes=4_999)
        assert ([finding.code for finding in seen.rejected], seen.rows) == (["record-too-large"], [None])
        assert _look(packed, max_record_bytes=5_000).documents == [b"x" * 5_000]


@pytest.mark.parametrize("pack", [gzip_member, zstd_frame])
def test_half_a_compressed_file_is_none(pack: type) -> None:
    packed = pack(b"some text, and some more text")
    for length in range(1, len(packed)):
        seen = _look(packed[:length])
        assert (seen.effect, seen.blocks) == ("excluded", []), length
    seen = _look(gzip_member(b"text") + b"junk")
    assert (seen.rows, seen.effect, seen.codes) == ([b"text"], "flagged", ["trailing-bytes"])


def test_a_changed_file_is_told() -> None:
    kind = PlainText()
    (block, _) = kind.scan(MemoryShard(b"four"), ScanOptions())
    with pytest.raises(ShardDamaged, match="cannot be read any more"):
        kind.read(MemoryShard(b"three"), block.place, ScanOptions())  # type: ignore[union-attr]


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "web/a.txt", b"one\n")
    put(tmp_path / "web/b.txt.gz", gzip_member(b"two"))
    put(tmp_path / "web/empty.txt", b"")
    put(tmp_path / "web/page.html", b"<p>three")
    jsonl(tmp_path / "web/c.jsonl", ["four"])
    parquet(tmp_path / "web/d.parquet", ["five"])
    npy(tmp_path / "web/e.npy", [1, 2])
    return tmp_path


def test_text_is_read_where_it_is_asked_for(mixed: Path) -> None:
    result = build_manifest(["web"], format_name="text")
    assert {shard.path for shard in result.manifest.shards} == {
        "a.txt", "b.txt.gz", "c.jsonl", "empty.txt", "page.html",
    }  # fmt: skip
    assert {item.path: item.reason for item in result.ignored} == {
        "d.parquet": "not of format text", "e.npy": "not of format text",
    }  # fmt: skip
    assert result.account.total("num_delivered") == 5
    (mixed / "web/e.npy").unlink()
    usual = build_manifest(["web"])
    assert [shard.path for shard in usual.manifest.shards] == ["c.jsonl", "d.parquet"]
    assert usual.ignored_files == {"unknown kind": 4}


def test_any_format_can_be_asked_for(mixed: Path) -> None:
    result = build_manifest(["web"], format_name="jsonl")
    assert [shard.path for shard in result.manifest.shards] == ["c.jsonl"]
    assert result.ignored_files == {"not of format jsonl": 6}
    with pytest.raises(UsageError, match=r"web/d\.parquet is not of format npy"):
        build_manifest(["web/d.parquet"], format_name="npy")
    with pytest.raises(UsageError, match=r"web/a\.txt is of unknown kind"):
        build_manifest(["web/a.txt"])
    with pytest.raises(UsageError, match="no format is called 'csv'"):
        build_manifest(["web"], format_name="csv")


def test_the_flag_goes_through(mixed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", "build", "web/*.txt*", "-o", "M.parquet", "--format", "text", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["num_shards"], document["num_delivered"]) == (3, 3)
    assert main(["manifest", "build", "web/*.txt*", "-o", "M.parquet"]) == 2
    assert "--format" in capfd.readouterr().err
