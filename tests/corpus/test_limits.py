"""Limits: each told by name, kept in the manifest, the same for reading, and in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.cli.main import main
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import BlockPlace, JsonLines, Parquet, ScanOptions
from dataguard.corpus.formats.protocol import MOST_DEPTH
from dataguard.corpus.manifest_read import read_findings
from tests.corpus.formats.archives import webdataset
from tests.corpus.formats.framing import gzip_member, zstd_frame
from tests.corpus.formats.support import MemoryShard, look
from tests.corpus.making import jsonl, put

ROOT = Path(__file__).parents[2]


def _deep(depth: int) -> bytes:
    return b'{"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b',"text":"kept"}\n'


@pytest.mark.parametrize("depth", [1, 2, 3, 511, 512, 513, MOST_DEPTH])
def test_nesting_up_to_the_limit_is_read(depth: int) -> None:
    line = b'{"text":"kept"}\n' if depth == 1 else _deep(depth)
    seen = look(JsonLines(), MemoryShard(line * 2), max_depth=depth)
    assert seen.rows == [b"kept"] * 2
    seen = look(JsonLines(), MemoryShard(_deep(depth + 1) + b'{"text":"other"}\n'), max_depth=depth)
    assert ([finding.code for finding in seen.rejected], seen.rows) == (["too-deep"], [None, b"other"])
    assert f"{depth:,}" in seen.rejected[0].detail


@pytest.mark.parametrize("pack", [gzip_member, zstd_frame])
def test_what_expands_too_much_is_excluded(pack: type) -> None:
    content = b'{"text":"%b"}\n' % (b"x" * 100_000) * 20
    packed = pack(content)
    assert len(packed) * 100 < len(content)
    assert len(look(JsonLines(), MemoryShard(packed)).documents) == 20
    for options in ({"max_expansion": 100, "free_expansion_bytes": len(content)}, {"max_expansion": 100_000}):
        assert look(JsonLines(), MemoryShard(packed), **options).effect == "clean"
    seen = look(JsonLines(), MemoryShard(packed), max_expansion=10, free_expansion_bytes=1_000)
    assert (seen.effect, seen.codes) == ("excluded", ["expands-too-much"])
    assert f"{len(packed):,} bytes decode to" in seen.end.findings[0].detail
    plain = look(JsonLines(), MemoryShard(content), max_expansion=1, free_expansion_bytes=1)
    assert plain.effect == "clean"


def test_limits_are_kept_in_the_manifest_and_reading_keeps_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "web/a.jsonl", b'{"text":"short"}\n{"text":"rather long"}\n' + _deep(9))
    told = ["--max-record-bytes", "24", "--max-depth", "4", "--max-expansion", "7", "--free-expansion-bytes", "99"]
    told += ["--max-window-bytes", "4096", "--max-members", "3"]
    # the lines are 17, 23 and 37 bytes long; a longer record is told before a deeper one
    assert main(["manifest", "build", "web", "-o", "M.parquet", *told]) == 0
    corpus = Corpus.open("M.parquet")
    options = corpus.options["web"]
    assert (options.max_record_bytes, options.max_depth, options.max_expansion) == (24, 4, 7)
    assert (options.free_expansion_bytes, options.max_window_bytes, options.max_members) == (99, 4096, 3)
    assert [entry.finding.code for entry in read_findings("M.parquet")] == ["record-too-large"]
    with corpus.reader() as reader:
        assert reader.read([0, 0], [0, 1]) == [b"short", b"rather long"]
        assert str(reader.read([0], [2])[0]).startswith("row 2 of shard web/a.jsonl is rejected")
    capfd.readouterr()
    assert main(["manifest", "build", "web", "-o", "M.parquet", "--max-depth", "901"]) == 2
    assert "900" in capfd.readouterr().err


def test_an_older_manifest_without_a_limit_has_the_default() -> None:
    assert ScanOptions(max_record_bytes=5).max_depth == ScanOptions().max_depth


def test_a_bomb_is_told_in_bounded_memory(tmp_path: Path) -> None:
    """2.1 GB of one line in 2 MB of gzip, and as zstd, within the memory of an ordinary build."""
    put(tmp_path / "web/bomb.jsonl.gz", gzip_member(bytes(100 << 20), level=9) * 21)
    put(tmp_path / "web/bomb.jsonl.zst", zstd_frame(bytes(1 << 29)) * 2)
    jsonl(tmp_path / "web/good.jsonl", ["one"])
    script = """
        import sys
        from dataguard.cli.main import main
        from tests.support.memory import peak_bytes
        code = main(["manifest", "build", sys.argv[1], "-o", sys.argv[2], "--json",
                     "--free-expansion-bytes", str(64 << 20)])
        print(peak_bytes(), file=sys.stderr)
        sys.exit(code)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "web"), str(tmp_path / "M.parquet")],
        capture_output=True, check=False, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert (document["num_excluded"], document["num_delivered"]) == (2, 1)
    assert {finding["code"] for finding in document["damaged"]} == {"expands-too-much"}
    assert int(done.stderr.splitlines()[-1]) < 500 << 20


