"""K6, integer width: offsets past 2 and 4 GiB, lengths whose sum no 32 bits hold. G11."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.corpus.formats import BlockPlace, Megatron, RawTokens, ScanOptions
from dataguard.corpus.formats import megatron as module
from tests.corpus.formats.support import FileShard, MemoryShard
from tests.corpus.making import megatron_idx

LENGTHS = [1_100_000_000, 1_100_000_000, 500_000_000]
TAILS = [[1, 2, 3, 4], [5, 6, 7, 8], [11, 12, 13, 14]]


def _sparse(path: Path, width: int) -> FileShard:
    """A .bin of which only the last four tokens of each document are written; the rest is a hole."""
    with path.open("wb") as file:
        at = 0
        for length, tail in zip(LENGTHS, TAILS, strict=True):
            at += length
            file.seek((at - 4) * width)
            file.write(np.array(tail, f"<u{width}").tobytes())
    return FileShard(path, "none")


def _pair(tmp_path: Path) -> FileShard:
    shard = _sparse(tmp_path / "big.bin", 2)
    assert shard.size_bytes == 5_400_000_000
    shard.companions = [MemoryShard(megatron_idx(LENGTHS, range(4)), "big.idx", "none")]
    return shard


def test_g11_the_last_tokens_of_each_document(tmp_path: Path) -> None:
    shard = _pair(tmp_path)
    for end, tail in zip(np.cumsum(LENGTHS).tolist(), TAILS, strict=True):
        place = BlockPlace(first_row=end - 4, num_rows=4, offset_bytes=2 * (end - 4), size_bytes=8)
        tokens = Megatron().read(shard, place, ScanOptions()).tokens
        assert tokens is not None
        assert tokens.tolist() == tail


def test_g11_documents_of_a_slice(tmp_path: Path) -> None:
    found = Megatron().boundaries(_pair(tmp_path), 2_199_999_000, 2_199_999_000 + 2048, ScanOptions())
    assert found.first_document == 1
    assert found.documents.tolist() == [[1_100_000_000, 2_200_000_000], [2_200_000_000, 2_700_000_000]]
    assert found.sequences.tolist() == found.documents.tolist()


def test_g11_blocks_of_the_whole_index(tmp_path: Path) -> None:
    """What a scan reckons with, without reading 5.4 GB: every length added up, every document in its block."""
    index = module._open_index(_pair(tmp_path), module.ExitStack())
    assert isinstance(index, module._Index)
    assert index.pointers(0, 3).tolist() == [0, 2_200_000_000, 4_400_000_000]
    census = module._census(index, 1 << 18)
    assert isinstance(census, module._Census)
    assert census.num_tokens == 2_700_000_000
    assert len(census.num_documents) == -(-2_700_000_000 // (1 << 18))
    assert np.flatnonzero(census.num_documents).tolist() == [0, 1_100_000_000 >> 18, 2_200_000_000 >> 18]


@pytest.mark.parametrize("wrapped", [2**31, 2**32])
def test_pointers_that_wrapped_are_told(wrapped: int) -> None:
    lengths = [2**31 - 1] * 4
    index = megatron_idx(lengths, range(5))
    pointers = np.arange(4, dtype="<i8") * (2**31 - 1) * 2
    assert index[50:82] == pointers.tobytes()
    shard = MemoryShard(b"", "x.bin", "none")
    shard.companions = [MemoryShard(index[:50] + (pointers % wrapped).tobytes() + index[82:], "x.idx", "none")]
    (end,) = Megatron().scan(shard, ScanOptions())
    assert [finding.code for finding in end.findings] == ["bad-pointers"]
    shard.companions = [MemoryShard(index, "x.idx", "none")]
    (end,) = Megatron().scan(shard, ScanOptions())
    assert [finding.code for finding in end.findings] == ["too-short"]
    assert f"{4 * (2**31 - 1):,} tokens" in end.findings[0].detail


def test_sums_that_no_file_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 1 << 30)  # as if so many sequences were left
    shard = MemoryShard(b"", "x.bin", "none")
    shard.companions = [MemoryShard(megatron_idx([2**31 - 1] * 3, range(4), code=5, item_bytes=8), "x.idx", "none")]
    (end,) = Megatron().scan(shard, ScanOptions())
    assert [finding.code for finding in end.findings] == ["bad-idx"]


@pytest.mark.parametrize("width", [2, 4])
def test_headerless_ids_past_4_gib(tmp_path: Path, width: int) -> None:
    shard = _sparse(tmp_path / "big.bin", width)
    place = BlockPlace(first_row=2_699_999_996, num_rows=4, offset_bytes=width * 2_699_999_996, size_bytes=4 * width)
    tokens = RawTokens().read(shard, place, ScanOptions(dtype=f"u{width}")).tokens
    assert tokens is not None
    assert tokens.tolist() == TAILS[2]
