"""Tar archives of keyed members: whole records, in their order, and never half of one."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.corpus.build import build_manifest
from dataguard.corpus.formats import ScanOptions
from dataguard.corpus.formats.tar import TarBytes, TarEnd, members_of
from dataguard.corpus.formats.webdataset import WebDataset
from dataguard.errors import ShardDamaged
from tests.corpus.formats.archives import archive, webdataset
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import MemoryShard, Seen, look
from tests.corpus.making import put

RECORDS = {
    "a/0": {"txt": b"zero", "json": b'{"id": 0}', "jpg": b"\xff\xd8\xff"},
    "a/1": {"jpg": b"\xff" * 700, "txt": b"one"},
    "b/0": {"json": b'{"text": "two", "id": 2}'},
}


def _look(content: bytes, **options: Any) -> Seen:
    return look(WebDataset(), MemoryShard(content, "x.tar"), **options)


@pytest.mark.parametrize("pack", [bytes, gzip_member, zstd_frame], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("block_bytes", [1, 4_000, 1 << 20])
@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_one_key_are_a_record(pack: type, block_bytes: int, kind: int) -> None:
    seen = _look(pack(webdataset(RECORDS, kind=kind)), block_bytes=block_bytes)
    assert (seen.rows, seen.effect, seen.codes) == ([b"zero", b"one", b"two"], "clean", [])
    assert len(seen.blocks) == {1: 3, 4_000: 2, 1 << 20: 1}[block_bytes]


def test_a_block_of_a_plain_archive_is_a_byte_range() -> None:
    shard = MemoryShard(webdataset({f"{i:04}": {"txt": b"%d" % i * 900} for i in range(50)}))
    kind = WebDataset()
    *blocks, _ = kind.scan(shard, ScanOptions(block_bytes=10_000))
    assert len(blocks) > 8
    place = blocks[5].place  # type: ignore[union-attr]
    alone = bytes(place.offset_bytes) + shard.content[place.offset_bytes : place.offset_bytes + place.size_bytes]
    block = kind.read(MemoryShard(alone), place, ScanOptions())
    assert block.text is not None
    assert block.text.to_pylist()[0] == b"%d" % place.first_row * 900
    with pytest.raises(ShardDamaged, match="cannot be read any more"):
        kind.read(MemoryShard(shard.content[: place.offset_bytes + 600]), place, ScanOptions())


def test_which_member_is_the_text() -> None:
    both = {"json": b'{"text": "json", "body": "field", "n": {"t": "nested"}}', "txt": b"txt", "seg.TXT": b"segmented"}
    content = webdataset({"a": both, "b": {**both, "text": b"text"}, "c": {"json": both["json"]}})
    assert _look(content).rows == [b"txt", b"text", b"json"]
    assert _look(content, text_field="body").rows == [b"field"] * 3
    assert _look(content, text_field="n.t").rows == [b"nested"] * 3
    assert _look(content, text_field="json").rows == [both["json"]] * 3
    assert _look(content, text_field="seg.txt").rows[:2] == [b"segmented"] * 2


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"jpg": b""}, "missing-text"), ({"json": b'{"id": 1}'}, "missing-text"), ({"json": b"[1]"}, "not-an-object"),
        ({"json": b'{"text": null}'}, "null-text"), ({"json": b'{"text": 7}'}, "not-a-string"),
        ({"json": b"{"}, "invalid-json"), ({"json": b'{"text": "\\ud800"}'}, "lone-surrogate"),
        ({"json": b'{"text":"a","text":"b"}'}, "duplicate-text"), ({"json": b"\xff"}, "invalid-utf8"),
        ({"json": b'{"text":"a","x":' + b"[" * 20 + b"]" * 20 + b"}"}, "too-deep"),
        ({"txt": b"caf\xe9"}, "invalid-utf8"), ({"txt": "text".encode("utf-16")}, "invalid-utf8"),
        ({"txt": b"x" * 1001}, "record-too-large"), ({"json": b'{"text":"' + b"x" * 1001}, "record-too-large"),
        ({"txt.gz": b"no gzip"}, None), ({"txt.gz": gzip.compress(b"x" * 50)[:-9]}, "damaged-member"),
        ({"txt.gz": gzip.compress(b"x" * 1001)}, "record-too-large"),
    ],
)  # fmt: skip
def test_a_record_without_a_document_is_rejected_alone(members: dict[str, bytes], code: str | None) -> None:
    content = webdataset({"a": {"txt": b"before"}, "odd": members, "z": {"txt": b"after"}})
    seen = _look(content, max_record_bytes=1_000, max_depth=9)
    if code is None:  # what is called .gz and is none is read as it is
        assert seen.rows == [b"before", b"no gzip", b"after"]
        return
    assert seen.rows == [b"before", None, b"after"]
    (finding,) = seen.rejected
    assert (finding.code, finding.row, seen.effect) == (code, 1, "clean")
    assert "odd" in finding.detail
    assert finding.offset_bytes is not None
    assert content[finding.offset_bytes :].startswith(b"odd.")


def test_members_of_other_kinds_are_counted_and_ignored() -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as file:
        for name, kind in (
            ("d", tarfile.DIRTYPE), ("a.txt", tarfile.REGTYPE), ("l.txt", tarfile.SYMTYPE), ("h.txt", tarfile.LNKTYPE),
            ("f.txt", tarfile.FIFOTYPE), ("README", tarfile.REGTYPE), ("._a.txt", tarfile.REGTYPE),
            ("__meta__.json", tarfile.REGTYPE), ("a.json", tarfile.REGTYPE),
        ):  # fmt: skip
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.linkname = "a.txt"
            entry.size = 2 if kind == tarfile.REGTYPE else 0
            file.addfile(entry, io.BytesIO(b"{}"))
    seen = _look(sink.getvalue())
    assert (seen.rows, seen.codes, seen.end.ignored_lines) == ([b"{}"], [], 7)


def test_keys_that_come_again_are_told() -> None:
    members = [("a.txt", b"1"), ("b.txt", b"2"), ("a.json", b"{}"), ("b.txt", b"3"), ("c.txt", b"4"), ("c.TXT", b"5")]
    seen = _look(archive(members))
    assert (seen.effect, seen.codes) == ("flagged", ["repeated-key"])
    assert seen.rows == [b"1", b"2", None, b"3", None]
    assert [finding.code for finding in seen.rejected] == ["missing-text", "duplicate-member"]
    assert "2 records" in seen.end.findings[0].detail


def test_too_many_members_are_refused() -> None:
    content = webdataset(RECORDS)
    assert _look(content, max_members=6).effect == "clean"
    seen = _look(content, max_members=5, block_bytes=1)
    assert (seen.effect, seen.codes) == ("excluded", ["too-many-members"])


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_cut_at_every_length(kind: int) -> None:
    records = {**RECORDS, "c/" + "long" * 60 if kind != tarfile.USTAR_FORMAT else "c/0": {"txt": b"three", "cls": b"1"}}
    content = webdataset(records, kind=kind)
    good = _look(content).rows
    assert good == [b"zero", b"one", b"two", b"three"]
    end = len(content.rstrip(b"\0")) // 512 * 512 + 512
    for length in sorted(
        {*range(0, len(content), 97), *(at + by for at in range(0, end + 600, 512) for by in (0, 1, 511))}
    ):
        seen = _look(content[:length])
        assert seen.documents == good[: len(seen.documents)], length
        if length >= end + 512:
            assert (seen.effect, seen.documents) == ("clean", good), length
        else:
            assert seen.codes == ["cut-short" if length >= 512 else "not-an-archive"], length
            assert (seen.documents == good) == (length > end), length


def test_a_record_is_whole_only_when_the_next_begins() -> None:
    content = webdataset({"a": {"txt": b"one", "json": b'{"id": 1}'}, "b": {"txt": b"two"}})
    at = [member.header_bytes for member in members_of(TarBytes(io.BytesIO(content)), TarEnd())]
    assert at == [0, 1024, 2048]
    for length in (1024, 1500, 2048, 2048 + 511):
        seen = _look(content[:length])
        assert (seen.effect, seen.documents) == ("excluded", [])
        assert "record a may lack members and is left out" in seen.end.findings[0].detail
    assert _look(content[: 2048 + 512]).documents == [b"one"]


def test_damaged_headers_and_trailing_bytes() -> None:
    content = webdataset({"a": {"txt": b"one"}, "b": {"txt": b"two"}, "c": {"txt": b"three"}})
    broken = bytearray(content)
    broken[2048 + 3] ^= 1
    seen = _look(bytes(broken))
    assert (seen.effect, seen.codes, seen.documents) == ("flagged", ["bad-member-header"], [b"one"])
    assert seen.end.findings[0].offset_bytes == 2048
    seen = _look(content + b"junk")
    assert (seen.effect, seen.codes, len(seen.documents)) == ("flagged", ["trailing-bytes"], 3)
    assert _look(content + content).codes == ["trailing-bytes"]
    assert _look(content + bytes(100_000)).effect == "clean"
    assert _look(bytes(10_240)).effect == "clean"
    for nothing in (b"", b"not a tar at all" * 100):
        assert (_look(nothing).effect, _look(nothing).codes) == ("excluded", ["not-an-archive"])
    no_end = content.rstrip(b"\0") + bytes(507)
    assert _look(no_end).codes == ["cut-short"]


def test_sizes_beyond_octal_are_read() -> None:
    content = bytearray(webdataset({"a": {"txt": b"one"}, "b": {"txt": b"two"}}))
    content[124:136] = b"\x80" + (3).to_bytes(11, "big")
    content[148:156] = b"%06o\0 " % (sum(content[:148]) + 8 * 32 + sum(content[156:512]))
    assert _look(bytes(content)).documents == [b"one", b"two"]
    second = content[1024:]
    second[124:136] = b"\xff" * 12
    second[148:156] = b"%06o\0 " % (sum(second[:148]) + 8 * 32 + sum(second[156:512]))
    seen = _look(bytes(content[:1024] + second))
    # a may lack a member, of which the header would be this one
    assert (seen.codes, seen.documents) == (["bad-member-header"], [])
    pax = archive([("a.txt", b"one")], kind=tarfile.PAX_FORMAT)
    assert _look(pax).documents == [b"one"]


def test_other_members_are_fields() -> None:
    kind, shard = WebDataset(), MemoryShard(webdataset({**RECORDS, "c": {"txt": b"\xff", "cls": b"7"}}))
    (block, _) = kind.scan(shard, ScanOptions())
    fields = kind.read(shard, block.place, ScanOptions(), fields=True).fields  # type: ignore[union-attr]
    assert fields is not None
    assert fields.to_pydict() == {
        "__key__": ["a/0", "a/1", "b/0", "c"],
        "id": [0, None, 2, None],
        "jpg": [b"\xff\xd8\xff", b"\xff" * 700, None, None],
    }


def test_what_looks_like_json_inside_is_an_archive_still(tmp_path: Path) -> None:
    put(tmp_path / "w/x.tar", webdataset({"a": {"jsonl": b'\n{"text":"inside"}\n', "txt": b"one"}}))
    put(tmp_path / "w/y.tar.gz", gzip_member(webdataset({"b": {"txt": b"two"}})))
    put(tmp_path / "w/z.tgz", gzip_member(webdataset({"c": {"txt": b"three"}})))
    result = build_manifest([f"{tmp_path}/w"])
    assert {shard.format for shard in result.manifest.shards} == {"webdataset"}
    assert result.account.total("num_delivered") == 3


_names = st.lists(
    st.sampled_from(["a", "b", ".", "/", "txt", "json", "x" * 90, "é"]), min_size=1, max_size=5
).map("".join).filter(lambda name: not name.startswith("/") and name.strip("./"))  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(_names, st.binary(max_size=600)), max_size=8),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.sampled_from([bytes, gzip_member]),
)
def test_members_are_those_of_tarfile(members: list[tuple[str, bytes]], kind: int, pack: type) -> None:
    content = archive(members, kind=kind)
    with tarfile.open(fileobj=io.BytesIO(content)) as file:
        expected = [(entry.name.rstrip("/"), entry.offset_data, entry.size) for entry in file if entry.isfile()]
    end = TarEnd()
    found = [
        (member.name.decode().rstrip("/"), member.data_bytes, member.size_bytes)
        for member in members_of(TarBytes(io.BytesIO(content)), end)
        if member.is_file
    ]
    assert found == expected
    assert end == TarEnd(stop_bytes=end.stop_bytes, offset_bytes=end.offset_bytes)
    groups: list[tuple[str, dict[str, list[bytes]]]] = []
    for name, data in members:
        split = re.fullmatch(r"((?:.*/)?[^./]+)\.([^/]*)", name)
        if split is None:
            continue
        if not groups or groups[-1][0] != split[1]:
            groups.append((split[1], {}))
        groups[-1][1].setdefault(split[2].lower(), []).append(data)
    seen = _look(pack(content))
    assert sum(block.place.num_rows for block in seen.blocks) == len(groups)
    if seen.effect == "excluded":  # no record of it has text
        assert not any("txt" in found_members for _, found_members in groups) or seen.rejected
        return
    for (_, found_members), row in zip(groups, seen.rows, strict=True):
        if row is not None and "txt" in found_members:
            assert row == found_members["txt"][0].removeprefix(b"\xef\xbb\xbf")


def test_json_over_several_lines_is_a_member_like_any_other() -> None:
    pretty = json.dumps({"text": "one\ntwo", "id": [1]}, indent=2).encode()
    assert _look(webdataset({"a": {"json": pretty}, "b": {"json": b"\xef\xbb\xbf" + pretty}})).rows == [b"one\ntwo"] * 2


def test_the_members_there_are_is_the_hint_where_no_record_has_text(tmp_path: Path) -> None:
    put(tmp_path / "w/x.tar", webdataset({"a": {"mp": b"1", "cls": b"2"}}))
    result = build_manifest([f"w={tmp_path}/w"])
    assert result.hints["w"] == "record a has no member text or txt, and no json; there are: mp, cls"
