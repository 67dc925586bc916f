"""Faults of one rank and its machine: is the rank named?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.incidents.incident import Outcome


@pytest.mark.parametrize("name", ["wrong_gradients", "one_rank_nan", "one_rank_nan_once", "stalled_rank"])
def test_it_comes_out_as_the_table_expects(name: str, played: Callable[[str], Outcome]) -> None:
    outcome = played(name)
    assert outcome.wrong == ()
