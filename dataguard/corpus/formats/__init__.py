"""The formats: one kind of data file each, behind one protocol (protocol.py).

In comes a `ShardFile`, which the storage opens and counts; out come blocks, rows and findings. A format never opens a
path, never caches, and knows nothing of manifests or plans. What a finding means stands in one table (findings.py).
Adding a format is one file here and one entry in `FORMATS`.
"""

from __future__ import annotations

from dataguard.corpus.formats.findings import CODES, Code, effect_of, shard_effect
from dataguard.corpus.formats.jsonl import JsonLines
from dataguard.corpus.formats.npy import NumpyTokens
from dataguard.corpus.formats.parquet import Parquet
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    Format,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.streams import decode_head, detect_compression

__all__ = [
    "CODES",
    "FORMATS",
    "BlockPlace",
    "Code",
    "Finding",
    "Format",
    "ReadBlock",
    "ScanEnd",
    "ScanOptions",
    "ScannedBlock",
    "ShardFile",
    "by_name",
    "decode_head",
    "detect_compression",
    "effect_of",
    "recognise",
    "shard_effect",
]

FORMATS: tuple[Format, ...] = (JsonLines(), NumpyTokens(), Parquet())
"""Every format there is, in order of their names."""


def recognise(head: bytes, path: str) -> Format | None:
    """The format that is surest of these first decoded bytes; content before name, then by name of the format.

    >>> found = recognise(b'{"text": "a"}', "x.parquet")
    >>> found is not None and found.name
    'jsonl'
    """
    surest = max(FORMATS, key=lambda entry: entry.recognise(head, path))
    return surest if surest.recognise(head, path) > 0 else None


def by_name(name: str) -> Format:
    """The format called `name`; KeyError where there is none.

    >>> by_name("npy").kind
    'tokens'
    """
    return {entry.name: entry for entry in FORMATS}[name]
