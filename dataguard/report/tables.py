"""How do facts look on a terminal, and how is a terminal kept safe from them?

What comes from data may hold anything: control characters, terminal escapes, directional overrides. `printable` shows
them escaped; every cell of a `table` goes through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["printable", "table"]

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


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = (), title: str | None = None
) -> Table:
    """A plain table for `answer`'s renderers.

    Parameters
    ----------
    columns
        Headings.
    rows
        Cells: integers get thousands separators, None shows as ``-``, everything else as its text made `printable`.
    right
        Headings of the columns that stand right-aligned (numbers).
    title
        A line above.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="", header_style="bold")
    ends = set(right)
    assert ends <= set(columns), f"no such columns: {sorted(ends - set(columns))}"
    for column in columns:
        made.add_column(column, justify="right" if column in ends else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def _cell(value: object) -> Any:
    from rich.text import Text

    if value is None:
        return "-"
    if isinstance(value, Text):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return Text(printable(str(value)))
