"""K15, what a command says of its result: a reader that has gone, a part that failed, an answer that is nothing.

Cases G29 and G30, through ``dataguard audit``.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.corpus.making import jsonl, put
from tests.support.commands import dataguard
from tests.support.processes import environment


def piped(words: str, *, cwd: Path) -> tuple[int, str, str]:
    """The exit code of the command itself, what `head -n 1` printed, and standard error."""
    command = f'{sys.executable} -m dataguard {words} | head -n 1; exit "${{PIPESTATUS[0]}}"'
    env = environment(PYTHONUNBUFFERED="1")
    done = subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_g29_a_reader_that_has_gone_is_no_failed_gate(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/rows.jsonl", [None] * 20_000)
    dataguard("manifest", "build", "web", "-o", "M", cwd=tmp_path)
    for words in ("manifest show M --rejected", "manifest show M --rejected --json"):
        code, out, err = piped(words, cwd=tmp_path)
        assert len(out.splitlines()) == 1
        assert "web/rows.jsonl" in out
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        assert code in (0, 141)


@pytest.mark.parametrize("json_too", [False, True])
def test_g29_an_audit_whose_reader_has_gone_is_no_failed_gate_either(tmp_path: Path, json_too: bool) -> None:
    texts = [f"word {row} of a record that is long enough to be no outlier" for row in range(300)]
    jsonl(tmp_path / "web/rows.jsonl", texts)
    code, out, err = piped(f"audit web -o A{' --json' if json_too else ''}", cwd=tmp_path)
    assert len(out.splitlines()) == 1
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert code in (0, 141)
    assert (tmp_path / "A/summary.json").exists()


def test_g30_a_shard_that_fails_is_named_and_the_exit_code_says_so(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/good.jsonl", [f"good record {row}, as good as any other" for row in range(10)])
    put(tmp_path / "web/bad.jsonl.gz", b"this is plain text under a name that says otherwise\n" * 3)
    for words in (["--json"], []):
        out = tmp_path / f"A{len(words)}"
        done = dataguard("audit", tmp_path / "web", "-o", out, *words, code=3)
        summary = json.loads((out / "summary.json").read_bytes())
        if words:
            assert json.loads(done.stdout) == summary
        else:
            assert "web/bad.jsonl.gz" in done.stdout
            assert done.stdout.startswith("FAIL")
        assert summary["account"]["scored"] == summary["account"]["records"] == 10
        assert summary["verdict"] == "fail"
        (damaged,) = summary["shards"]["damaged"]
        assert damaged["shard"] == "web/bad.jsonl.gz"
        assert damaged["codes"] == ["bad-stream-header"]
        assert summary["shards"]["total"] == 2
        assert pq.read_table(out / "signals").num_rows == 10


def test_what_is_cut_short_is_scored_up_to_there_and_is_no_success(tmp_path: Path) -> None:
    lines = b"".join(b'{"text": "record %d of the shard that is cut"}\n' % row for row in range(50))
    packed = gzip.compress(lines, compresslevel=0)
    put(tmp_path / "web/cut.jsonl.gz", packed[: len(packed) // 2])
    done = dataguard("audit", tmp_path / "web", "-o", tmp_path / "A", "--json", code=3)
    summary = json.loads(done.stdout)
    assert 10 < summary["account"]["scored"] < 50
    assert summary["shards"]["damaged"][0]["effect"] == "flagged"


def test_standard_output_holds_the_document_and_nothing_else(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one record that stands for all of them"] * 5)
    done = dataguard("audit", tmp_path / "web", "-o", tmp_path / "A", "--json", code=0)
    document = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert document["verdict"] == "pass"
    assert set(document["account"]) >= {"records", "scored", "rejected", "unreadable"}
    assert document["shards"]["damaged"] == []
    for rule in document["rules"]:
        assert set(rule) >= {"rule", "signal", "action", "evaluated", "fired", "skipped"}


def test_an_audit_that_cannot_be_answered_is_a_failure_of_the_environment(tmp_path: Path) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one record that stands for all of them"] * 5)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dataguard", "audit", "web", "-o", "A", "--json"],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 4, done.stderr
    assert "No space left" in done.stderr
