"""Which signals are there, and what does each one mean?

The one list of signals. Policies are checked against it, columns are named and ordered by it, tables and documents
quote it. Adding a signal is a file of this room with its scorer, and an entry here that names it (see `scorers`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from math import inf
from types import MappingProxyType

from dataguard.core.signals import SignalKind, SignalSpec
from dataguard.errors import UnknownSignal, UsageError

__all__ = ["HEADLINE", "SIGNALS", "TEXT_SIGNALS", "TOKEN_SIGNALS", "select", "spec_of"]


def _text(
    name: str,
    unit: str,
    definition: str,
    *,
    high: float = inf,
    high_reached: bool = True,
    whole: bool = False,
) -> SignalSpec:
    return SignalSpec(
        name=name,
        kind="text",
        unit=unit,
        low=0,
        high=high,
        high_reached=high_reached,
        whole=whole,
        definition=definition,
    )


def _count(name: str, unit: str, definition: str) -> SignalSpec:
    return _text(name, unit, definition, whole=True)


def _fraction(name: str, definition: str, *, high_reached: bool = True) -> SignalSpec:
    return _text(name, "fraction", definition, high=1, high_reached=high_reached)


_TOP = (
    "characters of words covered by the {n}-gram that covers most, among those that occur more than once "
    "/ characters of words"
)
_DUP = (
    "characters of words covered by any {n}-gram that occurs more than once, first occurrence included "
    "/ characters of words"
)

TEXT_SIGNALS: tuple[SignalSpec, ...] = (
    _count("length_bytes", "bytes", "bytes"),
    _count("length_chars", "characters", "characters: Unicode code points, an invalid byte counts as one"),
    _count("length_words", "words", "words"),
    _count("length_lines", "lines", "lines that are not blank"),
    _count("longest_line_chars", "characters", "characters of the longest line"),
    _count("longest_word_chars", "characters", "characters of the longest word"),
    SignalSpec(
        name="length_outlier",
        kind="text",
        unit="sigmas",
        low=-inf,
        high=inf,
        definition="robust z of ln(1 + length_bytes) against the reference profile of the source; 0 where its MAD is 0",
        needs=("profile",),
    ),
    _text("byte_entropy", "bits", "-sum p log2 p over the bytes", high=8),
    _text("word_entropy", "bits", "-sum p log2 p over the words"),
    _fraction("invalid_utf8_fraction", "bytes that belong to no valid UTF-8 sequence / bytes"),
    _fraction(
        "nontext_fraction",
        "bytes of invalid sequences, controls except TAB LF CR FF, U+FFFD, noncharacters, private use and a BOM that "
        "is not first / bytes",
    ),
    _fraction("replacement_fraction", "U+FFFD characters / characters"),
    _count(
        "byte_periodic_repeats",
        "repeats",
        "most consecutive repeats of one unit of 1..64 bytes, in runs of >= 256 bytes",
    ),
    _fraction("byte_periodic_fraction", "bytes covered by such runs with >= 4 repeats / bytes"),
    _fraction("dup_line_fraction", "non-blank lines equal to an earlier line / non-blank lines", high_reached=False),
    _fraction(
        "dup_line_char_fraction", "characters of those lines / characters of non-blank lines", high_reached=False
    ),
    _fraction("dup_paragraph_fraction", "paragraphs equal to an earlier one / paragraphs", high_reached=False),
    _fraction("dup_paragraph_char_fraction", "characters of those / characters of paragraphs", high_reached=False),
    *(_fraction(f"top_{n}gram_char_fraction", _TOP.format(n=n)) for n in (2, 3, 4)),
    *(_fraction(f"dup_{n}gram_char_fraction", _DUP.format(n=n)) for n in (5, 6, 7, 8, 9, 10)),
    _fraction("digit_fraction", "decimal digits / characters"),
    _count("longest_digit_run", "characters", "longest run of decimal digits"),
    _fraction("markup_fraction", "characters inside what looks like a tag / characters"),
    _fraction("encoded_fraction", "characters in runs of >= 64 of base64 or hexadecimal alphabet / characters"),
    _fraction("alpha_word_fraction", "words with an alphabetic character / words"),
    _text("symbol_word_ratio", "ratio", "occurrences of # and of an ellipsis / words"),
    _fraction("bullet_line_fraction", "lines that begin with a bullet / lines"),
    _fraction("ellipsis_line_fraction", "lines that end with an ellipsis / lines"),
    _text("mean_word_chars", "characters", "characters of words / words"),
)
"""Signals of a record's bytes, in the order of their columns."""


