"""The places behind a token signal, beside the twin's, on every integer type and mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import UnknownSignal, UsageError
from dataguard.score.registry import TOKEN_SIGNALS
from dataguard.score.spans import token_spans
from dataguard.score.tokens import score_token_rows
from tests.score.token_rows import TYPES, rows
from tests.twins.token_signals import places_of

PLACED = [
    "token_periodic_repeats",
    "token_periodic_fraction",
    "token_dup_ngram_fraction",
    "anomaly",
    "out_of_vocabulary",
]


def places(spans: Any) -> list[int]:
    return [place for start, stop in spans.tolist() for place in range(start, stop)]


@settings(max_examples=200)
@given(st.data(), st.sampled_from(TYPES), st.sampled_from(PLACED), st.integers(3, 8))
def test_places_equal_the_twin_s(data: st.DataObject, dtype: str, signal: str, at_least: int) -> None:
    row = data.draw(rows(dtype))
    mask = data.draw(st.none() | st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    spans = token_spans(np.array(row, dtype=dtype), signal, at_least=at_least, mask=mask, vocab_size=100)
    assert spans.dtype == np.int64
    assert spans.shape[1] == 2
    edges = spans.reshape(-1).tolist()
    assert edges == sorted(set(edges)), "in order, none empty, none touching"
    expected = places_of(row, signal, at_least=at_least, mask=mask, vocab_size=100)
    assert places(spans) == sorted(expected)


@settings(max_examples=100)
@given(rows("<i4"))
def test_places_are_what_the_kernel_counted(row: list[int]) -> None:
    ids = np.array(row, dtype=np.int32)
    columns = score_token_rows(ids, [0, len(row)], vocab_size=1000)
    found = {name: column[0] for name, column in columns.items()}
    covered = len(places(token_spans(ids, "token_periodic_fraction")))
    assert found["token_periodic_fraction"] == (covered / len(row) if row else 0)
    assert found["out_of_vocabulary"] == len(places(token_spans(ids, "out_of_vocabulary", vocab_size=1000)))
    most = int(found["token_periodic_repeats"])
    if most:
        assert len(token_spans(ids, "token_periodic_repeats", at_least=most))
    assert not len(token_spans(ids, "token_periodic_repeats", at_least=most + 3))
    assert (len(token_spans(ids, "token_dup_ngram_fraction")) > 0) == (found["token_dup_ngram_fraction"] > 0)


def test_a_masked_place_lies_in_no_span() -> None:
    row = [1, 7, 7, 0, 7, 7, 2]
    assert token_spans(row, "token_periodic_repeats").tolist() == []
    mask = [token != 0 for token in row]
    assert token_spans(row, "token_periodic_repeats", mask=mask).tolist() == [[1, 3], [4, 6]]


def test_signals_without_a_place_and_refusals() -> None:
    for spec in TOKEN_SIGNALS:
        if spec.name not in PLACED:
            assert token_spans([1, 1, 1, 1], spec.name).shape == (0, 2)
    with pytest.raises(UnknownSignal, match="token_periodic_repeat'"):
        token_spans([1], "token_periodic_repeat")
    with pytest.raises(UsageError, match="no signal of tokens"):
        token_spans([1], "byte_entropy")
    with pytest.raises(UsageError, match="needs vocab_size"):
        token_spans([1], "out_of_vocabulary")
    for at_least in (2.5, 0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="repeats"):
            token_spans([1], "token_periodic_repeats", at_least=at_least)
    assert token_spans([1] * 5, "token_periodic_repeats", at_least=4.5).tolist() == [[0, 5]]
    assert token_spans([1] * 4, "token_periodic_repeats", at_least=4.5).tolist() == []
