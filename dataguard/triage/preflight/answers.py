"""What preflight answers with, as one document: 22 points, each pass, fail or not known, with its reason."""

from __future__ import annotations

from typing import Literal

import msgspec

from dataguard.triage.respond.retention import RetentionAdvice

__all__ = ["Point", "PreflightAnswer", "State"]

State = Literal["pass", "fail", "not known"]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the hardening list."""

    number: int
    """1 to 22, in the order of the list."""
    section: Literal["architecture", "optimizer", "precision", "data", "monitoring"]
    name: str
    """A short word for it."""
    asks: str
    """What it asks for."""
    state: State
    reason: str
    fact: str | None
    """What it was judged by, and where that is from; null where nothing is known."""


class PreflightAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run is hardened before it begins, as far as is known."""

    of: str
    """The run directory or file."""
    attempt: int | None
    """Of a run: the leaf of the lineage that was looked at; null where there is none."""
    points: tuple[Point, ...]
    num_pass: int
    num_fail: int
    num_not_known: int
    retention: RetentionAdvice
    """Whether checkpoints reach back far enough (row A18); no point of the list."""
    notes: tuple[str, ...] = ()
