"""The token kernels beside their twin: every integer type, byte order and mask, and rows that take every path."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dataguard.score.token_rows as module
from dataguard.core.signals import SignalSpec
from dataguard.score import scratch
from dataguard.score.kernels import tokens as kernels
from dataguard.score.registry import TOKEN_SIGNALS, spec_of
from dataguard.score.tokens import distinct_ngrams, score_token_rows
from tests.score.text_documents import real_texts
from tests.score.token_rows import documents, offsets_of, ragged, rows
from tests.twins.token_signals import token_signals, windows_of

NAMES = [spec.name for spec in TOKEN_SIGNALS]


def scored(tokens: Any, *, vocab_size: int | None = None, **more: Any) -> dict[str, float]:
    """Signals of one row."""
    columns = score_token_rows(tokens, [0, len(tokens)], vocab_size=vocab_size, **more)
    return {name: column[0].item() for name, column in columns.items()}


def assert_alike(found: dict[str, Any], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        spec = spec_of(name)
        assert spec.holds(found[name]), (name, found[name])
        if spec.whole:
            assert found[name] == value, name
        else:
            assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-13), name


@settings(max_examples=150)
@given(ragged(), st.integers(1, 2**63 - 1) | st.integers(1, 300))
def test_every_signal_equals_the_twin(made: Any, vocab_size: int) -> None:
    flat, several, masks, is_masked = made
    columns = score_token_rows(
        flat,
        offsets_of(several),
        mask=[flag for mask in masks for flag in mask] if is_masked else None,
        vocab_size=vocab_size,
        text_bytes=[len(row) * 3 for row in several] if several else np.zeros(0, dtype=np.int64),
    )
    assert list(columns) == NAMES
    for place, (row, mask) in enumerate(zip(several, masks, strict=True)):
        found = {name: column[place].item() for name, column in columns.items()}
        expected = token_signals(row, mask=mask if is_masked else None, vocab_size=vocab_size, text_bytes=3 * len(row))
        assert_alike(found, expected)


@settings(max_examples=100)
@given(rows("<i8", longest=50), st.integers(1, 20))
@example([1, 1, 1, 1], 1)
@example([1, 2] * 20, 16)
@example([1, 2, 3], 4)
def test_distinct_windows_of_any_length(row: list[int], n: int) -> None:
    assert distinct_ngrams(np.array(row, dtype=np.int64), [0, len(row)], n).tolist() == [len(set(windows_of(row, n)))]


@settings(max_examples=60)
@given(ragged())
def test_rows_of_many_ids_take_the_other_way_to_the_same_end(made: Any) -> None:
    """The path for more than 65,536 distinct ids, on rows that both can take."""
    flat, several, _, _ = made
    offsets = offsets_of(several)
    short = score_token_rows(flat, offsets, ["token_dup_ngram_fraction"])["token_dup_ngram_fraction"]
    distinct = distinct_ngrams(flat, offsets, 4)
    windows = np.maximum(0, np.diff(offsets) - 3)
    assert np.array_equal(short, np.where(windows == 0, 0.0, (windows - distinct) / np.maximum(windows, 1)))


@pytest.mark.parametrize("shift", [0, 10**6, 2**62], ids=["below", "above", "far above"])
@pytest.mark.parametrize("num_ids", [65_535, 65_536, 65_537, 150_000])
def test_rows_around_the_last_packed_id(num_ids: int, shift: int) -> None:
    """All ids, then those of a stretch again: duplicates are that stretch's windows, in ids packed and unpacked."""
    ids = np.concatenate([np.arange(num_ids), np.arange(num_ids - 1000, num_ids)]) + shift
    found = scored(ids)
    windows = len(ids) - 3
    assert found["distinct_tokens"] == num_ids
    assert found["token_dup_ngram_fraction"] == 997 / windows
    once, twice = num_ids - 1000, 1000
    entropy = (once * math.log2(len(ids)) + 2 * twice * math.log2(len(ids) / 2)) / len(ids)
    assert found["token_entropy"] == pytest.approx(entropy, rel=1e-13)


def test_ids_that_differ_in_their_lowest_bit_alone_are_different() -> None:
    """64-bit ids past 2^53, which a float would take for one another."""
    ids = np.array([2**63 + 1, 2**63, 2**64 - 1, 2**64 - 2] * 3, dtype=np.uint64)
    found = scored(ids, vocab_size=2**63 - 1)
    assert (found["distinct_tokens"], found["token_entropy"], found["out_of_vocabulary"]) == (4, 2.0, 12)
    assert scored(ids.view(np.int64))["distinct_tokens"] == 4


