"""What is said of preflight to people: each point with its state and reason, then how far checkpoints reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataguard.report.tables import table
from dataguard.triage.preflight.answers import PreflightAnswer

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render_preflight"]


def render_preflight(answer: PreflightAnswer) -> Iterator[str | Table]:
    """What ``preflight`` says."""
    lineage = "" if answer.attempt is None else f", lineage of attempt {answer.attempt}"
    yield (
        f"{answer.of}{lineage}: {answer.num_pass} pass, {answer.num_fail} fail, {answer.num_not_known} not known, of "
        f"{len(answer.points)}"
    )
    rows = [
        (
            point.number,
            point.section,
            point.asks,
            "FAIL" if point.state == "fail" else point.state,
            point.reason + (f" ({point.fact})" if point.fact and point.state != "not known" else ""),
        )
        for point in answer.points
    ]
    yield table(("", "section", "asks for", "state", "why"), rows, right=("",))
    yield f"checkpoints: {answer.retention.state}: {answer.retention.text}"
    yield from (f"note: {note}" for note in answer.notes)
    if not answer.num_pass and not answer.num_fail:
        yield "nothing was checked: say what is true with Monitor.describe, or in a file (preflight --template)"
