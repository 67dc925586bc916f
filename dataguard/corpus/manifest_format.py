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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.formats.protocol import Finding, ScanOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BLOCK_COLUMNS",
    "CHECK_KEY",
    "FORMAT_VERSION",
    "KEY",
    "SHARD_COLUMNS",
    "ManifestDetails",
    "ManifestHeader",
    "SourceHeader",
    "first_line",
    "schema",
]

FORMAT_VERSION = 1
KEY = b"dataguard.manifest"
"""The schema's metadata holds the header under this key, and its check sum under the next."""
CHECK_KEY = b"dataguard.manifest.check"
SHARD_COLUMNS = ("path", "format", "compression", "item_type", "shard_bytes", "shard_digest", "shard_rows", "effect")
BLOCK_COLUMNS = ("first_row", "num_rows", "num_rejected", "offset_bytes", "size_bytes", "group", "content_bytes")


class SourceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A source, as the header names it."""

    name: str
    kind: str
    text_field: str
    root: str
    """Where its shards lay when the manifest was built; outside the digest."""
    num_documents: int | None = None
    """Of token shards that know their documents, empty ones too; null where none of its shards does. Outside the
    digest, which covers the documents that begin in each block (``group``)."""
    num_sequences: int | None = None
    """Sequences that those documents are made of."""
    revision: str = ""
    """Hash of the commit that its shards were read at, empty where they have none; outside the digest."""


class ManifestHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON document in the schema's metadata under ``dataguard.manifest``."""

    version: int
    """Format version, 1."""
    digest: str
    """SHA-256 of the manifest's canonical bytes, hexadecimal."""
    sources: tuple[SourceHeader, ...]
    scan: dict[str, int | str]
    """Options of the scan by name (`ScanOptions`), which reading keeps to: ``block_bytes``, ``dtype``, ..."""
    num_blocks: int
    """Rows of the file."""
    num_findings: int
    """Entries of the columns ``rejected`` and ``findings`` together."""
    ignored_lines: int
    """Blank lines and the like, which are no records."""
    ignored_files: dict[str, int]
    """How many files were ignored, by reason."""

    def options_of(self, source: str) -> ScanOptions:
        """What reading a source of this manifest is told, so that it rejects what the scan rejected."""
        text_field = next(entry.text_field for entry in self.sources if entry.name == source)
        kept: dict[str, Any] = {**self.scan}
        return ScanOptions(text_field=text_field, **kept)


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
    documents: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """(documents, sequences) of token shards that know them, by shard."""


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


def first_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return (str(error) or type(error).__name__).splitlines()[0]
