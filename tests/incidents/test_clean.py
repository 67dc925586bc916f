"""Nothing is wrong: is nothing told?"""

from __future__ import annotations

from collections.abc import Callable

from tests.incidents.incident import Outcome


def test_it_comes_out_as_the_table_expects(played: Callable[[str], Outcome]) -> None:
    outcome = played("clean_run")
    assert outcome.wrong == ()
