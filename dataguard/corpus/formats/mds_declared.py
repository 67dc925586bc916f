"""Does an MDS shard hold what the ``index.json`` of its dataset says?

The index is written last and read first by the library, so a shard that it does not list is never trained on there, and
one that differs from it was written again, or not to its end. Records are what the shard itself says; where the two
differ the shard is flagged with both values. A hash that differs excludes it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import xxhash

from dataguard.corpus.formats.mds_layout import Layout
from dataguard.corpus.formats.protocol import Finding, ScanOptions, ShardFile
from dataguard.corpus.formats.streams import CHUNK_BYTES, DecodedStream

__all__ = ["IndexedFile", "IndexedShard", "check_declared"]


class IndexedFile(msgspec.Struct, frozen=True):
    """One form of a shard, as an index lists it."""

    basename: str
    bytes: int
    hashes: dict[str, str] = {}


class IndexedShard(msgspec.Struct, frozen=True):
    """A shard, as an index lists it."""

    raw_data: IndexedFile
    zip_data: IndexedFile | None = None
    format: str = "mds"
    compression: str | None = None
    samples: int | None = None
    column_names: list[str] | None = None
    column_encodings: list[str] | None = None
    column_sizes: list[int | None] | None = None


def check_declared(shard: ShardFile, layout: Layout, num_bytes: int, options: ScanOptions) -> list[Finding]:
    """What the index of a shard says otherwise than the shard.

    Parameters
    ----------
    shard
        With what is declared of it; nothing is checked where nothing is known.
    layout, num_bytes
        What the shard says, and its decoded bytes.
    """
    declared = shard.declared
    if declared is None:
        return []
    if not declared.entry:
        return [Finding(code="not-in-index", detail=declared.trouble or f"{declared.index} does not list it")]
    entry = msgspec.json.decode(declared.entry, type=IndexedShard)
    pairs: list[tuple[str, Any, Any]] = [
        ("samples", entry.samples, layout.num_samples),
        ("column_names", entry.column_names, [column.name for column in layout.columns]),
        ("column_encodings", entry.column_encodings, [column.encoding for column in layout.columns]),
        ("column_sizes", entry.column_sizes, [column.size for column in layout.columns]),
        ("raw_data.bytes", entry.raw_data.bytes, num_bytes),
    ]
    is_zip = shard.compression != "none"
    if is_zip and entry.zip_data is not None:
        pairs.append(("zip_data.bytes", entry.zip_data.bytes, shard.size_bytes))
    wrong = [f"{name} {said}, found {found}" for name, said, found in pairs if said is not None and said != found]
    findings = [Finding(code="index-disagrees", detail=f"{declared.index} says {'; '.join(wrong)}")] if wrong else []
    hashes = [(name, said, False) for name, said in entry.raw_data.hashes.items()]
    if is_zip and entry.zip_data is not None:
        hashes += [(name, said, True) for name, said in entry.zip_data.hashes.items()]
    for name, said, of_file in hashes:
        found = _hash(shard, name, options, of_file=of_file)
        if found is not None and found != said.lower():
            what = "the file" if of_file else "the decoded content"
            findings.append(
                Finding(code="bad-checksum", detail=f"{name} of {what} is {found}, {declared.index} says {said}")
            )
    return findings


def _hash(shard: ShardFile, name: str, options: ScanOptions, *, of_file: bool) -> str | None:
    """A hash of the file or of its decoded content, hexadecimal; None where it is of a kind that is not known."""
    if name.startswith("xxh"):
        maker = getattr(xxhash, name, None)
    else:
        maker = getattr(hashlib, name, None) if name in hashlib.algorithms_guaranteed else None
    if maker is None or name.startswith("shake"):
        return None
    state = maker()
    with shard.open() as file:
        if of_file:
            while part := file.read(CHUNK_BYTES):
                state.update(part)
        else:
            for chunk in DecodedStream.of(shard, file, options):
                state.update(chunk)
    return str(state.hexdigest())
