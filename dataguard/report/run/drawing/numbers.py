"""How are numbers told on the page of a run, and handed to its script?"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["as_data", "rows_as_data", "steps_text"]


def as_data(value: float | None) -> float | int | None:
    """A number for the page's script, in five digits; None for what is none.

    >>> as_data(2.3456789), as_data(3.0), as_data(float("nan")), as_data(123456789.0)
    (2.3457, 3, None, 123456789)
    """
    if value is None or not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.5g}")


def rows_as_data(values: Iterable[float | None]) -> list[float | int | None]:
    """The same of a row."""
    return [as_data(value) for value in values]


def steps_text(start: int, stop: int) -> str:
    """Half-open steps.

    >>> steps_text(1200, 1212), steps_text(7, 8)
    ('steps 1,200:1,212', 'step 7')
    """
    return f"step {start:,}" if stop == start + 1 else f"steps {start:,}:{stop:,}"
