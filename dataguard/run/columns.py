"""What does a sealed, compacted or notable file look like inside, and is it the file it should be?

Index records as Parquet: one column a field, null for what is unset (-1, or all zero in a digest), rows in the order
(step, rank, microbatch, slot), zstd, a checksum on every page. Columns that climb are DELTA_BINARY_PACKED; row and
length, which do not, are split by byte (measured: a quarter smaller than any other encoding); only columns of few
values have a dictionary. Statistics of step, rank and position let a reader take one step out of a file.

An attempt with a policy has, behind those, one column for each headline signal (``headline_<signal>``, a byte on the
scales of `headline`, null where there is no value) and one for each signal of the policy (``signal_<signal>``, float32,
null where it is not kept). The file's identity names them, and then has version 2.

The file's metadata, under ``dataguard``, is a `FileIdentity`: a file that stands in another's place is refused. Page
checksums are verified on every read, and the footer's digest where a seal names it; damage is an error, never other
values.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from dataguard.core.digests import canonical_json
from dataguard.corpus.arrow import numbers, valid
from dataguard.errors import DataguardError, RunDamaged
from dataguard.run.headline import SCALES_VERSION
from dataguard.run.records import (
    HEADLINE_PREFIX,
    RANKED_RECORD,
    SIGNAL_PREFIX,
    headline_fields,
    index_record,
    signal_fields,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ROW_GROUP_RECORDS",
    "FileIdentity",
    "FileKind",
    "FileName",
    "footer_digest",
    "read_identity",
    "read_records",
    "read_table",
    "to_records",
    "to_table",
    "write_records",
]

FileKind = Literal["sealed", "compacted", "notable"]

ROW_GROUP_RECORDS: dict[FileKind, int] = {"sealed": 8_192, "compacted": 32_768, "notable": 32_768}
"""Records a row group: what is decoded to see one step."""

_METADATA = b"dataguard"
_LEVEL = 3
_CLIMBING = ("step", "batch", "microbatch", "slot", "position")
_FEW_VALUES = ["source", "status", "verdict", "rules", "event"]
_SPLIT = ("row", "length")
_STATISTICS = ["step", "rank", "position"]
_NULL_WHERE: dict[str, int] = {"delivered_shard": -1, "delivered_row": -1, "event": 0}


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="dataguard-index"):
    """What a Parquet file of index records says about itself."""

    version: Literal[1, 2] = 1
    """2 where records hold signals."""
    kind: FileKind
    run_id: str
    attempt: int
    rank: int | None
    """Null where ranks are merged."""
    first_step: int
    stop_step: int
    digests: dict[str, str] = {}
    """By what they are of: ``plan``, ``attempt``."""
    journal_head: tuple[int, str] = (0, "")
    headline: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Version 2: signals of which every record holds a byte, in the order of their columns."""
    signals: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Version 2: signals of which some records hold a float32, in the order of their columns."""
    scales: int | msgspec.UnsetType = msgspec.UNSET
    """Version 2: which scales the headline bytes are of."""

    def of(self, dtype: np.dtype[np.void]) -> FileIdentity:
        """The same for a file of such records."""
        headline, signals = headline_fields(dtype), signal_fields(dtype)
        if not headline and not signals:
            return self
        return msgspec.structs.replace(self, version=2, headline=headline, signals=signals, scales=SCALES_VERSION)

    @property
    def record(self) -> np.dtype[np.void]:
        """The record its columns make."""
        if self.version == 1:
            return RANKED_RECORD
        return index_record(self.headline or (), self.signals or (), ranked=True)


def _null_where(name: str) -> float | None:
    """What stands in a record where its column is null; None for a column that never is."""
    if name.startswith(HEADLINE_PREFIX):
        return 0
    return float("nan") if name.startswith(SIGNAL_PREFIX) else _NULL_WHERE.get(name)


def _schema(record: np.dtype[np.void]) -> pa.Schema:
    """The columns of a file of such records; null where something is unset."""
    import pyarrow as pa

    fields = []
    for name in record.names or ():
        dtype = record[name]
        kind = pa.binary(dtype.itemsize) if dtype.kind == "V" else pa.from_numpy_dtype(dtype)
        fields.append(pa.field(name, kind, nullable=dtype.kind == "V" or _null_where(name) is not None))
    return pa.schema(fields)


def to_table(records: NDArray[np.void]) -> pa.Table:
    """Records (RANKED_RECORD, or `index_record` with the rank) as an Arrow table, null for what is unset."""
    import pyarrow as pa

    arrays, schema = [], _schema(records.dtype)
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = np.ascontiguousarray(records[name])
        unset = None
        if column.dtype.kind == "V":
            content = column.view(np.uint8).reshape(len(column), -1)
            unset = ~content.any(axis=1)
        elif column.dtype.kind == "f":
            unset = np.isnan(column)
        elif (null := _null_where(name)) is not None:
            unset = column == null
        validity = None if unset is None else pa.py_buffer(np.packbits(~unset, bitorder="little").tobytes())
        arrays.append(pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(column.tobytes())]))
    return pa.Table.from_arrays(arrays, schema=schema)


def to_records(table: pa.Table) -> NDArray[np.void]:
    """The inverse of `to_table`."""
    headline = [name[len(HEADLINE_PREFIX) :] for name in table.column_names if name.startswith(HEADLINE_PREFIX)]
    signals = [name[len(SIGNAL_PREFIX) :] for name in table.column_names if name.startswith(SIGNAL_PREFIX)]
    dtype = index_record(headline, signals, ranked=True)
    records: NDArray[np.void] = np.zeros(len(table), dtype)
    for name in dtype.names or ():
        start = 0
        for chunk in table.column(name).chunks:
            target = records[name][start : start + len(chunk)]
            start += len(chunk)
            if dtype[name].kind == "V":
                width = dtype[name].itemsize
                content = np.frombuffer(chunk.buffers()[1], f"V{width}", len(chunk), chunk.offset * width)
                if chunk.null_count:
                    present = valid(chunk)
                    target[present] = content[present]
                else:
                    target[:] = content
            else:
                target[:] = numbers(chunk, null=_null_where(name))
    return records


def write_records(file: BinaryIO, records: NDArray[np.void], identity: FileIdentity) -> None:
    """Write records (RANKED_RECORD or with signals, in order) to an open file as one Parquet file.

    The same records and identity give the same bytes with the same version of pyarrow; nothing in them tells the time.
    """
    import pyarrow.parquet as pq

    table = to_table(records)
    headline = [HEADLINE_PREFIX + name for name in headline_fields(records.dtype)]
    split = [*_SPLIT, *headline, *(SIGNAL_PREFIX + name for name in signal_fields(records.dtype))]
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": _LEVEL,
        "use_dictionary": _FEW_VALUES,
        "column_encoding": dict.fromkeys(_CLIMBING, "DELTA_BINARY_PACKED") | dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        "write_statistics": _STATISTICS,
        "write_page_checksum": True,
        "store_schema": False,
    }
    with pq.ParquetWriter(file, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_RECORDS[identity.kind])
        writer.add_key_value_metadata({_METADATA.decode(): canonical_json(identity.of(records.dtype)).decode()})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """Which file is expected under a path; what its metadata must say."""

    kind: FileKind
    attempt: int
    rank: int | None
    first: int
    stop: int
    run_id: str | None = None
    """None where it is not known."""
    footer: int | None = None
    """`footer_digest` as its seal says; None where there is no seal."""


def footer_digest(path: Path) -> int:
    """xxh3-64 of a Parquet file's footer: everything behind its pages, which have checksums of their own.

    It says where columns lie and which steps a row group holds, and Parquet itself does not protect it.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    with path.open("rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - 8))
        length = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(0, size_bytes - length))
        return xxhash.xxh3_64_intdigest(file.read(length))


