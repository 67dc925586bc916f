"""Where in a record does its text lie, and what is text?

One meaning in every format:

1. A field (or column) of that very name is meant, dots included.
2. Otherwise the name is a path, cut at its dots: ``meta.body`` is the field ``body`` of the object (or struct) in the
   field ``meta``. A null on the way there is a null text.
3. A string is text, and so are bytes where a format has them. A list of strings is one text: its strings with a line
   feed between them, nothing for an empty list; a null among them makes it a null text. Digests cover the joined text.
4. A path does not lead through a list: what is in one has many texts, and how they are one is not for a reader to say.
"""

from __future__ import annotations

__all__ = ["ALLOWED", "LIST_SEPARATOR", "path_of"]

LIST_SEPARATOR = b"\n"
"""What stands between the strings of a list that is one text."""

ALLOWED = "a path may lead through {0} to a string, or to a list of strings, which are joined by line feeds"
"""What is told where a path leads through a list; {0} is what the format calls objects."""


def path_of(text_field: str) -> tuple[str, ...]:
    """The names on the way to the text, where no field has the whole name.

    >>> path_of("meta.body"), path_of("text")
    (('meta', 'body'), ('text',))
    """
    return tuple(text_field.split("."))
