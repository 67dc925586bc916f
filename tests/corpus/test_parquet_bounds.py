"""Parquet files that decode to too much: told by what pages say, at the scan and by a loader, before it is decoded."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import BlockPlace, Parquet, ScanOptions, parquet_limits
from dataguard.corpus.formats.parquet_footer import chunks_in, footer_of, page_bytes
from dataguard.errors import ShardDamaged
from tests.corpus.formats.support import MemoryShard, look
from tests.corpus.making import parquet, put

ROOT = Path(__file__).parents[2]
LIMITS: dict[str, Any] = {"max_expansion": 100, "free_expansion_bytes": 16 << 20}
SIZE = 300 << 20


def _varint(value: int, length: int) -> bytes:
    """A whole number as Thrift writes it, in as many bytes as that."""
    value <<= 1
    out = bytearray()
    while len(out) < length:
        out.append(value & 127 | 128)
        value >>= 7
    out[-1] &= 127
    return bytes(out)


def lying_bomb(size: int = SIZE) -> bytes:
    """One page that decompresses to `size` bytes, under a footer that says 1,000."""
    sink = io.BytesIO()
    table = pa.table({"text": pa.array(["x" * size], pa.large_string())})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    content = sink.getvalue()
    ((chunk,),) = chunks_in(footer_of(sink))
    assert chunk.decoded_bytes > size
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    told = next(_varint(chunk.decoded_bytes, n) for n in range(1, 10) if chunk.decoded_bytes < 1 << 7 * n - 1)
    footer = content[start:].replace(told, _varint(1_000, len(told)))
    assert footer != content[start:]
    return content[:start] + footer


def test_what_pages_say_is_added_up() -> None:
    sink = io.BytesIO()
    texts = [f"{i} " * 50 for i in range(5_000)]
    pq.write_table(
        pa.table({"id": list(range(5_000)), "text": texts}), sink, compression="zstd", data_page_size=10_000,
        use_dictionary=False, row_group_size=2_000, write_batch_size=100,
    )  # fmt: skip
    for group in chunks_in(footer_of(sink)):
        for chunk in group:
            total = page_bytes(sink, chunk, most_bytes=1 << 40)
            assert 0.95 * chunk.decoded_bytes < total <= chunk.decoded_bytes  # headers are no part of it
            if chunk.name == "text":  # of many pages, and counting stops where it is enough
                assert total > page_bytes(sink, chunk, most_bytes=total // 2) > total // 2


def test_headers_with_long_statistics_are_read_whole() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * 9_000, "y" * 9_000]}), sink, use_dictionary=False)
    ((chunk,),) = chunks_in(footer_of(sink))
    assert page_bytes(sink, chunk, most_bytes=1 << 40) >= 18_000


@pytest.mark.parametrize("at", range(40))
def test_any_page_header_is_survived(at: int) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["some text", "more"]}), sink)
    ((chunk,),) = chunks_in(footer_of(sink))
    for value in (0, 0x15, 0x7F, 0xFF):
        changed = bytearray(sink.getvalue())
        changed[chunk.start_bytes + at] = value
        assert page_bytes(io.BytesIO(bytes(changed)), chunk, most_bytes=1 << 40) >= 0


def test_a_footer_that_lies_is_found_out_without_decoding_a_page(tmp_path: Path) -> None:
    bomb = lying_bomb()
    assert len(bomb) < 200_000
    seen = look(Parquet(), MemoryShard(bomb, "x.parquet"), **LIMITS)  # as if it lay far away: taken at once
    assert (seen.effect, seen.codes) == ("excluded", ["expands-too-much"])
    assert "by the headers of its pages" in seen.end.findings[0].detail
    put(tmp_path / "web/x.parquet", bomb)
    parquet(tmp_path / "new/x.parquet", ["a", "b"])
    build_manifest_file([f"{tmp_path}/new"], tmp_path / "M.parquet", options=ScanOptions(**LIMITS))
    put(tmp_path / "new/x.parquet", bomb)  # since the scan
    script = """
        import sys
        import dataguard.corpus.formats.registry
        from dataguard.corpus.build import build_manifest
        from dataguard.corpus.corpus import Corpus
        from dataguard.corpus.formats import ScanOptions
        from tests.support.memory import peak_bytes
        before = peak_bytes()
        options = ScanOptions(max_expansion=100, free_expansion_bytes=16 << 20)
        result = build_manifest([sys.argv[1]], options=options, num_workers=1)
        print(result.account.total("num_excluded"))
        with Corpus.open(sys.argv[2]).reader() as reader:
            (problem,) = reader.read([0], [0])
        print(problem.kind)
        print(peak_bytes() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "web"), str(tmp_path / "M.parquet")],
        capture_output=True, check=True, timeout=120, cwd=ROOT, text=True,
    )  # fmt: skip
    num_excluded, kind, grown = done.stdout.split()
    assert (num_excluded, kind) == ("1", "changed")
    assert int(grown) < 100 << 20 < SIZE


def test_a_loader_keeps_to_the_limits_too() -> None:
    """The file is as scanned but for its one page, which decodes to more than it may."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * 9_000_000]}), sink, compression="zstd", use_dictionary=False)
    shard, place = MemoryShard(sink.getvalue(), "x.parquet"), BlockPlace(first_row=0, num_rows=1, group=0)
    assert Parquet().read(shard, place, ScanOptions()).text is not None
    with pytest.raises(ShardDamaged, match="expands too much"):
        Parquet().read(shard, place, ScanOptions(max_expansion=10, free_expansion_bytes=1 << 20))
    assert Parquet().read(shard, place, ScanOptions()).text is not None


def test_rows_by_the_million_that_store_nothing_are_told() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": pa.nulls(3_000_000, pa.string())}), sink, row_group_size=3_000_000)
    assert len(sink.getvalue()) < 10_000
    seen = look(Parquet(), MemoryShard(sink.getvalue(), "x.parquet"), **LIMITS)
    assert (seen.effect, seen.codes) == ("excluded", ["expands-too-much"])


def test_a_row_group_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet(tmp_path / "web/a.parquet", [f"text {i}" for i in range(40)], group=10)
    build_manifest_file([f"{tmp_path}/web"], tmp_path / "M.parquet")
    looks: list[int] = []

    def count(*_: object, **__: object) -> int:
        looks.append(1)
        return 0

    monkeypatch.setattr(parquet_limits, "page_bytes", count)
    put(tmp_path / "web/a.parquet", (tmp_path / "web/a.parquet").read_bytes())  # another inode: nothing is known of it
    with Corpus.open(tmp_path / "M.parquet").reader(cache_bytes=0) as reader:
        for _ in range(3):
            assert reader.read([0, 1], [0, 10]) == [b"text 0", b"text 10"]
    assert len(looks) == 2


def test_looking_at_headers_leaves_what_is_read_next_as_it_is(tmp_path: Path) -> None:
    """The headers are read beneath the file's buffer, which must not notice: whatever is read next, from any place."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{i} " * 400 for i in range(400)]}), path, row_group_size=100)
    content = path.read_bytes()
    with path.open("rb") as file:
        chunks = chunks_in(footer_of(file))
        for group in chunks:
            for start in (0, 100, 5_000, len(content) // 2):
                file.seek(start)
                file.read(50)
                page_bytes(file, group[0], most_bytes=1 << 40)
                file.seek(start + 60)  # within what the buffer holds
                assert file.read(20_000) == content[start + 60 : start + 60 + 20_000]
