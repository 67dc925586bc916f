"""What does a manifest file hold, and can it be trusted?

The format stands in manifest_format.py. Blocks are read as arrays, all at once; Python objects are made for sources and
shards only, so 100,000 blocks load in a fraction of a second. Details of findings are read when they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.corpus.arrow import list_lengths, numbers
from dataguard.corpus.formats.protocol import Finding
from dataguard.corpus.manifest_format import (
    BLOCK_COLUMNS,
    CHECK_KEY,
    FORMAT_VERSION,
    KEY,
    SHARD_COLUMNS,
    ManifestHeader,
    first_line,
    schema,
)
from dataguard.corpus.storage import is_url, open_root
from dataguard.errors import EnvironmentFailed, ManifestDamaged, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ManifestFile",
    "NamedFinding",
    "read_findings",
    "read_header",
    "read_manifest",
]

_FEW_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A manifest as read from disk."""

    manifest: Manifest
    header: ManifestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFinding:
    """A finding with the shard it belongs to."""

    shard: str
    """``SOURCE/path``."""
    finding: Finding


def read_manifest(path: str | os.PathLike[str]) -> ManifestFile:
    """Read a manifest file and check that its values give its digest.

    Raises
    ------
    ManifestDamaged
        No manifest, a newer format version, a checksum or digest that does not fit.
    UsageError
        No such file.
    """
    import pyarrow as pa

    with _open(path) as file:
        header, parquet = _opened(path, file)
        wanted = ["source", *SHARD_COLUMNS, *BLOCK_COLUMNS, "digest"]
        wanted += ["rejected.list.element.row", "rejected.list.element.code"]
        try:
            table = parquet.read(columns=wanted, use_threads=False)
            manifest = _manifest(header, table)
        except (pa.ArrowException, OSError, LookupError, ValueError, OverflowError, TypeError) as error:
            raise ManifestDamaged(f"{os.fspath(path)} cannot be read", found=first_line(error)) from error
    if manifest.digest != header.digest:
        raise ManifestDamaged(
            f"{os.fspath(path)} does not hold the manifest it names",
            found=f"digest {manifest.digest}",
            allowed=f"digest {header.digest}",
            todo="restore the file, or build the manifest again",
        )
    return ManifestFile(manifest=manifest, header=header)


def read_header(path: str | os.PathLike[str]) -> ManifestHeader:
    """The header alone; the digest it names is not checked against the values."""
    with _open(path) as file:
        return _opened(path, file)[0]


def read_findings(path: str | os.PathLike[str], *, rejected: bool = True) -> Iterator[NamedFinding]:
    """Every finding in the order of shards and rows, a shard's own findings before those of its records.

    Parameters
    ----------
    path
        The manifest file.
    rejected
        Whether to give rejected records too, or findings of whole shards alone.
    """
    import pyarrow as pa

    num_seen = num_blocks = 0
    columns = ["rejected", "findings"]
    with _open(path) as file:
        header, parquet = _opened(path, file)
        try:
            for batch in parquet.iter_batches(
                batch_size=1 << 12, columns=["source", "path", *columns], use_threads=False
            ):
                num_blocks += batch.num_rows
                sources, paths = batch.column("source"), batch.column("path")
                for row in _rows_with_findings(batch, columns):
                    shard = f"{sources[row].as_py()}/{paths[row].as_py()}"
                    for column in ("findings", "rejected"):
                        found = batch.column(column)[row]
                        num_seen += len(found)
                        if rejected or column == "findings":
                            yield from (NamedFinding(shard=shard, finding=Finding(**e)) for e in found.as_py())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ManifestDamaged(f"{os.fspath(path)} cannot be read", found=first_line(error)) from error
    if (num_blocks, num_seen) != (header.num_blocks, header.num_findings):
        raise ManifestDamaged(
            f"{os.fspath(path)} does not hold the findings it counts",
            found=f"{num_seen:,} in {num_blocks:,} blocks",
            allowed=f"{header.num_findings:,} in {header.num_blocks:,} blocks",
        )


def _rows_with_findings(batch: pa.RecordBatch, columns: list[str]) -> list[int]:
    some = np.zeros(batch.num_rows, bool)
    for column in columns:
        some |= list_lengths(batch.column(column)) > 0
    return [int(row) for row in np.flatnonzero(some)]


