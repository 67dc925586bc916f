"""What time is it, for people who read headers? Nothing that is computed depends on it."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["now"]


def now() -> str:
    """UTC as ISO 8601, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")  # noqa: TID251 - the one place where headers ask
