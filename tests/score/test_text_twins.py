"""The text kernels agree with their naive twin on any bytes, and never know what else was scored, or how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dataguard.errors import UnknownSignal
from dataguard.score.registry import SIGNALS, TEXT_SIGNALS
from dataguard.score.text import score_buffers, score_text
from tests.score.text_documents import documents, real_texts, small_documents
from tests.twins.text_signals import text_signals

NAMES = tuple(spec.name for spec in TEXT_SIGNALS if not spec.needs)


def _buffers(batch: Sequence[bytes], *, before: bytes = b"") -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Values and offsets of a batch; `before` lies in the values and belongs to no document."""
    values = np.frombuffer(before + b"".join(batch) + b"behind", dtype=np.uint8)
    offsets = np.cumsum([len(before), *map(len, batch)], dtype=np.int64)
    return values, offsets


def _score(batch: Sequence[bytes], signals: Sequence[str] = NAMES, *, before: bytes = b"") -> dict[str, NDArray]:
    return score_buffers(*_buffers(batch, before=before), signals)


def _bits(columns: dict[str, NDArray]) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in columns.items()}


def _check(document: bytes) -> None:
    """One document: every signal is what the twin says, and within its range."""
    expected = text_signals(document)
    found = {name: column[0].item() for name, column in _score([document]).items()}
    assert list(found) == list(NAMES)
    told = {}
    for name in NAMES:
        tolerance = 1e-11 if "entropy" in name else 0.0
        if not math.isclose(found[name], expected[name], rel_tol=0, abs_tol=tolerance):
            told[name] = (found[name], expected[name])
        assert SIGNALS[name].holds(found[name]), name
        assert math.copysign(1.0, found[name]) == 1.0, f"{name} is -0.0"
    assert told == {}


@given(document=documents)
@settings(max_examples=250)
def test_every_signal_is_what_the_twin_says(document: bytes) -> None:
    _check(document)


def test_every_signal_is_what_the_twin_says_of_real_texts(shared) -> None:
    texts = real_texts(shared)
    assert len(texts) > 100
    for document in texts:
        _check(document)


@given(batch=st.lists(small_documents, max_size=12), before=st.binary(max_size=9), data=st.data())
@settings(max_examples=80)
def test_a_document_has_the_same_bits_in_any_company(batch: list[bytes], before: bytes, data) -> None:
    together = _score(batch, before=before)
    alone = [_score([document]) for document in batch]
    for name, column in together.items():
        assert column.shape == (len(batch),)
        assert column.dtype == SIGNALS[name].dtype
        assert column.tobytes() == b"".join(each[name].tobytes() for each in alone)
    order = data.draw(st.permutations(range(len(batch))))
    shuffled = _score([batch[index] for index in order])
    assert _bits(shuffled) == {name: column[list(order)].tobytes() for name, column in together.items()}


@given(batch=st.lists(small_documents, max_size=6), wanted=st.sets(st.sampled_from(NAMES), min_size=1, max_size=4))
@settings(max_examples=60)
def test_a_signal_has_the_same_bits_whatever_else_is_asked_for(batch: list[bytes], wanted: set[str]) -> None:
    every = _bits(_score(batch))
    some = _score(batch, [name for name in NAMES if name in wanted])
    assert _bits(some) == {name: every[name] for name in NAMES if name in wanted}


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_asked_for_alone_has_the_same_bits(name: str) -> None:
    batch = [
        b"",
        b"a a a a a a a a a a a a\n\na a a\n",
        b"\xff\x00 <b>12</b> ... #",
        ("中文字。" * 30).encode(),
        b"g4OD" * 99,
    ]
    assert _bits(_score(batch, [name])) == {name: _score(batch)[name].tobytes()}


