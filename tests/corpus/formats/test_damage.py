"""Cut at every length, with any byte changed: no format crashes, hangs, or passes as clean with less than it held."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from dataguard.corpus.formats import FORMATS, Format, by_name
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.samples import SAMPLES, Sample
from tests.corpus.formats.support import Seen, look

PACK = {"none": bytes, "gzip": gzip_member, "zstd": zstd_frame}
CASES = [
    pytest.param(name, sample, compression, id=f"{name}-{number}-{compression}")
    for name, samples in SAMPLES.items()
    for number, sample in enumerate(samples)
    for compression in sample.compressions
]
MOST_SECONDS = 120


def test_every_format_has_a_sample() -> None:
    assert set(SAMPLES) == {entry.name for entry in FORMATS}, "add a small good file of it to samples.py"


@contextmanager
def no_hang() -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"a reader did not end within {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def seen_of(kind: Format, sample: Sample, packed: bytes, compression: str) -> Seen:
    return look(kind, sample.shard(packed, compression), **sample.options)


def delivered(seen: Seen) -> list[Any]:
    return list(seen.tokens) or list(seen.documents)


def is_part(some: list[Any], every: list[Any]) -> bool:
    """Whether all of some stand in every, in the same order."""
    rest = iter(every)
    return all(any(entry == other for other in rest) for entry in some)


def is_silent(seen: Seen) -> bool:
    return seen.effect == "clean" and not seen.rejected


@pytest.mark.parametrize(("name", "sample", "compression"), CASES)
def test_cut_at_every_length(name: str, sample: Sample, compression: str) -> None:
    kind = by_name(name)
    packed = PACK[compression](sample.content)
    good = seen_of(kind, sample, packed, compression)
    assert is_silent(good)
    assert delivered(good)
    with no_hang():
        for length in range(len(packed)):
            seen = seen_of(kind, sample, packed[:length], compression)
            got = delivered(seen)
            if compression == "none" and sample.is_legal_end(packed[:length]):
                assert seen.effect in ("clean", "flagged"), length
                continue
            assert not is_silent(seen), length
            assert seen.effect == "clean" or seen.codes, length
            if sample.is_stream:
                assert got == delivered(good)[: len(got)], length
            else:
                assert is_part(got, delivered(good)), length


@pytest.mark.parametrize(("name", "sample", "compression"), CASES)
def test_any_byte_changed(name: str, sample: Sample, compression: str) -> None:
    """Where a check sum holds the content, what is delivered is what was written.

    But for one thing that nobody can tell apart: a changed byte that makes a stream look cut, whose end has no check
    sum then. That is told.
    """
    kind = by_name(name)
    packed = PACK[compression](sample.content)
    good = delivered(seen_of(kind, sample, packed, compression))
    with no_hang():
        for at in range(0, len(packed), 1 + len(packed) // 1_000):
            changed = bytearray(packed)
            changed[at] ^= 1 << zlib.crc32(b"%d" % at) % 8
            seen = seen_of(kind, sample, bytes(changed), compression)
            assert all(finding.detail for finding in (*seen.rejected, *seen.end.findings)), at
            if compression != "none":
                got = delivered(seen)
                assert got == good[: len(got)] or "truncated-stream" in seen.codes, at
                assert got == good or not is_silent(seen), at


@pytest.mark.parametrize(("name", "sample", "compression"), CASES)
def test_bytes_after_the_end(name: str, sample: Sample, compression: str) -> None:
    """Another file's bytes behind a good one are told, and cost it nothing but where its end cannot be found."""
    kind = by_name(name)
    packed = PACK[compression](sample.content)
    good = delivered(seen_of(kind, sample, packed, compression))
    with no_hang():
        seen = seen_of(kind, sample, packed + b"\x01 another file \xff", compression)
        got = delivered(seen)
        if compression == "none" and not sample.has_end:
            assert got[: len(good)] == good
            return
        assert not is_silent(seen)
        assert got in (good, [])
