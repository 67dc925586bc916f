"""How does a manifest lie on disk?

One Parquet file, a row a block, zstd, with page checksums. Facts about a shard are repeated on each of its blocks (a
dictionary keeps them small), so that any tool can query the file without knowing dataguard; its findings stand on its
first block. The schema's metadata holds one JSON document, `ManifestHeader`.

The digest is the manifest's own (core.manifest), taken over values and not over file bytes: it is computed again on
every read, and a file whose values give another digest is refused. Roots, counts of ignored files and the details of
findings are outside the digest; checksums of pages and header hold them.

A file is written beside its final name, synced and renamed: a failed write leaves the older good file as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.corpus.formats.protocol import Finding, ScanOptions
from dataguard.corpus.storage import is_url, open_root
from dataguard.errors import EnvironmentFailed, ManifestDamaged, UsageError, WriteFailed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ManifestDetails",
    "ManifestFile",
    "ManifestHeader",
    "NamedFinding",
    "SourceHeader",
    "read_findings",
    "read_header",
    "read_manifest",
    "schema",
    "write_manifest",
]

FORMAT_VERSION = 1
_KEY = b"dataguard.manifest"
_CHECK_KEY = b"dataguard.manifest.check"
_BLOCKS_A_ROW_GROUP = 1 << 14
_SHARD_COLUMNS = ("path", "format", "compression", "item_type", "shard_bytes", "shard_digest", "shard_rows", "effect")
_BLOCK_COLUMNS = ("first_row", "num_rows", "num_rejected", "offset_bytes", "size_bytes", "group", "content_bytes")


class SourceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A source, as the header names it."""

    name: str
    kind: str
    text_field: str
    root: str
    """Where its shards lay when the manifest was built; outside the digest."""


class ManifestHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON document in the schema's metadata under ``dataguard.manifest``."""

    version: int
    """Format version, 1."""
    digest: str
    """SHA-256 of the manifest's canonical bytes, hexadecimal."""
    sources: tuple[SourceHeader, ...]
    scan: dict[str, int]
    """Limits of the scan by name (`ScanOptions`), which reading keeps to: ``block_bytes``, ``max_record_bytes``, ..."""
    ignored_files: dict[str, int]
    """How many files were ignored, by reason."""

    def options_of(self, source: str) -> ScanOptions:
        """What reading a source of this manifest is told, so that it rejects what the scan rejected."""
        text_field = next(entry.text_field for entry in self.sources if entry.name == source)
        return ScanOptions(text_field=text_field, **self.scan)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDetails:
    """What the file holds beside the manifest: details of findings, which decide nothing."""

    lines: NDArray[np.int64]
    """Physical line, 1-based, of each rejected row; -1 where there is none. Shape (rejected,)."""
    offsets_bytes: NDArray[np.int64]
    """Byte offset of each rejected row; -1 where there is none. Shape (rejected,)."""
    details: tuple[str, ...]
    """What was expected and found, one line each. As many as there are rejected rows."""
    shard_findings: Mapping[int, tuple[Finding, ...]]
    """Findings of whole shards, by shard."""
    ignored_lines: NDArray[np.int64]
    """Blank lines and the like, by shard."""


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


