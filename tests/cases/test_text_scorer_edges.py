"""K12, scorer edge numerics, on texts: nothing, next to nothing, and shorter than what is counted. Cases G23, G24."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from dataguard.errors import UnknownSignal
from dataguard.score.registry import SIGNALS, TEXT_SIGNALS
from dataguard.score.text import score_text

RATIOS = [spec.name for spec in TEXT_SIGNALS if not spec.whole and not spec.needs]
GRAMS = [name for name in RATIOS if "gram" in name]


def _score(documents: list[bytes | None]) -> dict[str, list[float]]:
    table: dict[str, list[float]] = score_text(pa.array(documents, pa.binary())).to_pydict()
    return table


def test_g23_the_smallest_documents_have_numbers() -> None:
    texts = ["", "   ", "\n\n\n", "a", "ab", "aabb", "abcd", "aaab", "€"]
    scored = _score([text.encode() for text in texts])
    entropies = [0, 0, 0, 0, 1, 1, 2, 0.8112781244591328, 1.584962500721156]
    assert scored["byte_entropy"] == pytest.approx(entropies, abs=1e-12)
    assert scored["length_bytes"] == [0, 3, 3, 1, 2, 4, 4, 4, 3]
    assert scored["length_chars"] == [0, 3, 3, 1, 2, 4, 4, 4, 1]
    assert {name: scored[name][0] for name in RATIOS} == dict.fromkeys(RATIOS, 0.0)


def test_g23_all_bytes_once_are_eight_bits() -> None:
    assert _score([bytes(range(256))])["byte_entropy"] == pytest.approx([8.0], abs=1e-12)


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b" ", b"   ", b"\n", b"\r\n", b"\n\n\n", b"\t\x0b\x0c\r", b"\xe2\x80\xa8", b"\xe3\x80\x80\n"),
        *(
            b"a",
            b"7",
            b".",
            b"#",
            b"-",
            b"<",
            b">",
            b"\x00",
            b"\x7f",
            b"\xff",
            b"\xc3",
            b"\xef\xbb\xbf",
            b"\xef\xbf\xbd",
        ),
        *(b"a\n", b"a\r\n", b"\na", b"\n\na\n\n", b"a\ra", b"...", b"\xe2\x80\xa6", b"a" * 4_096, b"\x00" * 4_096),
    ],
    ids=repr,
)
def test_no_value_is_out_of_range_or_no_number_or_a_negative_zero(document: bytes) -> None:
    for name, (value,) in _score([document]).items():
        assert math.isfinite(value), name
        assert SIGNALS[name].holds(value), (name, value)
        assert math.copysign(1.0, value) == 1.0, (name, value)


def test_an_empty_document_among_others_changes_nothing() -> None:
    texts: list[bytes | None] = [b"one two one two", b"", None, b"three\nthree\n"]
    scored = _score(texts)
    assert {name: (values[0], values[3]) for name, values in scored.items()} == {
        name: tuple(values) for name, values in _score([b"one two one two", b"three\nthree\n"]).items()
    }
    assert all(values[2] is None for values in scored.values()), "what is missing is not scored as if it were empty"


def test_g24_documents_shorter_than_n_repeat_nothing() -> None:
    scored = _score([b"a", b"b", b"c d", b"e f", b"g h i", b"a", b"c d"])
    assert {name: scored[name] for name in GRAMS} == {name: [0.0] * 7 for name in GRAMS}


@pytest.mark.parametrize("name", GRAMS)
def test_g24_around_the_first_window_of_each_n(name: str) -> None:
    n = int(name.split("_")[1].removesuffix("gram"))
    differ = [str(number).encode() for number in range(n + 1)]
    same = [[b"w"] * length for length in range(n + 2)]
    assert _score([b" ".join(differ[:length]) for length in range(n + 2)])[name] == [0.0] * (n + 2)
    assert _score([b" ".join(words) for words in same])[name] == [0.0] * (n + 1) + [1.0], "the second window repeats"


@pytest.mark.parametrize("n", [-1, 0, 1, 5, 11])
def test_g24_an_n_that_is_not_counted_is_refused(n: int) -> None:
    with pytest.raises(UnknownSignal, match="there is no signal"):
        score_text(pa.array(["a"]), [f"top_{n}gram_char_fraction"])


def test_one_document_is_no_duplicate_of_another() -> None:
    same = [b"one line\n\nanother paragraph\n"] * 5
    scored = _score(list(same))
    for name in ("dup_line_fraction", "dup_line_char_fraction", "dup_paragraph_fraction", *GRAMS):
        assert scored[name] == [0.0] * 5


def test_a_line_of_one_unit_five_hundred_times_is_seen() -> None:
    scored = _score([b"g4OD" * 500, b"before " + b"g4OD" * 500 + b" behind"])
    assert scored["byte_periodic_repeats"] == [500, 500]
    assert scored["byte_periodic_fraction"] == [1.0, 2_000 / 2_014]


def test_no_fraction_is_above_one_where_others_count_twice() -> None:
    """`buy now` forty times gives 1.83 and 1.95 in public tools, since they count every occurrence."""
    scored = _score([b"buy now " * 40, b"a " * 1_000, ("中文" * 500).encode(), b"a\n" * 99, b"<a>" * 99, b"<a<a>>" * 9])
    for name in RATIOS:
        assert all(SIGNALS[name].holds(value) for value in scored[name]), name


def test_blank_lines_are_no_duplicates() -> None:
    scored = _score([b"a\n\n\n\nb\n \n \n\t\nc\r\n\r\n\r\n", b"\n" * 50, b" \n" * 50])
    assert scored["dup_line_fraction"] == scored["dup_line_char_fraction"] == [0.0] * 3
    assert scored["dup_paragraph_fraction"] == scored["dup_paragraph_char_fraction"] == [0.0] * 3
    assert scored["length_lines"] == [3, 0, 0]


def test_one_invalid_byte_costs_itself_alone() -> None:
    scored = _score([b"a good line\n" * 9 + b"\xff", b"a good line\n" * 9])
    assert scored["invalid_utf8_fraction"] == [1 / 109, 0.0]
    assert scored["length_words"] == [28, 27]
