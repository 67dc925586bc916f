"""What is the page of a run made of?

Of `RunFacts` alone: the same facts give the same bytes. Words, tables, the cells of the heat maps and small curves are
HTML, and stand there without any script; what is in a cell, and the large charts, come from the data block.
"""

from __future__ import annotations

from dataguard.report.html import page
from dataguard.report.run.drawing.cells import heats_data, previews_data
from dataguard.report.run.drawing.charts import curves_data, panels_of, signals_data
from dataguard.report.run.drawing.grid import NUM_SHADES, heats_of
from dataguard.report.run.drawing.samples import samples_of
from dataguard.report.run.drawing.tables import tables_of
from dataguard.report.run.drawing.words import head_of
from dataguard.report.run.facts import RunFacts
from dataguard.triage.checklist import TO_DO

__all__ = ["page_of_run"]


def page_of_run(facts: RunFacts) -> bytes:
    """The page, UTF-8.

    Parameters
    ----------
    facts
        What is on it; see `facts_of_run`.

    >>> from dataguard.report.run.facts import RunFacts
    >>> rows = "curves events skips attempts checkpoints heats previews signals withheld mixture journal notes limits"
    >>> facts = RunFacts(
    ...     run="a", run_id="1", attempt=None, steps=None, num_steps_delivered=0, num_samples=0, policy=None,
    ...     triage=None, num_journal=0, mixture_steps=(), **dict.fromkeys(rows.split(), ()),
    ... )
    >>> b"Nothing has run yet" in page_of_run(facts)
    True
    """
    heats = heats_of(facts)
    panels = panels_of(facts)
    has_charts = bool(facts.curves or facts.signals or facts.attempts)
    shown = {
        "facts": facts,
        "head": head_of(facts),
        "heats": heats,
        "panels": panels,
        "samples": samples_of(facts),
        "tables": tables_of(facts),
        "has_charts": has_charts,
        "num_shades": NUM_SHADES,
        "to_do": TO_DO,
    }
    data = {
        **curves_data(facts, panels),
        **heats_data(heats),
        "previews": previews_data(facts.previews),
        "signals": signals_data(facts),
    }
    return page("run", shown, data=data, charts=has_charts)
