"""K6, integer width inside kernels: ids and hashes past 2^53 that a float would merge. G12."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dataguard.score.tokens import distinct_ngrams, score_token_rows
from tests.twins.token_signals import windows_of

TYPES_OF_LARGE_IDS = ["<u4", ">u4", "<u8", ">u8", "<i8"]


def one_token_apart() -> list[int]:
    return [token for number in range(2000) for token in (7, 7, 7, 4_294_960_000 + number)]


@pytest.mark.parametrize("dtype", TYPES_OF_LARGE_IDS)
def test_g12_windows_that_differ_in_one_large_id(dtype: str) -> None:
    tokens = np.array(one_token_apart(), dtype=dtype)
    distinct = [distinct_ngrams(tokens, [0, 8000], n)[0] for n in range(1, 6)]
    assert distinct == [2001, 4000, 5999, 7997, 7996]
    assert score_token_rows(tokens, [0, 8000])["token_dup_ngram_fraction"][0] == 0.0


@pytest.mark.parametrize("step", [1, 2**20, 2**33, 2**44])
def test_g12_twenty_thousand_different_ids(step: int) -> None:
    tokens = (np.arange(20_000, dtype=np.uint64) * np.uint64(step)) + np.uint64(2**63 - 5)
    for n in (1, 2, 3, 4, 5, 8):
        assert distinct_ngrams(tokens, [0, 20_000], n)[0] == 20_000 - n + 1
    found = score_token_rows(tokens, [0, 20_000], vocab_size=2**62)
    assert found["distinct_tokens"][0] == 20_000
    assert found["out_of_vocabulary"][0] == 20_000


@pytest.mark.parametrize("bit", range(64))
def test_g12_ids_that_differ_in_one_bit(bit: int) -> None:
    base, other = 0x5555555555555555, 0x5555555555555555 ^ (1 << bit)
    tokens = np.array([base, other] * 4, dtype=np.uint64)
    found = score_token_rows(tokens, [0, 8])
    assert (found["distinct_tokens"][0], found["token_entropy"][0]) == (2, 1.0)
    assert distinct_ngrams(tokens, [0, 8], 4)[0] == 2


def test_g12_as_given(shared: Path) -> None:
    expected = json.loads((shared / "cases/given/expected.json").read_text())["expected"]["G12"]
    for name, by_n in expected.items():
        tokens = np.load(shared / "cases/given/G12" / f"{name}.npy")
        for case in by_n:
            n = case["n"]
            distinct = int(distinct_ngrams(tokens, [0, len(tokens)], n)[0])
            assert (max(0, len(tokens) - n + 1), distinct) == (case["windows"], case["distinct"])
            assert distinct == len(set(windows_of(tokens.tolist(), n)))
            if n == 4:
                fraction = score_token_rows(tokens, [0, len(tokens)])["token_dup_ngram_fraction"][0]
                assert fraction == case["dup_fraction"]
