"""Numbers that others published or that can be reckoned by hand, met exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dataguard.score.spans import token_spans
from dataguard.score.tokens import distinct_ngrams, score_token_rows

PUBLISHED_ANOMALY = {
    1: 1.000, 2: 0.937, 4: 0.874, 8: 0.811, 13: 0.766, 16: 0.746, 24: 0.708, 32: 0.680, 64: 0.609, 128: 0.531,
}  # fmt: skip


def one(tokens: list[int], signal: str) -> float:
    return score_token_rows(tokens, [0, len(tokens)], [signal])[signal][0].item()


@pytest.mark.parametrize(
    ("digits", "start", "stop", "period", "repeats"),
    [
        ("5000007", 1, 6, 1, 5),
        ("501010127", 1, 7, 2, 3),
        ("5301040104010401", 2, 16, 4, 3),
        ("04004004004030", 0, 12, 3, 4),
    ],
)
def test_periodic_runs_as_published(digits: str, start: int, stop: int, period: int, repeats: int) -> None:
    tokens = [int(digit) for digit in digits]
    assert one(tokens, "token_periodic_repeats") == repeats
    assert token_spans(tokens, "token_periodic_repeats").tolist() == [[start, stop]]
    assert (stop - start) // period == repeats
    covered = (stop - start) / len(tokens) if repeats >= 4 else 0.0
    assert one(tokens, "token_periodic_fraction") == covered


def test_duplicates_of_a_repeated_phrase() -> None:
    """64 distinct tokens, (100, 101, 102) ten times, then 100, 101."""
    tokens = [*range(64), *[100, 101, 102] * 10, 100, 101]
    windows = [len(tokens) - n + 1 for n in range(1, 6)]
    distinct = [distinct_ngrams(tokens, [0, len(tokens)], n)[0] for n in range(1, 6)]
    assert [w - d for w, d in zip(windows, distinct, strict=True)] == [29, 28, 27, 26, 25]
    assert one(tokens, "token_dup_ngram_fraction") == 26 / windows[3]
    assert one(tokens, "token_periodic_repeats") == 10
    assert one(tokens, "token_periodic_fraction") == 32 / len(tokens)


@pytest.mark.parametrize(
    ("tokens", "bits"),
    [
        (list(b"aabb"), 1.0),
        (list(b"abcd"), 2.0),
        (list(b"aaab"), 0.8112781244591328),
        (list("\u20ac".encode()), 1.584962500721156),
        (list(range(256)), 8.0),
        (list(b"aaaa"), 0.0),
    ],
)
def test_entropies(tokens: list[int], bits: float) -> None:
    assert one(tokens, "token_entropy") == pytest.approx(bits, abs=1e-15)
    if bits == int(bits):
        assert one(tokens, "token_entropy") == bits


@pytest.mark.parametrize("period", PUBLISHED_ANOMALY)
def test_anomaly_of_a_period(period: int) -> None:
    tokens = np.resize(np.arange(period), 2048).tolist()
    assert round(one(tokens, "anomaly"), 3) == pytest.approx(PUBLISHED_ANOMALY[period], abs=1e-9)
    # By hand: all windows but the first `period` are duplicates, and the ids are nearly uniform.
    assert one(tokens, "token_dup_ngram_fraction") == (2045 - period) / 2045
    assert one(tokens, "token_entropy") == pytest.approx(math.log2(period), abs=1e-3)
    assert one(tokens, "token_periodic_repeats") == (2048 // period if period <= 13 else 0)
    assert one(tokens, "token_periodic_fraction") == (1.0 if period <= 13 else 0.0)


def test_anomaly_of_padding_alone_and_of_a_masked_row() -> None:
    assert one([0] * 3, "anomaly") == 0.5
    masked = score_token_rows([0] * 8, [0, 8], ["anomaly", "length_tokens"], mask=[False] * 8)
    assert (masked["anomaly"][0], masked["length_tokens"][0]) == (0.0, 0)
