"""Memory of a scan and of a read: four times the largest record and a fixed budget, in every container."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpus.formats.archives import webdataset
from tests.corpus.formats.framing import pieces, zstd_frame, zstd_frames
from tests.corpus.making import mds_texts, put

ROOT = Path(__file__).parents[2]
BUDGET_BYTES = 128 << 20
"""As the README has it."""

# One case after the other, each in a process forked from one that has loaded everything: its peak begins anew.
MEASURE = """
    import json, os, sys
    import dataguard.corpus.formats.registry
    import pyarrow.compute, pyarrow.parquet
    from dataguard.corpus.build import build_manifest
    from dataguard.corpus.corpus import Corpus
    from dataguard.corpus.formats import bulk_lines, valid_text
    from tests.support.memory import peak_bytes

    for shortcut in (bulk_lines.SHORTCUT, valid_text.SHORTCUT):
        shortcut._make = None  # the kernels have a budget of their own

    def measure(path):
        before = peak_bytes()
        result = build_manifest(["x=" + path], num_workers=1)
        built = peak_bytes() - before
        corpus = Corpus(manifest=result.manifest, roots=result.roots, options={"x": result.options})
        with corpus.reader(cache_folder="", cache_bytes=1) as reader:
            assert isinstance(reader.read([0], [0])[0], bytes)
        return [result.account.total("num_delivered"), built, peak_bytes() - before]

    for path in sys.argv[1:]:
        child = os.fork()
        if not child:
            print(json.dumps([path, *measure(path)]), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, path
"""


def grown(paths: Sequence[Path]) -> dict[str, tuple[int, int, int]]:
    """Records, and bytes by which memory grew in a scan, and in a scan and a read, by name of the file."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), *map(str, paths)],
        capture_output=True, check=True, timeout=900, cwd=ROOT,
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {Path(path).name: (records, built, read) for path, records, built, read in told}


def lines(texts: Sequence[bytes]) -> bytes:
    return b"".join(b'{"text":"\\n%b"}\n' % text for text in texts)


def arrow(
    texts: Sequence[bytes], *, is_file: bool = True, kind: pa.DataType | None = None, compression: str | None = None,
    rows: int = 1000,
) -> bytes:  # fmt: skip
    sink = io.BytesIO()
    values = [[text.decode()] if kind is not None and pa.types.is_list(kind) else text.decode() for text in texts]
    schema = pa.schema([("text", kind or pa.string())])
    make = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with make(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for start in range(0, len(values), rows):  # each with buffers of its own
            column = pa.array(values[start : start + rows], schema.field(0).type)
            writer.write_batch(pa.record_batch([column], schema=schema))
    return sink.getvalue()


def parquet(texts: Sequence[bytes], *, compression: str = "none", rows: int = 1000) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"text": [text.decode() for text in texts]}), sink, compression=compression, row_group_size=rows
    )
    return sink.getvalue()


def mds(texts: Sequence[bytes]) -> bytes:
    return mds_texts([text.decode() for text in texts])


def tar(texts: Sequence[bytes], ending: str = "txt") -> bytes:
    pack = {"txt": bytes, "json": lambda text: lines([text]), "txt.gz": gzip.compress}[ending]
    return webdataset({f"{number:06}": {ending: pack(text)} for number, text in enumerate(texts)})


CONTAINERS: dict[str, Callable[[Sequence[bytes]], bytes]] = {
    "a.jsonl": lines,
    "b.jsonl.gz": lambda texts: gzip.compress(lines(texts), 1),
    "c.jsonl.zst": lambda texts: zstd_frame(lines(texts)),
    "frames.jsonl.zst": lambda texts: zstd_frames(pieces(lines(texts), range(0, 400 << 20, 1 << 20))),
    "a.parquet": parquet,
    "b.parquet": lambda texts: parquet(texts, compression="zstd"),
    "file.arrow": arrow,
    "stream.arrow": lambda texts: arrow(texts, is_file=False),
    "zstd.arrow": lambda texts: arrow(texts, compression="zstd"),
    "view.arrow": lambda texts: arrow(texts, kind=pa.string_view()),
    "list.arrow": lambda texts: arrow(texts, kind=pa.list_(pa.string())),
    "a.mds": mds,
    "b.mds.zstd": lambda texts: zstd_frame(mds(texts)),
    "a.tar": tar,
    "b.tar.gz": lambda texts: gzip.compress(tar(texts), 1),
    "json.tar": lambda texts: tar(texts, "json"),
    "packed.tar": lambda texts: tar(texts, "txt.gz"),
}


def made(folder: Path, texts: Sequence[bytes]) -> list[Path]:
    return [put(folder / name, make(texts)) for name, make in CONTAINERS.items()]


def test_one_large_record_takes_four_times_its_size_and_the_budget(tmp_path: Path) -> None:
    size = 24 << 20
    found = grown(made(tmp_path, [b"word " * (size // 5)]))
    assert set(found) == set(CONTAINERS)
    too_much = {name: growth for name, growth in found.items() if max(growth[1:]) > 4 * size + BUDGET_BYTES}
    assert not too_much
    assert {records for records, *_ in found.values()} == {1}


@pytest.mark.long
def test_many_small_records_take_the_budget_and_not_the_size_of_the_file(tmp_path: Path) -> None:
    """160 MB of records of 2 kB, in batches and row groups of 2 MB."""
    letters = np.random.default_rng(1).integers(97, 123, (80_000, 2_000), dtype=np.uint8)
    found = grown(made(tmp_path, [bytes(row) for row in letters]))
    too_much = {name: growth for name, growth in found.items() if max(growth[1:]) > BUDGET_BYTES}
    assert not too_much
    assert {records for records, *_ in found.values()} == {80_000}


def test_a_row_group_or_batch_counts_as_one_record(tmp_path: Path) -> None:
    letters = np.random.default_rng(1).integers(97, 123, (10_000, 4_000), dtype=np.uint8)
    texts = [bytes(row) for row in letters]
    paths = [
        put(tmp_path / "a.parquet", parquet(texts, rows=1 << 20)),
        put(tmp_path / "a.arrow", arrow(texts, rows=1 << 20)),
        put(tmp_path / "list.arrow", arrow(texts, rows=1 << 20, kind=pa.list_(pa.string()))),
    ]
    found = grown(paths)
    assert not {name: growth for name, growth in found.items() if max(growth[1:]) > 4 * letters.size + BUDGET_BYTES}
