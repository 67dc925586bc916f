"""Which formats are there, and in which file is each?

The one table to which a format is added. A shard that is read needs its own format and no other, so a format is
imported when it is asked for by name, and all of them only where a file has to be recognised.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from dataguard.corpus.formats.protocol import Format

__all__ = ["HOMES", "every_format", "made"]

HOMES: dict[str, str] = {
    "arrow": "arrow:ArrowIpc",
    "jsonl": "jsonl:JsonLines",
    "mds": "mds:MdsText",
    "mds-tokens": "mds:MdsTokens",
    "megatron": "megatron:Megatron",
    "npy": "npy:NumpyTokens",
    "parquet": "parquet:Parquet",
    "raw": "raw:RawTokens",
    "text": "text:PlainText",
    "webdataset": "webdataset:WebDataset",
}
"""Name of a format, as manifests have it -> file of this folder and class in it."""


@cache
def made(name: str) -> Format:
    """The format of that name; KeyError where there is none.

    >>> made("npy").kind
    'tokens'
    """
    module, _, kind = HOMES[name].partition(":")
    entry: Format = getattr(import_module(f"dataguard.corpus.formats.{module}"), kind)()
    assert entry.name == name, f"{HOMES[name]} calls itself {entry.name}"
    return entry


def every_format() -> tuple[Format, ...]:
    """All of them, in order of their names."""
    return tuple(made(name) for name in sorted(HOMES))
