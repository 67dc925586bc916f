"""The formats: one kind of data file each, behind one protocol (protocol.py).

In comes a `ShardFile`, which the storage opens and counts; out come blocks, rows and findings. A format never opens a
path, never caches, and knows nothing of manifests or plans. What a finding means stands in one table (findings.py).
Adding a format is one file here and one entry in `HOMES` (homes.py).

Public names are imported when they are first used: who reads a manifest needs the protocol's values, not the decoders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.corpus.formats.arrow import ArrowIpc as ArrowIpc
    from dataguard.corpus.formats.findings import CODES as CODES
    from dataguard.corpus.formats.findings import Code as Code
    from dataguard.corpus.formats.findings import effect_of as effect_of
    from dataguard.corpus.formats.findings import shard_effect as shard_effect
    from dataguard.corpus.formats.jsonl import JsonLines as JsonLines
    from dataguard.corpus.formats.mds import MdsText as MdsText
    from dataguard.corpus.formats.mds import MdsTokens as MdsTokens
    from dataguard.corpus.formats.megatron import Megatron as Megatron
    from dataguard.corpus.formats.npy import NumpyTokens as NumpyTokens
    from dataguard.corpus.formats.parquet import Parquet as Parquet
    from dataguard.corpus.formats.protocol import BlockPlace as BlockPlace
    from dataguard.corpus.formats.protocol import Finding as Finding
    from dataguard.corpus.formats.protocol import Format as Format
    from dataguard.corpus.formats.protocol import ReadBlock as ReadBlock
    from dataguard.corpus.formats.protocol import ScanEnd as ScanEnd
    from dataguard.corpus.formats.protocol import ScannedBlock as ScannedBlock
    from dataguard.corpus.formats.protocol import ScanOptions as ScanOptions
    from dataguard.corpus.formats.protocol import ShardFile as ShardFile
    from dataguard.corpus.formats.raw import RawTokens as RawTokens
    from dataguard.corpus.formats.registry import FORMATS as FORMATS
    from dataguard.corpus.formats.registry import WITHOUT_SIGN as WITHOUT_SIGN
    from dataguard.corpus.formats.registry import by_name as by_name
    from dataguard.corpus.formats.registry import recognise as recognise
    from dataguard.corpus.formats.streams import decode_head as decode_head
    from dataguard.corpus.formats.streams import detect_compression as detect_compression
    from dataguard.corpus.formats.text import PlainText as PlainText
    from dataguard.corpus.formats.webdataset import WebDataset as WebDataset

__all__ = [
    "CODES",
    "FORMATS",
    "WITHOUT_SIGN",
    "ArrowIpc",
    "BlockPlace",
    "Code",
    "Finding",
    "Format",
    "JsonLines",
    "MdsText",
    "MdsTokens",
    "Megatron",
    "NumpyTokens",
    "Parquet",
    "PlainText",
    "RawTokens",
    "ReadBlock",
    "ScanEnd",
    "ScanOptions",
    "ScannedBlock",
    "ShardFile",
    "WebDataset",
    "by_name",
    "decode_head",
    "detect_compression",
    "effect_of",
    "recognise",
    "shard_effect",
]

_HOMES = {
    "CODES": "findings",
    "FORMATS": "registry",
    "ArrowIpc": "arrow",
    "BlockPlace": "protocol",
    "Code": "findings",
    "Finding": "protocol",
    "Format": "protocol",
    "JsonLines": "jsonl",
    "MdsText": "mds",
    "MdsTokens": "mds",
    "Megatron": "megatron",
    "NumpyTokens": "npy",
    "Parquet": "parquet",
    "RawTokens": "raw",
    "PlainText": "text",
    "ReadBlock": "protocol",
    "ScanEnd": "protocol",
    "ScanOptions": "protocol",
    "ScannedBlock": "protocol",
    "ShardFile": "protocol",
    "WITHOUT_SIGN": "registry",
    "WebDataset": "webdataset",
    "by_name": "registry",
    "decode_head": "streams",
    "detect_compression": "streams",
    "effect_of": "findings",
    "recognise": "registry",
    "shard_effect": "findings",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
