"""What do windows of ids cost, taken at random from each format of tokens, beside the way people read that format?

    pytest tests/bench/bench_token_formats.py --benchmark-enable

The same ids in each, 16-bit, as windows of 2,048 in one shuffled order that both sides take in batches of 64:

- ``.npy``: ``np.load(mmap_mode="r")`` and a slice; raw ids: ``np.memmap`` and a slice.
- Megatron pairs: the index read as its library reads it (offsets and lengths as arrays, the ``.bin`` as a map), a
  window put together from the sequences that it crosses.
- MDS: `streaming.base.format.mds.MDSReader` where that is installed, a sample a window.
- zstd in frames of 256 KiB: frames found by their index, each decoded by `zstandard` alone when a window needs it.

Every block that ours hands out is compared with its digest; the others verify nothing. Ours keeps blocks in memory
(64 MiB here), the maps keep pages; both begin anew in each round, and files lie in the page cache.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import ScanOptions
from tests.bench.conftest import Claims, Interleaved
from tests.corpus.formats.framing import seekable
from tests.corpus.making import mds_entry, mds_index, mds_shard, megatron_idx, put

SEQ_LEN = 2_048
BATCH = 64
BLOCK_TOKENS = 1 << 16
FRAME_BYTES = 1 << 18
Ids = NDArray[np.uint16]
Reader = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Takes a batch of window numbers: int64 ids of shape (windows, SEQ_LEN)."""


@pytest.fixture
def ids(measured: bool) -> Ids:
    """4 M ids (16 of 2,048 in a smoke test)."""
    count = SEQ_LEN * (2_048 if measured else 16)
    return np.random.default_rng(3).zipf(1.3, count).astype(np.uint16)


