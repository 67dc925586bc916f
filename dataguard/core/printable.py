"""How is a text from data shown without doing anything: no terminal escape, no bell, no text in another order?"""

from __future__ import annotations

import re

__all__ = ["printable"]

_UNPRINTABLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directional marks: text that shows in another order than it is
    "\u2028\u2029"  # line breaks that are none
    "\ufeff\ud800-\udfff"  # byte-order mark; surrogates, which no encoding takes
    "]"
)


def printable(text: str, *, keep_lines: bool = False) -> str:
    r"""Text from data as it may be shown on one line: controls, escapes and their kin as Python escapes.

    Parameters
    ----------
    text
        Anything.
    keep_lines
        Leave tabs and line feeds as they are, for text shown as a block of its own.

    Examples
    --------
    >>> printable("red: \x1b[31m, next\nline")
    'red: \\x1b[31m, next\\nline'
    """
    shown = _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)
    return shown if keep_lines else shown.replace("\n", "\\n").replace("\t", "\\t")