def test_threads_and_sizes_of_batches_change_no_bit() -> None:
    sentences = [
        b"the cat sat on the mat. ",
        "中文字 ".encode(),
        b"g4OD" * 70,
        b"a\n\na\n",
        b"\xff\xfe<p>12</p>",
        b"#x ... ",
    ]
    batch = [
        b"".join(sentences[(number * 7 + index * index) % 6] for index in range(number % 23)) for number in range(400)
    ]
    once = _bits(_score(batch))
    for size in (1, 7, 64, 399):
        pieces = [batch[start : start + size] for start in range(0, len(batch), size)]
        with ThreadPoolExecutor(4) as pool:
            scored = list(pool.map(_score, pieces))
        assert {name: b"".join(each[name].tobytes() for each in scored) for name in NAMES} == once


def test_the_same_buffers_may_be_scored_by_many_threads_at_once() -> None:
    values, offsets = _buffers([b"the cat sat on the mat, the cat sat\n" * size for size in range(200)])
    with ThreadPoolExecutor(8) as pool:
        scored = list(pool.map(lambda _: _bits(score_buffers(values, offsets, NAMES)), range(24)))
    assert all(each == scored[0] for each in scored)


# arrays of Arrow

TEXTS = ["", "one two\none two\n", None, "中文 #…", "a" * 300, None, "  \n", "12 <b>x</b>"]
FORMS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "string_view": pa.string_view(),
    "binary_view": pa.binary_view(),
}


def _array(texts: Sequence[str | None], form: pa.DataType) -> pa.Array:
    if pa.types.is_binary(form) or pa.types.is_large_binary(form) or pa.types.is_binary_view(form):
        return pa.array([None if text is None else text.encode() for text in texts], form)
    return pa.array(texts, form)


def _expected(texts: Sequence[str | None]) -> list[dict[str, float | None]]:
    twins = [dict.fromkeys(NAMES) if text is None else text_signals(text.encode()) for text in texts]
    return [{name: twin[name] for name in NAMES} for twin in twins]


def _agrees(table: pa.Table, texts: Sequence[str | None]) -> bool:
    assert table.column_names == list(NAMES)
    for name in NAMES:
        assert table.schema.field(name).type == (pa.int64() if SIGNALS[name].whole else pa.float64())
    rows = table.to_pylist()
    expected = [
        {name: value if value is None else pytest.approx(value, abs=1e-11) for name, value in row.items()}
        for row in _expected(texts)
    ]
    return rows == expected


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_kind_of_array_of_texts_is_scored(form: pa.DataType) -> None:
    array = _array(TEXTS, form)
    assert _agrees(score_text(array), TEXTS)
    for start, stop in pairwise((0, 1, 4, 8)):
        assert _agrees(score_text(array[start:stop]), TEXTS[start:stop])
    assert _agrees(score_text(array[8:]), [])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_chunked_arrays_are_scored(form: pa.DataType) -> None:
    array = _array(TEXTS, form)
    chunked = pa.chunked_array([array[2:5], array[:0], array[:2], array[5:]])
    assert _agrees(score_text(chunked), [*TEXTS[2:5], *TEXTS[:2], *TEXTS[5:]])
    assert _agrees(score_text(chunked[1:6]), [*TEXTS[3:5], *TEXTS[:2], TEXTS[5]])
    assert _agrees(score_text(pa.chunked_array([], form)), [])


