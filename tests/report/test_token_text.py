"""Ids are shown as text or numbers: each where it stands, marks where the ranges of ids are, nothing that acts."""

from __future__ import annotations

import base64
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.tokenizer import Token, TokenizerFile, open_tokenizer
from dataguard.report.preview import as_plain
from dataguard.report.token_text import token_preview, token_text

NOTHING = np.zeros((0, 2), np.int64)


@pytest.fixture(scope="module")
def byte_tokens(tmp_path_factory: pytest.TempPathFactory) -> TokenizerFile:
    """Id i is byte i; 256 is a euro sign without its last byte."""
    path = tmp_path_factory.mktemp("tokens") / "bytes.tiktoken"
    tokens = [*(bytes([each]) for each in range(256)), b"\xe2\x82"]
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(tokens)))
    return open_tokenizer(path)


def of(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


def test_ids_are_shown_as_their_text_with_documents_and_ids_outside(byte_tokens: TokenizerFile) -> None:
    ids = np.array([*of("one."), 999, *of("two"), -3], np.int64)
    shown = token_preview(ids, np.array([[1, 3], [4, 6]]), documents=[(0, 7), (5, 8)], tokenizer=byte_tokens)
    plain = as_plain(shown, marks=("[", "]"))
    assert plain == "⟦document 7⟧o[ne].[⟦id 999⟧⟦document 8⟧t]wo⟦id -3⟧"
    assert token_text(ids, byte_tokens) == b"one.two"


def test_parts_of_characters_join_or_show_as_what_they_are(byte_tokens: TokenizerFile) -> None:
    shown = token_preview(np.array([256, 0xAC, 256, 65, 0x82, 256]), NOTHING, tokenizer=byte_tokens)
    assert as_plain(shown) == "€\\xe2\\x82A\\x82\\xe2\\x82"


def test_an_id_beyond_the_vocabulary_is_noted_whatever_the_tokenizer_says(byte_tokens: TokenizerFile) -> None:
    shown = token_preview(of("abc"), NOTHING, tokenizer=byte_tokens, vocab_size=ord("c"))
    assert as_plain(shown) == "ab⟦id 99⟧"


def test_special_tokens_are_told_from_text_that_spells_them() -> None:
    tokens = {0: Token(content=b"</s>", special=True), 1: Token(content=b"</s>"), 2: Token(content="⟦</s>⟧".encode())}
    tokenizer = TokenizerFile(kind="sentencepiece", num_tokens=3, _look_up=tokens.get)
    assert as_plain(token_preview(np.array([0, 1, 2]), NOTHING, tokenizer=tokenizer)) == (
        "⟦</s>⟧</s>\\u27e6</s>\\u27e7"
    )


def test_the_name_of_a_special_token_cannot_act_either() -> None:
    name = "\x1b[31m\u202e⟧\u0301" + "x" * 100
    tokens = {0: Token(content=name.encode(), special=True)}
    tokenizer = TokenizerFile(kind="tokenizers", num_tokens=1, _look_up=tokens.get)
    shown = as_plain(token_preview(np.array([0]), NOTHING, tokenizer=tokenizer))
    assert shown == "⟦␛[31m\\u202e\\u27e7\\u0301" + "x" * 16 + "…⟧"


def test_numbers_are_shown_whole_around_the_first_mark() -> None:
    ids = np.arange(10_000, 20_000)
    shown = as_plain(token_preview(ids, np.array([[5_000, 5_003]]), max_chars=80), marks=("[", "]"))
    assert shown.startswith("…14996 14997 14998 14999 [15000 15001 15002] 15003")
    assert shown.endswith("…")
    assert set(map(len, shown.strip("…").replace("[", "").replace("]", "").split())) == {5}
    first = as_plain(token_preview(ids, NOTHING, max_chars=30))
    assert first == "10000 10001 10002 10003…"
    assert as_plain(token_preview(ids[:3], NOTHING)) == "10000 10001 10002"
    assert as_plain(token_preview(ids[:0], NOTHING)) == ""
    assert as_plain(token_preview(np.array([1 << 62, -(1 << 62)]), NOTHING, max_chars=16)) == f"{1 << 62}…"


def test_many_documents_at_one_place_are_one_note() -> None:
    shown = as_plain(token_preview(np.array([5, 6]), NOTHING, documents=[(1, 3), (1, 4), (1, 5)]))
    assert shown == "5 ⟦documents 3:6⟧6"


@given(
    ids=st.lists(st.one_of(st.integers(0, 256), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=60),
    spans=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=4),
    documents=st.lists(st.integers(0, 59), max_size=6).map(sorted),
    vocab_size=st.one_of(st.none(), st.integers(1, 300)),
    is_text=st.booleans(),
)
def test_nothing_acts_and_every_mark_is_of_an_id(
    byte_tokens: TokenizerFile, ids, spans, documents, vocab_size, is_text
) -> None:
    array = np.array(ids, np.int64)
    cut = sorted((min(a, len(ids)), min(b, len(ids))) for a, b in spans)
    wanted = np.array([span for span in cut if span[0] < span[1]], np.int64).reshape(-1, 2)
    begins = [(at, number) for number, at in enumerate(documents) if at < len(ids)]
    shown = token_preview(
        array,
        wanted,
        documents=begins,
        tokenizer=byte_tokens if is_text else None,
        vocab_size=vocab_size,
        max_chars=10_000,
    )
    plain = as_plain(shown)
    assert [c for c in plain if unicodedata.category(c) in {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}] == []
    marked = [piece for piece in shown.pieces if piece.marked]
    assert bool(marked) == bool(len(wanted))
    outside = [each for each in ids if each < 0 or (vocab_size is not None and each >= vocab_size)]
    unknown = [each for each in ids if each not in outside and not 0 <= each <= 256]
    noted = outside + (unknown if is_text else [])
    for each in set(noted):
        assert plain.count(f"⟦id {each}⟧") == noted.count(each)
    assert plain.count("⟦id ") == len(noted)
    assert plain.count("⟦document") == len({at for at, _ in begins})


def test_a_window_of_a_million_ids_is_spelled_around_its_mark_alone(byte_tokens: TokenizerFile) -> None:
    asked = []

    def look_up(token_id: int) -> Token | None:
        asked.append(token_id)
        return Token(content=b"x")

    tokenizer = TokenizerFile(kind="tiktoken", num_tokens=1, _look_up=look_up)
    token_preview(np.arange(1_000_000), np.array([[500_000, 500_001]]), tokenizer=tokenizer)
    assert len(asked) < 2_000
    assert 500_000 in asked


def test_a_file_of_a_tokenizer_that_shows_controls_shows_them_harmlessly(tmp_path: Path) -> None:
    path = tmp_path / "bad.tiktoken"
    path.write_bytes(base64.b64encode(b"\x1b]0;title\x07\n") + b" 0\n")
    shown = as_plain(token_preview(np.array([0, 0]), NOTHING, tokenizer=open_tokenizer(path)))
    assert shown == "␛]0;title␇␊␛]0;title␇␊"
