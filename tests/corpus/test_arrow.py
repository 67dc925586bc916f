"""Arrow's numbers as NumPy's: as pyarrow itself gives them, without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.arrow import list_lengths, numbers, valid

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]
VALUES = st.lists(st.none() | st.integers(0, 100), max_size=30)


@given(st.lists(VALUES, max_size=4), st.sampled_from(TYPES), st.integers(0, 5))
def test_numbers_are_those_of_pyarrow(chunks, kind, cut) -> None:
    column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind).slice(cut)
    found = numbers(column, null=77)
    wanted = [77 if value is None else value for value in column.to_pylist()]
    assert found.tolist() == wanted
    assert found.dtype == kind.to_pandas_dtype()


@given(VALUES, st.integers(0, 12))
def test_valid_is_that_of_pyarrow(values, cut) -> None:
    chunk = pa.array(values, pa.int64())[cut:]
    assert valid(chunk).tolist() == [value is not None for value in values[cut:]]


def test_nulls_without_a_stand_in_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 numbers are null"):
        numbers(pa.array([1, None]))
    assert numbers(pa.array([1, None])[:1]).tolist() == [1]


def test_one_chunk_is_no_copy() -> None:
    values = np.arange(10)
    assert np.shares_memory(numbers(pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(values)])), values)


def test_pandas_stays_out() -> None:
    code = (
        "import sys, numpy as np, pyarrow as pa; from dataguard.corpus.arrow import numbers;"
        "column = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(b'\\1' * 16)]);"
        "assert numbers(pa.chunked_array([column])).sum() > 0; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@given(st.lists(st.none() | st.lists(st.integers(0, 9), max_size=4), max_size=20), st.integers(0, 8))
def test_list_lengths_are_those_of_pyarrow(lists, cut) -> None:
    chunk = pa.array(lists, pa.list_(pa.int64()))[cut:]
    assert list_lengths(chunk).tolist() == [len(each or []) for each in lists[cut:]]
