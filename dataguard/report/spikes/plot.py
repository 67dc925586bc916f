"""How is the picture of a log, or of two, put into a file: a page that is whole in itself, or a PNG?

The page needs nothing but a browser; a PNG is drawn by matplotlib, which is an extra (``dataguard[plot]``) and imported
only when one is asked for. A file is replaced only where it was written here before.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from dataguard.errors import UsageError
from dataguard.report.html import PAGE_START, still_page
from dataguard.report.spikes.chart import bounds_of, columns_of, panels_of, svg_of
from dataguard.report.spikes.text import comparison_texts, head_texts, rate_of, shift_text, spike_text
from dataguard.triage.detect.answers import Comparison
from dataguard.triage.detect.profiles import DEFAULT
from dataguard.triage.detect.spikes import Examined

__all__ = ["PNG_MARK", "page_of_spikes", "plot_bytes", "png_of_spikes"]

PNG_MARK = b"Software\x00dataguard"
"""What stands near the beginning of each PNG that is written here."""
_MOST_ROWS = 500
_COLOURS = {
    "hard_batch": "#dba640",
    "transient_spike": "#c2594f",
    "absorbing_shift": "#8e2f27",
    "creeping_drift": "#7d5ba6",
    "hard_fault": "#20242a",
    "stall": "#62676f",
    "grad_norm_only": "#2c6a73",
    "loss_dip": "#2b7349",
}


def plot_bytes(path: Path, examined: Sequence[Examined], comparison: Comparison | None = None) -> bytes:
    """What belongs into a file of that name.

    Raises
    ------
    UsageError
        The name ends neither in ``.html`` nor in ``.png``; a PNG is wanted and matplotlib is not installed; or
        something else stands there.
    """
    ending = path.suffix.lower()
    if ending not in {".html", ".png"}:
        raise UsageError(f"{path} says no kind of picture", allowed="a name that ends in .html or .png")
    mark = PAGE_START if ending == ".html" else PNG_MARK
    if path.exists():
        head = path.read_bytes()[:4096] if path.is_file() else b""
        if mark not in head:
            raise UsageError(f"{path} is there already, and was not written by dataguard", todo="give another name")
    return page_of_spikes(examined, comparison) if ending == ".html" else png_of_spikes(examined)


def page_of_spikes(examined: Sequence[Examined], comparison: Comparison | None = None) -> bytes:
    """One self-contained page, UTF-8."""
    from markupsafe import Markup

    logs: list[dict[str, Any]] = []
    for each in examined:
        detection = each.detection
        least = [shift_text(detection)]
        if detection.profile == DEFAULT:
            least.insert(0, spike_text(each.answer))
        logs.append(
            {
                "name": each.answer.log,
                "head": list(head_texts(each)),
                "shift": "; ".join(least),
                # Every text in this markup is escaped where it is made.
                "panels": [{"name": panel.name, "svg": Markup(svg_of(panel))} for panel in panels_of(each)],  # noqa: S704
                "events": each.detection.events[:_MOST_ROWS],
                "num_more": max(0, len(detection.events) - _MOST_ROWS),
                "changes": detection.changes,
                "profiles": [(rate.profile, rate.alarms, rate_of(rate)) for rate in each.answer.profiles],
                "notes": detection.notes,
            }
        )
    texts = [] if comparison is None else list(comparison_texts(comparison, *(log["name"] for log in logs)))
    return still_page("spikes/page.html", {"logs": logs, "comparison": texts})


def png_of_spikes(examined: Sequence[Examined]) -> bytes:
    """A PNG, 150 points an inch.

    Raises
    ------
    UsageError
        matplotlib is not installed.
    """
    figure_module = _matplotlib_figure()
    panels = [(each.answer.log, panel) for each in examined for panel in panels_of(each)]
    figure = figure_module.Figure(figsize=(11, 3.2 * len(panels)), layout="constrained")
    for place, (name, panel) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, place + 1)
        steps, least, greatest = zip(*columns_of(panel, 2000), strict=True) if len(panel.steps) else ((), (), ())
        axes.vlines(steps, least, greatest, color="#2c6a73", linewidth=0.8)
        axes.plot(steps, greatest, color="#2c6a73", linewidth=0.5)
        axes.set_ylim(*bounds_of(panel))
        axes.set_title(name, fontsize=9, loc="left", parse_math=False)
        axes.set_ylabel(f"log10 {panel.name}" if panel.is_log else panel.name)
        axes.set_xlabel("step")
        for event in panel.events:
            colour = _COLOURS[event.event_class.value]
            axes.axvspan(event.start, max(event.stop, event.start + 1), color=colour, alpha=0.35, linewidth=0.8)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": "dataguard"})
    return buffer.getvalue()


def _matplotlib_figure() -> Any:
    try:
        from matplotlib import figure
    except ModuleNotFoundError as error:
        raise UsageError(
            "a PNG is drawn by matplotlib, which is not installed",
            allowed="a name that ends in .html, which needs nothing",
            todo="pip install 'dataguard[plot]'",
        ) from error
    return figure
