"""How is a manifest file written, so that no reader ever sees half of one?

The format stands in manifest_format.py. The file is written beside its final name, synced and renamed, and its folder
synced: a write that fails leaves the older good file as it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from dataguard.core.manifest import Manifest
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.hub import revision_of
from dataguard.corpus.manifest_format import (
    BLOCK_COLUMNS,
    CHECK_KEY,
    FORMAT_VERSION,
    KEY,
    ManifestDetails,
    ManifestHeader,
    SourceHeader,
    first_line,
    schema,
)
from dataguard.errors import WriteFailed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_manifest"]

_BLOCKS_A_ROW_GROUP = 1 << 14


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
            SourceHeader(
                name=source.name,
                kind=source.kind,
                text_field=source.text_field,
                root=roots[source.name],
                revision=revision_of(roots[source.name]),
                **_documents_of(manifest, details, number),
            )
            for number, source in enumerate(manifest.sources)
        ),
        scan={name: value for name, value in sorted(asdict(options).items()) if name != "text_field" and value != ""},
        num_blocks=len(manifest.blocks),
        num_findings=len(manifest.rejected) + sum(map(len, details.shard_findings.values())),
        ignored_lines=int(details.ignored_lines.sum()),
        ignored_files=dict(sorted(ignored_files.items())),
    )
    document = msgspec.json.encode(header)
    metadata = {KEY: document, CHECK_KEY: xxhash.xxh3_128_hexdigest(document)}
    table = _table(manifest, details).replace_schema_metadata(metadata)
    _write_durably(Path(path), table)
    return header


def _documents_of(manifest: Manifest, details: ManifestDetails, source: int) -> dict[str, Any]:
    """Documents and sequences of a source; nothing where none of its shards knows them."""
    known = [details.documents[shard] for shard in manifest.shards_of(source) if shard in details.documents]
    if not known:
        return {}
    return {"num_documents": sum(pair[0] for pair in known), "num_sequences": sum(pair[1] for pair in known)}


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
    for name in BLOCK_COLUMNS:
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
            found=first_line(error),
            todo="nothing was replaced; mend and repeat",
        ) from error
