"""Duplicates: what a dictionary over everything finds, whatever is held in memory at a time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.audit.duplicates import DuplicateFinder, Piece
from dataguard.core.digests import sample_digest
from tests.support.processes import environment

Told = list[tuple[bytes, int, int]]  # digest, shard, row, in the order of the corpus


def found(finder: DuplicateFinder) -> list[Piece]:
    return list(finder.pieces())


def tell(finder: DuplicateFinder, samples: Told, *, at_once: int = 1000) -> None:
    for start in range(0, len(samples), at_once):
        some = samples[start : start + at_once]
        finder.add(
            np.frombuffer(b"".join(digest for digest, _, _ in some), "V16"),
            np.array([shard for _, shard, _ in some]),
            np.array([row for _, _, row in some]),
            np.full(len(some), 7),
        )


Said = dict[tuple[int, int], tuple[bool, bool, tuple[int, int]]]
"""Place -> whether it is a copy, one within its shard, and of which record."""


def naive(samples: Told) -> Said:
    seen: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    said = {}
    for digest, shard, row in samples:
        before = seen[digest]
        said[shard, row] = (bool(before), bool(before) and before[-1][0] == shard, (before or [(shard, row)])[0])
        before.append((shard, row))
    return said


def place(entry: np.void) -> tuple[int, int]:
    return int(entry["shard"]), int(entry["row"])


def said(pieces: list[Piece]) -> Said:
    for piece in pieces:
        for entry, copy, before in zip(piece.entries, piece.is_copy, piece.previous, strict=True):
            assert not copy or (entry["high"], entry["low"]) == (before["high"], before["low"])
            assert not copy or place(before) < place(entry)
    return {
        place(entry): (bool(copy), bool(within), place(first))
        for piece in pieces
        for entry, copy, within, first in zip(piece.entries, piece.is_copy, piece.is_within, piece.first, strict=True)
    }


@settings(max_examples=60)
@given(
    which=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=300),
    run=st.sampled_from([1, 3, 17, 1000]),
    merge=st.sampled_from([0, 48 * 64 * 3, 1 << 20]),
    at_once=st.sampled_from([1, 5, 1000]),
)
def test_duplicates_are_those_of_a_dictionary(
    tmp_path: Path, which: list[tuple[int, int]], run: int, merge: int, at_once: int
) -> None:
    shards = sorted(shard for _, shard in which)
    contents = [content for content, _ in which]
    samples = [
        (sample_digest(b"%d" % content), shard, row)
        for row, (content, shard) in enumerate(zip(contents, shards, strict=True))
    ]
    with DuplicateFinder(tmp_path, run_samples=run, merge_bytes=merge) as finder:
        tell(finder, samples, at_once=at_once)
        pieces = found(finder)
    assert said(pieces) == naive(samples)
    groups = [int(number) for piece in pieces for number in piece.group]
    assert groups == sorted(groups)
    assert len(set(groups)) == len(set(contents))
    digests = [(int(entry["high"]), int(entry["low"])) for piece in pieces for entry in piece.entries]
    assert digests == sorted(digests)


@pytest.mark.parametrize("run", [70, 1000])
def test_one_record_over_and_over_is_merged_piece_by_piece(tmp_path: Path, run: int) -> None:
    digest = sample_digest(b"same")
    samples = [(digest if row % 3 else sample_digest(b"%d" % row), row // 500, row) for row in range(2000)]
    with DuplicateFinder(tmp_path, run_samples=run, merge_bytes=0) as finder:
        tell(finder, samples)
        pieces = found(finder)
    assert said(pieces) == naive(samples)
    assert max(len(piece.entries) for piece in pieces) <= 64 * (2000 // run + 1), "never more than the pieces at hand"


def test_samples_of_two_kinds_are_no_copies_of_each_other(tmp_path: Path) -> None:
    digests = np.frombuffer(sample_digest(b"x") * 2, "V16")
    with DuplicateFinder(tmp_path) as finder:
        for kind in (0, 1):
            finder.add(digests, np.array([kind, kind]), np.array([0, 1]), np.array([1, 1]), kind=kind)
        (piece,) = found(finder)
    assert piece.is_copy.tolist() == [False, True, False, True]


def test_no_samples_are_no_duplicates(tmp_path: Path) -> None:
    with DuplicateFinder(tmp_path) as finder:
        assert found(finder) == []


def test_memory_is_bounded_whatever_the_number_of_samples(tmp_path: Path) -> None:
    """4 million samples, half of them one record: 192 MB on disk, merged in what one run and the pieces take."""
    code = f"""
        import numpy as np
        from pathlib import Path
        from dataguard.audit.duplicates import DuplicateFinder
        from tests.support.memory import peak_bytes
        num = 1 << 22
        before = peak_bytes()
        copies = 0
        with DuplicateFinder(Path({str(tmp_path)!r}), run_samples=1 << 17, merge_bytes=4 << 20) as finder:
            for start in range(0, num, 1 << 15):
                rows = np.arange(start, start + (1 << 15))
                halves = np.zeros((len(rows), 2), np.uint64)
                halves[:, 0] = np.where(rows % 2, 0, rows * 0x9E3779B1 % (1 << 61))
                zeros = np.zeros(len(rows), np.int64)
                finder.add(np.frombuffer(halves.tobytes(), "V16"), zeros, rows, zeros)
            for piece in finder.pieces():
                copies += int(piece.is_copy.sum())
        print(copies, peak_bytes() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    copies, grown = map(int, done.stdout.split())
    assert copies == 1 << 21, "every second one but the first, and row 0, whose digest is zero as well"
    assert grown < 64 << 20