def schema() -> pa.Schema:
    """The columns of a manifest file.

    >>> schema().names[:3]
    ['source', 'path', 'format']
    """
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    number = pa.int64()
    finding = [
        pa.field("row", number),
        pa.field("line", number),
        pa.field("offset_bytes", number),
        pa.field("code", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
    types = {
        "source": word,
        "path": word,
        "format": word,
        "compression": word,
        "item_type": word,
        "shard_bytes": number,
        "shard_digest": word,
        "shard_rows": number,
        "effect": word,
        "first_row": number,
        "num_rows": number,
        "num_rejected": number,
        "offset_bytes": number,
        "size_bytes": number,
        "group": number,
        "content_bytes": number,
        "digest": pa.binary(16),
        "rejected": pa.list_(pa.struct(finding)),
        "findings": pa.list_(pa.struct(finding)),
        "ignored_lines": number,
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def write_manifest(
    path: str | os.PathLike[str],
    manifest: Manifest,
    details: ManifestDetails,
    *,
    roots: Mapping[str, str],
    options: ScanOptions,
    ignored_files: Mapping[str, int],
) -> ManifestHeader:
    """Write a manifest file; the older file of that name stays as it was until the new one is whole and synced.

    Raises
    ------
    WriteFailed
        Disk full, no permission, no such folder.
    """
    header = ManifestHeader(
        version=FORMAT_VERSION,
        digest=manifest.digest,
        sources=tuple(
            SourceHeader(name=source.name, kind=source.kind, text_field=source.text_field, root=roots[source.name])
            for source in manifest.sources
        ),
        scan={name: value for name, value in sorted(asdict(options).items()) if isinstance(value, int)},
        ignored_files=dict(sorted(ignored_files.items())),
    )
    document = msgspec.json.encode(header)
    metadata = {_KEY: document, _CHECK_KEY: xxhash.xxh3_128_hexdigest(document)}
    table = _table(manifest, details).replace_schema_metadata(metadata)
    _write_durably(Path(path), table)
    return header


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
        wanted = ["source", *_SHARD_COLUMNS, *_BLOCK_COLUMNS, "digest"]
        wanted += ["rejected.list.element.row", "rejected.list.element.code"]
        try:
            table = parquet.read(columns=wanted, use_threads=False)
            manifest = _manifest(header, table)
        except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError, TypeError) as error:
            raise ManifestDamaged(f"{os.fspath(path)} cannot be read", found=_first_line(error)) from error
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

    with _open(path) as file:
        _, parquet = _opened(path, file)
        columns = ["source", "path", "findings", *(["rejected"] if rejected else [])]
        try:
            for batch in parquet.iter_batches(batch_size=1 << 12, columns=columns, use_threads=False):
                sources, paths = batch.column("source"), batch.column("path")
                for row in _rows_with_findings(batch, columns[2:]):
                    shard = f"{sources[row].as_py()}/{paths[row].as_py()}"
                    for column in columns[2:]:
                        for entry in batch.column(column)[row].as_py():
                            yield NamedFinding(shard=shard, finding=Finding(**entry))
        except (pa.ArrowException, OSError) as error:
            raise ManifestDamaged(f"{os.fspath(path)} cannot be read", found=_first_line(error)) from error


def read_ignored_lines(path: str | os.PathLike[str]) -> int:
    """How many blank lines and the like the scan passed over, in all shards together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with _open(path) as file:
        _, parquet = _opened(path, file)
        try:
            return int(pc.sum(parquet.read(columns=["ignored_lines"], use_threads=False).column(0)).as_py() or 0)
        except (pa.ArrowException, OSError) as error:
            raise ManifestDamaged(f"{os.fspath(path)} cannot be read", found=_first_line(error)) from error


def _rows_with_findings(batch: pa.RecordBatch, columns: list[str]) -> list[int]:
    import pyarrow.compute as pc

    some = np.zeros(batch.num_rows, bool)
    for column in columns:
        some |= np.asarray(pc.list_value_length(batch.column(column))) > 0
    return [int(row) for row in np.flatnonzero(some)]


def _table(manifest: Manifest, details: ManifestDetails) -> pa.Table:
    import pyarrow as pa

    owners = manifest.blocks["shard"].astype(np.int32)
    is_first = np.zeros(len(owners), bool)
    is_first[manifest.block_starts[:-1]] = True

    def of_shard(values: list[str]) -> pa.Array:
        words, codes = np.unique(np.array(values, object), return_inverse=True)
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)[owners]), pa.array(words, pa.string()))

    shards = manifest.shards
    columns: dict[str, Any] = {
        "source": of_shard([manifest.sources[shard.source].name for shard in shards]),
        "path": of_shard([shard.path for shard in shards]),
        "format": of_shard([shard.format for shard in shards]),
        "compression": of_shard([shard.compression for shard in shards]),
        "item_type": of_shard([shard.item_type for shard in shards]),
        "shard_bytes": pa.array(np.array([shard.size_bytes for shard in shards], np.int64)[owners]),
        "shard_digest": of_shard([shard.digest for shard in shards]),
        "shard_rows": pa.array(np.array([shard.num_rows for shard in shards], np.int64)[owners]),
        "effect": of_shard([shard.effect for shard in shards]),
    }
    for name in _BLOCK_COLUMNS:
        columns[name] = pa.array(np.ascontiguousarray(manifest.blocks[name]))
    digests = pa.py_buffer(np.ascontiguousarray(manifest.blocks["digest"]).tobytes())
    columns["digest"] = pa.Array.from_buffers(pa.binary(16), len(owners), [None, digests])
    target = schema()
    element = target.field("rejected").type.value_type
    codes = [manifest.codes[code] for code in manifest.rejected["code"]]
    columns["rejected"] = _lists(
        element,
        manifest.rejected_starts,
        [
            np.ascontiguousarray(manifest.rejected["row"]),
            _or_null(details.lines),
            _or_null(details.offsets_bytes),
            codes,
            list(details.details),
        ],
    )
    flat = [(shard, finding) for shard in sorted(details.shard_findings) for finding in details.shard_findings[shard]]
    counts = np.zeros(len(owners), np.int64)
    np.add.at(counts, manifest.block_starts[[shard for shard, _ in flat]] if flat else np.zeros(0, np.int64), 1)
    columns["findings"] = _lists(
        element,
        np.concatenate([[0], np.cumsum(counts)]),
        [[getattr(finding, name) for _, finding in flat] for name in ("row", "line", "offset_bytes", "code", "detail")],
    )
    columns["ignored_lines"] = pa.array(np.where(is_first, details.ignored_lines[owners], 0))
    return pa.table([columns[field.name] for field in target], schema=target)


def _lists(element: pa.StructType, starts: NDArray[np.int64], values: list[Any]) -> pa.ListArray:
    import pyarrow as pa

    arrays = [
        pa.array(value, element.field(i).type, from_pandas=False) if not isinstance(value, pa.Array) else value
        for i, value in enumerate(values)
    ]
    fields = [element.field(i) for i in range(element.num_fields)]
    return pa.ListArray.from_arrays(
        pa.array(starts.astype(np.int32)), pa.StructArray.from_arrays(arrays, fields=fields), type=pa.list_(element)
    )


def _or_null(values: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.int64(), mask=values < 0)


def _manifest(header: ManifestHeader, table: pa.Table) -> Manifest:
    """Arrays of blocks at once; Python objects only for sources and shards."""
    numbers = {name: _numbers(table, name) for name in _BLOCK_COLUMNS}
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
    columns = {name: table.column(name).take(firsts).to_pylist() for name in _SHARD_COLUMNS}
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
            source_codes[firsts], *(columns[name] for name in _SHARD_COLUMNS), strict=True
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
    import pyarrow.compute as pc

    lists = table.column("rejected").combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    flat = lists.flatten()
    rejected = np.zeros(len(flat), REJECTED_DTYPE)
    rejected["block"] = np.repeat(np.arange(len(lists)), np.asarray(pc.list_value_length(lists)))
    rejected["row"] = np.asarray(flat.field("row"))
    coded = flat.field("code").dictionary_encode()
    words = coded.dictionary.to_pylist()
    codes = tuple(sorted(words))
    order = np.array([codes.index(word) for word in words], np.uint16)
    if len(flat):
        rejected["code"] = order[np.asarray(coded.indices)]
    return rejected, codes


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table.column(name), np.int64)


def _coded(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    column = table.column(name).unify_dictionaries().combine_chunks()
    return np.asarray(column.indices, np.int64), column.dictionary.to_pylist()


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    where = os.fspath(path)
    try:
        if is_url(where):
            folder, _, name = where.rpartition("/")
            return open_root(folder).open(name)
        return Path(where).open("rb")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(
            f"no manifest at {where}",
            found=_first_line(error),
            todo="build one: dataguard manifest build PATHS -o M.parquet",
        ) from error
    except OSError as error:
        raise EnvironmentFailed(f"{where} cannot be opened", found=_first_line(error)) from error


def _opened(path: str | os.PathLike[str], file: BinaryIO) -> tuple[ManifestHeader, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = os.fspath(path)
    try:
        parquet = pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise ManifestDamaged(f"{where} is no manifest, or a damaged one", found=_first_line(error)) from error
    metadata = parquet.schema_arrow.metadata or {}
    document = metadata.get(_KEY)
    if document is None:
        raise ManifestDamaged(
            f"{where} is a Parquet file, but no manifest",
            found=f"columns {', '.join(parquet.schema_arrow.names[:8])}",
            todo="build one over it: dataguard manifest build PATHS -o M.parquet",
        )
    if metadata.get(_CHECK_KEY) != xxhash.xxh3_128_hexdigest(document).encode():
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
        raise ManifestDamaged(f"the header of {where} is damaged", found=_first_line(error)) from error
    if parquet.schema_arrow.names != schema().names:
        raise ManifestDamaged(f"{where} lacks columns of a manifest", found=", ".join(parquet.schema_arrow.names))
    return header, parquet


def _write_durably(path: Path, table: pa.Table) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("wb") as file:
                pq.write_table(
                    table,
                    file,
                    compression="zstd",
                    write_page_checksum=True,
                    row_group_size=_BLOCKS_A_ROW_GROUP,
                    use_dictionary=[
                        "source",
                        "path",
                        "format",
                        "compression",
                        "item_type",
                        "shard_digest",
                        "effect",
                        "rejected.list.element.code",
                        "findings.list.element.code",
                    ],
                )
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, pa.ArrowException) as error:
        raise WriteFailed(
            f"manifest {path} could not be written",
            found=_first_line(error),
            todo="nothing was replaced; mend and repeat",
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
