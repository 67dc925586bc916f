"""What lies between data and state, and what is no incident at all: is it told apart?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.incidents.incident import Outcome


@pytest.mark.parametrize("name", ["batch_and_state", "truncated_shard", "deduplication_bug", "planned_lr_step"])
def test_it_comes_out_as_the_table_expects(name: str, played: Callable[[str], Outcome]) -> None:
    outcome = played(name)
    assert outcome.wrong == ()
