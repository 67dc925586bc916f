"""K5, token layout: documents and sequences of pairs, empty files, byte orders, lengths that lie. G09, G10."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.corpus.formats import BlockPlace, Megatron, NumpyTokens, ScanOptions
from dataguard.errors import ShardDamaged
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import FileShard, MemoryShard, Seen, look
from tests.corpus.making import megatron_files


def _file(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    sink = io.BytesIO()
    np.lib.format.write_array(sink, np.asanyarray(array), version=version, allow_pickle=True)
    return sink.getvalue()


def _look(content: bytes, **options: Any) -> Seen:
    return look(NumpyTokens(), MemoryShard(content, "x.npy"), **options)


def _pair(content: bytes, index: bytes) -> MemoryShard:
    shard = MemoryShard(content, "x.bin", "none")
    shard.companions = [MemoryShard(index, "x.idx", "none")]
    return shard


@pytest.mark.parametrize("code", [8, 4])
def test_g09_documents_and_sequences_are_kept_apart(code: int) -> None:
    shard = _pair(*megatron_files([[5, 6, 7], [], [8, 9], [10, 11, 12, 13]], [0, 1, 2, 4], code=code))
    seen = look(Megatron(), shard)
    assert seen.tokens == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert (seen.effect, seen.end.num_documents, seen.end.num_sequences) == ("clean", 3, 4)
    found = Megatron().boundaries(shard, 0, 9, ScanOptions())
    documents = [seen.tokens[start:stop] for start, stop in found.documents.tolist()]
    assert documents == [[5, 6, 7], [], [8, 9, 10, 11, 12, 13]]
    assert found.sequences.tolist() == [[0, 3], [3, 3], [3, 5], [5, 9]]
    # the empty document stands where the third begins, and shifts nothing
    behind = Megatron().boundaries(shard, 3, 4, ScanOptions())
    assert (behind.first_document, behind.documents.tolist()) == (1, [[3, 3], [3, 9]])


def test_g10_a_pair_without_sequences() -> None:
    shard = _pair(*megatron_files([]))
    seen = look(Megatron(), shard)
    assert (seen.tokens, seen.effect, seen.end.num_documents, seen.end.item_type) == ([], "clean", 0, "<u2")
    assert Megatron().boundaries(shard, 0, 0, ScanOptions()).documents.tolist() == []


def test_g09_and_g10_as_given(shared: Path) -> None:
    for name, tokens, spans in (
        ("G09/u16", list(range(5, 14)), [[0, 3], [3, 3], [3, 9]]),
        ("G09/i32", list(range(5, 14)), [[0, 3], [3, 3], [3, 9]]),
        ("G10/empty", [], []),
    ):
        path = shared / "cases/given" / f"{name}.bin"
        shard = FileShard(path, "none")
        shard.companions = [FileShard(path.with_suffix(".idx"), "none")]
        seen = look(Megatron(), shard)
        assert (seen.tokens, seen.effect) == (tokens, "clean")
        assert Megatron().boundaries(shard, 0, len(tokens), ScanOptions()).documents.tolist() == spans


def test_g10_empty_files_byte_orders_and_fortran() -> None:
    empty = _look(_file(np.zeros(0, "<u2")))
    assert (empty.tokens, empty.effect, empty.end.item_type) == ([], "clean", "<u2")
    assert _look(_file(np.array([1, 2, 258, 65535], ">u2"))).tokens == [1, 2, 258, 65535]
    fortran = _look(_file(np.asfortranarray(np.array([[1, 2, 3], [4, 5, 6]], "<u2"))))
    assert (fortran.effect, fortran.codes) == ("excluded", ["fortran-order"])
    assert "(2, 3)" in fortran.end.findings[0].detail
    nothing = look(NumpyTokens(), MemoryShard(b"", "zero_bytes.npy"))
    assert (nothing.effect, nothing.codes) == ("excluded", ["bad-npy-header"])
    assert "zero_bytes.npy is no npy file (0 bytes)" in nothing.end.findings[0].detail


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_integer_type_in_both_byte_orders(code: str, order: str) -> None:
    info = np.iinfo(code)
    greatest = min(int(info.max), (1 << 63) - 1)  # nobody can be given a larger one
    values = [0, 1, 2, 3, greatest, greatest - 1, int(info.min)]
    seen = _look(_file(np.array(values, order + code)), block_tokens=3)
    assert seen.tokens == values
    little = _look(_file(np.array(values, "<" + code)), block_tokens=3)
    assert [block.digest for block in seen.blocks] == [block.digest for block in little.blocks]


def test_two_dimensions_are_flattened_row_by_row() -> None:
    assert _look(_file(np.array([[1, 2, 3], [4, 5, 6]]))).tokens == [1, 2, 3, 4, 5, 6]
    # with one row or one column both orders are the same
    header = _file(np.array([[1], [2]], "<i8")).replace(b"'fortran_order': False", b"'fortran_order': True ")
    assert _look(header).tokens == [1, 2]
    assert _look(_file(np.zeros((0, 4), "<u4"))).tokens == []


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (np.array([1.5]), "not-integers"),
        (np.array([True]), "not-integers"),
        (np.array(["a"]), "not-integers"),
        (np.array([{"a": 1}], dtype=object), "not-integers"),
        (np.array([(1, 2)], dtype=[("a", "<i4"), ("b", "<i4")]), "not-integers"),
        (np.array(["2020-01-01"], "M8[D]"), "not-integers"),
        (np.array(5), "bad-shape"),
        (np.zeros((2, 2, 2), "<u2"), "bad-shape"),
    ],
)
def test_what_is_no_run_of_ids_is_excluded(array: Any, code: str) -> None:
    seen = _look(_file(array))
    assert (seen.effect, seen.codes) == ("excluded", [code])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_header_versions(version: tuple[int, int]) -> None:
    assert _look(_file(np.arange(9, dtype="<u4"), version)).tokens == list(range(9))


def test_cut_at_every_length() -> None:
    content = _file(np.arange(20, dtype="<u2"))
    for length in range(len(content)):
        seen = _look(content[:length], block_tokens=7)
        assert seen.effect == "excluded", length
        assert seen.codes == ["bad-npy-header" if length < 128 else "too-short"]
    detail = _look(content[:-3]).end.findings[0].detail
    assert "168 bytes" in detail
    assert "165" in detail


def test_bytes_after_the_array_are_flagged() -> None:
    seen = _look(_file(np.arange(5, dtype="<u2")) + b"junk")
    assert (seen.tokens, seen.effect, seen.codes) == ([0, 1, 2, 3, 4], "flagged", ["trailing-bytes"])
    assert "4 bytes" in seen.end.findings[0].detail


@pytest.mark.parametrize("packed", [gzip_member, zstd_frame])
def test_compressed_token_files(packed: Any) -> None:
    content = packed(_file(np.arange(5000, dtype=">u4")))
    assert _look(content, block_tokens=999).tokens == list(range(5000))
    cut = _look(content[: len(content) // 2])
    assert cut.effect == "excluded"
    assert cut.codes in (["truncated-stream", "too-short"], ["truncated-stream", "bad-npy-header"])


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<u2', 'fortran_order': False, 'shape': (-1,)}",
        b"{'descr': '<u2', 'fortran_order': False, 'shape': [3]}",
        b"{'descr': '<u2', 'fortran_order': False}",
        b"{'descr': 'nonsense', 'fortran_order': False, 'shape': (3,)}",
        b"__import__('os').getpid()",
        b"{'descr': '<u2', 'fortran_order': 'no', 'shape': (3,)}",
        b"{" * 900,
        b"\xff\xfe\x00",
    ],
)
def test_headers_that_make_no_sense(header: bytes) -> None:
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(6)
    assert _look(content).codes == ["bad-npy-header"]


def test_a_shape_of_more_than_32_bits_is_reckoned_exactly() -> None:
    header = b"{'descr': '<u2', 'fortran_order': False, 'shape': (4294967296, 4294967297)}"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(60)
    seen = _look(content)
    assert seen.codes == ["too-short"]
    assert f"{2 * (2**32 * (2**32 + 1)) + 10 + len(header):,} bytes" in seen.end.findings[0].detail


def test_python_2_headers() -> None:
    header = b"{'descr': '<u2', 'fortran_order': False, 'shape': (3L,), }"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + np.arange(3, dtype="<u2").tobytes()
    assert _look(content).tokens == [0, 1, 2]


def test_rows_past_4_gib_are_found(tmp_path: Path) -> None:
    path = tmp_path / "big.npy"
    num_tokens = 2_200_000_000
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": (num_tokens,)})
        header_bytes = file.tell()
        file.seek(header_bytes + 2 * num_tokens - 8)
        file.write(np.array([11, 12, 13, 14], "<u2").tobytes())  # the rest is a hole
    shard = FileShard(path)
    assert shard.size_bytes > 1 << 32
    place = BlockPlace(
        first_row=num_tokens - 4, num_rows=4, offset_bytes=header_bytes + 2 * (num_tokens - 4), size_bytes=8
    )
    tokens = NumpyTokens().read(shard, place, ScanOptions()).tokens
    assert tokens is not None
    assert tokens.tolist() == [11, 12, 13, 14]


def test_a_changed_file_is_no_answer() -> None:
    (block,) = _look(_file(np.arange(9, dtype="<u2"))).blocks
    for changed in (b"", _file(np.arange(9, dtype="<u4")), _file(np.arange(3, dtype="<u2"))):
        with pytest.raises(ShardDamaged):
            NumpyTokens().read(MemoryShard(changed), block.place, ScanOptions())
