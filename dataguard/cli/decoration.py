"""May what is shown be decorated: styles, bars that draw over themselves?

On a terminal, unless ``NO_COLOR`` is set or ``TERM`` is ``dumb``: then not one escape is written. Output to a pipe or a
file carries none, unless ``FORCE_COLOR`` asks for styles there (``| less -R``); ``NO_COLOR`` counts for more. JSON
is never decorated.
"""

from __future__ import annotations

import os
from typing import Literal, TextIO

__all__ = ["asked_width", "has_cursor", "is_terminal", "styles"]


def styles(stream: TextIO) -> Literal["auto"] | None:
    """Rich's ``color_system`` for a stream: None where nothing is to be styled."""
    if _get("NO_COLOR") or _is_dumb():
        return None
    return "auto" if is_terminal(stream) or _get("FORCE_COLOR") not in {"", "0"} else None


def has_cursor(stream: TextIO) -> bool:
    """Whether a line may be drawn over with escapes: a terminal that has not been told to be plain."""
    return is_terminal(stream) and not _get("NO_COLOR") and not _is_dumb()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches a stream; not where it is closed."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def asked_width() -> bool:
    """Whether somebody asked for a width: ``COLUMNS``."""
    return "COLUMNS" in os.environ  # noqa: TID251 - the one place of this room


def _is_dumb() -> bool:
    return _get("TERM") in {"dumb", "unknown"}


def _get(name: str) -> str:
    return os.environ.get(name, "")  # noqa: TID251 - the one place of this room
