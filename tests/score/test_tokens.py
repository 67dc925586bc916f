"""Matrices and list arrays of every kind give the same table, and what is no such thing is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataguard
from dataguard.errors import UnknownSignal, UsageError
from dataguard.score.registry import TOKEN_SIGNALS
from dataguard.score.tokens import distinct_ngrams, score_token_rows, score_tokens
from tests.score.token_rows import TYPES

MATRIX = np.array([[5, 5, 5, 5, 5, 5], [1, 2, 3, 4, 5, 6], [9, 9, 1, 9, 9, 1]])
WITHOUT_NEEDS = [spec.name for spec in TOKEN_SIGNALS if not spec.needs]
WITH_VOCABULARY = [spec.name for spec in TOKEN_SIGNALS if "text_bytes" not in spec.needs]


def test_a_matrix() -> None:
    table = dataguard.score_tokens(MATRIX, vocab_size=6)
    assert table.column_names == WITH_VOCABULARY
    assert [str(field.type) for field in table.schema] == [
        "int64" if spec.whole else "double" for spec in TOKEN_SIGNALS if spec.name in WITH_VOCABULARY
    ]
    assert table["length_tokens"].to_pylist() == [6, 6, 6]
    assert table["distinct_tokens"].to_pylist() == [1, 6, 2]
    assert table["out_of_vocabulary"].to_pylist() == [0, 1, 4]
    assert table["token_periodic_repeats"].to_pylist() == [6, 0, 0]
    assert table["token_dup_ngram_fraction"].to_pylist() == [2 / 3, 0.0, 0.0]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_integer_type(dtype: str) -> None:
    assert score_tokens(MATRIX.astype(dtype), vocab_size=6) == score_tokens(MATRIX, vocab_size=6)


def test_any_layout_in_memory() -> None:
    wide = np.zeros((6, 12), dtype=np.int32)
    wide[::2, ::2] = MATRIX
    for matrix in (np.asfortranarray(MATRIX), wide[::2, ::2], MATRIX.tolist()):
        assert score_tokens(matrix) == score_tokens(MATRIX)
    read_only = MATRIX.copy()
    read_only.flags.writeable = False
    assert score_tokens(read_only) == score_tokens(MATRIX)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_matrices_of_nothing(shape: tuple[int, int]) -> None:
    table = score_tokens(np.zeros(shape, dtype=np.int32), vocab_size=7)
    assert table.num_rows == shape[0]
    for spec in TOKEN_SIGNALS:
        if spec.name in WITH_VOCABULARY:
            assert table[spec.name].to_pylist() == [spec.empty] * shape[0]


def test_a_mask_takes_positions_out() -> None:
    mask = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0]], dtype=bool)
    table = score_tokens(MATRIX, mask, vocab_size=10)
    assert table["length_tokens"].to_pylist() == [3, 0, 4]
    assert table["token_periodic_repeats"].to_pylist() == [3, 0, 4]
    assert table["anomaly"].to_pylist() == [0.5, 0.0, 0.5]
    assert score_tokens(MATRIX, mask.astype(np.int64), vocab_size=10) == table


LISTS = [[5, 5, 5, 5], None, [], [1, 2], [7]]
KINDS: dict[str, Any] = {
    "list": pa.list_(pa.int32()),
    "large list": pa.large_list(pa.uint16()),
    "list of u8": pa.list_(pa.uint8()),
    "view": pa.list_view(pa.int64()),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_ragged_rows_of_every_list_type(kind: pa.DataType) -> None:
    array = pa.array(LISTS, type=kind)
    expected = score_tokens(pa.array(LISTS, type=pa.list_(pa.int64())), vocab_size=6)
    assert expected["length_tokens"].to_pylist() == [4, None, 0, 2, 1]
    assert expected["out_of_vocabulary"].to_pylist() == [0, None, 0, 0, 1]
    assert score_tokens(array, vocab_size=6) == expected
    assert score_tokens(pa.chunked_array([array[:2], array[2:2], array[2:]]), vocab_size=6) == expected
    assert score_tokens(array[1:4], vocab_size=6) == expected.slice(1, 3)
    assert score_tokens(pa.chunked_array([], type=kind)).num_rows == 0


def test_rows_of_one_size() -> None:
    array = pa.array([[1, 1, 1], None, [1, 2, 3], [4, 4, 5]], type=pa.list_(pa.int32(), 3))
    assert score_tokens(array)["distinct_tokens"].to_pylist() == [1, None, 3, 2]
    assert score_tokens(array[1:])["distinct_tokens"].to_pylist() == [None, 3, 2]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(MATRIX.reshape(-1)), 6)
    assert score_tokens(fixed) == score_tokens(MATRIX)


def test_masks_of_ragged_rows() -> None:
    array = pa.array(LISTS, type=pa.list_(pa.int32()))
    table = score_tokens(array, pa.array([[True, False, True, True], None, [], [False, False], [True]]))
    assert table["length_tokens"].to_pylist() == [3, None, 0, 0, 1]
    # A row that is null needs no mask; one that it has goes the way of the row.
    masked = pa.array([[1, 0, 1, 1], [1, 1], [], [0, 0], [1]], type=pa.list_(pa.int8()))
    assert score_tokens(array, masked) == table


def test_a_null_among_ids_is_refused_and_a_null_behind_a_null_row_is_not() -> None:
    with pytest.raises(UsageError, match="a null in row 2"):
        score_tokens(pa.array([[1], [], [2, None]], type=pa.list_(pa.int32())))
    values = pa.array([1, None, 3], type=pa.int32())
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), values, mask=pa.array([False, True, False]))
    assert score_tokens(hidden)["length_tokens"].to_pylist() == [1, None, 1]


@pytest.mark.parametrize(
    ("tokens", "more", "message"),
    [
        (np.zeros(3, dtype=np.int32), {}, "two dimensions"),
        (np.zeros((1, 3)), {}, "float64"),
        (np.zeros((1, 3), dtype=bool), {}, "bool"),
        ([["a"]], {}, "integers"),
        (pa.array([1, 2]), {}, "lists of integers"),
        (pa.array([["a"]]), {}, "integers"),
        (pa.array([[1.5]]), {}, "integers"),
        (MATRIX, {"mask": np.ones((3, 5), dtype=bool)}, "mask of shape"),
        (MATRIX, {"mask": np.ones(18, dtype=bool)}, "mask of shape"),
        (MATRIX, {"mask": np.full((3, 6), 2)}, "from 2 to 2"),
        (MATRIX, {"mask": np.ones((3, 6))}, "mask of type float64"),
        (pa.array([[1]]), {"mask": np.ones((1, 1), dtype=bool)}, "for a list array"),
        (pa.array([[1], [2]]), {"mask": pa.array([[True]])}, "mask of 1 rows"),
        (pa.array([[1], [2]]), {"mask": pa.array([[True], []])}, "mask of row 1"),
        (pa.array([[1], []]), {"mask": pa.array([[True], None])}, "mask of row 1"),
        (MATRIX, {"vocab_size": 0}, "vocabulary of size 0"),
        (MATRIX, {"vocab_size": 2**63}, "vocabulary of size"),
        (MATRIX, {"vocab_size": True}, "vocabulary of size True"),
        (MATRIX, {"signals": ["out_of_vocabulary"]}, "needs vocab_size"),
        (MATRIX, {"signals": ["fertility"]}, "needs text_bytes"),
        (MATRIX, {"signals": ["anomaly", "byte_entropy"]}, "byte_entropy: no signal of tokens"),
        (MATRIX, {"signals": "anomaly"}, "list of names"),
    ],
)
def test_what_is_refused(tokens: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        score_tokens(tokens, **more)


def test_an_unknown_signal_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownSignal, match="did you mean anomaly"):
        score_tokens(MATRIX, signals=["anomalie"])


def test_no_signal_at_all() -> None:
    assert score_token_rows([1, 2], [0, 2], []) == {}


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "offsets"),
        ([0.0, 1.0], "offsets of type"),
        ([0, 4], "ends at token 4"),
        ([0, 2, 1], "decrease"),
        ([-1, 2], "negative"),
        ([[0, 1]], "shape"),
        ([0, 2**31], "ends at token|at most"),
    ],
)
def test_offsets_that_do_not_fit_never_reach_a_kernel(offsets: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        score_token_rows([1, 2, 3], offsets)
    with pytest.raises(UsageError, match=message):
        distinct_ngrams([1, 2, 3], offsets, 2)


def test_offsets_may_leave_tokens_out() -> None:
    found = score_token_rows([9, 1, 1, 1, 9], [1, 2, 4], mask=[True] * 5)
    assert found["length_tokens"].tolist() == [1, 2]
    assert found["distinct_tokens"].tolist() == [1, 1]


def test_fertility() -> None:
    found = score_token_rows([1, 2, 3], [0, 2, 3, 3], ["fertility"], text_bytes=[8, 0, 5])
    assert found["fertility"].tolist() == [0.25, 0.0, 0.0]
    for text_bytes in ([1, 2], [1.0, 2.0, 3.0], [-1, 2, 3]):
        with pytest.raises(UsageError, match="text_bytes"):
            score_token_rows([1, 2, 3], [0, 2, 3, 3], ["fertility"], text_bytes=text_bytes)


@pytest.mark.parametrize("tokens", [[[1, 2], [3]], np.ma.array([[1, 2]], mask=[[False, True]])])
def test_what_numpy_would_take_otherwise_is_refused(tokens) -> None:
    with pytest.raises(UsageError):
        score_tokens(tokens)


def test_what_a_signal_needs_can_be_given() -> None:
    table = score_tokens([[1, 2, 3], [4, 5, 6]], signals=["fertility"], text_bytes=[12, 0])
    assert table.to_pydict() == {"fertility": [0.25, 0.0]}


def test_rows_of_nothing_and_no_signals_are_rows() -> None:
    assert score_tokens(pa.array([[], []]), signals=["length_tokens"]).to_pydict() == {"length_tokens": [0, 0]}
    assert score_tokens(pa.array([[1], [2]]), signals=[]).num_rows == 2
