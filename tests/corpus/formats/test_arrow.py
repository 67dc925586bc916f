"""Arrow IPC: files and streams of every shape give what Arrow's own reader gives; what is cut or damaged is told."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.corpus.formats import recognise
from dataguard.corpus.formats.arrow import ArrowIpc
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.errors import ShardDamaged
from tests.corpus.formats.framing import gzip_member
from tests.corpus.formats.support import MemoryShard, Seen, look

FORMAT = ArrowIpc()
FORMS = ["file", "stream"]
END_MARK = b"\xff\xff\xff\xff\0\0\0\0"


def _ipc(form: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    told = pa.ipc.IpcWriteOptions(**options)
    with make(sink, schema or batches[0].schema, options=told) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _batches(*columns: pa.Array, name: str = "text") -> list[pa.RecordBatch]:
    return [pa.record_batch([column], names=[name]) for column in columns]


def _texts(form: str, *texts: Sequence[str | None], **options: Any) -> bytes:
    return _ipc(form, _batches(*(pa.array(entry, pa.string()) for entry in texts)), **options)


def _look(content: bytes, **options: Any) -> Seen:
    return look(FORMAT, MemoryShard(content, "x.arrow", "none"), **options)


def _by_arrow(form: str, content: bytes) -> pa.Table:
    return (pa.ipc.open_file if form == "file" else pa.ipc.open_stream)(content).read_all()


@pytest.mark.parametrize("form", FORMS)
def test_batches_are_blocks(form: str) -> None:
    content = _texts(form, ["r0", "r1", "r2"], [], ["m"], [], ["r3", None])
    seen = _look(content)
    assert seen.rows == [b"r0", b"r1", b"r2", b"m", b"r3", None]
    assert [(block.place.first_row, block.place.num_rows, block.place.group) for block in seen.blocks] == [
        (0, 3, 0), (3, 1, 2), (4, 2, 4),
    ]  # fmt: skip
    assert (seen.effect, seen.codes) == ("clean", [])
    for block in seen.blocks:  # the place is that of the message
        start = block.place.offset_bytes
        message = pa.ipc.read_message(content[start : start + block.place.size_bytes])
        assert message.type == "record batch"
    found = recognise(content[:1000], "x")
    assert found is not None
    assert found.name == "arrow"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.binary(20), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()),
        pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_view(pa.string_view()),
        pa.list_(pa.dictionary(pa.int16(), pa.string())),
    ],
    ids=str,
)  # fmt: skip
def test_every_type_gives_the_same_text(form: str, compression: str | None, kind: pa.DataType) -> None:
    texts = ["twenty bytes in here", None, "also twenty bytes ok", "and twenty more byte"]
    values: list[Any] = [None if text is None else [text] for text in texts] if pa.types.is_nested(kind) else texts
    column = (
        pa.array(values, kind) if not pa.types.is_dictionary(kind) else pa.array(texts).dictionary_encode().cast(kind)
    )
    seen = _look(_ipc(form, _batches(column, column[1:]), compression=compression))
    plain = _look(_texts("stream", texts, texts[1:]))
    assert seen.rows == plain.rows
    assert [block.digest for block in seen.blocks] == [block.digest for block in plain.blocks]
    assert (seen.effect, seen.codes) == ("clean", [])


@pytest.mark.parametrize("form", FORMS)
def test_text_in_a_struct_and_other_fields(form: str) -> None:
    meta = pa.array([{"body": "one", "n": 1}, None, {"body": "ignored", "n": 3}])
    batch = pa.record_batch({"id": [7, 8, 9], "meta": meta, "tags": [["a"], [], None]})
    content = _ipc(form, [batch])
    seen = _look(content, text_field="meta.body")
    assert seen.rows == [b"one", None, b"ignored"]
    told = ScanOptions(text_field="meta.body")
    fields = FORMAT.read(MemoryShard(content), seen.blocks[0].place, told, fields=True).fields
    assert fields is not None
    assert fields.to_pydict() == {"id": [7, 8, 9], "meta": [{"n": 1}, None, {"n": 3}], "tags": [["a"], [], None]}
    assert FORMAT.read(MemoryShard(content), seen.blocks[0].place, told).fields is None
    missing = _look(content, text_field="body")
    assert (missing.effect, missing.codes) == ("excluded", ["missing-column"])
    assert "id, meta.body, tags" in missing.end.findings[0].detail
    assert _look(content, text_field="meta.n").codes == ["not-a-text-column"]


def test_dictionaries_that_grow_and_are_replaced() -> None:
    words = [["a", "b"], ["a", "b", "c"], ["x"], ["x", "y"], ["q", "a"]]
    columns = [pa.DictionaryArray.from_arrays(pa.array([0, len(some) - 1], pa.int8()), some) for some in words]
    for options in ({}, {"emit_dictionary_deltas": True}):
        content = _ipc("stream", _batches(*columns), **options)
        expected = [text.encode() for text in _by_arrow("stream", content).column("text").to_pylist()]
        assert expected == [b"a", b"b", b"a", b"c", b"x", b"x", b"x", b"y", b"q", b"a"]
        assert _look(content).rows == expected
    content = _ipc("file", _batches(*columns[:2]), emit_dictionary_deltas=True)
    assert _look(content).rows == [b"a", b"b", b"a", b"c"]


def test_a_dictionary_of_another_column_does_not_matter() -> None:
    words = pa.array(["x", "y"]).dictionary_encode()
    batch = pa.record_batch({"kind": words, "text": ["one", "two"], "more": pa.array(["z", "z"]).dictionary_encode()})
    assert _look(_ipc("stream", [batch, batch])).rows == [b"one", b"two"] * 2


@pytest.mark.parametrize("form", FORMS)
def test_cut_at_every_length(form: str) -> None:
    texts = [["one", "two"], ["three"], ["four", "five", "six"]]
    content = _texts(form, *texts)
    whole = _look(content)
    for length in range(len(content)):
        seen = _look(content[:length])
        complete = [block for block in whole.blocks if block.place.offset_bytes + block.place.size_bytes <= length]
        assert [block.digest for block in seen.blocks] == [block.digest for block in complete], length
        assert seen.effect == ("flagged" if complete else "excluded"), length
        assert set(seen.codes) <= {"cut-short", "bad-arrow-footer", "bad-arrow-header"}
        assert not seen.rejected


def test_a_stream_without_its_end_mark_is_told() -> None:
    content = _texts("stream", ["one"])
    assert content.endswith(END_MARK)
    seen = _look(content.removesuffix(END_MARK))
    assert (seen.effect, seen.codes, seen.rows) == ("flagged", ["cut-short"], [b"one"])
    assert _look(content + bytes(4)).effect == "clean"
    for rest in (b"x", content, bytes(100)):
        seen = _look(content + rest)
        assert (seen.effect, seen.codes, seen.rows) == ("flagged", ["trailing-bytes"], [b"one"])


def test_a_file_whose_footer_cannot_be_had_is_walked() -> None:
    content = _texts("file", ["one", "two"], ["three"])
    at = len(content) - 10 - int.from_bytes(content[-10:-6], "little")
    for bad in (
        content + b"x",
        content[:-1] + b"2",
        content[:-10] + bytes(4) + content[-6:],
        content[:at] + b"\xff" * 8 + content[at + 8 :],
    ):
        seen = _look(bad)
        assert (seen.effect, seen.codes[0]) == ("flagged", "bad-arrow-footer")
        assert seen.rows == [b"one", b"two", b"three"]


def test_a_footer_that_lists_less_than_there_is() -> None:
    one, two = _texts("file", ["one"]), _texts("file", ["one"], ["two"])
    footer_at = len(one) - 10 - int.from_bytes(one[-10:-6], "little")
    end = len(two) - 10 - int.from_bytes(two[-10:-6], "little")
    seen = _look(two[:end] + one[footer_at:])  # same schema, so the first batch lies at the same place
    assert (seen.effect, seen.codes, seen.rows) == ("flagged", ["unlisted-batches"], [b"one"])


def test_a_batch_that_cannot_be_decoded_loses_its_rows_and_no_others() -> None:
    content = bytearray(_texts("stream", ["a" * 40] * 3, ["b" * 40] * 2, ["c" * 40]))
    place = _look(bytes(content)).blocks[1].place
    message = content[place.offset_bytes : place.offset_bytes + place.size_bytes]
    offsets = message.index(b"\0\0\0\0" + (40).to_bytes(4, "little"))
    content[place.offset_bytes + offsets + 4] = 0xFF  # the second text ends before it begins
    content[place.offset_bytes + offsets + 7] = 0x7F
    seen = _look(bytes(content))
    assert (seen.effect, seen.codes) == ("flagged", ["damaged-batches"])
    assert [(finding.row, finding.code) for finding in seen.rejected] == [
        (3, "unreadable-batch"),
        (4, "unreadable-batch"),
    ]
    assert len(seen.documents) == 4
    assert "1 of 3 record batches" in seen.end.findings[0].detail


@pytest.mark.parametrize("form", FORMS)
def test_strings_that_are_no_utf8_are_rejected_row_by_row(form: str) -> None:
    small = pa.array([b"good", b"\xff\xfe", b"", b"caf\xe9"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 4, small.buffers())
    seen = _look(_ipc(form, _batches(column)))
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(1, "invalid-utf8"), (3, "invalid-utf8")]
    assert seen.documents == [b"good", b""]


def test_names_that_are_no_utf8() -> None:
    content = _ipc("stream", [pa.record_batch({"text": ["a"], "meta": [{"inner": 1}]})])
    for name in (b"inner", b"text"):
        seen = _look(content.replace(name, name[:-1] + b"\xff"))
        assert (seen.effect, seen.codes) == ("excluded", ["missing-column"])
        assert "not UTF-8" in seen.end.findings[0].detail


@pytest.mark.parametrize("form", FORMS)
def test_what_decodes_to_too_much_is_not_decoded(form: str) -> None:
    content = _texts(form, ["a" * 3_000_000], ["small"], compression="zstd")
    assert len(_look(content).rows[0] or b"") == 3_000_000
    seen = _look(content, max_expansion=10, free_expansion_bytes=1000)
    assert (seen.effect, seen.codes, seen.documents) == ("flagged", ["damaged-batches"], [b"small"])
    assert "decode to 3,000" in seen.end.findings[0].detail


def test_what_is_no_arrow_data() -> None:
    for content in (b"", b"ARROW1", b"ARROW1\0\0", b"PARQ1\0\0\0", END_MARK, b"\xff" * 64, bytes(64)):
        seen = _look(content)
        assert (seen.effect, seen.codes) == ("excluded", ["bad-arrow-header"])
    seen = look(FORMAT, MemoryShard(gzip_member(_texts("stream", ["a"])), "x.arrow.gz"))
    assert seen.codes == ["compressed-container"]
    assert not FORMAT.recognise(b'{"text": "a"}', "x.jsonl")
    assert FORMAT.recognise(b"", "x.ARROW") == 1


@pytest.mark.parametrize("form", FORMS)
def test_no_batches_and_no_rows(form: str) -> None:
    schema = pa.schema([("text", pa.string())])
    for content in (_ipc(form, [], schema), _texts(form, [], [])):
        seen = _look(content)
        assert (seen.effect, seen.codes, seen.blocks) == ("clean", [], [])


def test_a_changed_shard_is_no_answer() -> None:
    (block,) = _look(_texts("stream", ["a", "b"])).blocks
    for changed in (
        _texts("stream", ["a"]),
        _texts("file", ["a", "b"]),
        b"",
        _ipc("stream", _batches(pa.array(["a", "b"]), name="other")),
    ):
        with pytest.raises(ShardDamaged):
            FORMAT.read(MemoryShard(changed, compression="none"), block.place, ScanOptions())


def test_one_shard_under_two_names_of_its_text() -> None:
    content = _ipc("stream", [pa.record_batch({"a": ["one"], "b": ["two"]})])
    shard = MemoryShard(content)
    place = _look(content, text_field="a").blocks[0].place
    for _ in range(2):
        for name, text in (("a", [b"one"]), ("b", [b"two"])):
            assert FORMAT.read(shard, place, ScanOptions(text_field=name)).text.to_pylist() == text  # type: ignore[union-attr]


@settings(max_examples=150)
@given(data=st.data())
@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("form", FORMS)
def test_flipped_bytes_are_no_crash_and_lose_no_account(form: str, compression: str | None, data: Any) -> None:
    batch = pa.record_batch(
        {
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "s": [{"v": ["one", "two"]}, None, {"v": []}],
            "text": pa.array(["one", None, "a text longer than a view holds"], pa.string_view()),
        }
    )
    content = bytearray(_ipc(form, [batch, batch], compression=compression))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    for name in ("d", "s.v", "text"):
        seen = _look(bytes(content), text_field=name)  # every block is read again, and is what was scanned
        if seen.effect == "clean":
            assert sum(block.place.num_rows for block in seen.blocks) <= 6 or form == "stream"


def test_a_footer_with_a_name_that_is_no_utf8_is_told() -> None:
    content = _ipc("file", [pa.record_batch({"label": ["a"], "text": ["one"]})])
    at = content.rindex(b"label")
    seen = _look(content[:at] + b"\x80" + content[at + 1 :])
    assert seen.codes == ["footer-disagrees"]
    assert seen.documents == [b"one"]
