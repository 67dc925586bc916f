"""Is the second reading of a Parquet footer the same as Arrow's, and harmless whatever the bytes are?"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.formats.parquet_footer import Chunk, chunks_in, footer_of


def by_arrow(file: Any) -> list[list[Chunk]]:
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [[_chunk(group.column(i)) for i in range(group.num_columns)] for group in groups]


def _chunk(column: Any) -> Chunk:
    start = column.dictionary_page_offset or 0
    return Chunk(
        name=column.path_in_schema,
        num_values=column.num_values,
        stored_bytes=column.total_compressed_size,
        decoded_bytes=column.total_uncompressed_size,
        dictionary_bytes=column.data_page_offset - start if 0 < start < column.data_page_offset else -1,
        start_bytes=start if 0 < start < column.data_page_offset else column.data_page_offset,
    )


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_our_own_files(use_dictionary: bool, version: str) -> None:
    table = pa.table({
        "text": ["a", None, "b" * 5_000], "n": pa.array([{"x": [1]}, None, {"x": [2, 3]}]), "f": [True, False, None],
        "m": pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
    })  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2, use_dictionary=use_dictionary, version=version, compression="zstd")
    assert chunks_in(footer_of(sink)) == by_arrow(sink)
    assert len(chunks_in(footer_of(sink))) == 2


def test_other_peoples_files(shared: Path) -> None:
    files = sorted((shared / "data/formats/parquet").rglob("*.*parquet"))
    assert len(files) > 60
    for path in files:
        with path.open("rb") as file:
            assert chunks_in(footer_of(file)) == by_arrow(path), path


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_survived(content: bytes, is_sized: bool) -> None:
    size = len(content) if is_sized else 7
    assert isinstance(chunks_in(footer_of(io.BytesIO(content + size.to_bytes(4, "little") + b"PAR1"))), list)


def test_every_flipped_bit_of_a_footer_is_survived() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"], "id": [1, 2]}), sink)
    content = sink.getvalue()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in range(start, len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            assert isinstance(chunks_in(footer_of(io.BytesIO(bytes(changed)))), list)
