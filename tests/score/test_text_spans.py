"""The places behind a text signal: what they cover, over what the signal divides by, is the signal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from dataguard.errors import UnknownSignal
from dataguard.score.registry import TEXT_SIGNALS
from dataguard.score.text_spans import text_spans
from tests.score.text_documents import documents, real_texts
from tests.twins.text_signals import Document, text_signals

PLACELESS = {
    *("length_bytes", "length_chars", "length_words", "length_lines", "length_outlier"),
    *("byte_entropy", "word_entropy", "mean_word_chars"),
}
PLACED = [spec.name for spec in TEXT_SIGNALS if spec.name not in PLACELESS]


def _signal_of(document: bytes, signal: str, spans: list[list[int]]) -> float:
    """The signal's value, from its places and the counts of the twin."""
    doc = Document(document)
    covered = {byte for start, stop in spans for byte in range(start, stop)}
    first_bytes = [start for start, _, _ in doc.chars]
    num_chars = sum(start in covered for start in first_bytes)

    def count(ranges: list[tuple[int, int]]) -> int:
        return sum(first_bytes[start] in covered for start, _ in ranges)

    def ratio(part: int, whole: int) -> float:
        return part / whole if whole else 0.0

    if signal in {"invalid_utf8_fraction", "nontext_fraction", "byte_periodic_fraction"}:
        return ratio(len(covered), len(document))
    if signal == "byte_periodic_repeats":
        return max((text_signals(document[start:stop])[signal] for start, stop in spans), default=0)
    if signal in {"longest_line_chars", "longest_word_chars", "longest_digit_run"}:
        return num_chars
    if signal == "dup_line_fraction":
        return ratio(count(doc.lines), len(doc.lines))
    if signal == "dup_paragraph_fraction":
        return ratio(count([lines[0] for lines in doc.paragraphs]), len(doc.paragraphs))
    if signal in {"dup_line_char_fraction", "dup_paragraph_char_fraction"}:
        return ratio(num_chars, sum(stop - start for start, stop in doc.lines))
    if "gram" in signal:
        return ratio(num_chars, doc.num_word_chars)
    if signal == "alpha_word_fraction":
        return ratio(len(doc.words) - count(doc.words), len(doc.words))
    if signal == "symbol_word_ratio":
        signs = b"".join(document[start:stop] + b" " for start, stop in spans)
        assert not signs.replace(b"#", b"").replace(b"...", b"").replace("…".encode(), b"").strip()
        return ratio(signs.count(b"#") + signs.count(b"...") + signs.count("…".encode()), len(doc.words))
    if signal in {"bullet_line_fraction", "ellipsis_line_fraction"}:
        return ratio(count(doc.lines), len(doc.lines))
    assert signal in {"replacement_fraction", "digit_fraction", "markup_fraction", "encoded_fraction"}
    return ratio(num_chars, len(doc.chars))


def _check(document: bytes) -> None:
    signals = text_signals(document)
    for signal in PLACED:
        spans = text_spans(document, signal)
        assert spans.dtype == np.int64
        assert spans.shape == (len(spans), 2)
        assert (spans[:, 0] < spans[:, 1]).all()
        assert (spans[:-1, 1] < spans[1:, 0]).all(), "merged and in order"
        assert spans.size == 0 or (spans.min() >= 0 and spans.max() <= len(document))
        assert _signal_of(document, signal, spans.tolist()) == signals[signal], signal


@given(document=documents)
@settings(max_examples=120)
def test_what_the_places_cover_gives_the_signal_back(document: bytes) -> None:
    _check(document)


def test_what_the_places_cover_gives_the_signal_back_in_real_texts(shared) -> None:
    texts = real_texts(shared)[::6]
    assert len(texts) > 20
    for document in texts:
        _check(document)


@given(document=documents)
@settings(max_examples=20)
def test_what_has_no_place_has_none(document: bytes) -> None:
    for signal in PLACELESS:
        assert text_spans(document, signal).shape == (0, 2)


@pytest.mark.parametrize(
    ("document", "signal", "pieces"),
    [
        (b"x\ny y\nx\r\nx", "dup_line_fraction", [b"x", b"x"]),
        (b"a\nb\n\nc\n\na\r\nb\n", "dup_paragraph_fraction", [b"a", b"b"]),
        (b"one two three, one two four", "top_2gram_char_fraction", [b"one", b"two", b"one", b"two"]),
        (b"1 2 3 4 5 . 1 2 3 4 5", "dup_5gram_char_fraction", [*b"12345", *b"12345"]),
        (b"ab" + b"xyz" * 90 + b"!", "byte_periodic_repeats", [b"xyz" * 90]),
        (b"ok \xff\xfe no \xe2\x82", "invalid_utf8_fraction", [b"\xff\xfe", b"\xe2\x82"]),
        (b"\xef\xbb\xbfa\xef\xbb\xbf\x00\x07\n", "nontext_fraction", [b"\xef\xbb\xbf\x00\x07"]),
        (b"1 < 2 <p class=a>hi</p> <3 <b", "markup_fraction", [b"<p class=a>", b"</p>"]),
        (b"see " + b"aB3/" * 16 + b" end", "encoded_fraction", [b"aB3/" * 16]),
        ("call ١٢٣ or 45".encode(), "digit_fraction", ["١٢٣".encode(), b"45"]),
        ("call ١٢٣ or 45".encode(), "longest_digit_run", ["١٢٣".encode()]),
        (b"ab cde fgh", "longest_word_chars", [b"cde"]),
        (b"ab\n cde \r\nfghij", "longest_line_chars", [b" cde "]),
        (b"#a wait..... \xe2\x80\xa6", "symbol_word_ratio", [b"#", b"...", b"\xe2\x80\xa6"]),
        (b"- a\nb\n \xe2\x80\xa2c", "bullet_line_fraction", [b"- a", b" \xe2\x80\xa2c"]),
        (b"a...\nb\nc \xe2\x80\xa6 \n", "ellipsis_line_fraction", [b"a...", b"c \xe2\x80\xa6 "]),
        (b"a 12 -- b", "alpha_word_fraction", [b"12", b"--"]),
    ],
)
def test_places_are_these(document: bytes, signal: str, pieces: list[bytes]) -> None:
    wanted = [piece if isinstance(piece, bytes) else bytes([piece]) for piece in pieces]
    assert [document[start:stop] for start, stop in text_spans(document, signal).tolist()] == wanted


def test_only_signals_of_texts_are_found() -> None:
    with pytest.raises(UnknownSignal, match="no signal of a text"):
        text_spans(b"a", "token_entropy")
    with pytest.raises(UnknownSignal, match="byte_entropy"):
        text_spans(b"a", "byte_entropi")
