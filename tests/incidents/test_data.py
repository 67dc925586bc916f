"""Faults of the data: is the shard named, and the verdict about it right?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.incidents.incident import Outcome


@pytest.mark.parametrize("name", ["base64_shard", "foreign_language", "hard_batch", "repeated_sequence"])
def test_it_comes_out_as_the_table_expects(name: str, played: Callable[[str], Outcome]) -> None:
    outcome = played(name)
    assert outcome.wrong == ()