def _manifest(header: ManifestHeader, table: pa.Table) -> Manifest:
    """Arrays of blocks at once; Python objects only for sources and shards."""
    numbers = {name: _numbers(table, name) for name in BLOCK_COLUMNS}
    source_codes, source_words = _coded(table, "source")
    path_codes, _ = _coded(table, "path")
    changed = np.ones(table.num_rows, bool)
    if table.num_rows:
        changed[1:] = (np.diff(source_codes) != 0) | (np.diff(path_codes) != 0)
    firsts = np.flatnonzero(changed)
    blocks = np.zeros(table.num_rows, BLOCK_DTYPE)
    blocks["shard"] = np.cumsum(changed) - 1
    for name, values in numbers.items():
        blocks[name] = values
    digests = table.column("digest").combine_chunks()
    if table.num_rows:
        start = digests.offset * 16
        blocks["digest"] = np.frombuffer(digests.buffers()[1], "V16")[start // 16 : start // 16 + table.num_rows]
    names = [source.name for source in header.sources]
    places = {name: i for i, name in enumerate(names)}
    columns = {name: _of_shards(table, name, firsts) for name in SHARD_COLUMNS}
    shards = tuple(
        Shard(
            source=places[source_words[source]],
            path=path,
            format=kind,
            compression=compression,
            item_type=item_type,
            size_bytes=size_bytes,
            digest=digest,
            num_rows=num_rows,
            effect=effect,
        )
        for source, path, kind, compression, item_type, size_bytes, digest, num_rows, effect in zip(
            source_codes[firsts], *(columns[name] for name in SHARD_COLUMNS), strict=True
        )
    )
    rejected, codes = _rejected(table)
    return Manifest(
        sources=tuple(
            Source(name=source.name, kind=source.kind, text_field=source.text_field)  # type: ignore[arg-type]
            for source in header.sources
        ),
        shards=shards,
        blocks=blocks,
        rejected=rejected,
        codes=codes,
    )


def _rejected(table: pa.Table) -> tuple[NDArray[np.void], tuple[str, ...]]:
    import pyarrow as pa

    lists = table.column("rejected").combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    lengths = list_lengths(lists)
    if not lengths.any():
        return np.zeros(0, REJECTED_DTYPE), ()
    # Flattening and encoding import Arrow's compute functions, which takes longer than a few rows do in Python.
    if lists.null_count:
        flat = lists.flatten()
    else:
        offsets = numbers(lists.offsets)
        flat = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    rejected = np.zeros(len(flat), REJECTED_DTYPE)
    rejected["block"] = np.repeat(np.arange(len(lists)), lengths)
    rejected["row"] = numbers(flat.field("row"))
    if len(flat) <= _FEW_ROWS:
        spelled = flat.field("code").to_pylist()
        codes = tuple(sorted(set(spelled)))
        rejected["code"] = [codes.index(word) for word in spelled]
        return rejected, codes
    coded = flat.field("code").dictionary_encode()
    words = coded.dictionary.to_pylist()
    codes = tuple(sorted(words))
    order = np.array([codes.index(word) for word in words], np.uint16)
    rejected["code"] = order[numbers(coded.indices)]
    return rejected, codes


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return numbers(table.column(name)).astype(np.int64)


def _of_shards(table: pa.Table, name: str, firsts: NDArray[np.intp]) -> list[Any]:
    """One value a shard, from its first block."""
    if name in {"shard_bytes", "shard_rows"}:
        values: list[Any] = _numbers(table, name)[firsts].tolist()
        return values
    codes, words = _coded(table, name)
    return [words[code] for code in codes[firsts].tolist()]


def _coded(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    column = table.column(name).unify_dictionaries().combine_chunks()
    return numbers(column.indices).astype(np.int64), column.dictionary.to_pylist()


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    where = os.fspath(path)
    try:
        if is_url(where):
            folder, _, name = where.rpartition("/")
            return open_root(folder).open(name)
        return Path(where).open("rb")
    except (FileNotFoundError, IsADirectoryError) as error:
        is_run = Path(where, "journal").is_dir()
        raise UsageError(
            f"no manifest at {where}",
            found="a run directory" if is_run else error.strerror or first_line(error),
            todo=f"name one of its manifests: {where}/manifest/*.parquet"
            if is_run
            else "build one: dataguard manifest build PATHS -o M.parquet",
        ) from error
    except OSError as error:
        raise EnvironmentFailed(f"{where} cannot be opened", found=first_line(error)) from error


def _opened(path: str | os.PathLike[str], file: BinaryIO) -> tuple[ManifestHeader, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = os.fspath(path)
    try:
        parquet = pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ManifestDamaged(f"{where} is no manifest, or a damaged one", found=first_line(error)) from error
    metadata = parquet.schema_arrow.metadata or {}
    document = metadata.get(KEY)
    if document is None:
        raise ManifestDamaged(
            f"{where} is a Parquet file, but no manifest",
            found=f"columns {', '.join(parquet.schema_arrow.names[:8])}",
            todo="build one over it: dataguard manifest build PATHS -o M.parquet",
        )
    if metadata.get(CHECK_KEY) != xxhash.xxh3_128_hexdigest(document).encode():
        raise ManifestDamaged(f"the header of {where} is damaged", found="its check sum differs")
    try:
        version = msgspec.json.decode(document).get("version")
        if version != FORMAT_VERSION:
            raise ManifestDamaged(
                f"{where} has manifest format {version!r}",
                allowed=f"format {FORMAT_VERSION}",
                todo="read it with a newer dataguard",
            )
        header = msgspec.json.decode(document, type=ManifestHeader)
    except (msgspec.DecodeError, AttributeError) as error:
        raise ManifestDamaged(f"the header of {where} is damaged", found=first_line(error)) from error
    if not parquet.schema_arrow.equals(schema()):
        raise ManifestDamaged(f"{where} has not the columns of a manifest", found=", ".join(parquet.schema_arrow.names))
    return header, parquet