def test_real_texts_and_real_tokens(shared: Path) -> None:
    """Bytes of texts of every kind as ids, and stretches of token files: scored in one call, each beside the twin."""
    several: list[Any] = [np.frombuffer(text[:1500], dtype=np.uint8) for text in real_texts(shared)]
    for path in sorted((shared / "data/formats").rglob("*.bin")):
        ids = np.fromfile(path, dtype="<u2")
        several += [ids[start : start + 1024] for start in range(0, len(ids), max(1024, len(ids) // 5))]
    assert len(several) > 20
    joined = np.concatenate([row.astype(np.uint16) for row in several])
    columns = score_token_rows(joined, offsets_of(several), vocab_size=50_257)
    for place, row in enumerate(several):
        found = {name: column[place].item() for name, column in columns.items()}
        assert_alike(found, token_signals(row.tolist(), vocab_size=50_257))


@pytest.mark.parametrize("spec", TOKEN_SIGNALS, ids=lambda spec: spec.name)
def test_the_empty_row_has_the_registry_s_value(spec: SignalSpec) -> None:
    found = scored(np.zeros(0, dtype=np.uint16), vocab_size=10, text_bytes=[0])
    assert found[spec.name] == spec.empty
    assert scored([3], vocab_size=10)["anomaly"] == 0.5
    assert scored([3], vocab_size=10)["token_entropy_ratio"] == 1.0


def test_equal_rows_have_equal_bits_wherever_they_stand() -> None:
    several = documents(60, 700)
    backwards = several[::-1]
    first = score_token_rows(np.concatenate(several), offsets_of(several), vocab_size=50_000)
    second = score_token_rows(np.concatenate(backwards), offsets_of(backwards), vocab_size=50_000)
    for name, column in first.items():
        assert column.tobytes() == second[name][::-1].tobytes(), name
    for name in first:
        alone = score_token_rows(np.concatenate(several), offsets_of(several), [name], vocab_size=50_000)
        assert list(alone) == [name]
        assert alone[name].tobytes() == first[name].tobytes(), name


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    several = documents(50, 400)
    flat, offsets = np.concatenate(several), offsets_of(several)
    mask = np.arange(len(flat)) % 11 != 0
    whole = score_token_rows(flat, offsets, mask=mask, vocab_size=9)
    for size, num_rows in ((1, 1), (350, 3), (1000, 10**6)):
        monkeypatch.setattr(module, "PIECE_TOKENS", size)
        monkeypatch.setattr(module, "PIECE_ROWS", num_rows)
        pieces = score_token_rows(flat, offsets, mask=mask, vocab_size=9)
        assert {name: column.tobytes() for name, column in pieces.items()} == {
            name: column.tobytes() for name, column in whole.items()
        }


def test_stamps_that_run_out_begin_anew() -> None:
    several = documents(40, 300)
    flat, offsets = np.concatenate(several), offsets_of(several)
    before = score_token_rows(flat, offsets)
    mine = scratch.token_scratch(300)
    assert mine is scratch.token_scratch(10), "a thread keeps its scratch"
    mine.stamps[0] = 2**31 - 40  # some rows before the bound, some behind it
    first = score_token_rows(flat, offsets)
    assert mine.stamps[0] >= 2**31
    second = score_token_rows(flat, offsets)
    assert mine.stamps[0] < 2**31
    for name, column in before.items():
        assert column.tobytes() == first[name].tobytes() == second[name].tobytes()


def test_room_for_a_very_long_row_is_given_back() -> None:
    assert scratch.token_scratch(scratch.LARGEST_KEPT_ROW + 1).num_tokens > scratch.LARGEST_KEPT_ROW
    assert scratch.token_scratch(10).num_tokens <= scratch.LARGEST_KEPT_ROW


def test_the_logarithm_is_exact_for_powers_of_two_and_near_for_others() -> None:
    logs = np.empty(5000)
    kernels.fill_small_logs(logs)
    counts = np.arange(1, 5000)
    assert logs[0] == 0
    assert np.abs(logs[1:] / counts - np.log2(counts)).max() < 1e-14
    for power in range(13):
        assert logs[2**power] == power * 2**power
    for power in range(20):
        assert scored(np.arange(2**power) * 7)["token_entropy"] == power


@pytest.mark.parametrize(
    "ids",
    [
        np.zeros(300_000, dtype=np.uint16),
        np.arange(300_000, dtype=np.uint32),
        np.arange(300_000, dtype=np.uint64) << np.uint64(44),
        np.tile(np.arange(13, dtype=np.int8), 20_000),
        np.tile(np.array([1] * 24 + [2], dtype=np.int8), 12_000),
    ],
    ids=["one id", "all distinct", "low bits zero", "period 13", "runs broken off"],
)
def test_long_rows_of_every_bad_kind(ids: Any) -> None:
    """Hours, were a table or a search quadratic on them."""
    found = scored(ids, vocab_size=2**40)
    distinct = len(np.unique(ids))
    assert found["distinct_tokens"] == distinct
    windows = np.lib.stride_tricks.sliding_window_view(ids[: 30 * 25], 4)
    if distinct < 100:
        assert found["token_dup_ngram_fraction"] == pytest.approx(
            1 - len(np.unique(windows, axis=0)) / (len(ids) - 3), abs=1e-12
        )
