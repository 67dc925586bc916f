"""K1, K2, K3 and K15 again, in what holds other files: archives of members, text files as records, and both compressed.

The reports are those of test_framing.py, test_decoding.py and test_record_shape.py (G01 to G06, G29, G30); these are
other instances of their kinds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataguard.cli.main import main
from dataguard.corpus.build import build_manifest
from dataguard.corpus.formats import PlainText, WebDataset
from tests.corpus.formats.archives import archive, webdataset
from tests.corpus.formats.framing import gzip_members, pieces, skippable, zstd_frame, zstd_frames
from tests.corpus.formats.support import MemoryShard, look
from tests.corpus.making import jsonl, npy, parquet, put

RECORDS = {f"{i:03}": {"txt": b"text %d " % i * 40, "json": b'{"id": %d}' % i} for i in range(12)}
TEXTS = [members["txt"] for members in RECORDS.values()]


@pytest.mark.parametrize("cuts", [[], [700, 5_000], list(range(0, 20_000, 333))])
def test_k1_an_archive_in_many_members_and_frames_is_read_to_its_end(cuts: list[int]) -> None:
    content = webdataset(RECORDS)
    for packed in (
        gzip_members(pieces(content, cuts)),
        gzip_members([*pieces(content, cuts), b""]) + bytes(512),
        skippable(b"index") + zstd_frames(pieces(content, cuts)) + zstd_frame(b"") + skippable(b""),
    ):
        seen = look(WebDataset(), MemoryShard(packed))
        assert (seen.rows, seen.effect) == (TEXTS, "clean")


def test_k1_bytes_after_a_compressed_archive_or_text_are_flagged() -> None:
    for packed, kind in ((gzip_members([webdataset(RECORDS)]), WebDataset()), (gzip_members([b"text"]), PlainText())):
        seen = look(kind, MemoryShard(packed + b"Traceback (most recent call last):\n"))
        assert (seen.effect, seen.codes) == ("flagged", ["trailing-bytes"])
        assert seen.documents == (TEXTS if kind.name == "webdataset" else [b"text"])


def test_k2_only_the_file_ends_a_text_and_only_the_member_ends_a_record() -> None:
    text = "one\r\ntwo\u2028three\x0bfour\x85\x00".encode()
    assert look(PlainText(), MemoryShard(text)).rows == [text]
    assert look(WebDataset(), MemoryShard(webdataset({"a": {"txt": text}}))).rows == [text]
    pretty = json.dumps({"text": "one\u2028two", "x": [1, 2]}, indent=1, ensure_ascii=False).encode()
    assert look(WebDataset(), MemoryShard(webdataset({"a": {"json": pretty}}))).rows == ["one\u2028two".encode()]


def test_k2_names_of_members_may_hold_anything() -> None:
    names = ["caf\u00e9/\u2028/a b.txt", "x" * 300 + ".txt", "a=b\nc.txt", "../up.txt", "/abs.txt", "-rf.txt"]
    seen = look(WebDataset(), MemoryShard(archive([(name, name.encode()) for name in names], kind=1)))
    assert seen.documents == [name.encode() for name in names]
    assert seen.effect == "clean"


def test_k3_empty_archives_records_and_texts_have_no_trouble() -> None:
    for content in (archive([]), archive([("README", b"x")])):
        seen = look(WebDataset(), MemoryShard(content))
        assert (seen.rows, seen.effect) == ([], "clean")
    seen = look(WebDataset(), MemoryShard(webdataset({"a": {"txt": b""}, "b": {"json": b'{"text": ""}'}})))
    assert (seen.rows, seen.effect) == ([b"", b""], "clean")


def test_k15_every_kind_of_shard_in_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Good and bad shards of every kind side by side: each bad one named, each good one delivered, exit 3."""
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "c/good.jsonl", ["one"])
    parquet(tmp_path / "c/good.parquet", ["two"])
    put(tmp_path / "c/good.tar", webdataset({"a": {"txt": b"three"}}))
    put(tmp_path / "c/cut.tar", webdataset({"a": {"txt": b"four"}, "b": {"txt": b"five"}})[:1600])
    put(tmp_path / "c/junk.tar", b"no archive")
    put(tmp_path / "c/cut.parquet", (tmp_path / "c/good.parquet").read_bytes()[:-3])
    put(tmp_path / "c/bad.jsonl.gz", b"plain text\n")
    npy(tmp_path / "c/ids.npy", [1, 2, 3])
    put(tmp_path / "c/cut.npy", (tmp_path / "c/ids.npy").read_bytes()[:-2])
    for more in ([], ["--isolate"], ["--workers", "2"]):
        assert main(["manifest", "build", "c", "-o", "M.parquet", "--json", *more]) == 3
        told = capfd.readouterr()
        document = json.loads(told.out)
        assert {finding["shard"]: finding["effect"] for finding in document["damaged"]} == {
            "c/bad.jsonl.gz": "excluded", "c/cut.parquet": "excluded", "c/cut.tar": "flagged", "c/junk.tar": "excluded",
            "c-tokens/cut.npy": "excluded",
        }  # fmt: skip
        assert (document["num_delivered"], document["num_rejected"]) == (4 + 3, 0)
        assert "5 of 9 shards are damaged" in told.err
    result = build_manifest(["c"])
    assert result.account.total("num_shards") == 9
