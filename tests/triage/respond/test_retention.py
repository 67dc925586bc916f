"""Retention: the arithmetic held against a simulated trainer that prunes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.trainer import CheckpointFacts
from dataguard.errors import UsageError
from dataguard.triage.respond.retention import advise_retention


def always_reaches(every: int, kept: int, rewind: int, delay: int) -> bool:
    """Whether at every onset, by the time it is noticed, a checkpoint from before the rewind is still there."""
    begin = every * (kept + 2) + rewind  # long after the start, where all N are there
    for onset in range(begin, begin + 2 * every):
        now = onset + delay
        there = list(range(0, now + 1, every))[-kept:]
        if not any(step <= onset - rewind for step in there):
            return False
    return True


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 30), st.integers(0, 20))
def test_it_says_pass_just_where_a_pruning_trainer_can_always_rewind(
    every: int, kept: int, rewind: int, delay: int
) -> None:
    advice = advise_retention(CheckpointFacts(every_steps=every, num_kept=kept), delay_steps=delay, rewind_steps=rewind)
    assert advice.state == ("pass" if always_reaches(every, kept, rewind, delay) else "fail")
    assert advice.num_needed is not None
    assert always_reaches(every, advice.num_needed, rewind, delay)
    assert advice.num_needed == 1 or not always_reaches(every, advice.num_needed - 1, rewind, delay)


def test_what_is_not_known_is_said() -> None:
    nothing = advise_retention(CheckpointFacts(), delay_steps=40)
    assert (nothing.state, nothing.reach_steps, nothing.num_needed) == ("not known", None, None)
    assert "how often checkpoints are saved is not known" in nothing.text
    every = advise_retention(CheckpointFacts(every_steps=100), delay_steps=40)
    assert (every.state, every.num_needed) == ("not known", 4)
    assert "keep 4" in every.text
    no_delay = advise_retention(CheckpointFacts(every_steps=100, num_kept=9), delay_steps=None)
    assert (no_delay.state, no_delay.needed_steps) == ("not known", None)
    # Too few even without any delay: that is known.
    short = advise_retention(CheckpointFacts(every_steps=100, num_kept=2), delay_steps=None)
    assert short.state == "fail"
    assert "keep at least 3" in short.text
    with pytest.raises(UsageError):
        advise_retention(CheckpointFacts(), delay_steps=-1)
