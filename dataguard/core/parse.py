"""What did somebody type: a step, a range, a shard, a row of a shard, a number?

All ranges are half-open, ``START:STOP``. Nothing is clamped: what is empty, reversed or negative is refused with what
was typed and what would be accepted.
"""

from __future__ import annotations

import re
from fractions import Fraction

from dataguard.errors import SpanError, UsageError

__all__ = ["exact_number", "parse_shard_row", "parse_span", "parse_step_or_span"]

_WHOLE = re.compile(r"[0-9]+(_[0-9]+)*\Z", re.ASCII)
_MOST_DIGITS = 100
_NUMBER = re.compile(r"[+-]?(\d+/\d+|(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?)", re.ASCII)
_ALLOWED = "START:STOP with whole numbers, half-open: 40:45 is 40, 41, 42, 43 and 44"


def parse_span(text: str, *, what: str = "range") -> tuple[int, int]:
    """``START:STOP`` as two integers.

    >>> parse_span("40:45")
    (40, 45)
    >>> parse_span("45:40")
    Traceback (most recent call last):
        ...
    dataguard.errors.SpanError: range '45:40' is reversed
      allowed: START:STOP with whole numbers, half-open: 40:45 is 40, 41, 42, 43 and 44
      next: did you mean 40:45?
    """
    head, colon, tail = text.strip().partition(":")
    if not colon:
        todo = f"for the one {head.strip()} alone type {head.strip()}:{_whole(head, text, what) + 1}"
        raise SpanError(f"{what} {text!r} has no ':'", allowed=_ALLOWED, todo=todo)
    start, stop = _whole(head, text, what), _whole(tail, text, what)
    if start == stop:
        raise SpanError(f"{what} {text!r} is empty", allowed=_ALLOWED, todo=f"did you mean {start}:{stop + 1}?")
    if start > stop:
        raise SpanError(f"{what} {text!r} is reversed", allowed=_ALLOWED, todo=f"did you mean {stop}:{start}?")
    return start, stop


def parse_step_or_span(text: str, *, what: str = "step") -> tuple[int, int]:
    """One number, or ``START:STOP``, as a half-open range.

    >>> parse_step_or_span("17"), parse_step_or_span("17:20")
    ((17, 18), (17, 20))
    """
    if ":" in text:
        return parse_span(text, what=f"{what} range")
    step = _whole(text, text, what)
    return step, step + 1


def parse_shard_row(text: str) -> tuple[str, int | None]:
    """``SHARD`` or ``SHARD:ROW``; a name may itself hold colons, only a last one before a whole number divides.

    >>> parse_shard_row("web/a.jsonl.zst:17"), parse_shard_row("web/a:b.jsonl")
    (('web/a.jsonl.zst', 17), ('web/a:b.jsonl', None))
    """
    name, colon, tail = text.rpartition(":")
    if colon and re.fullmatch(r"-[0-9]+", tail, re.ASCII):
        raise UsageError(f"row {tail} of shard {name!r} cannot be", allowed="rows count from 0")
    if colon and not tail:
        raise UsageError(f"{text!r} ends in ':' without a row", allowed="SHARD or SHARD:ROW")
    shard, row = (name, int(tail)) if colon and re.fullmatch(r"[0-9]+", tail, re.ASCII) else (text, None)
    if not shard.strip():
        raise UsageError(f"{text!r} names no shard", allowed="SHARD or SHARD:ROW")
    return shard, row


def exact_number(text: str) -> Fraction | None:
    """A number as people type one, exact; None for anything else.

    Exponents have two digits at most: the exact value of ``1e-99999999`` would take minutes to write out.

    >>> exact_number("1e-3"), exact_number("2/3"), exact_number("1e-99999999"), exact_number("1_0"), exact_number("1/0")
    (Fraction(1, 1000), Fraction(2, 3), None, None, None)
    """
    if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _whole(part: str, text: str, what: str) -> int:
    part = part.strip()
    if not part:
        raise SpanError(f"{what} {text!r} leaves an end out", allowed=_ALLOWED, todo="give both ends")
    if part.startswith("-"):
        raise SpanError(f"{what} {text!r} is negative", allowed=_ALLOWED)
    if not _WHOLE.match(part):
        raise SpanError(f"{what} {text!r} is no range of whole numbers", found=repr(part), allowed=_ALLOWED)
    return int(part)
