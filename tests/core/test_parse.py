"""What people type: every accepted spelling, and every refusal with what was typed in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.parse import parse_shard_row, parse_span, parse_step_or_span
from dataguard.errors import SpanError, UsageError


@given(st.integers(0, 10**18), st.integers(1, 10**18))
def test_a_span_comes_back(start: int, length: int) -> None:
    assert parse_span(f"{start}:{start + length}") == (start, start + length)
    assert parse_step_or_span(f" {start} ") == (start, start + 1)


def test_digits_may_be_grouped_as_in_source_code() -> None:
    assert parse_span("1_000:2_000") == (1000, 2000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("40", "has no ':'\n  allowed"),
        ("40", "type 40:41"),
        ("40:40", "is empty"),
        ("45:40", "is reversed"),
        ("45:40", "did you mean 40:45?"),
        ("-1:4", "is negative"),
        ("1:-4", "is negative"),
        (":4", "leaves an end out"),
        ("4:", "leaves an end out"),
        (":", "leaves an end out"),
        ("", "leaves an end out"),
        ("a:b", "no range of whole numbers"),
        ("1:2:3", "no range of whole numbers"),
        ("40,45", "no range of whole numbers"),
        ("4,0:4,5", "no range of whole numbers"),
        ("1.0:2", "no range of whole numbers"),
        ("1e3:2e3", "no range of whole numbers"),
        ("+1:2", "no range of whole numbers"),
        ("_1:2", "no range of whole numbers"),
        ("\u0663:\u0665", "no range of whole numbers"),
        ("1 0:20", "no range of whole numbers"),
    ],
)
def test_what_is_no_span_is_refused(text: str, says: str) -> None:
    with pytest.raises(SpanError) as caught:
        parse_span(text, what="step range")
    assert f"step range {text!r}" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "4:", "5:4"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(SpanError, match="step"):
        parse_step_or_span(text)


@given(st.text(st.characters(blacklist_characters=":", blacklist_categories=["Cs"]), min_size=1).filter(str.strip),
       st.none() | st.integers(0, 10**12))  # fmt: skip
def test_a_shard_and_row_come_back(shard: str, row: int | None) -> None:
    assert parse_shard_row(shard if row is None else f"{shard}:{row}") == (shard, row)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3:data/a.parquet", ("s3:data/a.parquet", None)),
        ("s3:data/a.parquet:7", ("s3:data/a.parquet", 7)),
        ("a:1:2", ("a:1", 2)),
    ],
)
def test_only_a_last_colon_before_a_number_divides(text: str, expected: tuple[str, int | None]) -> None:
    assert parse_shard_row(text) == expected


@pytest.mark.parametrize(("text", "says"), [("", "names no shard"), (":3", "names no shard"), (" ", "names no shard"),
                                            ("a:", "without a row"), ("a:-3", "row -3")])  # fmt: skip
def test_what_is_no_shard_or_row_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_shard_row(text)
