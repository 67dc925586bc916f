"""K12, scorers at their edges: rows shorter than a window, empty rows, windows of no tokens. G24, for tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dataguard.errors import UsageError
from dataguard.score.registry import TOKEN_SIGNALS
from dataguard.score.spans import token_spans
from dataguard.score.tokens import distinct_ngrams, score_token_rows, score_tokens


def test_g24_rows_shorter_than_a_window_have_no_duplicates() -> None:
    rows = [list(range(length)) for length in range(6)]
    offsets = np.cumsum([0, *map(len, rows)])
    flat = [token for row in rows for token in row]
    assert distinct_ngrams(flat, offsets, 4).tolist() == [0, 0, 0, 0, 1, 2]
    assert score_token_rows(flat, offsets)["token_dup_ngram_fraction"].tolist() == [0.0] * 6


def test_g24_equal_short_rows_are_no_duplicates_of_one_another() -> None:
    """A thousand rows of one and the same id, none of which repeats anything in itself."""
    found = score_tokens(np.full((1000, 1), 9), vocab_size=100)
    for name, value in (
        ("token_dup_ngram_fraction", 0.0),
        ("token_periodic_repeats", 0),
        ("anomaly", 0.5),
        ("token_entropy_ratio", 1.0),
    ):
        assert found[name].to_pylist() == [value] * 1000
    assert score_tokens(np.full((1000, 3), 9), signals=["token_dup_ngram_fraction"])[0].to_pylist() == [0.0] * 1000


@pytest.mark.parametrize("length", range(6))
def test_no_fraction_leaves_its_range_and_none_is_nan(length: int) -> None:
    for row in (np.zeros(length, dtype=np.int64), np.arange(length), -np.arange(length)):
        found = score_token_rows(row, [0, length], vocab_size=1, text_bytes=[0])
        assert list(found) == [spec.name for spec in TOKEN_SIGNALS]
        for spec in TOKEN_SIGNALS:
            assert spec.holds(found[spec.name][0]), (spec.name, found[spec.name])
        assert token_spans(row, "token_dup_ngram_fraction").tolist() == ([[1, 5]] if length == 5 and not row[1] else [])


@pytest.mark.parametrize("n", [0, -1, -4, True, 2.0, None])
def test_g24_windows_of_no_tokens_are_refused(n: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        distinct_ngrams([1, 2, 3], [0, 3], n)


def test_g24_as_given(shared: Path) -> None:
    expected = json.loads((shared / "cases/given/expected.json").read_text())["expected"]["G24"]
    for length, case in enumerate(expected["by_length"]):
        tokens = np.load(shared / "cases/given/G24" / f"len{length}.npy")
        assert len(tokens) == length
        assert distinct_ngrams(tokens, [0, length], expected["n"])[0] == case["distinct"]
        assert score_token_rows(tokens, [0, length])["token_dup_ngram_fraction"][0] == case["dup_fraction"]
