"""Faults of the optimizer, the schedule and number types: is the part of the model named, and the data acquitted?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.incidents.incident import Outcome


@pytest.mark.parametrize("name", ["lr_too_high", "short_warmup", "epsilon_floor", "attention_logits", "fp16_overflow"])
def test_it_comes_out_as_the_table_expects(name: str, played: Callable[[str], Outcome]) -> None:
    outcome = played(name)
    assert outcome.wrong == ()
