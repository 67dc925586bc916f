"""How does a value show itself in a notebook, whatever texts it holds and however much there is of it?

`card` makes one small piece of HTML: a title, what is wrong, facts, and tables. Every text is made printable, escaped
and cut; a table shows its first rows and says how many there are. There is no script and no style sheet: styles stand
in the elements, and take the notebook's own colours, so that dark and light ones are both right. `guarded` is for
whoever shows what can be damaged: whatever goes wrong is shown in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice

from dataguard.core.printable import printable

__all__ = ["MOST_CHARACTERS", "MOST_ROWS", "NOT_KNOWN", "Listing", "card", "guarded", "told"]

MOST_ROWS = 20
"""Rows of a table that are shown, and facts, and problems."""
MOST_CHARACTERS = 200
"""Of one text; what is longer is cut, and ends in dots."""
NOT_KNOWN = "not known"
"""What is shown for None."""

_LINE = "1px solid rgba(128,128,128,0.35)"
_CARD = f"display:inline-block;max-width:100%;overflow-x:auto;border:{_LINE};border-radius:6px;padding:8px 12px"
_CELL = "text-align:{align};vertical-align:top;padding:1px 12px 1px 0;border:0;background:transparent;color:inherit"
_TABLE = "border-collapse:collapse;border:0;margin:4px 0;color:inherit;background:transparent;font-size:inherit"
_WRONG = "border-left:3px solid #c33;padding-left:8px;margin:4px 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table of a card."""

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    """In order; no more than `MOST_ROWS` are taken."""
    num_rows: int
    """How many there are."""


def card(
    title: str, facts: Mapping[str, object], *, tables: Iterable[Listing] = (), problems: Iterable[str] = ()
) -> str:
    """A small piece of HTML.

    Parameters
    ----------
    title
        What it is of.
    facts
        Names and values: numbers with thousands separators, None as `NOT_KNOWN`, all else as its text.
    tables
        Below the facts; those without rows are left out.
    problems
        What is wrong, above all else.

    Examples
    --------
    >>> made = card("<Run>", {"steps": 1200, "policy": None})
    >>> "&lt;Run&gt;" in made, "1,200" in made, "not known" in made, "<script" in made
    (True, True, True, False)
    """
    parts = [f'<div style="{_CARD}"><div style="font-weight:bold">{_text(title)}</div>']
    wrong = list(islice(problems, MOST_ROWS + 1))
    parts += [
        f'<div style="{_WRONG}">{_text(problem, most=2 * MOST_CHARACTERS)}</div>' for problem in wrong[:MOST_ROWS]
    ]
    if len(wrong) > MOST_ROWS:
        parts.append(f'<div style="{_WRONG}">and more</div>')
    rows = "".join(
        f"<tr>{_cell(name, dim=True)}{_cell(value, left=True)}</tr>" for name, value in islice(facts.items(), MOST_ROWS)
    )
    parts.append(f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>')
    parts += [_listing(each) for each in tables if each.num_rows]
    return "".join(parts) + "</div>"


def guarded(title: str, make: Callable[[], str]) -> str:
    """What `make` gives; where it fails a card that says how, since a notebook must not fail over looking at a value.

    Examples
    --------
    >>> "KeyError" in guarded("a run", lambda: {}["x"])
    True
    """
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - whatever it is, the person who looks is told
        return card(title, {}, problems=[f"it cannot be shown: {type(error).__name__}: {error}"])


def told(make: Callable[[], object]) -> object:
    """One fact of a card; where it cannot be had, why.

    Examples
    --------
    >>> told(lambda: 1 / 0)
    'not known (division by zero)'
    """
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - as above
        first = str(error).partition("\n")[0]
        return f"{NOT_KNOWN} ({first or type(error).__name__})"


def _listing(table: Listing) -> str:
    shown = list(islice(table.rows, MOST_ROWS))
    head = "".join(_cell(column, tag="th", dim=True) for column in table.columns)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in shown)
    more = table.num_rows - len(shown)
    rest = f'<div style="opacity:0.7">and {more:,} more</div>' if more > 0 else ""
    return (
        f'<div style="font-weight:bold;margin-top:6px">{_text(table.title)}</div>'
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}'
    )


def _cell(value: object, *, tag: str = "td", dim: bool = False, left: bool = False) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and not left
    style = _CELL.format(align="right" if is_number else "left") + (";opacity:0.7" if dim else "")
    return f'<{tag} style="{style}">{_text(value)}</{tag}>'


def _text(value: object, *, most: int = MOST_CHARACTERS) -> str:
    if value is None:
        return NOT_KNOWN
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    # Cut before it is looked at: what a shard is called may be as long as somebody liked.
    cut = text[:most]
    return escape(printable(cut)) + ("..." if len(text) > most else "")
