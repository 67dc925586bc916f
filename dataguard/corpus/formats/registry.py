"""Which formats are there, and which one is a file of?"""

from __future__ import annotations

from dataguard.corpus.formats.arrow import ArrowIpc
from dataguard.corpus.formats.jsonl import JsonLines
from dataguard.corpus.formats.mds import MdsText, MdsTokens
from dataguard.corpus.formats.megatron import Megatron
from dataguard.corpus.formats.npy import NumpyTokens
from dataguard.corpus.formats.parquet import Parquet
from dataguard.corpus.formats.protocol import Format
from dataguard.corpus.formats.raw import RawTokens
from dataguard.corpus.formats.text import PlainText
from dataguard.corpus.formats.webdataset import WebDataset

__all__ = ["FORMATS", "WITHOUT_SIGN", "by_name", "recognise"]

FORMATS: tuple[Format, ...] = (
    ArrowIpc(),
    JsonLines(),
    MdsText(),
    MdsTokens(),
    Megatron(),
    NumpyTokens(),
    Parquet(),
    RawTokens(),
    PlainText(),
    WebDataset(),
)
"""Every format there is, in order of their names."""

WITHOUT_SIGN: frozenset[str] = frozenset({"raw", "text"})
"""Formats whose files nothing tells from others: they are read only where they are asked for by name."""


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
