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
    of: Literal["audit"]
    """What it is of."""
    folder: str
    verdict: Literal["pass", "fail", "nothing"]
    """Of the audit; the command itself ends with 0."""


def render_report(written: ReportWritten) -> Iterator[str]:
    """What ``report`` says."""
    yield (
        f"wrote {visible(written.path)} ({num_bytes(written.size_bytes)}): "
        f"the {written.of} in {visible(written.folder)}, {written.verdict}"
    )
