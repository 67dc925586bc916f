"""Loader states: what they hold, and what is refused."""

from __future__ import annotations

import json

import pytest

from dataguard.errors import AttemptError
from dataguard.plan.state import JournalHead, LoaderState, read_state

STATE = LoaderState(
    root_digest="cd" * 32, attempt=2, next_step=41, journal_head=JournalHead(number=3, sha256="ab" * 32)
)


def test_a_state_holds_five_things_and_nothing_else() -> None:
    assert STATE.to_dict() == {
        "version": 1,
        "root_digest": "cd" * 32,
        "attempt": 2,
        "next_step": 41,
        "journal_head": {"number": 3, "sha256": "ab" * 32},
    }


def test_a_state_comes_back_from_bytes_text_and_dicts() -> None:
    assert read_state(STATE.encode()) == STATE
    assert read_state(json.dumps(STATE.to_dict())) == STATE
    assert read_state(json.loads(json.dumps(STATE.to_dict()))) == STATE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version"),
        ({"next_step": -1}, "next_step"),
        ({"next_step": 4.5}, "next_step"),
        ({"attempt": -1}, "attempt"),
        ({"root_digest": "cd"}, "root_digest"),
        ({"journal_head": {"number": 0, "sha256": "ab" * 32}}, "journal_head"),
        ({"epoch": 3}, "epoch"),
    ],
)
def test_a_state_that_does_not_fit_says_where(change, says) -> None:
    with pytest.raises(AttemptError, match="this is no loader state") as refused:
        read_state({**STATE.to_dict(), **change})
    assert says in str(refused.value)
    with pytest.raises(AttemptError, match="no loader state"):
        read_state(b'{"version":1')


def test_a_state_of_another_stream_shows_both_digests() -> None:
    STATE.check_root("cd" * 32)
    with pytest.raises(AttemptError) as refused:
        STATE.check_root("ef" * 32)
    assert f"found: a state of root {'cd' * 32}" in str(refused.value)
    assert f"allowed: a state of root {'ef' * 32}" in str(refused.value)
