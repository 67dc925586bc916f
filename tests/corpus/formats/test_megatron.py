"""How are Megatron pairs read: every type of ids, documents beside rows, and every way an index can lie?"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.formats import Megatron, ScanOptions
from dataguard.corpus.formats import megatron as module
from dataguard.errors import ShardDamaged
from tests.corpus.formats.support import FileShard, MemoryShard, Seen, look
from tests.corpus.making import megatron_files, megatron_idx


def pair(content: bytes, index: bytes) -> MemoryShard:
    shard = MemoryShard(content, "x.bin", "none")
    shard.companions = [MemoryShard(index, "x.idx", "none")]
    return shard


def seen_of(content: bytes, index: bytes, **options: Any) -> Seen:
    return look(Megatron(), pair(content, index), **options)


def documents_of(shard: MemoryShard, first: int, stop: int) -> list[tuple[int, int]]:
    found = Megatron().boundaries(shard, first, stop, ScanOptions())
    return [tuple(span) for span in found.documents.tolist()]


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 8])
def test_every_type_of_ids(code: int) -> None:
    info = np.iinfo({1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}[code])
    sequences = [[0, 1, info.max], [], [info.min, 7]]
    seen = seen_of(*megatron_files(sequences, code=code), block_tokens=2)
    assert seen.tokens == [0, 1, info.max, info.min, 7]
    assert (seen.effect, seen.end.num_documents, seen.end.num_sequences) == ("clean", 3, 3)


@pytest.mark.parametrize(("code", "name"), [(6, "float64"), (7, "float32")])
def test_floats_are_no_ids(code: int, name: str) -> None:
    seen = seen_of(*megatron_files([[1, 2]], code=code))
    assert (seen.effect, seen.codes) == ("excluded", ["not-integers"])
    assert name in seen.end.findings[0].detail


@pytest.mark.parametrize("code", [0, 9, 255])
def test_unknown_types_are_refused(code: int) -> None:
    content, index = megatron_files([[1, 2]])
    seen = seen_of(content, index[:17] + bytes([code]) + index[18:])
    assert (seen.effect, seen.codes) == ("excluded", ["bad-idx"])


def test_documents_are_groups_of_sequences() -> None:
    content, index = megatron_files([[1, 2], [3], [], [4, 5, 6]], [0, 2, 2, 4, 4])
    seen = seen_of(content, index, block_tokens=3)
    assert (seen.end.num_documents, seen.end.num_sequences) == (4, 4)
    assert [block.place.group for block in seen.blocks] == [1, 3]  # two of them are empty
    shard = pair(content, index)
    assert documents_of(shard, 0, 6) == [(0, 3), (3, 3), (3, 6)]
    found = Megatron().boundaries(shard, 1, 4, ScanOptions())
    assert (found.first_document, found.first_sequence) == (0, 0)
    assert found.sequences.tolist() == [[0, 2], [2, 3], [3, 3], [3, 6]]
    found = Megatron().boundaries(shard, 4, 5, ScanOptions())
    assert (found.first_document, found.documents.tolist()) == (2, [[3, 6]])
    assert (found.first_sequence, found.sequences.tolist()) == (3, [[3, 6]])


@given(
    lengths=st.lists(st.integers(0, 5), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=6),
    block_tokens=st.integers(1, 7),
)
def test_boundaries_are_those_of_a_look_at_every_document(
    lengths: list[int], cuts: list[int], block_tokens: int
) -> None:
    entries = [0, *sorted(cut for cut in cuts if cut <= len(lengths)), len(lengths)]
    content, index = megatron_files([list(range(length)) for length in lengths], entries)
    starts = [0, *np.cumsum(lengths).tolist()]
    spans = [(starts[a], starts[b]) for a, b in pairwise(entries)]
    seen = seen_of(content, index, block_tokens=block_tokens)
    assert seen.effect == "clean"
    assert seen.tokens == [token for length in lengths for token in range(length)]
    if seen.blocks:
        assert sum(block.place.group for block in seen.blocks) == len(spans) == seen.end.num_documents
    shard, total = pair(content, index), starts[-1]
    for first in range(total):
        for stop in range(first + 1, total + 1):
            mine = [(a, b) for a, b in spans if (a < stop and b > first) or (a == b and first <= a < stop)]
            assert documents_of(shard, first, stop) == mine


def test_an_index_larger_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    sequences = [[n] * (n % 4) for n in range(20)]
    content, index = megatron_files(sequences, [0, 0, 3, 4, 9, 9, 9, 9, 9, 15, 20, 20])
    seen = seen_of(content, index, block_tokens=5)
    assert seen.effect == "clean"
    assert sum(block.place.group for block in seen.blocks) == 11
    for at in (4, 17):
        wrong = bytearray(index)
        wrong[34 + 80 + 8 * at] ^= 1
        assert seen_of(content, bytes(wrong)).codes == ["bad-pointers"]
        assert f"sequence {at:,} begins" in seen_of(content, bytes(wrong)).end.findings[0].detail


def test_modes_are_passed_over_and_anything_else_is_told() -> None:
    content, index = megatron_files([[1, 2], [3]], modes=True)
    assert seen_of(content, index).effect == "clean"
    seen = seen_of(content, index + b"!")
    assert (seen.tokens, seen.effect, seen.codes) == ([1, 2, 3], "flagged", ["trailing-bytes"])


def test_idx_cut_at_every_length() -> None:
    content, index = megatron_files([[1, 2], [3], [4]])
    for length in range(len(index)):
        seen = seen_of(content, index[:length])
        assert seen.effect == "excluded", length
        assert seen.codes == ["bad-idx" if length < 9 else "too-short"], length
        assert f"{length:,}" in seen.end.findings[0].detail


def test_bin_cut_at_every_length() -> None:
    content, index = megatron_files([[1, 2], [3], [4]])
    for length in range(len(content)):
        seen = seen_of(content[:length], index, block_tokens=2)
        assert (seen.effect, seen.codes) == ("excluded", ["too-short"])
        assert "8 bytes" in seen.end.findings[0].detail
        assert f"holds {length} bytes" in seen.end.findings[0].detail


def test_bin_longer_than_its_index() -> None:
    content, index = megatron_files([[1, 2], [3]])
    seen = seen_of(content + b"xyz", index)
    assert (seen.tokens, seen.effect, seen.codes) == ([1, 2, 3], "flagged", ["trailing-bytes"])
    assert "3 bytes" in seen.end.findings[0].detail


def test_bytes_behind_empty_sequences_are_told() -> None:
    seen = seen_of(b"xy", megatron_idx([], [0]))
    assert (seen.effect, seen.codes) == ("excluded", ["trailing-bytes"])  # there is nothing to deliver


@pytest.mark.parametrize(
    ("pointers", "what"),
    [
        ([0, 6, 4], "sequence 1 begins at byte 6"),
        ([4, 0, 6], "sequence 0 begins at byte 4"),
        ([0, 4, 8], "sequence 2 begins at byte 8"),
        ([0, 2, 4], "sequence 1 begins at byte 2"),
        ([0, -4, 6], "sequence 1 begins at byte -4"),
    ],
)
def test_pointers_that_are_not_the_lengths_added_up(pointers: list[int], what: str) -> None:
    content, index = megatron_files([[1, 2], [3], [4]])
    seen = seen_of(content, index[:46] + np.array(pointers, "<i8").tobytes() + index[70:])
    assert (seen.effect, seen.codes) == ("excluded", ["bad-pointers"])
    assert what in seen.end.findings[0].detail


@pytest.mark.parametrize(
    "entries", [[0, 1, 2], [0, 2, 1, 3], [1, 2, 3], [0, 1, 4], [0, -1, 3], [3], [0, 3, 3, 2], [0, 1 << 62, 3]]
)
def test_document_entries_that_make_no_sense(entries: list[int]) -> None:
    content, _ = megatron_files([[1, 2], [3], [4]])
    seen = seen_of(content, megatron_idx([2, 1, 1], entries))
    assert (seen.effect, seen.codes) == ("excluded", ["bad-idx"])


def test_lengths_below_zero_versions_and_magic() -> None:
    content, index = megatron_files([[1, 2], [3]])
    assert seen_of(content, megatron_idx([2, -1], [0, 1, 2])).codes == ["bad-idx"]
    assert seen_of(content, index[:9] + b"\2" + index[10:]).codes == ["bad-idx"]
    legacy = seen_of(content, b"TNTIDX\0\0" + bytes(40))
    assert legacy.codes == ["bad-idx"]
    assert "TNTIDX" in legacy.end.findings[0].detail
    huge = index[:18] + (1 << 62).to_bytes(8, "little") + index[26:]
    assert seen_of(content, huge).codes == ["too-short"]
    assert seen_of(content, index[:26] + bytes(8) + index[34:]).codes == ["bad-idx"]


def test_a_changed_pair_is_no_answer() -> None:
    content, index = megatron_files([[1, 2], [3]])
    (block,) = seen_of(content, index).blocks
    for changed in (pair(content[:4], index), pair(content, b""), pair(content, megatron_files([[1]], code=4)[1])):
        with pytest.raises(ShardDamaged):
            Megatron().read(changed, block.place, ScanOptions())
    with pytest.raises(ShardDamaged):
        Megatron().boundaries(pair(content, index[:40]), 0, 2, ScanOptions())


def test_real_pairs_are_what_numpy_reads(shared: Path) -> None:
    found = sorted((shared / "data/formats/megatron").glob("*.bin"))
    assert len(found) == 3
    for path in found:
        shard = FileShard(path, "none")
        shard.companions = [FileShard(path.with_suffix(".idx"), "none")]
        seen = look(Megatron(), shard)
        head = path.with_suffix(".idx").read_bytes()
        assert seen.tokens == np.fromfile(path, {4: "<i4", 8: "<u2"}[head[17]]).tolist()
        num_sequences = int.from_bytes(head[18:26], "little")
        assert (seen.effect, seen.end.num_sequences, seen.end.num_documents) == ("clean", num_sequences, num_sequences)
        lengths = np.frombuffer(head, "<i4", num_sequences, 34)
        boundaries = Megatron().boundaries(shard, 0, len(seen.tokens), ScanOptions())
        assert np.diff(boundaries.documents, axis=1).reshape(-1).tolist() == lengths.tolist()
