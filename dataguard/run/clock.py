"""What time is it? For people who read headers, and for what looks how old a row is; nothing else asks."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["now", "unix_seconds"]


def now() -> str:
    """UTC as ISO 8601, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")  # noqa: TID251 - the one place where headers ask


def unix_seconds() -> float:
    """Seconds since 1970, UTC."""
    return datetime.now(UTC).timestamp()  # noqa: TID251 - the one place where ages are asked
