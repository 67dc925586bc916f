"""The text kernels at their seams: blocks of 64 bytes, ends of buffers, tables that grow, work that is left out."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dataguard.errors import InputError, UsageError
from dataguard.score import text, text_facts, text_workspace
from dataguard.score.code_points import class_table
from dataguard.score.kernels import text_bytes, text_classes, text_lines, text_ngrams, text_runs, text_words
from dataguard.score.registry import SIGNALS, TEXT_SIGNALS
from dataguard.score.text import score_buffers
from dataguard.score.text_recipes import RECIPES, WORK
from dataguard.score.text_workspace import Table, Workspace, borrowed
from tests.twins.text_signals import text_signals

NAMES = tuple(spec.name for spec in TEXT_SIGNALS if not spec.needs)
NGRAMS = tuple(name for name in NAMES if "gram_char" in name)
PERIODS = ("byte_periodic_repeats", "byte_periodic_fraction")


def _score(document: bytes, names: Sequence[str] = NAMES, *, behind: bytes = b"") -> dict[str, float]:
    values = np.frombuffer(document + behind, dtype=np.uint8)
    return {
        name: column[0].item() for name, column in score_buffers(values, np.array([0, len(document)]), names).items()
    }


def _twin(document: bytes, names: Sequence[str] = NAMES) -> dict[str, float]:
    every = text_signals(document)
    return {name: pytest.approx(every[name], rel=0, abs=1e-11 if "entropy" in name else 0.0) for name in names}


# blocks and ends

PIECES = {
    "tag": b"<br>",
    "tag never closed": b"<br x",
    "ellipsis": b"a... .. ....",
    "U+2026": "…".encode(),
    "digits": b"a1234 56",
    "other digits": "٣٤12".encode(),
    "wide space": "\u3000x\u2003".encode(),
    "Han beside Latin": "ab漢c字".encode(),
    "one letter behind Han": "漢c".encode(),
    "digit behind Han": "漢1".encode(),
    "four bytes": "😀😀".encode(),
    "cut short": "😀".encode()[:3],
    "overlong": b"\xc0\xafz",
    "surrogate": b"\xed\xa0\x80",
    "BOM": "\ufeffa".encode(),
    "CR LF": b"a\r\n\r\nb",
    "base64": b"aZ" * 33,
    "replacement": "\ufffd\ue000\ufdd0".encode(),
    "long word": b"word-of-many-letters",
}


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_nothing_depends_on_where_a_block_ends(piece: bytes) -> None:
    for before in (*range(56, 66), 120, 126, 127):
        for filling in (b"x" * before, b" " * before):
            document = filling + piece
            assert _score(document) == _twin(document), before
            document += b" tail"
            assert _score(document, behind=b"1>...\n") == _twin(document), before


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 63, 64, 65, 127, 128])
def test_what_lies_behind_a_document_changes_nothing(length: int) -> None:
    for document in (b"x" * length, (b"ab1. " * 30)[:length], ("é" * 64).encode()[:length]):
        alone = _score(document)
        assert alone == _twin(document)
        for behind in (b"x", b"\n", b" ", b"\x80\x80\x80", b"9" * 80):
            assert _score(document, behind=behind) == alone


def test_columns_of_masks_are_the_same_in_every_kernel() -> None:
    for module in (text_lines, text_runs, text_words):
        columns = [
            name
            for name in ("CHAR_START", "BLANK", "NEWLINE", "WORD_START", "WORD_END", "DIGIT")
            if hasattr(module, name)
        ]
        assert columns
        assert [getattr(module, name) for name in columns] == [getattr(text_classes, name) for name in columns]
    assert text_bytes.NUM_LOGS == text_words.NUM_LOGS


def test_every_signal_has_a_recipe_and_every_count_its_work() -> None:
    assert tuple(RECIPES) == NAMES
    assert {count for recipe in RECIPES.values() for count in recipe if count is not None} <= set(WORK)


def test_the_class_table_is_what_the_ranges_say() -> None:
    index, table = class_table()
    points = np.arange(0x110000)
    kinds = table[(index[points >> 7].astype(np.int64) << 7) | points & 127]
    assert len(table) < 64 << 10
    assert np.flatnonzero(kinds & text_classes.IS_ELLIPSIS).tolist() == [0x2026]
    assert np.flatnonzero(kinds & text_classes.IS_REPLACEMENT).tolist() == [0xFFFD]
    nontext = np.flatnonzero(kinds & text_classes.IS_NONTEXT)
    assert len(nontext) == 32 + 6400 + 32 + 1 + 1 + 34 + 2 * 65534
    assert {0x80, 0x85, 0x9F, 0xE000, 0xF8FF, 0xFDD0, 0xFEFF, 0xFFFE, 0x1FFFF, 0x10FFFD} <= set(nontext.tolist())


# sequences and periods

words = st.sampled_from(["a", "b", "longer-word-one", "longer-word-two", "漢"])
phrases = st.lists(words, min_size=1, max_size=6)
repetitive = st.lists(st.tuples(phrases, st.integers(1, 30)), min_size=1, max_size=4).map(
    lambda parts: " ".join(" ".join(phrase * times) for phrase, times in parts).encode()
)


@given(document=repetitive)
@settings(max_examples=120)
def test_sequences_of_few_words_are_counted_as_the_twin_does(document: bytes) -> None:
    assert _score(document, NGRAMS) == _twin(document, NGRAMS)


units = st.binary(min_size=1, max_size=70) | st.sampled_from([b"a", b"ab", b"aab", b"x" * 40 + b"y"])
periodic = st.lists(st.tuples(units, st.integers(100, 700)), min_size=1, max_size=4).map(
    lambda parts: b"".join((unit * length)[:length] for unit, length in parts)
)


@given(document=periodic)
@settings(max_examples=100)
def test_runs_beside_each_other_are_found_as_the_twin_does(document: bytes) -> None:
    assert _score(document, PERIODS) == _twin(document, PERIODS)


@pytest.mark.parametrize("period", [1, 2, 31, 32, 33, 40, 48, 63, 64, 65])
def test_a_run_counts_from_256_bytes_on_wherever_it_begins(period: int) -> None:
    unit = bytes(range(period))
    for before in (0, 1, 63, 64, 183, 184, 185):
        for length in (255, 256, 257, 500):
            document = (
                b"\xff" * (before % 2)
                + bytes(100 + place % 151 for place in range(before))
                + (unit * length)[:length]
                + b"\xfe"
            )
            assert _score(document, PERIODS) == _twin(document, PERIODS)


# the workspace

MANY = (
    b" ".join(b"%d" % (number * number % 4999) for number in range(6000))
    + b"\n\n"
    + b"\n".join(b"line %d" % (number % 3000) for number in range(5000))
)


def _in_a_new_thread(document: bytes) -> dict[str, float]:
    """Scored by a thread that has no workspace yet."""
    scored: list[dict[str, float]] = []
    thread = Thread(target=lambda: scored.append(_score(document)))
    thread.start()
    thread.join()
    return scored[0]


def test_tables_that_have_to_grow_change_nothing(monkeypatch) -> None:
    usual = _in_a_new_thread(MANY)
    grown: list[int] = []
    grow = Table.grow
    monkeypatch.setattr(Table, "grow", lambda self, num: grown.append(num) or grow(self, num))
    monkeypatch.setattr(text_workspace, "_FEWEST_SLOTS", 8)
    monkeypatch.setattr(text_workspace, "_EAGER_SLOTS", 0)
    assert _in_a_new_thread(MANY) == usual
    assert len(grown) > 12


def test_tables_grow_at_once_to_what_a_document_may_need() -> None:
    table = Table(num_tables=1, num_tallies=1)
    table.grow(300_000)
    assert table.entries.shape == (1, 2 << 20)
    table.grow(1 << 40)
    assert table.entries.shape == (1, 2 << 22)
    assert table.tallies.shape == (1, 1 << 21)


def test_generations_begin_anew_with_an_empty_table() -> None:
    table = Table(num_tables=1, num_tallies=1)
    assert [table.generations(3), table.generations(1), table.generations(1)] == [1, 4, 5]
    table._next = (1 << 32) - 5
    table.entries[:] = 7
    assert table.generations(5) == (1 << 32) - 5
    assert table.entries.all()
    assert table.generations(1) == 1
    assert not table.entries.any()


def test_the_last_generations_of_a_table_serve_as_well_as_the_first() -> None:
    expected = _score(MANY[-3000:])
    with borrowed() as workspace:
        workspace.lines._next = workspace.words._next = (1 << 32) - 1
        workspace.ngrams._next = (1 << 32) - text_ngrams.LONGEST
    assert [_score(MANY[-3000:]) for _ in range(3)] == [expected] * 3
    with borrowed() as workspace:
        assert max(table._next for table in (workspace.lines, workspace.words, workspace.ngrams)) < 1 << 31


def test_a_workspace_is_used_again_unless_it_became_huge(monkeypatch) -> None:
    with borrowed() as first:
        pass
    with borrowed() as second, borrowed() as other:
        assert second is first
        assert other is not first
    monkeypatch.setattr(text_workspace, "_KEPT_BYTES", 0)
    with borrowed() as huge:
        huge.need_words(1)
    with borrowed() as third:
        assert third is not huge


def test_a_workspace_that_fits_is_not_made_anew() -> None:
    workspace = Workspace()
    workspace.need_blocks(10)
    workspace.need_words(10)
    masks, per_word = workspace.masks, workspace.per_word
    workspace.need_blocks(12)
    workspace.need_words(12)
    assert workspace.masks is masks
    assert workspace.per_word is per_word


# work that is not asked for

KERNELS = {
    "measure": text_bytes,
    "classify": text_classes,
    "follow_runs": text_runs,
    "cut_lines": text_lines,
    "number_words": text_words,
    "find_repeats": text_ngrams,
}


@pytest.mark.parametrize(
    ("signal", "kernels"),
    [
        ("length_bytes", ()),
        ("byte_entropy", ("measure",)),
        ("byte_periodic_repeats", ("measure",)),
        ("length_words", ("classify",)),
        ("alpha_word_fraction", ("classify",)),
        ("digit_fraction", ("classify", "follow_runs")),
        ("dup_line_fraction", ("classify", "cut_lines")),
        ("longest_word_chars", ("classify", "number_words")),
        ("word_entropy", ("classify", "number_words")),
        ("dup_5gram_char_fraction", ("classify", "number_words", "find_repeats")),
    ],
)
def test_kernels_that_are_not_needed_do_not_run(signal: str, kernels: tuple[str, ...], monkeypatch) -> None:
    ran = []
    for name, module in KERNELS.items():
        kernel = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *arguments, name=name, kernel=kernel: (ran.append(name), kernel(*arguments))[1]
        )
    _score(b"some words, some words", [signal])
    assert tuple(ran) == kernels


# batches

PARTS = [b"", b"one", MANY[:700], b"", *PIECES.values(), MANY[-900:], b" " * 300, b""]


@pytest.mark.parametrize(("num_bytes", "num_documents"), [(1, 9), (600, 3), (900, 100), (1 << 20, 1), (1 << 20, 5)])
def test_nothing_depends_on_where_a_batch_ends(num_bytes: int, num_documents: int, monkeypatch) -> None:
    values = np.frombuffer(b"before" + b"".join(PARTS), dtype=np.uint8)
    offsets = np.cumsum([6, *map(len, PARTS)], dtype=np.int64)
    expected = [_score(document) for document in PARTS]
    monkeypatch.setattr(text_facts, "_BATCH_BYTES", num_bytes)
    monkeypatch.setattr(text_facts, "_BATCH_DOCUMENTS", num_documents)
    for names in (NAMES, ("length_bytes",), ("word_entropy", "byte_entropy"), ("digit_fraction", "symbol_word_ratio")):
        columns = score_buffers(values, offsets, names)
        assert list(columns) == [name for name in NAMES if name in names]
        assert {name: column.tolist() for name, column in columns.items()} == {
            name: [signals[name] for signals in expected] for name in columns
        }


@pytest.mark.parametrize("num", [0, 1, 3])
def test_columns_are_whole_arrays_of_the_type_of_their_signal(num: int) -> None:
    columns = score_buffers(np.frombuffer(b"abc", dtype=np.uint8), np.arange(num + 1), NAMES)
    for name, column in columns.items():
        assert (column.shape, column.dtype) == ((num,), SIGNALS[name].dtype)
        assert column.flags.c_contiguous


# what is refused


def _offsets(*places: int) -> NDArray[np.int64]:
    return np.array(places, dtype=np.int64)


@pytest.mark.parametrize("offsets", [_offsets(), _offsets(0, 3, 2), _offsets(-1, 2), _offsets(0, 5), _offsets(5, 5)])
def test_offsets_outside_the_bytes_are_refused(offsets: NDArray[np.int64]) -> None:
    with pytest.raises(UsageError, match="offsets"):
        score_buffers(np.zeros(4, dtype=np.uint8), offsets, ["length_bytes"])


def test_bytes_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="int64"):
        score_buffers(np.zeros(4, dtype=np.int64), _offsets(0, 4), ["length_bytes"])  # type: ignore[arg-type]


def test_a_document_too_long_to_be_counted_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(text, "_MOST_BYTES", 9)
    with pytest.raises(InputError, match="text 1 is too long") as caught:
        score_buffers(np.zeros(20, dtype=np.uint8), _offsets(0, 9, 19), ["length_bytes"])
    assert caught.value.found == "10 bytes"


def test_whether_buffers_can_be_written_makes_no_difference_and_they_are_not() -> None:
    values, offsets = np.frombuffer(MANY, dtype=np.uint8).copy(), np.array([0, 100, len(MANY)], dtype=np.int32)
    strided = np.repeat(values, 2)[::2]
    once = score_buffers(values, offsets, NAMES)
    again = score_buffers(strided, offsets.astype(np.int64), NAMES)
    assert {name: column.tobytes() for name, column in once.items()} == {
        name: column.tobytes() for name, column in again.items()
    }
    assert values.flags.writeable
    assert values.tobytes() == MANY
