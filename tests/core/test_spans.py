"""Spans against sets of integers written out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.spans import SpanSet, check_span
from dataguard.errors import SpanError

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


def written_out(given_spans: list[tuple[int, int]]) -> set[int]:
    return {number for start, stop in given_spans for number in range(start, stop)}


@given(spans, st.randoms(use_true_random=False))
def test_every_question_has_the_answer_of_the_written_out_set(given_spans, random) -> None:
    inside = written_out(given_spans)
    shuffled = list(given_spans)
    random.shuffle(shuffled)
    ours = SpanSet.of(given_spans)
    assert ours == SpanSet.of(shuffled) == SpanSet.of([*given_spans, *given_spans])
    assert hash(ours) == hash(SpanSet.of(shuffled))
    assert ours.num_inside == len(inside)
    assert ours.stop == max(inside, default=-1) + 1
    assert all(a[1] < b[0] for a, b in zip(ours.spans, ours.spans[1:], strict=False))
    outside = [number for number in range(90) if number not in inside]
    everywhere = np.arange(90)
    assert ours.contains(everywhere).tolist() == [number in inside for number in range(90)]
    assert [ours.contains(number) for number in range(90)] == [number in inside for number in range(90)]
    counts = [sum(one < number for one in outside) for number in range(90)]
    assert [ours.count_outside_before(number) for number in range(90)] == counts
    assert ours.count_outside_before(everywhere).tolist() == counts
    assert [ours.nth_outside(k) for k in range(len(outside))] == outside
    assert ours.nth_outside(np.arange(len(outside))).tolist() == outside
    assert [ours.skip_to_outside(number) for number in range(80)] == [
        min(one for one in outside if one >= number) for number in range(80)
    ]


@given(spans, st.integers(0, 70), st.integers(0, 20))
def test_ranges_are_judged_as_their_integers_are(given_spans, start, length) -> None:
    inside, asked = written_out(given_spans), set(range(start, start + length))
    ours = SpanSet.of(given_spans)
    assert ours.intersects(start, start + length) == bool(inside & asked)
    assert ours.covers(start, start + length) == (asked <= inside)
    assert written_out(list(ours.within(start, start + length))) == inside & asked


@given(spans, spans)
def test_a_union_holds_what_either_holds(a, b) -> None:
    both = SpanSet.of(a).union(SpanSet.of(b))
    assert both == SpanSet.of([*a, *b])
    assert written_out(list(both)) == written_out(a) | written_out(b)


def test_touching_spans_become_one() -> None:
    assert SpanSet.of([(5, 9), (0, 5)]).spans == ((0, 9),)
    assert not SpanSet.of([])
    assert len(SpanSet.of([(0, 1), (2, 3)])) == 2


def test_integers_may_be_of_any_size() -> None:
    far = 10**30
    ours = SpanSet.of([(far, far + 10)])
    assert ours.nth_outside(far + 3) == far + 13
    assert ours.count_outside_before(far + 20) == far + 10
    assert ours.contains(far + 9)
    assert not ours.contains(far + 10)


@pytest.mark.parametrize(
    ("start", "stop", "says"),
    [(5, 5, "is empty"), (6, 5, "runs backwards"), (-1, 5, "below 0"), (True, 5, "whole numbers"), (0, 2.5, "whole")],
)
def test_a_range_that_cannot_be_is_refused(start, stop, says) -> None:
    with pytest.raises(SpanError, match=says):
        check_span(start, stop)
    with pytest.raises(SpanError, match=says):
        SpanSet.of([(start, stop)])


@pytest.mark.parametrize("unmerged", [((0, 5), (5, 6)), ((4, 5), (0, 1)), ((0, 5), (3, 8))])
def test_a_set_that_is_not_merged_cannot_be_made(unmerged) -> None:
    with pytest.raises(SpanError, match="not merged"):
        SpanSet(unmerged)
