"""K4, columnar container and schema: row groups without rows, types that differ, footers that lie. Cases G07, G08."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.corpus.formats import Parquet, ScanOptions
from dataguard.errors import ShardDamaged
from tests.corpus.formats.framing import gzip_member
from tests.corpus.formats.support import MemoryShard, Seen, look


def _file(*groups: Any, name: str = "text", schema: pa.Schema | None = None, **options: Any) -> bytes:
    """A Parquet file of one column, a row group for each array; an array of no rows is a row group too."""
    arrays = [group if isinstance(group, pa.Array) else pa.array(group, pa.string()) for group in groups]
    schema = schema or pa.schema([(name, arrays[0].type if arrays else pa.string())])
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for array in arrays:
            writer.write_table(pa.table([array], schema=schema), row_group_size=max(len(array), 1))
    return sink.getvalue()


def _look(content: bytes, **options: Any) -> Seen:
    return look(Parquet(), MemoryShard(content, "x.parquet"), **options)


def test_g07_row_groups_without_rows() -> None:
    parts = [_file(["r0", "r1", "r2"]), _file(), _file([], ["m"], []), _file(["r3", "r4"])]
    assert [pq.read_metadata(io.BytesIO(part)).num_row_groups for part in parts] == [1, 0, 3, 1]
    seen = [_look(part) for part in parts]
    assert [part.rows for part in seen] == [[b"r0", b"r1", b"r2"], [], [b"m"], [b"r3", b"r4"]]
    assert [part.effect for part in seen] == ["clean"] * 4
    (block,) = seen[2].blocks
    assert (block.place.first_row, block.place.group) == (0, 1)


def test_g08_one_column_in_many_types() -> None:
    columns: Sequence[pa.Array] = [
        pa.array(["a", "b"], pa.string()),
        pa.array(["c", "d"], pa.large_string()),
        pa.array(["e", "f", "e"], pa.string()).dictionary_encode(),
        pa.nulls(3),
        pa.array(["g", None, "h"], pa.string()),
        pa.array(["i", "None"], pa.large_string()),
    ]
    for order in ([0, 1, 2, 3, 4, 5], [3, 0, 1, 2, 4, 5]):
        seen = [_look(_file(columns[i])) for i in order]
        assert [text for part in seen for text in part.documents] == [
            text.encode() for i in order for text in columns[i].to_pylist() if text is not None
        ]
        assert {i: [finding.row for finding in seen[at].rejected] for at, i in enumerate(order)} == {
            0: [], 1: [], 2: [], 3: [0, 1, 2], 4: [1], 5: [],
        }  # fmt: skip
        assert all(part.effect == "clean" for part in seen)
        assert {finding.code for part in seen for finding in part.rejected} == {"null-text"}


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.binary(3), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)  # fmt: skip
def test_the_digest_does_not_depend_on_the_type(kind: pa.DataType) -> None:
    plain = _look(_file(pa.array(["abc", None, "\u20ac", "abc"], pa.string())))
    values: Any = ["abc", None, "\u20ac", "abc"]
    if pa.types.is_dictionary(kind):
        array = pa.array(values, pa.string()).dictionary_encode().cast(kind)
    else:
        array = pa.array([value and value.encode() for value in values], pa.binary()).cast(kind)
    other = _look(_file(array))
    assert other.rows == plain.rows == [b"abc", None, b"\xe2\x82\xac", b"abc"]
    assert [(block.digest, block.content_bytes) for block in other.blocks] == [
        (block.digest, block.content_bytes) for block in plain.blocks
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("dictionary", [True, False])
def test_strings_that_are_no_utf8_are_rejected_row_by_row(kind: pa.DataType, dictionary: bool) -> None:
    values = [b"good", b"\xff\xfe", b"", b"caf\xe9", b"\xed\xa0\x80", b"end"] + [b"more"] * 300 + [b"\xc3"]
    offsets = pa.array([sum(map(len, values[:i])) for i in range(len(values) + 1)], pa.int32()).buffers()[1]
    small = pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(b"".join(values))])
    # a cast to string would look; the bytes are reinterpreted, as a careless writer does
    array = small if kind == pa.binary() else pa.Array.from_buffers(pa.string(), len(values), small.buffers())
    seen = _look(_file(array.cast(kind), use_dictionary=dictionary))
    assert [finding.row for finding in seen.rejected] == [1, 3, 4, 306]
    assert {finding.code for finding in seen.rejected} == {"invalid-utf8"}
    assert seen.rows[:6] == [b"good", None, b"", None, None, b"end"]


def test_a_missing_or_unfit_column_is_named() -> None:
    missing = _look(_file(["a"], name="content"))
    assert (missing.effect, missing.codes) == ("excluded", ["missing-column"])
    assert "content" in missing.end.findings[0].detail
    assert _look(_file(["a"], name="content"), text_field="content").documents == [b"a"]
    for array in (
        pa.array([1]),
        pa.array([[1]]),
        pa.array([[["a"]]]),
        pa.array([{"a": "b"}]),
        pa.array([1.5]),
        pa.array([True]),
    ):
        assert _look(_file(array)).codes == ["not-a-text-column"]
    twice = io.BytesIO()
    pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), twice)
    assert _look(twice.getvalue()).codes == ["duplicate-column"]


def test_a_text_column_beside_a_nested_field_of_the_same_name() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"meta": pa.array([{"text": "inner"}]), "text": ["outer"], "a.b": ["dotted"]}), sink)
    assert _look(sink.getvalue()).documents == [b"outer"]
    assert _look(sink.getvalue(), text_field="a.b").documents == [b"dotted"]


def test_a_field_named_by_a_path() -> None:
    meta = pa.array([{"body": "one", "n": 1}, None, {"body": None, "n": 3}, {"body": "four", "n": 4}])
    sink = io.BytesIO()
    pq.write_table(pa.table({"meta": meta, "id": [0, 1, 2, 3]}), sink, row_group_size=3)
    shard = MemoryShard(sink.getvalue())
    seen = look(Parquet(), shard, text_field="meta.body")
    assert seen.rows == [b"one", None, None, b"four"]
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(1, "null-text"), (2, "null-text")]
    told = ScanOptions(text_field="meta.body")
    others = Parquet().read(shard, seen.blocks[0].place, told, fields=True).fields
    assert others is not None
    assert others.to_pylist() == [{"meta": {"n": 1}, "id": 0}, {"meta": None, "id": 1}, {"meta": {"n": 3}, "id": 2}]
    for field, code in (("meta.n", "not-a-text-column"), ("meta.x", "missing-column"), ("id.x", "missing-column")):
        seen = look(Parquet(), shard, text_field=field)
        assert (seen.effect, seen.codes) == ("excluded", [code]), field
        assert code != "missing-column" or "there are: meta.body, id" in seen.end.findings[0].detail


def test_a_column_of_the_whole_name_wins_over_the_path() -> None:
    for columns in ({"a": [{"b": "inner"}], "a.b": ["outer"]}, {"a.b": ["outer"], "a": [{"b": "inner"}]}):
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        assert _look(sink.getvalue(), text_field="a.b").documents == [b"outer"]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.binary())], ids=str
)
def test_a_list_of_strings_is_one_text(kind: pa.DataType) -> None:
    lists = pa.array([["one", "two"], [], None, ["three"], ["four", None], ["\u20ac", ""]], kind)
    seen = _look(_file(lists, lists[3:], schema=pa.schema([("text", kind)])))
    first = [b"one\ntwo", b"", None, b"three", None, b"\xe2\x82\xac\n"]
    assert seen.rows == first + first[3:]
    plain = _look(_file(pa.array([text and text.decode() for text in first])))
    assert plain.blocks[0].digest == seen.blocks[0].digest


def test_a_list_with_a_string_that_is_no_utf8_is_rejected() -> None:
    seen = _look(_file(pa.array([[b"a", b"\xff"], [b"b"]], pa.list_(pa.binary()))))
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(0, "invalid-utf8")]


def test_cut_at_every_length() -> None:
    content = _file(["one", "two"], ["three"])
    for length in range(len(content)):
        seen = _look(content[:length])
        assert (seen.effect, seen.codes) == ("excluded", ["bad-footer"]), length
    assert _look(content + b"trailing").codes == ["bad-footer"]


def test_a_page_with_a_wrong_checksum_loses_its_row_group_and_no_other() -> None:
    content = bytearray(_file(["a" * 50] * 9, ["b" * 60], ["c" * 50] * 2, write_page_checksum=True, compression="none"))
    at = content.index(b"b" * 60)
    content[at] ^= 1
    seen = _look(bytes(content))
    assert (seen.effect, seen.codes) == ("flagged", ["damaged-groups"])
    assert [finding.row for finding in seen.rejected] == [9]
    assert {finding.code for finding in seen.rejected} == {"unreadable-group"}
    assert len(seen.documents) == 11
    assert "1 of 3 row groups" in seen.end.findings[0].detail
    for text in (b"a" * 50, b"c" * 50):
        content[content.index(text)] ^= 1
    seen = _look(bytes(content))
    assert (seen.effect, seen.codes) == ("excluded", ["unreadable-groups"])


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_codecs_and_page_versions(codec: str, version: str) -> None:
    texts = [f"text {i}" for i in range(500)]
    seen = _look(_file(texts, compression=codec, data_page_version=version, write_page_checksum=True))
    assert [text.decode() for text in seen.documents] == texts


def test_a_flipped_byte_is_no_crash_and_no_silent_change() -> None:
    texts = [f"text {i}" * 3 for i in range(40)]
    content = _file(texts[:20], texts[20:], write_page_checksum=True, compression="zstd")
    for at in range(0, len(content), 7):
        bad = bytearray(content)
        bad[at] ^= 0x10
        seen = _look(bytes(bad))
        if not seen.codes and not seen.rejected:  # statistics, metadata and the like
            assert [text.decode() for text in seen.documents] == texts, at


def test_a_compressed_container_is_refused_with_a_way_out() -> None:
    seen = _look(gzip_member(_file(["a"])))
    assert (seen.effect, seen.codes) == ("excluded", ["compressed-container"])
    assert "decompress it" in seen.end.findings[0].detail


def test_records_over_the_limit_are_rejected() -> None:
    seen = _look(_file(["a" * 10, "b" * 11, None]), max_record_bytes=10)
    assert [(finding.row, finding.code) for finding in seen.rejected] == [(1, "record-too-large"), (2, "null-text")]


def test_other_columns_are_read_where_they_are_asked_for() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"], "tags": [["x"], []]}), sink)
    shard = MemoryShard(sink.getvalue())
    block, _ = Parquet().scan(shard, ScanOptions())
    answer = Parquet().read(shard, block.place, ScanOptions(), fields=True)  # type: ignore[union-attr]
    assert answer.fields is not None
    assert answer.fields.to_pydict() == {"id": [1, 2], "tags": [["x"], []]}
    assert Parquet().read(shard, block.place, ScanOptions()).fields is None  # type: ignore[union-attr]


def test_a_changed_file_is_no_answer() -> None:
    (block,) = _look(_file(["a", "b"])).blocks
    for changed in (_file(["a"]), _file(), b"PAR1", _file(["a", "b"], name="other")):
        with pytest.raises(ShardDamaged):
            Parquet().read(MemoryShard(changed), block.place, ScanOptions())
