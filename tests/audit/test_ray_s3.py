"""An object store read by the workers of a cluster that begins and ends with the audit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from tests.audit.far import bucket_behind
from tests.audit.making import contents, corpus
from tests.audit.ray_cluster import ray_environment

for _name in ("ray", "s3fs", "moto", "flask", "flask_cors"):
    pytest.importorskip(_name, reason=f"{_name} is not installed; it comes with dataguard[test]")


def test_workers_read_from_an_object_store_whose_line_fails_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bucket_behind(monkeypatch, corpus(tmp_path / "in")) as line, ray_environment() as env:
        options = ScanOptions(block_bytes=1000, block_tokens=100)
        build_manifest_file(["s3://data/web", "s3://data/ids"], tmp_path / "M", options=options, num_workers=1)
        answers = []
        for engine in ("local", "ray"):
            line.fails = engine == "ray"
            words = [sys.executable, "-W", "error", "-m", "tests.audit.ray_run", str(tmp_path / engine), "--", "audit"]
            words += [str(tmp_path / "M"), "-o", str(tmp_path / engine / "out"), "--workers", "2", "--json"]
            (tmp_path / engine).mkdir()
            done = subprocess.run(
                [*words, "--engine", engine], env=env, capture_output=True, text=True, timeout=240, check=False
            )
            assert done.returncode == 1, done.stderr
            answers.append(done.stdout)
        assert len(line.failures) >= 2, "some reads failed once, by an answer and in the midst of one"
    assert (tmp_path / "ray/done").exists(), "it was Ray's workers that scored"
    assert not (tmp_path / "local/done").exists()
    assert answers[0] == answers[1]
    assert contents(tmp_path / "local/out") == contents(tmp_path / "ray/out")