def _token(
    name: str,
    unit: str,
    definition: str,
    *,
    high: float = inf,
    high_reached: bool = True,
    whole: bool = False,
    empty: float = 0.0,
    needs: tuple[str, ...] = (),
) -> SignalSpec:
    return SignalSpec(
        name=name,
        kind="tokens",
        unit=unit,
        low=0,
        high=high,
        high_reached=high_reached,
        whole=whole,
        empty=empty,
        needs=needs,  # type: ignore[arg-type]
        definition=definition,
    )


TOKEN_SIGNALS: tuple[SignalSpec, ...] = (
    _token("length_tokens", "tokens", "positions that count", whole=True),
    _token("distinct_tokens", "tokens", "distinct ids among them", whole=True),
    _token("token_entropy", "bits", "-sum p log2 p over ids"),
    _token(
        "token_entropy_ratio",
        "ratio",
        "token_entropy / log2(min(length, vocabulary size)); 1 where that is log2(1), and for none",
        high=1,
        empty=1.0,
        needs=("vocab_size",),
    ),
    _token(
        "token_dup_ngram_fraction",
        "fraction",
        "(windows of 4 tokens - distinct windows) / windows",
        high=1,
        high_reached=False,
    ),
    _token(
        "token_periodic_repeats",
        "repeats",
        "most consecutive repeats of one unit of 1..13 tokens, in runs of >= 3 repeats",
        whole=True,
    ),
    _token("token_periodic_fraction", "fraction", "positions in such runs with >= 4 repeats / length", high=1),
    _token(
        "anomaly",
        "score",
        "0.5 * token_dup_ngram_fraction + 0.5 * max(0, 1 - token_entropy / 8); 0 for none",
        high=1,
    ),
    _token("out_of_vocabulary", "tokens", "ids outside [0, vocabulary size)", whole=True, needs=("vocab_size",)),
    _token("fertility", "ratio", "tokens / bytes of the text they came from", needs=("text_bytes",)),
)
"""Signals of a token sample's ids, in the order of their columns."""

SIGNALS: MappingProxyType[str, SignalSpec] = MappingProxyType(
    {spec.name: spec for spec in (*TEXT_SIGNALS, *TOKEN_SIGNALS)}
)
"""Every signal by its name."""

HEADLINE: MappingProxyType[SignalKind, tuple[str, ...]] = MappingProxyType(
    {
        "text": (
            "length_outlier",
            "byte_entropy",
            "dup_5gram_char_fraction",
            "byte_periodic_repeats",
            "nontext_fraction",
        ),
        "tokens": (
            "length_tokens",
            "token_entropy",
            "token_dup_ngram_fraction",
            "token_periodic_repeats",
            "out_of_vocabulary",
        ),
    }
)
"""The five that the index keeps for every sample, as one scaled byte each."""


def spec_of(name: str) -> SignalSpec:
    """The signal of this name.

    Raises
    ------
    UnknownSignal
        There is none; the message suggests the nearest.

    Examples
    --------
    >>> spec_of("byte_entropy").unit
    'bits'
    """
    if not isinstance(name, str):
        raise UnknownSignal(f"there is no signal {name!r}", allowed="names, as text")
    spec = SIGNALS.get(name)
    if spec is None:
        near = difflib.get_close_matches(name, SIGNALS, n=3)
        raise UnknownSignal(
            f"there is no signal {name!r}",
            allowed=", ".join(near) if near else ", ".join(SIGNALS),
            todo=f"did you mean {near[0]}?" if near else None,
        )
    return spec


def select(names: Iterable[str] | None, kind: SignalKind) -> tuple[SignalSpec, ...]:
    """The signals of these names and of this kind, in the registry's order; all that need no profile where None.

    >>> [spec.name for spec in select(["byte_entropy", "length_bytes"], "text")]
    ['length_bytes', 'byte_entropy']
    """
    every = TEXT_SIGNALS if kind == "text" else TOKEN_SIGNALS
    if names is None:
        return tuple(spec for spec in every if not spec.needs)
    if isinstance(names, str):
        raise UsageError(f"signals {names!r}", allowed="a list of names", todo=f"[{names!r}]")
    wanted = {spec_of(name).name for name in names}
    return tuple(spec for spec in every if spec.name in wanted)