def read_identity(path: Path) -> FileIdentity:
    """What a Parquet file of index records says about itself.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    RunDamaged
        It is no such file, or cannot be read.
    """
    with _opened(path) as file:
        return _identity(path, file)


def read_records(path: Path, name: FileName, *, steps: tuple[int, int] | None = None) -> NDArray[np.void]:
    """The records of one file, or only those of some steps; only the row groups that hold them are read.

    Parameters
    ----------
    path
        The file.
    name
        Which file it should be; where its metadata says otherwise it is refused.
    steps
        Half-open; None for all.

    Returns
    -------
    NDArray[np.void]
        RANKED_RECORD, in the order of the file.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    RunDamaged
        It is damaged, or another file in its place.
    """
    table = read_table(path, name, steps=steps)
    if steps is not None:
        # Steps climb within a file, so those wanted lie together; the rest need not become records.
        begin, end = np.searchsorted(numbers(table.column("step")), np.array(steps, np.uint64)).tolist()
        table = table.slice(begin, end - begin)
    return to_records(table)


def read_table(
    path: Path, name: FileName, *, steps: tuple[int, int] | None = None, columns: list[str] | None = None
) -> pa.Table:
    """As `read_records`, but Arrow: the columns named, of every row group that may hold one of the steps."""
    with _opened(path, name.footer) as file:
        identity = _identity(path, file)
        _check(path, identity, name)
        if not file.schema_arrow.equals(_schema(identity.record)):
            raise RunDamaged(f"{path} is damaged", found="its columns are not those of an index file")
        if steps is None:
            return file.read(columns=columns, use_threads=False)
        return file.read_row_groups(_groups(file, *steps), columns=columns, use_threads=False)


