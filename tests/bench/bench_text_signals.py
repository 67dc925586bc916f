"""How fast are the text signals, beside datatrove's filter, each group by itself, and by size of the document?

    pytest tests/bench/bench_text_signals.py --benchmark-enable
    pytest tests/bench/bench_text_signals.py --benchmark-enable -m "long or not long"    # datatrove too

Documents are documentation and code that come with Python, 4 kB each. datatrove's ``GopherRepetitionFilter`` counts the
repetition of lines, paragraphs and sequences of words, 13 numbers, with its thresholds off so that no document is done
with early: once with words split at white space, once with its own words (spaCy's English tokenizer). It is called
document by document as in its pipeline, in a process of an environment of its own that is warm before the first round;
neither its start nor the way of the documents to it counts. Ours gives all text signals in one call, on one thread.
Ours takes 8 calls a round, so that it is at work for some time; both report their processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.score.registry import TEXT_SIGNALS
from dataguard.score.text import score_buffers
from tests.bench import datatrove_peer
from tests.bench.bench_audit import hashing
from tests.bench.conftest import Claims, Interleaved, is_measured
from tests.bench.corpora import real_documents
from tests.bench.other_process import OtherProcess, python_with

SIGNALS = [spec.name for spec in TEXT_SIGNALS if not spec.needs]
TOP = [f"top_{n}gram_char_fraction" for n in (2, 3, 4)]
DUP = [f"dup_{n}gram_char_fraction" for n in range(5, 11)]
DUP_LINES = ["dup_line_fraction", "dup_line_char_fraction"]
DUP_PARAGRAPHS = ["dup_paragraph_fraction", "dup_paragraph_char_fraction"]
GROUPS = {
    "length in bytes": ["length_bytes"],
    "byte entropy": ["byte_entropy"],
    "byte periods": ["byte_periodic_repeats", "byte_periodic_fraction"],
    "characters, words": ["length_chars", "length_words", "mean_word_chars", "alpha_word_fraction"],
    "invalid, not text": ["invalid_utf8_fraction", "nontext_fraction", "replacement_fraction"],
    "digits": ["digit_fraction", "longest_digit_run"],
    "symbols": ["symbol_word_ratio"],
    "markup": ["markup_fraction"],
    "encoded": ["encoded_fraction"],
    "lines": ["length_lines", "longest_line_chars"],
    "bullets, ellipses": ["bullet_line_fraction", "ellipsis_line_fraction"],
    "duplicate lines": DUP_LINES,
    "duplicate paragraphs": DUP_PARAGRAPHS,
    "longest word": ["longest_word_chars"],
    "word entropy": ["word_entropy"],
    "top 2..4-grams": TOP,
    "duplicate 5..10-grams": DUP,
}
NUM_CALLS = 8


class Batch:
    """Documents as the buffers that kernels take."""

    def __init__(self, documents: Sequence[bytes]) -> None:
        self.values: NDArray[np.uint8] = np.frombuffer(b"".join(documents), dtype=np.uint8)
        self.offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)

    def score(self, signals: Sequence[str] = SIGNALS, *, times: int = 1) -> None:
        for _ in range(times):
            score_buffers(self.values, self.offsets, signals)

    def megabytes_a_second(self, seconds: float) -> float:
        return len(self.values) / seconds / 1e6


# beside datatrove

PEER_BYTES = 1_000_000


@pytest.fixture(scope="module")
def documents(request: pytest.FixtureRequest) -> list[str]:
    return real_documents(PEER_BYTES if is_measured(request.config) else 50_000)


@pytest.fixture(scope="module")
def datatrove(
    request: pytest.FixtureRequest, documents: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OtherProcess]:
    python = python_with(request.config, f"datatrove-{datatrove_peer.VERSION}", datatrove_peer.REQUIREMENTS)
    command = [str(python), "-I", datatrove_peer.__file__]
    peer = OtherProcess(command, tmp_path_factory.mktemp("datatrove") / "log")
    peer.ask(documents)
    yield peer
    peer.close()


@pytest.mark.long
def test_all_signals_in_turns_with_datatrove(
    datatrove: OtherProcess, documents: list[str], claims: Claims, interleaved: Interleaved
) -> None:
    batch = Batch([document.encode() for document in documents])
    passed = set()
    turns = interleaved(
        {
            "ours": lambda: batch.score(times=NUM_CALLS),
            "ours, what it counts": lambda: batch.score([*DUP_LINES, *DUP_PARAGRAPHS, *TOP, *DUP], times=NUM_CALLS),
            "by white space": lambda: passed.add(datatrove.ask("by white space")["passed"]),
            "its own": lambda: passed.add(datatrove.ask("its own")["passed"]),
        },
        rounds=5,
        clock=lambda: time.process_time() + datatrove.processor_seconds,
    )
    assert passed == {len(documents)}
    for words, target in (("by white space", 80), ("its own", 500)):
        theirs = batch.megabytes_a_second(turns.seconds_of(words))
        ours = batch.megabytes_a_second(turns.seconds_of("ours") / NUM_CALLS)
        claims(
            f"all text signals: datatrove, words {words} / ours",
            turns.ratio(words, "ours") * NUM_CALLS, target=target, at_least=True,
            detail=f"{theirs:.2f} MB/s / {ours:,.0f} MB/s, one thread each",
        )  # fmt: skip
    claims(
        "the 13 that it counts: datatrove, words by white space / ours",
        turns.ratio("by white space", "ours, what it counts") * NUM_CALLS,
    )


# by signal


def test_the_groups_hold_every_signal_once() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(SIGNALS)


def test_every_group_by_itself_and_all_at_once(claims: Claims, interleaved: Interleaved, measured: bool) -> None:
    batch = Batch([document.encode() for document in real_documents(8_000_000 if measured else 50_000)])
    contenders: dict[str, Callable[[], object]] = {"all": batch.score}
    for group, names in GROUPS.items():
        contenders[group] = lambda names=names: batch.score(names)  # type: ignore[misc]
    turns = interleaved(contenders, rounds=7, clock=time.process_time)
    for group in contenders:
        claims(
            f"text signals: {group}", batch.megabytes_a_second(turns.seconds_of(group)), "MB/s",
            detail=f"{turns.ratio(group, 'all'):.3f} of the time of all",
        )  # fmt: skip


@pytest.mark.parametrize("num_documents", [1, 4, 64])
def test_small_calls(claims: Claims, interleaved: Interleaved, num_documents: int) -> None:
    batch = Batch([document.encode()[:3000] for document in real_documents(400_000)[:num_documents]])
    turns = interleaved({"ours": lambda: batch.score(times=100)}, rounds=9, clock=time.process_time)
    claims(f"all text signals of {num_documents} documents of 3 kB, a call", turns.seconds_of("ours") * 1e4, "us")


# by size

LARGEST = 1 << 23


def _words(num_bytes: int, between: bytes) -> bytes:
    """Words by a law of frequencies, `between` after every tenth or so, an empty line after every hundredth or so."""
    dice = np.random.default_rng(8)
    share = 1 / (np.arange(50_000) + 2.7) ** 1.15
    numbers = dice.choice(50_000, size=num_bytes // 4, p=share / share.sum()).tolist()
    letters = [
        bytes(dice.integers(97, 123, 1 + min(9, place.bit_length() // 2)).astype(np.uint8)) for place in range(50_000)
    ]
    gaps = [b" "] * 9 + [between]
    words = b"".join(letters[number] + gaps[place % 10] for place, number in enumerate(numbers))
    return words[:num_bytes]


KINDS: dict[str, Callable[[int], bytes]] = {
    "prose": lambda num_bytes: _words(num_bytes, b"\n"),
    "one line": lambda num_bytes: _words(num_bytes, b" "),
    "a a a": lambda num_bytes: b"a " * (num_bytes // 2),
    "line feeds": lambda num_bytes: b"\n" * num_bytes,
    "one word": lambda num_bytes: np.random.default_rng(9).integers(97, 123, num_bytes).astype(np.uint8).tobytes(),
    "NUL": bytes,
    "<a<a<a": lambda num_bytes: b"<a" * (num_bytes // 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_time_a_byte_does_not_grow_with_the_document(
    claims: Claims, interleaved: Interleaved, measured: bool, kind: str
) -> None:
    largest = LARGEST if measured else 1 << 15
    text = KINDS[kind](largest)
    assert len(text) == largest
    sizes = [largest >> shift for shift in (12, 8, 4, 0)]
    batches = {f"{size:,}": Batch([text[start : start + size] for start in range(0, largest, size)]) for size in sizes}
    contenders: dict[str, Callable[[], object]] = {name: batch.score for name, batch in batches.items()}
    turns = interleaved(contenders, rounds=5, clock=time.process_time)
    for name in contenders:
        claims(
            f"all text signals, {kind}, documents of {name} bytes, a byte", turns.seconds_of(name) / largest * 1e9, "ns"
        )


# on two threads


def test_two_threads_against_one(claims: Claims, interleaved: Interleaved, measured: bool) -> None:
    """Beside a control that no lock can slow down: on a machine that others use as well, both gain little."""
    documents = [document.encode() for document in real_documents(16_000_000 if measured else 50_000)]
    parts = [Batch(documents[place::8]) for place in range(8)]

    def score(num_threads: int) -> None:
        with ThreadPoolExecutor(num_threads) as pool:
            list(pool.map(Batch.score, parts))

    turns = interleaved(
        {
            "one": lambda: score(1),
            "two": lambda: score(2),
            "hashing, one": lambda: hashing(1),
            "hashing, two": lambda: hashing(2),
        },
        rounds=9,
    )
    claims(
        "all text signals on two threads / on one, throughput", turns.ratio("one", "two"),
        detail=f"control, hashing: {turns.ratio('hashing, one', 'hashing, two'):.2f}x",
    )  # fmt: skip
