"""Shards in an object store: found, scanned by processes, read and verified, against a server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dataguard.corpus.build import build_manifest, build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.problems import RowProblem
from dataguard.corpus.verify import verify_shards
from tests.corpus.making import jsonl, npy, parquet
from tests.support.object_store import environment_of, object_store

for _name in ("s3fs", "moto", "flask", "flask_cors"):
    pytest.importorskip(_name, reason=f"{_name} is not installed; it comes with dataguard[test]")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    import s3fs

    with object_store() as (host, port):
        yield _filled(f"http://{host}:{port}", monkeypatch, tmp_path)
        s3fs.S3FileSystem.clear_instance_cache()


def _filled(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    import boto3

    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="data")
    texts = [f"row {i}" for i in range(200)]
    jsonl(tmp_path / "web/a.jsonl", texts)
    jsonl(tmp_path / "web/sub/b.jsonl.gz", texts)
    parquet(tmp_path / "web/c.parquet", texts, group=50)
    npy(tmp_path / "ids/t.npy", range(1000))
    for path in tmp_path.rglob("*.*"):
        client.upload_file(str(path), "data", str(path.relative_to(tmp_path)))
    client.put_object(Bucket="data", Key="web/_SUCCESS", Body=b"")
    return "s3://data"


def test_an_object_store_is_a_source_like_any_other(bucket: str, tmp_path: Path) -> None:
    sources = [f"{bucket}/web", f"{bucket}/ids/*.npy"]
    options = ScanOptions(block_bytes=500)
    result, _ = build_manifest_file(sources, tmp_path / "M.parquet", options=options, num_workers=2)
    local = build_manifest([f"{tmp_path}/web", f"{tmp_path}/ids"], options=options)
    assert result.manifest == local.manifest
    assert [(item.path, item.reason) for item in result.ignored] == [("_SUCCESS", "marker")]
    corpus = Corpus.open(tmp_path / "M.parquet")
    manifest = corpus.manifest
    text = manifest.blocks[manifest.blocks_of(1).start :]
    blocks = np.repeat(np.arange(len(text)), text["num_rows"]) + manifest.blocks_of(1).start
    rows = np.concatenate([np.arange(block["num_rows"]) + block["first_row"] for block in text])
    with corpus.reader(threads=2, cache_folder=str(tmp_path / "cache"), sleep=lambda _: None) as reader:
        assert reader.read(blocks, rows) == [f"row {i}".encode() for i in range(200)] * 3
        ids, problems = reader.read_windows([0], [3], 100)
        assert (ids.tolist(), problems) == ([list(range(300, 400))], {})
    assert {check.state for check in verify_shards(corpus)} == {"same"}

    import fsspec

    system = fsspec.filesystem("s3")
    system.pipe_file("data/web/a.jsonl", (tmp_path / "web/a.jsonl").read_bytes().replace(b"row 7", b"row 8", 1))
    system.rm("data/web/c.parquet")
    states = {check.shard: check.state for check in verify_shards(Corpus.open(tmp_path / "M.parquet"))}
    assert states == {
        "ids/t.npy": "same",
        "web/a.jsonl": "changed",
        "web/c.parquet": "missing",
        "web/sub/b.jsonl.gz": "same",
    }
    with Corpus.open(tmp_path / "M.parquet").reader(cache_folder="", sleep=lambda _: None) as reader:
        (problem,) = reader.read([int(blocks[7])], [7])
        assert isinstance(problem, RowProblem)
        assert problem.kind == "changed"
