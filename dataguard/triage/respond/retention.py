"""Are checkpoints kept long enough to rewind from? (row A18)

An event with its onset at step o is noticed at o + d. To go on before it, a checkpoint from o - r or earlier must still
be there then: it has to be r + d steps old. With a checkpoint every K steps of which the newest N are kept, the oldest
is between (N - 1) K (when the newest was just saved) and N K - 1 steps old. So

    (N - 1) K >= r + d,    N >= ceil((r + d) / K) + 1

which holds for the worst moment. K need not change; whoever keeps one more in every ten of the older ones has the same.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from dataguard.core.trainer import CheckpointFacts
from dataguard.errors import UsageError
from dataguard.triage.detect.settings import DetectorSettings

__all__ = ["REWIND_STEPS", "RetentionAdvice", "advise_retention", "detection_delay"]

REWIND_STEPS = 200
"""How far one rewinds: what the field does, PaLM about 100 and the first seed document about 200 steps."""


class RetentionAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is kept reaches back far enough."""

    state: Literal["pass", "fail", "not known"]
    rewind_steps: int
    delay_steps: int | None
    """Steps from an event's onset to its being told; null where it is not known."""
    needed_steps: int | None
    """How old the oldest checkpoint has to be at any time."""
    reach_steps: int | None
    """How old the oldest one is at the worst moment; null where every and number are not both known."""
    every_steps: int | None
    num_kept: int | None
    num_needed: int | None
    """How many to keep at this distance."""
    text: str


def detection_delay(loss_every_steps: float, settings: DetectorSettings | None = None) -> int:
    """Steps from an event's onset to its being told by the detector in training: it looks back so far for onsets.

    Parameters
    ----------
    loss_every_steps
        Distance of the steps at which the loss is logged.

    Examples
    --------
    >>> detection_delay(1), detection_delay(10)
    (17, 170)
    """
    points = (settings or DetectorSettings()).num_reach_back + 1
    return math.ceil(points * loss_every_steps)


def advise_retention(
    facts: CheckpointFacts, *, delay_steps: int | None, rewind_steps: int = REWIND_STEPS, detector: str | None = None
) -> RetentionAdvice:
    """Hold what is kept against what a rewind needs; `detector` says whose delay it is.

    >>> advise_retention(CheckpointFacts(every_steps=100, num_kept=3), delay_steps=50).text
    'keep 4 checkpoints at 100 steps apart: a rewind of 200 steps and 50 until it is noticed need 250, and 3 reach 200'
    >>> advise_retention(CheckpointFacts(every_steps=100, num_kept=4), delay_steps=50).state
    'pass'
    """
    for name, value in (("rewind_steps", rewind_steps), ("delay_steps", delay_steps)):
        if value is not None and value < 0:
            raise UsageError(f"{name} {value} cannot be", allowed="0 or more")
    every, kept = facts.every_steps, facts.num_kept
    reach = (kept - 1) * every if every is not None and kept is not None else None
    need = None if delay_steps is None else rewind_steps + delay_steps
    least = rewind_steps if need is None else need
    num_needed = math.ceil(least / every) + 1 if every is not None and need is not None else None
    state: Literal["pass", "fail", "not known"] = "not known"
    if reach is not None and reach < least:
        state = "fail"  # even where nothing is known of the delay, which only adds to it
    elif reach is not None and need is not None:
        state = "pass"
    return RetentionAdvice(
        state=state,
        rewind_steps=rewind_steps,
        delay_steps=delay_steps,
        needed_steps=need,
        reach_steps=reach,
        every_steps=every,
        num_kept=kept,
        num_needed=num_needed,
        text=_text(state, every, kept, reach, _need(rewind_steps, delay_steps, detector), rewind_steps, delay_steps),
    )


def _need(rewind: int, delay: int | None, detector: str | None) -> str:
    until = "it is noticed" if detector is None else f"the {detector} detector notices it"
    if delay is None:
        return f"a rewind of {rewind:,} steps needs as many and what passes until {until}, which is not known"
    return f"a rewind of {rewind:,} steps and {delay:,} until {until} need {rewind + delay:,}"


def _text(
    state: str, every: int | None, kept: int | None, reach: int | None, need: str, rewind: int, delay: int | None
) -> str:
    steps = rewind + (delay or 0)
    if every is None:
        return f"how often checkpoints are saved is not known: {need}"
    if kept is None:
        number = math.ceil(steps / every) + 1
        keep = f"at {every:,} steps apart keep {_least(delay)}{number:,}"
        return f"how many checkpoints are kept is not known: {keep}; {need}"
    if state == "pass":
        return f"{kept:,} checkpoints at {every:,} steps apart reach back {reach:,} steps at any time; {need}"
    if state == "fail":
        number = math.ceil(steps / every) + 1
        return (
            f"keep {_least(delay)}{number:,} checkpoints at {every:,} steps apart: {need}, and {kept:,} reach {reach:,}"
        )
    return f"{kept:,} checkpoints at {every:,} steps apart reach back {reach:,} steps at any time; {need}"


def _least(delay: int | None) -> str:
    return "" if delay is not None else "at least "
