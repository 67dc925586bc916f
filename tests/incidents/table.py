"""The table of the suite: incident, event class, localised to, verdict, right or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.incidents.incident import Outcome

__all__ = ["HEADINGS", "ROW", "print_table", "row_of", "rows_as_text"]

ROW = "incident_row"
"""Property of a test's report: the place of its incident in the table, and its row."""

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


def print_table(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of whatever incidents were played, behind all tests; called where every run of tests begins."""
    rows: dict[int, Sequence[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                rows |= {value[0]: value[1:] for name, value in report.user_properties if name == ROW}
    if rows:
        terminalreporter.section("incidents")
        for line in rows_as_text([rows[place] for place in sorted(rows)]):
            terminalreporter.write_line(line)
