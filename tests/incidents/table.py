"""The table of the suite: incident, event class, localised to, verdict, right or not."""

from __future__ import annotations

from collections.abc import Sequence

from tests.incidents.incident import Outcome

__all__ = ["HEADINGS", "row_of", "rows_as_text"]

HEADINGS = ("incident", "event class", "localised to", "verdict", "right", "s")


def row_of(outcome: Outcome) -> tuple[str, ...]:
    """One row; what is wrong stands in the place of a yes."""
    right = "yes" if outcome.right else "no: " + "; ".join(outcome.wrong)
    return (outcome.incident, outcome.event_class, outcome.place, outcome.verdict, right, f"{outcome.seconds:.0f}")


def rows_as_text(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as they need to be."""
    table = [HEADINGS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
