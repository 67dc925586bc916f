"""How does the demo lay records out as shards, in two of the formats that data comes in?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["Records", "write_json_lines", "write_parquet"]

Records = Sequence[dict[str, str]]
"""Each with a ``text`` and a ``name``."""


def write_json_lines(path: Path, records: Records) -> None:
    """One record a line, in one zstd frame with checksum."""
    import orjson
    import zstandard

    lines = b"".join(orjson.dumps(record) + b"\n" for record in records)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(lines))


def write_parquet(path: Path, records: Records, *, group_rows: int) -> None:
    """Row groups of `group_rows`, with checksums of their pages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(list(records), schema=pa.schema([("text", pa.string()), ("name", pa.string())]))
    pq.write_table(table, path, row_group_size=group_rows, compression="zstd", write_page_checksum=True)
