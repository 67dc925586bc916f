"""Memory: bounded by a few tasks a worker, not by the corpus; and a disk that is really full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit.making import PROSE
from tests.corpus.making import jsonl
from tests.support.processes import environment

_CHILD = """
    import sys
    from functools import partial
    from pathlib import Path
    from dataguard.audit import duplicates, finish
    from dataguard.audit.engines.local import LocalEngine
    from dataguard.audit.run import AuditRequest, run_audit
    from dataguard.gate.policy import named_policy
    from tests.support.memory import peak_bytes

    # pieces as small against this corpus as the real ones are against a large one
    finish.DuplicateFinder = partial(duplicates.DuplicateFinder, run_samples=1 << 14, merge_bytes=1 << 20)
    for name in ("warm", sys.argv[1]):
        out = Path(sys.argv[2], f"{name}.out.{sys.argv[1]}")
        path, policy = str(Path(sys.argv[2], name)), named_policy("gopher")
        request = AuditRequest(paths=(path,), out=out, policy=policy, task_bytes=1 << 20)
        before = peak_bytes()
        summary = run_audit(request, LocalEngine(2))
    print(summary.account.scored, peak_bytes() - before)
"""


def _grown(folder: Path, name: str) -> tuple[int, int]:
    words = [sys.executable, "-c", textwrap.dedent(_CHILD), name, str(folder)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    scored, grown = map(int, done.stdout.split())
    return scored, grown


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Three times the records: 100,000 of them take no more than 40 MB beyond what 33,000 take."""
    jsonl(tmp_path / "warm/a.jsonl", PROSE)
    records = [f"{i} {PROSE[i % 400]}" for i in range(33_333)]
    for name, times in (("one", 1), ("three", 3)):
        for part in range(times):
            jsonl(tmp_path / name / f"{part}.jsonl.zst", records)
    (scored, grown), (scored_more, grown_more) = _grown(tmp_path, "one"), _grown(tmp_path, "three")
    assert (scored, scored_more) == (33_333, 99_999)
    assert grown_more < grown + (40 << 20)
    assert grown_more < 300 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small disk; a limit on file sizes is tested in test_resume.py")
    words = [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(where)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_is_named_and_with_more_room_it_goes_on(small_disk: Path, tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl.zst", [f"{i} {PROSE[i % 400]}" for i in range(12_000)])
    words = [sys.executable, "-m", "dataguard", "audit", str(tmp_path / "web"), "-o", str(small_disk / "A"), "--json"]
    settings: dict[str, Any] = {"env": environment(), "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(words, check=False, **settings)
    assert done.returncode == 4, done.stderr
    assert "No space left on device" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    done = subprocess.run([*words, "--resume"], check=False, **settings)
    assert done.returncode in (0, 1), done.stderr
    assert (small_disk / "A/summary.json").exists()
