"""Which number does a text of a log mean?

What trainers print: decimal and scientific notation, thousands separators, NaN and infinities as Python, C, Java and
JSON spell them. Everything else is no number (an underscore included, which Python alone would take).
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["number_of", "printed_step", "step_of"]

_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_WORDS = re.compile(r"([+-]?)(nan|inf|infinity)(?:\([a-z0-9]*\))?", re.ASCII | re.IGNORECASE)


def number_of(value: Any) -> float | None:
    """The number that a text (or a value of a JSON document) is; None where it is none.

    >>> number_of(" 1,234.5 "), number_of("-nan"), number_of("Infinity"), number_of("1_000"), number_of(True)
    (1234.5, nan, inf, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    if not isinstance(value, str):
        return None
    try:
        number = float(value)
    except ValueError:
        return _spelled(value.strip())
    return number if value.isascii() and "_" not in value else None


def _spelled(text: str) -> float | None:
    """What Python's own `float` does not take."""
    if _THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    word = _WORDS.fullmatch(text)
    if word is None:
        return None
    if word[2].lower() == "nan":
        return math.nan
    return -math.inf if word[1] == "-" else math.inf


def step_of(value: Any) -> int | None:
    """The step that a text or a value of a JSON document is: a whole number, which tables may write as ``7.0``.

    >>> step_of("7"), step_of("7.0"), step_of(7), step_of("7.5"), step_of(""), step_of("nan")
    (7, 7, 7, None, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip())
    number = number_of(value)
    return int(number) if number is not None and number.is_integer() else None


def printed_step(digits: str) -> int:
    """The step that a line of digits is; -1, which is no step, for more of them than any step has.

    >>> printed_step("0250"), printed_step("9" * 5000)
    (250, -1)
    """
    return int(digits) if _WHOLE.fullmatch(digits) else -1
