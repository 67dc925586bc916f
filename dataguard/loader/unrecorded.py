"""Who writes the record of a process that delivers what another one has read for it?

Nobody here: that other process does. `Unrecorded` stands where a `dataguard.run.writer.RankWriter` would.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Unrecorded"]


class Unrecorded:
    """Takes what a writer takes, and writes nothing."""

    def append(self, records: Any) -> None:
        """Of a microbatch: another process has recorded it."""

    def append_exception(self, record: Any) -> None:
        """Of a row that could not be read: another process has recorded it."""

    def close(self, *, seal: bool = True) -> None:
        """Nothing is open."""
