"""What do all kinds of events share: their base, and the kinds of their fields."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["Digest", "EventBase", "NonNegative", "Positive"]

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
"""SHA-256, hexadecimal."""


class EventBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all events share: they are tagged by ``kind`` and know no fields but their own."""