def test_memory_follows_the_record_limit_and_not_the_stream(tmp_path: Path) -> None:
    """A line of 200 MB that may only be 1 MB long is passed over; it is not held."""
    packer = zlib.compressobj(9, wbits=31)
    piece = b"x" * (1 << 20)
    packed = packer.compress(b'{"text":"')
    packed += b"".join(packer.compress(piece) for _ in range(200)) + packer.compress(b'"}\n{"text":"after"}\n')
    put(tmp_path / "web/long.jsonl.gz", packed + packer.flush())
    script = """
        import sys
        from dataguard.corpus.build import build_manifest
        from tests.support.memory import peak_bytes
        from dataguard.corpus.formats import ScanOptions
        before = peak_bytes()
        result = build_manifest([sys.argv[1]], options=ScanOptions(max_record_bytes=1 << 20))
        print(result.account.total("num_delivered"), result.account.total("num_rejected"), result.num_damaged)
        print(peak_bytes() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "web")],
        capture_output=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    counts, grown = done.stdout.splitlines()
    assert counts == b"1 1 0"
    assert int(grown) < 100 << 20


def _dictionary_bomb(num_rows: int, value_bytes: int) -> bytes:
    sink = io.BytesIO()
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(num_rows, np.int32)), pa.array(["x" * value_bytes]))
    with pq.ParquetWriter(sink, pa.schema([("text", values.type)]), compression="zstd") as writer:
        writer.write_table(pa.table({"text": values}))
    return sink.getvalue()


def test_a_dictionary_that_many_rows_name_is_told_before_it_is_spelled_out() -> None:
    """20,000 rows of 100 kB each: 2 GB in a few hundred bytes."""
    bomb = _dictionary_bomb(20_000, 100_000)
    assert len(bomb) < 3_000
    seen = look(Parquet(), MemoryShard(bomb, "x.parquet"))
    assert (seen.effect, seen.codes) == ("excluded", ["expands-too-much"])
    assert "2,000,000,000 bytes" in seen.end.findings[0].detail
    small = _dictionary_bomb(3_000, 1_000)
    assert look(Parquet(), MemoryShard(small, "x.parquet"), free_expansion_bytes=1).effect == "excluded"
    seen = look(Parquet(), MemoryShard(small, "x.parquet"), free_expansion_bytes=1, max_expansion=1_000_000)
    assert (seen.effect, len(seen.documents)) == ("clean", 3_000)
    # read as a dictionary to be counted, and found to be harmless: the same as without a second look
    seen = look(Parquet(), MemoryShard(small, "x.parquet"), free_expansion_bytes=3_000_000)
    assert seen.documents == [b"x" * 1_000] * 3_000


def test_pages_that_decompress_to_too_much_are_told_by_the_footer() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * 9_000_000], "id": [1]}), sink, compression="zstd", use_dictionary=False)
    shard = MemoryShard(sink.getvalue(), "x.parquet")
    assert look(Parquet(), shard).effect == "clean"
    seen = look(Parquet(), shard, free_expansion_bytes=1 << 20, max_expansion=100)
    assert (seen.effect, seen.codes) == ("excluded", ["expands-too-much"])
    fields = Parquet().read(shard, BlockPlace(first_row=0, num_rows=1, group=0), ScanOptions(
        text_field="text", free_expansion_bytes=10_000_000), fields=True).fields  # fmt: skip
    assert fields is not None
    assert fields.to_pydict() == {"id": [1]}


def test_the_public_bomb_is_told(shared: Path, tmp_path: Path) -> None:
    """4,325 bytes of which one column is 2.1 GB: neither its own reading nor a preview beside it may decode that."""
    script = """
        import sys
        from dataguard.corpus.build import build_manifest
        from tests.support.memory import peak_bytes
        from dataguard.corpus.formats import ScanOptions
        for field in ("text", "arr.key_value.key", "arr"):
            result = build_manifest([sys.argv[1]], options=ScanOptions(text_field=field))
            (findings,) = result.details.shard_findings.values()
            print(result.num_damaged, findings[0].code)
        print(peak_bytes())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(shared / "data/broken/bomb")],
        capture_output=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    *told, peak = done.stdout.decode().splitlines()
    assert all(line.startswith("1 ") for line in told)
    assert int(peak) < 400 << 20


@pytest.mark.parametrize("how", ["text", "tar", "tar.gz", "member", "jsonl.gz", "parquet"])
def test_memory_for_one_large_record_is_below_four_times_its_size(tmp_path: Path, how: str) -> None:
    size = 40 << 20
    text = b"word " * (size // 5)
    path = tmp_path / "web" / f"x.{how}"
    if how == "parquet":
        put(path, b"")
        pq.write_table(pa.table({"text": [text.decode()]}), path)
    else:
        put(path, {
            "text": lambda: text,
            "tar": lambda: webdataset({"a": {"txt": text}}),
            "tar.gz": lambda: gzip.compress(webdataset({"a": {"txt": text}}), 1),
            "member": lambda: webdataset({"a": {"txt.gz": gzip.compress(text, 1)}}),
            "jsonl.gz": lambda: gzip.compress(b'{"text":"%b"}\n' % text, 1),
        }[how]())  # fmt: skip
    script = """
        import sys
        import dataguard.corpus.formats.registry
        from dataguard.corpus.build import build_manifest
        from dataguard.corpus.corpus import Corpus
        from tests.support.memory import peak_bytes
        before = peak_bytes()
        result = build_manifest(["x=" + sys.argv[1]], format_name=sys.argv[2], num_workers=1)
        corpus = Corpus(manifest=result.manifest, roots=result.roots, options={"x": result.options})
        with corpus.reader(cache_folder="") as reader:
            (text,) = reader.read([0], [0])
        print(len(text), peak_bytes() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path.parent), "text" if how == "text" else ""],
        capture_output=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    num_bytes, grown_bytes = map(int, done.stdout.split())
    assert num_bytes == len(text)
    assert grown_bytes < 4 * size + (64 << 20)