def compare(
    claims: Claims, interleaved: Interleaved, name: str, folder: Path, ids: Ids, theirs: Callable[[], Reader],
    **options: str,
) -> None:  # fmt: skip
    """Both read every window once, in one shuffled order."""
    manifest = folder.parent / "M.parquet"
    build_manifest_file([str(folder)], manifest, options=ScanOptions(block_tokens=BLOCK_TOKENS, **options))  # type: ignore[arg-type]
    corpus = Corpus.open(manifest)
    order = np.random.default_rng(4).permutation(len(ids) // SEQ_LEN)
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    expected = ids.reshape(-1, SEQ_LEN)

    def ours() -> None:
        with corpus.reader(cache_bytes=64 << 20, cache_folder="") as reader:
            for batch in batches:
                windows, problems = reader.read_windows(np.zeros(len(batch), np.int64), batch, SEQ_LEN)
                assert not problems
                assert windows[0, 0] == expected[batch[0], 0]

    def peer() -> None:
        read = theirs()
        for batch in batches:
            assert read(batch)[0, 0] == expected[batch[0], 0]

    assert np.array_equal(theirs()(order[:5]), expected[order[:5]])
    turns = interleaved({"ours": ours, "theirs": peer}, rounds=7, clock=time.process_time)
    speed = len(ids) / turns.seconds_of("ours") / 1e6
    claims(f"windows of {name}", turns.ratio("ours", "theirs"), detail=f"{speed:,.0f} M ids/s")


def _slices(flat: Ids) -> Reader:
    """Windows of a map, each copied out as int64, as data sets for training do."""

    def read(windows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.stack([flat[w * SEQ_LEN : (w + 1) * SEQ_LEN].astype(np.int64) for w in windows.tolist()])

    return read


def test_npy(tmp_path: Path, claims: Claims, interleaved: Interleaved, ids: Ids) -> None:
    path = put(tmp_path / "t/a.npy", b"")
    np.save(path, ids)
    compare(
        claims, interleaved, "npy / np.load, mapped", path.parent, ids, lambda: _slices(np.load(path, mmap_mode="r"))
    )


def test_raw(tmp_path: Path, claims: Claims, interleaved: Interleaved, ids: Ids) -> None:
    path = put(tmp_path / "t/a.bin", ids.tobytes())
    compare(
        claims, interleaved, "raw ids / np.memmap", path.parent, ids, lambda: _slices(np.memmap(path, np.uint16, "r")),
        dtype="uint16",
    )  # fmt: skip


def _megatron(prefix: Path, num_sequences: int) -> Reader:
    """As the library reads a pair: the index whole, the ids by offset and length of each sequence that is met."""
    index = prefix.with_suffix(".idx").read_bytes()
    lengths = np.frombuffer(index, np.int32, num_sequences, 34)
    pointers = np.frombuffer(index, np.int64, num_sequences, 34 + lengths.nbytes)
    content = memoryview(np.memmap(prefix.with_suffix(".bin"), np.uint8, "r"))  # type: ignore[arg-type]
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def read(windows: NDArray[np.int64]) -> NDArray[np.int64]:
        found = []
        for window in windows.tolist():
            start, stop = window * SEQ_LEN, (window + 1) * SEQ_LEN
            first = int(np.searchsorted(starts, start, side="right")) - 1
            parts = []
            while starts[first] < stop:
                low, high = max(start - starts[first], 0), min(stop - starts[first], lengths[first])
                parts.append(np.frombuffer(content, np.uint16, high - low, pointers[first] + 2 * low))
                first += 1
            found.append(np.concatenate(parts).astype(np.int64))
        return np.stack(found)

    return read


def test_megatron(tmp_path: Path, claims: Claims, interleaved: Interleaved, ids: Ids) -> None:
    prefix = tmp_path / "t/a_document"
    lengths = [700] * (len(ids) // 700) + [len(ids) % 700]
    put(prefix.with_suffix(".bin"), ids.tobytes())
    put(prefix.with_suffix(".idx"), megatron_idx(lengths, range(len(lengths) + 1)))
    compare(claims, interleaved, "Megatron / its own way", prefix.parent, ids, lambda: _megatron(prefix, len(lengths)))


def test_mds(tmp_path: Path, claims: Claims, interleaved: Interleaved, ids: Ids) -> None:
    reader = pytest.importorskip("streaming.base.format.mds.reader", reason="mosaicml-streaming is not installed")
    encoding = f"ndarray:uint16:{SEQ_LEN}"
    samples = [{"tokens": window.tobytes()} for window in ids.reshape(-1, SEQ_LEN)]
    content = mds_shard({"tokens": (encoding, 2 * SEQ_LEN)}, samples)
    path = put(tmp_path / "t/shard.00000.mds", content)
    entry = mds_entry(path.name, content, column_names=["tokens"], column_encodings=[encoding],
                      column_sizes=[2 * SEQ_LEN], samples=len(samples), size_limit=1 << 26, hashes=[])  # fmt: skip
    put(path.with_name("index.json"), mds_index(entry))

    def theirs() -> Reader:
        told = json.loads(path.with_name("index.json").read_bytes())["shards"][0]
        shard = reader.MDSReader.from_json(str(path.parent), None, told)
        return lambda windows: np.stack([shard[w]["tokens"].astype(np.int64) for w in windows.tolist()])

    compare(claims, interleaved, "MDS / mosaicml-streaming", path.parent, ids, theirs)


def _frames(path: Path) -> Reader:
    """Frames by the seek table, the one decoded last kept: what a loop of one's own would do."""
    content = np.memmap(path, np.uint8, "r")
    (count,) = np.frombuffer(content[-9:-5].tobytes(), "<u4")
    sizes = np.frombuffer(content[-9 - 8 * int(count) : -9].tobytes(), "<u4").reshape(-1, 2).astype(np.int64)
    stored, decoded = (np.concatenate([[0], np.cumsum(sizes[:, i])]) for i in (0, 1))
    kept: dict[int, bytes] = {}

    def frame(number: int) -> bytes:
        if number not in kept:
            if 2 * FRAME_BYTES * len(kept) > 64 << 20:
                kept.clear()
            one = content[stored[number] : stored[number + 1]].tobytes()
            kept[number] = zstandard.ZstdDecompressor().decompress(one)
        return kept[number]

    def read(windows: NDArray[np.int64]) -> NDArray[np.int64]:
        found = []
        for window in windows.tolist():
            start, stop = 2 * window * SEQ_LEN, 2 * (window + 1) * SEQ_LEN
            numbers = range(
                int(np.searchsorted(decoded, start, "right")) - 1, int(np.searchsorted(decoded, stop, "left"))
            )
            parts = [frame(n)[max(start - decoded[n], 0) : stop - decoded[n]] for n in numbers]
            found.append(np.frombuffer(b"".join(parts), np.uint16).astype(np.int64))
        return np.stack(found)

    return read


def test_framed_zstd(tmp_path: Path, claims: Claims, interleaved: Interleaved, ids: Ids) -> None:
    content = ids.tobytes()
    parts = [content[start : start + FRAME_BYTES] for start in range(0, len(content), FRAME_BYTES)]
    path = put(tmp_path / "t/a.bin.zst", seekable(parts))
    compare(
        claims, interleaved, "framed zstd / zstandard a frame", path.parent, ids, lambda: _frames(path), dtype="uint16"
    )
