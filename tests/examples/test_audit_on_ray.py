"""The example audits by threads and by a Ray cluster of its own, and finds the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dataguard.audit import read_summary
from tests.architecture.tree import TOP
from tests.audit.making import contents
from tests.audit.ray_cluster import ray_environment

pytest.importorskip("ray", reason="ray is not installed; it comes with dataguard[ray]")


def test_both_engines_find_the_bad_shard_and_write_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(TOP / "examples" / "audit_on_ray.py"), str(tmp_path / "new")]
    with ray_environment() as env:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    threads, ray, reason, worst, equal = done.stdout.splitlines()
    assert threads == "threads: 420 records scored, verdict fail"
    assert ray == threads.replace("threads", "ray")
    assert re.fullmatch(r"rule byte_periods fired on \d+ of 420 \(.*%\), allowed is 0.1000%", reason)
    assert worst == "the worst shard is python/part-3.jsonl"
    assert equal == "both audits are equal to the byte"
    by_threads, by_ray = tmp_path / "new" / "threads", tmp_path / "new" / "ray"
    assert contents(by_threads) == contents(by_ray)
    assert read_summary(by_ray / "summary.json").worst_shards[0].withheld >= 20
