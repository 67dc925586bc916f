"""How do facts look on a terminal, and how is a terminal kept safe from them?

What comes from data may hold anything: control characters, terminal escapes, directional overrides. `printable` (of
`dataguard.core.printable`) shows them escaped; every cell of a `table` goes through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dataguard.core.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["printable", "table"]


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
