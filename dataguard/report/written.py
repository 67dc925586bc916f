"""What is said of a page that was written?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dataguard.report.html import num_bytes, visible

__all__ = ["ReportWritten", "render_report"]


class ReportWritten(msgspec.Struct, frozen=True, kw_only=True):
    """What ``report`` answers."""

    path: str
    """The page."""
    size_bytes: int
    of: Literal["audit", "run"]
    """What it is of."""
    folder: str
    verdict: str | None
    """Of an audit ``pass``, ``fail`` or ``nothing``; of a run the diagnosis verdict of the event in question, as
    ``triage`` gives it, null where none could be given. The command itself ends with 0 either way."""
    attempt: int | None = None
    """Of a run: the leaf of the lineage shown; null where no attempt has begun, and for an audit."""
    num_events: int | None = None
    """Of a run: events of its training curve; null where they are not known, and for an audit."""
    damage: tuple[str, ...] = ()
    """Of a run: what cannot be trusted, so that something may be missing; the command then ends with 3."""


def render_report(written: ReportWritten) -> Iterator[str]:
    """What ``report`` says."""
    verdict = "no verdict" if written.verdict is None else visible(written.verdict)
    yield (
        f"wrote {visible(written.path)} ({num_bytes(written.size_bytes)}): "
        f"the {written.of} in {visible(written.folder)}, {verdict}"
    )
    yield from (f"damaged: {visible(' '.join(text.split()))}" for text in written.damage)
