"""Which format is a file of? All formats at once, as values; the table that names them is in homes.py."""

from __future__ import annotations

from dataguard.corpus.formats.homes import every_format, made
from dataguard.corpus.formats.protocol import Format

__all__ = ["FORMATS", "WITHOUT_SIGN", "by_name", "recognise"]

FORMATS: tuple[Format, ...] = every_format()
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
    return made(name)
