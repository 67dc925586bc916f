"""What does a task leave behind?

A part: one Parquet file, a row a scored sample in the order of shards and rows, with its digest and its signals. What
cannot be said in rows (samples that were rejected or could not be read) is a JSON document in the schema's metadata.
A part is whole or not there, so the parts that there are, are what is done.

Parts lie in the audit's folder until its second half has made the final files of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.audit.parquet import parquet_writer
from dataguard.errors import RunDamaged
from dataguard.score.registry import SIGNALS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "PART_KEY",
    "Part",
    "PartDocument",
    "PartWriter",
    "Problem",
    "Rows",
    "ShardCounts",
    "columns_of",
    "part_writer",
    "read_part",
]

PART_KEY = b"dataguard.audit.part"
_GROUP_ROWS = 1 << 16
_DIGEST_BYTES = 16


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that could not be read, and why."""

    shard: int
    first_row: int
    """Of the block that could not be read: a row of text, or a token."""
    num_samples: int
    kind: str
    """``missing``, ``unreadable``, ``damaged`` or ``changed``."""
    detail: str

    @property
    def may_be_mended(self) -> bool:
        """Whether the same blocks may be read another time; bytes that are the manifest's and no shard stay so."""
        return self.kind != "damaged"


class ShardCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the samples of one shard in one part: scored + rejected + unreadable of them."""

    shard: int
    num_samples: int
    num_scored: int
    num_rejected: int
    num_unreadable: int


class PartDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON document of a part."""

    task: int
    start: int
    stop: int
    """Blocks ``start:stop`` of the manifest."""
    num_rows: int
    """Rows of the file."""
    shards: tuple[ShardCounts, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Some scored samples, of one kind. All arrays have one entry a sample."""

    kind: str
    """``text`` or ``tokens``."""
    shard: NDArray[np.int64]
    row: NDArray[np.int64]
    """Row of a text shard, window of a token shard."""
    content_bytes: NDArray[np.int64]
    """Bytes of text, or of the ids as stored."""
    digests: NDArray[np.void]
    """V16, core.digests.sample_digest."""
    signals: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.row)


def columns_of(names: Sequence[str]) -> list[tuple[str, Any]]:
    """Name and Arrow type of the columns of these signals."""
    import pyarrow as pa

    return [(name, pa.int64() if SIGNALS[name].whole else pa.float64()) for name in names]


def _schema(names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    fixed = [
        ("shard", pa.int32()),
        ("row", pa.int64()),
        ("content_bytes", pa.int64()),
        ("digest", pa.binary(_DIGEST_BYTES)),
    ]
    return pa.schema([*fixed, *columns_of(names)])


class PartWriter:
    """Writes one part to an open file, a bounded number of rows in memory.

    See `part_writer`.
    """

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self.num_rows = 0
        self._schema = schema
        self._writer = writer
        self._waiting: list[pa.Table] = []
        self._num_waiting = 0

    def add(self, rows: Rows) -> None:
        """Append rows; those of one call are of one kind."""
        import pyarrow as pa

        columns: list[Any] = [
            pa.array(rows.shard.astype(np.int32, copy=False)),
            pa.array(rows.row),
            pa.array(rows.content_bytes),
            pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(_DIGEST_BYTES), len(rows), [None, pa.py_buffer(rows.digests.tobytes())]
            ),
        ]
        for field in list(self._schema)[len(columns) :]:
            values = rows.signals.get(field.name)
            columns.append(pa.nulls(len(rows), field.type) if values is None else pa.array(values, field.type))
        self._waiting.append(pa.Table.from_arrays(columns, schema=self._schema))
        self._num_waiting += len(rows)
        self.num_rows += len(rows)
        while self._num_waiting >= _GROUP_ROWS:
            self._write(_GROUP_ROWS)

    def finish(self, document: PartDocument) -> None:
        """Write what is waiting, and the document."""
        if self._num_waiting:
            self._write(self._num_waiting)
        self._writer.add_key_value_metadata({PART_KEY.decode(): msgspec.json.encode(document).decode()})

    def _write(self, num_rows: int) -> None:
        import pyarrow as pa

        table = pa.concat_tables(self._waiting)
        self._writer.write_table(table.slice(0, num_rows).combine_chunks(), row_group_size=num_rows)
        self._waiting = [table.slice(num_rows)]
        self._num_waiting -= num_rows


@contextmanager
def part_writer(sink: BinaryIO, names: Sequence[str]) -> Iterator[PartWriter]:
    """Writes a part to an open file while the block goes on; `PartWriter.finish` is the last of it.

    Parameters
    ----------
    sink
        Where to.
    names
        All signals of the job, of both kinds, in order; those of the other kind are null.
    """
    schema = _schema(names)
    with parquet_writer(sink, schema, compression_level=1, use_dictionary=False, write_statistics=False) as writer:
        yield PartWriter(writer, schema)


class Part:
    """A part as it is read again, a bounded number of rows at a time."""

    def __init__(self, parquet: Any, document: PartDocument, path: Path) -> None:
        self.document = document
        self._parquet = parquet
        self._path = path

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Its rows, some at a time, in order."""
        import pyarrow as pa

        wanted = None if columns is None else list(columns)
        try:
            for group in range(self._parquet.num_row_groups):
                yield self._parquet.read_row_group(group, columns=wanted, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self._path, error) from error


def read_part(path: Path) -> Part:
    """Open a part.

    Raises
    ------
    RunDamaged
        It was changed after it was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
        document = msgspec.json.decode((parquet.metadata.metadata or {})[PART_KEY], type=PartDocument)
    except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as error:
        raise _damaged(path, error) from error
    return Part(parquet, document, path)


def _damaged(path: Path, error: Exception) -> RunDamaged:
    return RunDamaged(
        f"{os.fspath(path)}, a part of the audit, is damaged",
        found=" ".join(str(error).split())[:300],
        todo="remove that file and go on with --resume: its blocks are scored again",
    )
