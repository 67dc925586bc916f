"""Who is named, when is it only said that they differ, and when does a mismatch count for nothing?"""

from __future__ import annotations

import math

import pytest

from dataguard.core.evidence import Told
from dataguard.errors import UsageError
from dataguard.torch.canary.answers import CanaryComparison
from dataguard.torch.canary.comparing import compare
from tests.torch.canary.making import record


def told(answer: CanaryComparison) -> tuple[Told, tuple[str, ...], str]:
    return answer.differs, answer.odd, answer.baseline


def test_all_equal() -> None:
    answer = compare([record("a"), record("b"), record("c")])
    assert told(answer) == (Told.NO, (), "bitwise")
    assert [each.differs for each in answer.members] == [Told.NO] * 3
    assert all(each.tensor is None for each in answer.members)


def test_most_name_the_odd_one_and_its_first_tensor() -> None:
    answer = compare([record("a"), record("b", math.nextafter(1.0, 2.0)), record("c")])
    assert told(answer) == (Told.YES, ("b/cpu",), "bitwise")
    (odd,) = (each for each in answer.members if each.differs is Told.YES)
    assert (odd.member, odd.tensor) == ("b/cpu", "gradient w")
    assert odd.distance is not None
    assert 0 < odd.distance < 1e-15


def test_of_two_that_differ_none_is_named() -> None:
    answer = compare([record("a"), record("b", 1.5)])
    assert told(answer) == (Told.YES, (), "bitwise")
    assert {each.differs for each in answer.members} == {Told.UNKNOWN}
    assert "which of them is wrong cannot be said" in answer.summary


def test_of_two_the_one_that_left_its_own_past_is_named() -> None:
    answer = compare([record("a"), record("b"), record("b", 1.5, time="2026-02-02T03:04:05+00:00")])
    assert told(answer) == (Told.YES, ("b/cpu",), "bitwise")


def test_one_alone_is_compared_with_its_past() -> None:
    later = {"time": "2026-02-02T03:04:05+00:00"}
    assert told(compare([record("a"), record("a", **later)])) == (Told.NO, (), "bitwise")
    assert told(compare([record("a"), record("a", 1.5, **later)])) == (Told.YES, ("a/cpu",), "bitwise")
    assert told(compare([record("a")])) == (Told.UNKNOWN, (), "none")


def test_a_mismatch_without_a_baseline_counts_for_nothing() -> None:
    answer = compare([record("a", repeats=1), record("b", 1.5), record("c")])
    assert told(answer) == (Told.UNKNOWN, (), "none")
    assert told(compare([record("a", repeats=1), record("b"), record("c")])) == (Told.NO, (), "none")


@pytest.mark.parametrize("seed", range(5))
def test_members_that_differ_from_themselves_are_held_against_that(seed: int) -> None:
    """Bits differ everywhere; only a distance beyond the noise counts."""
    noisy = [record(host, noise=1e-6, seed=10 * seed + i) for i, host in enumerate("abcd")]
    assert told(compare(noisy)) == (Told.NO, (), "magnitude")
    sick = record("e", 1.001, noise=1e-6, seed=10 * seed + 9)
    assert told(compare([*noisy, sick])) == (Told.YES, ("e/cpu",), "magnitude")
    assert told(compare([noisy[0], sick])) == (Told.YES, (), "magnitude")


def test_one_that_gives_other_bits_every_time_is_odd_among_those_that_do_not() -> None:
    answer = compare([record("a"), record("b"), record("c"), record("d", noise=1e-7)])
    assert told(answer) == (Told.YES, ("d/cpu",), "bitwise")


def test_halves_that_disagree_name_nobody() -> None:
    answer = compare([record("a"), record("b"), record("c", 2.0), record("d", 2.0)])
    assert told(answer) == (Told.YES, (), "bitwise")


def test_a_device_that_is_not_finite_is_odd() -> None:
    noisy = [record(host, noise=1e-6, seed=i) for i, host in enumerate("abc")]
    answer = compare([*noisy, record("d", math.nan)])
    assert told(answer) == (Told.YES, ("d/cpu",), "magnitude")


def test_other_inputs_are_not_compared() -> None:
    answer = compare(
        [
            record("a"),
            record("b"),
            record("c", 1.5, state="f" * 32),
            record("d", configuration={"torch": "3"}, config="0" * 64),
        ]
    )
    assert told(answer) == (Told.NO, (), "bitwise")
    assert answer.not_compared == ("c/cpu: weights", "d/cpu: torch 3 instead of 2")
    with pytest.raises(UsageError, match="no canary records"):
        compare([])