@contextlib.contextmanager
def _opened(path: Path, footer: int | None = None) -> Iterator[Any]:
    """An open Parquet file; pyarrow's errors, then and later, become `RunDamaged`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if footer is not None and footer_digest(path) != footer:
            raise RunDamaged(f"{path} is damaged", found="its footer is not the one that was sealed")
        with pq.ParquetFile(str(path), page_checksum_verification=True, memory_map=False) as file:
            yield file
    except (DataguardError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        words = str(error).splitlines()[0] if str(error) else repr(error)
        raise RunDamaged(f"{path} is damaged", found=words) from error


def _identity(path: Path, file: Any) -> FileIdentity:
    document = (file.metadata.metadata or {}).get(_METADATA)
    if document is None:
        raise RunDamaged(f"{path} was not written by dataguard: its metadata does not name its run")
    try:
        identity = msgspec.json.decode(document, type=FileIdentity)
    except msgspec.MsgspecError as error:
        raise RunDamaged(f"{path} cannot be understood", found=str(error)) from error
    if identity.scales is not msgspec.UNSET and identity.scales > SCALES_VERSION:
        raise RunDamaged(
            f"{path} cannot be understood",
            found=f"headline bytes of scales {identity.scales}; this dataguard knows {SCALES_VERSION}",
        )
    return identity


def _check(path: Path, found: FileIdentity, name: FileName) -> None:
    pairs = {
        "kind": (found.kind, name.kind),
        "run": (found.run_id, name.run_id or found.run_id),
        "attempt": (found.attempt, name.attempt),
        "rank": (found.rank, name.rank),
        "first step": (found.first_step, name.first),
        "stop step": (found.stop_step, name.stop),
    }
    differ = [f"{what} {says!r} instead of {should!r}" for what, (says, should) in pairs.items() if says != should]
    if differ:
        raise RunDamaged(f"{path} is another file in this one's place", found="its metadata says " + ", ".join(differ))


def _groups(file: Any, first: int, stop: int) -> list[int]:
    """Row groups that may hold the steps, by their statistics."""
    metadata, groups = file.metadata, []
    column = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).name == "step")
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max or (statistics.min < stop and statistics.max >= first):
            groups.append(group)
    return groups