@pytest.mark.parametrize("value_type", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_dictionaries_are_scored_as_what_they_spell(value_type: pa.DataType) -> None:
    spelled = [*TEXTS, *TEXTS[::-1]]
    array = _array(spelled, value_type).dictionary_encode()
    assert _agrees(score_text(array), spelled)
    assert _agrees(score_text(array[3:9]), spelled[3:9])
    assert _agrees(score_text(pa.chunked_array([array[3:9]])), spelled[3:9])


def test_arrays_of_nulls_and_of_nothing_are_scored() -> None:
    assert _agrees(score_text(pa.nulls(3, pa.string())), [None] * 3)
    assert _agrees(score_text(pa.array([], pa.string())), [])


def test_columns_come_in_the_order_of_the_registry() -> None:
    table = score_text(pa.array(["a b"]), ["mean_word_chars", "length_bytes"])
    assert table.to_pylist() == [{"length_bytes": 3, "mean_word_chars": 1.0}]
    assert table.column_names == ["length_bytes", "mean_word_chars"]


def test_signals_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(UnknownSignal, match="byte_entropy"):
        score_text(pa.array(["a"]), ["byte_entropi"])
    with pytest.raises(ValueError, match="length_outlier"):
        score_text(pa.array(["a"]), ["length_outlier"])
    with pytest.raises(ValueError, match="token_entropy"):
        score_text(pa.array(["a"]), ["token_entropy"])


# documents made to be slow

SIZE = 1_000_000
ADVERSARIAL: dict[str, tuple[bytes, dict[str, float]]] = {
    "one long line": (b"x" * SIZE, {"length_words": 1, "byte_periodic_repeats": SIZE, "longest_word_chars": SIZE}),
    "a a a": (b"a " * (SIZE // 2), {"top_2gram_char_fraction": 1.0, "dup_10gram_char_fraction": 1.0}),
    "two words in turn": (b"ab cd " * (SIZE // 6), {"top_2gram_char_fraction": 1.0, "word_entropy": 1.0}),
    "line feeds": (b"\n" * SIZE, {"length_lines": 0, "length_words": 0, "byte_periodic_fraction": 1.0}),
    "returns": (b"\r" * SIZE, {"length_lines": 0, "longest_line_chars": 0}),
    "nothing but NUL": (b"\0" * SIZE, {"nontext_fraction": 1.0, "length_lines": 1}),
    "one line over and over": (b"a\n" * (SIZE // 2), {"dup_line_fraction": (SIZE // 2 - 1) / (SIZE // 2)}),
    "one paragraph over and over": (b"a\n\n" * (SIZE // 4), {"length_lines": SIZE // 4}),
    "tags that never close": (b"<a" * (SIZE // 2), {"markup_fraction": 0.0}),
    "tags too long": ((b"<a" * 600 + b">") * (SIZE // 1_201), {"length_words": 1}),
    "dots": (b"." * SIZE, {"symbol_word_ratio": SIZE // 3, "ellipsis_line_fraction": 1.0}),
    "bytes of no sequence": (b"\xf0\x9f\x98" * (SIZE // 3), {"invalid_utf8_fraction": 1.0, "length_words": 1}),
    "digits": (b"0123456789" * (SIZE // 10), {"longest_digit_run": SIZE, "encoded_fraction": 0.0}),
    "all words differ": (b" ".join(b"%x" % number for number in range(SIZE // 6)), {"dup_5gram_char_fraction": 0.0}),
    "words that differ late": (
        b" ".join(b"common" * 20 + b"%d" % number for number in range(SIZE // 128)),
        {"top_2gram_char_fraction": 0.0},
    ),
    "almost periodic": ((b"a" * 254 + b"b") * (SIZE // 255), {"byte_periodic_repeats": 0}),
    "Han": (
        "中文".encode() * (SIZE // 6),
        {"length_words": SIZE // 6 * 2, "word_entropy": 1.0, "mean_word_chars": 1.0},
    ),
}


@pytest.mark.parametrize(("document", "expected"), ADVERSARIAL.values(), ids=ADVERSARIAL)
def test_documents_made_to_be_slow_end(document: bytes, expected: dict[str, float]) -> None:
    """Whatever is quadratic in a million characters does not end."""
    columns = _score([b"before", document, b"after"])
    assert {name: columns[name][1].item() for name in expected} == pytest.approx(expected, abs=1e-11)
    assert _bits({name: column[[0, 2]] for name, column in columns.items()}) == _bits(_score([b"before", b"after"]))


@pytest.mark.long
def test_one_document_of_300_mb_ends() -> None:
    size = 300_000_000
    for unit in (b"x", b"a ", b"\n", b"<a", "中".encode(), b"\xff"):
        document = unit * (size // len(unit))
        columns = _score([document])
        assert columns["length_bytes"][0] == len(document)
        assert all(SIGNALS[name].holds(column[0].item()) for name, column in columns.items())
