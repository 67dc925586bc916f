"""What does a scan of text cost beside the way people read it, where documents are files, members or samples?

    pytest tests/bench/bench_text_formats.py --benchmark-enable

The same documents of 7 kB in each, read once through in one process, as bench_formats.py does it for lines and columns:

- plain text: ``open().read()``, a file a document;
- WebDataset, a ``txt`` and a ``json`` member a record: the reader of the `webdataset` package where that is installed,
  else `tarfile`, both of which give the bytes of every member; the text is decoded, as its users do;
- MDS with a column of text: `streaming.base.format.mds.MDSReader` where that is installed, else its published layout
  read with `struct`, a sample a record.

Ours is a whole scan: UTF-8, one text a record, limits, the digest of every block, and of MDS what its index says. The
others count what they have read.
"""

from __future__ import annotations

import importlib
import io
import json
import struct
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.formats import ScanEnd, ScanOptions, by_name
from dataguard.corpus.shard_file import ByteCounter, StoredShard
from dataguard.corpus.storage import LocalRoot
from tests.bench.bench_formats import prose
from tests.bench.conftest import Claims, Interleaved
from tests.corpus.formats.archives import webdataset
from tests.corpus.making import mds_entry, mds_index, mds_shard, put


@pytest.fixture
def texts(measured: bool) -> list[str]:
    return prose()[: 2_000 if measured else 20]


def scan(kind: str, path: Path) -> int:
    """Bytes of text in a whole scan of one shard."""
    shard = StoredShard(
        LocalRoot(str(path.parent)), name=path.name, path=path.name, size_bytes=path.stat().st_size,
        compression="none", counter=ByteCounter(),
    )  # fmt: skip
    *blocks, end = by_name(kind).scan(shard, ScanOptions())
    assert isinstance(end, ScanEnd)
    assert not end.findings
    return sum(block.content_bytes for block in blocks)  # type: ignore[union-attr]


def compare(
    claims: Claims, interleaved: Interleaved, name: str, num_bytes: int, ours: Callable[[], int],
    theirs: Callable[[], int],
) -> None:  # fmt: skip
    found = set()
    turns = interleaved(
        {"ours": lambda: found.add(ours()), "theirs": lambda: found.add(theirs())}, rounds=9, clock=time.process_time
    )
    assert found == {num_bytes}
    claims(
        name, turns.ratio("ours", "theirs"), detail=f"{num_bytes / turns.seconds_of('ours') / 1e6:,.0f} MB/s of text"
    )


def _bytes_of(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def test_plain_text(tmp_path: Path, claims: Claims, interleaved: Interleaved, texts: list[str]) -> None:
    paths = [put(tmp_path / f"{number:05}.txt", text.encode()) for number, text in enumerate(texts)]

    def read(path: Path) -> int:
        with path.open(encoding="utf-8", newline="") as file:
            return len(file.read().encode())

    compare(
        claims, interleaved, "plain text files / open().read()", _bytes_of(texts),
        lambda: sum(scan("text", path) for path in paths), lambda: sum(map(read, paths)),
    )  # fmt: skip


def _by_tarfile(path: Path) -> Iterator[bytes]:
    with tarfile.open(path, "r|") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name.endswith(".txt"):
                yield content


def _by_webdataset(tariterators: Any, path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        for record in tariterators.group_by_keys(files):
            yield record["txt"]


def test_webdataset(tmp_path: Path, claims: Claims, interleaved: Interleaved, texts: list[str]) -> None:
    records = {
        f"{number:06}": {"json": json.dumps({"id": number}).encode(), "txt": text.encode()}
        for number, text in enumerate(texts)
    }
    path = put(tmp_path / "a.tar", webdataset(records))
    try:
        read: Callable[[Path], Iterator[bytes]] = _reader_of(importlib.import_module("webdataset.tariterators"))
        name = "webdataset"
    except ImportError:
        read, name = _by_tarfile, "tarfile"
    compare(
        claims, interleaved, f"WebDataset / {name}", _bytes_of(texts), lambda: scan("webdataset", path),
        lambda: sum(len(content.decode().encode()) for content in read(path)),
    )  # fmt: skip


def _reader_of(tariterators: Any) -> Callable[[Path], Iterator[bytes]]:
    return lambda path: _by_webdataset(tariterators, path)


def _by_layout(path: Path) -> Iterator[str]:
    """Offsets, then a seek and a read a sample, whose one column has its size before it: as the library reads it."""
    with path.open("rb") as file:
        (count,) = struct.unpack("<I", file.read(4))
        offsets = struct.unpack(f"<{count + 1}I", file.read(4 * (count + 1)))
    for number in range(count):
        with path.open("rb", 0) as file:  # the library opens its shard for every sample
            file.seek(offsets[number])
            sample = io.BytesIO(file.read(offsets[number + 1] - offsets[number]))
        (size,) = struct.unpack("<I", sample.read(4))
        yield sample.read(size).decode()


@pytest.mark.parametrize("peer", ["mosaicml-streaming", "its layout"])
def test_mds(tmp_path: Path, claims: Claims, interleaved: Interleaved, texts: list[str], peer: str) -> None:
    content = mds_shard({"text": ("str", None)}, [{"text": text.encode()} for text in texts])
    path = put(tmp_path / "shard.00000.mds", content)
    entry = mds_entry(path.name, content, column_names=["text"], column_encodings=["str"], column_sizes=[None],
                      samples=len(texts), size_limit=1 << 26, hashes=[])  # fmt: skip
    put(path.with_name("index.json"), mds_index(entry))
    if peer == "its layout":
        read: Callable[[], Iterator[str]] = lambda: _by_layout(path)  # noqa: E731
    else:
        reader = pytest.importorskip("streaming.base.format.mds.reader", reason="mosaicml-streaming is not installed")

        def read() -> Iterator[str]:
            told = json.loads(path.with_name("index.json").read_bytes())["shards"][0]
            shard = reader.MDSReader.from_json(str(path.parent), None, told)
            return (shard[number]["text"] for number in range(len(texts)))

    compare(
        claims, interleaved, f"MDS texts / {peer}", _bytes_of(texts), lambda: scan("mds", path),
        lambda: sum(len(text.encode()) for text in read()),
    )  # fmt: skip
