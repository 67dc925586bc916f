"""What does reading a format cost beside the library that people read it with, validation and digests included?

    pytest tests/bench/bench_formats.py --benchmark-enable

The same documents in each format, read once through in one process: JSON lines against `orjson` line by line (whose
text is encoded again, as what is delivered is bytes), plain and through the decompressor that people put before it;
Parquet and Arrow against pyarrow, row group by row group and batch by batch, which validates the column it has read,
UTF-8 included, and verifies Parquet's page checksums. Ours is a whole scan: UTF-8, one text a record, limits, the
digest of every block.

Compiled kernels are loaded before the first round, as they are in a scan of more than 64 MB of JSON lines or 1 GB of
columns; what smaller scans do is in the rows that say so, which have no target.
"""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dataguard.corpus.formats import ScanEnd, ScanOptions, bulk_lines, by_name, valid_text
from dataguard.corpus.formats.bulk_lines import LineKernel
from dataguard.corpus.formats.valid_text import Utf8Kernel
from dataguard.corpus.shard_file import ByteCounter, StoredShard
from dataguard.corpus.storage import LocalRoot
from tests.bench.conftest import Claims, Interleaved

WORDS = ["alpha", "beta", "gamma", "delta\n", "epsilon", 'quoted "zeta"', "eta", "theta", "\u03b9\u03ce\u03c4\u03b1"]
NUM_DOCUMENTS = 4_000


@pytest.fixture(params=[True, False], ids=["kernels", "none"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the compiled kernels are loaded, as in a large scan, or never will be, as in a small one."""
    is_large = bool(request.param)
    for module, kernel in ((bulk_lines, LineKernel), (valid_text, Utf8Kernel)):
        monkeypatch.setattr(module.SHORTCUT, "loaded", kernel() if is_large else None)
        monkeypatch.setattr(module.SHORTCUT, "_make", None)
    return is_large


def documents(words_of_document: int) -> list[str]:
    """Ordinary texts: a line feed or a quote every few words, now and then a letter that is not ASCII."""
    dice = np.random.default_rng(5)
    return [
        " ".join(np.array(WORDS)[dice.integers(0, len(WORDS), words_of_document)].tolist())
        for _ in range(NUM_DOCUMENTS)
    ]


def prose() -> list[str]:
    """Texts as web pages have them, 7 kB each: paragraphs of 80 words, a curly quote and a straight one in each."""
    paragraph = " ".join(["ordinary", "words", "of", "a", "page"] * 16) + ' \u2019 and a "quote".\n'
    return [f"{number} " + paragraph * 14 for number in range(NUM_DOCUMENTS // 2)]


def scan(kind: str, path: Path) -> int:
    """Bytes of text in a whole scan."""
    compression: Any = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix, "none")
    shard = StoredShard(
        LocalRoot(str(path.parent)), name=path.name, path=path.name, size_bytes=path.stat().st_size,
        compression=compression, counter=ByteCounter(),
    )  # fmt: skip
    *blocks, end = by_name(kind).scan(shard, ScanOptions())
    assert isinstance(end, ScanEnd)
    assert not end.findings
    return sum(block.content_bytes for block in blocks)  # type: ignore[union-attr]


def by_orjson(path: Path) -> int:
    with path.open("rb") as file:
        lines: Any = file
        if path.suffix == ".gz":
            lines = gzip.GzipFile(fileobj=file)
        elif path.suffix == ".zst":
            lines = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file), 1 << 20)
        return sum(len(orjson.loads(line)["text"].encode()) for line in lines)


def by_parquet(path: Path) -> int:
    file = pq.ParquetFile(path, page_checksum_verification=True)
    groups = range(file.num_row_groups)
    return sum(_bytes(file.read_row_group(group, columns=["text"], use_threads=False).column(0)) for group in groups)


def by_arrow(path: Path) -> int:
    told = pa.ipc.IpcReadOptions(included_fields=[0], use_threads=False)
    with path.open("rb") as file, pa.ipc.open_stream(file, options=told) as reader:
        return sum(_bytes(batch.column(0)) for batch in reader)


def _bytes(column: Any) -> int:
    column.validate(full=True)
    wide = column.cast(pa.large_binary())
    chunks = wide.chunks if isinstance(wide, pa.ChunkedArray) else [wide]
    bounds = [np.frombuffer(chunk.buffers()[1], np.int64, len(chunk) + 1, 8 * chunk.offset) for chunk in chunks]
    return sum(int(offsets[-1] - offsets[0]) for offsets in bounds)


@pytest.mark.parametrize("words", [40, 400, 4_000, 0], ids=["40 words", "400 words", "4000 words", "pages"])
def test_json_lines(tmp_path: Path, claims: Claims, interleaved: Interleaved, words: int, kernels: bool) -> None:
    texts = documents(words)[: NUM_DOCUMENTS * 400 // max(words, 400)] if words else prose()
    path = tmp_path / "a.jsonl"
    path.write_bytes(_lines(texts))
    what = f"JSON lines of {words} words" if words else "JSON lines of web pages"
    _compare(claims, interleaved, f"{what} / orjson", "jsonl", path, by_orjson, is_large=kernels)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_json_lines(tmp_path: Path, claims: Claims, interleaved: Interleaved, suffix: str) -> None:
    for module, kernel in ((bulk_lines, LineKernel), (valid_text, Utf8Kernel)):
        module.SHORTCUT.loaded = module.SHORTCUT.loaded or kernel()
    content = _lines(documents(400))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(gzip.compress(content, 6) if suffix == ".gz" else zstandard.ZstdCompressor(3).compress(content))
    _compare(claims, interleaved, f"JSON lines of 400 words, {suffix[1:]} / orjson", "jsonl", path, by_orjson)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_columns(tmp_path: Path, claims: Claims, interleaved: Interleaved, compression: str, kernels: bool) -> None:
    table = pa.table({"text": documents(400), "id": range(NUM_DOCUMENTS)})
    path = tmp_path / "a.parquet"
    pq.write_table(
        table, path, row_group_size=1000, compression=compression, write_page_checksum=True, use_dictionary=False
    )
    _compare(claims, interleaved, f"Parquet, {compression} / pyarrow", "parquet", path, by_parquet, is_large=kernels)
    sink = io.BytesIO()
    codec = None if compression == "none" else compression
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=1000)
    path = tmp_path / "a.arrow"
    path.write_bytes(sink.getvalue())
    _compare(claims, interleaved, f"Arrow, {compression} / pyarrow", "arrow", path, by_arrow, is_large=kernels)


def _lines(texts: list[str]) -> bytes:
    lines = [json.dumps({"id": i, "text": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    return ("\n".join(lines) + "\n").encode()


def _compare(
    claims: Claims, interleaved: Interleaved, name: str, kind: str, path: Path, theirs: Callable[[Path], int], *,
    is_large: bool = True,
) -> None:  # fmt: skip
    found = set()
    turns = interleaved(
        {"ours": lambda: found.add(scan(kind, path)), "theirs": lambda: found.add(theirs(path))},
        rounds=9, clock=time.process_time,
    )  # fmt: skip
    assert len(found) == 1
    speed = path.stat().st_size / turns.seconds_of("ours") / 1e6
    ratio = turns.ratio("ours", "theirs")
    if is_large:
        claims(name, ratio, target=1.15, detail=f"{speed:,.0f} MB/s")
    else:
        claims(f"{name}, no kernel", ratio, detail=f"{speed:,.0f} MB/s")
