"""Faults that users of other tools reported, each as a thing that an audit does not do."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataguard.audit.folder import AuditFolder
from dataguard.cli.main import main
from dataguard.corpus.manifest_read import read_findings
from dataguard.score.registry import SIGNALS
from tests.audit.making import PROSE, audit, rows_of, signals
from tests.corpus.making import jsonl, npy, put

ODD = [
    "buy now " * 40,
    "buy now",
    "This is a test.",
    "a " * 5000,
    "\n" * 300,
    "x" * 5000,
    "\x00" * 600,
    "<p>" * 400,
    "#" * 100,
    "...\n" * 50,
    "\ufffd" * 40,
    "1234567890" * 40,
    "一丁丂七丄" * 30,
    "g4OD" * 500,
]


def test_no_value_leaves_the_range_of_its_signal(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", [*ODD, "", " ", *PROSE[:5]])
    npy(tmp_path / "in/ids/b.npy", [1] * 100 + [70000 - 5000] * 64 + list(range(50)))
    audit(tmp_path / "out", tmp_path / "in/web", tmp_path / "in/ids", vocab_size=60_000, seq_len=64)
    table = signals(tmp_path / "out")
    seen = 0
    for name in set(table.column_names) & set(SIGNALS):
        for value in table.column(name).to_pylist():
            if value is not None:
                seen += 1
                assert math.isfinite(value), name
                assert SIGNALS[name].holds(value), f"{name} = {value}"
                assert math.copysign(1, value) == 1 or value != 0, f"{name} is -0.0"
    assert seen > 500


def test_an_empty_document_divides_nothing_by_zero(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", [""])
    summary = audit(tmp_path / "out", tmp_path / "in/web")
    (row,) = signals(tmp_path / "out").to_pylist()
    for name in set(row) & set(SIGNALS):
        assert row[name] == SIGNALS[name].empty, name
    assert (summary.account.scored, summary.sources[0].blank) == (1, 1)


@pytest.mark.parametrize("wrong", [b'{"text": "broken \xff byte"}\n', b'{"text": "no end\n', b"not json\n", b"[1]\n"])
def test_one_bad_line_costs_itself_and_nothing_else(tmp_path: Path, wrong: bytes) -> None:
    good = [b'{"text": "%s"}\n' % text.encode() for text in PROSE[:20]]
    put(tmp_path / "in/web/a.jsonl", b"".join([*good[:10], wrong, *good[10:]]))
    out = tmp_path / "out"
    summary = audit(out, tmp_path / "in/web")
    account = summary.account
    assert (account.records, account.scored, account.rejected) == (21, 20, 1)
    assert signals(out).column("row").to_pylist() == [*range(10), *range(11, 21)]
    (finding,) = read_findings(out / "manifest.parquet")
    assert (finding.finding.row, finding.finding.line) == (10, 11)
    assert finding.finding.detail


def test_nothing_looks_finished_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the scorer has a fault")

    with monkeypatch.context() as patch:
        patch.setattr("dataguard.score.text.score_buffers", fails)
        with pytest.raises(RuntimeError, match="the scorer has a fault"):
            audit(tmp_path / "out", tmp_path / "in/web")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"audit.json", "manifest.parquet", "work"}
    assert AuditFolder(tmp_path / "out").parts_done() == set()
    audit(tmp_path / "out", tmp_path / "in/web", resume=True)
    assert signals(tmp_path / "out").num_rows == len(PROSE)


def test_a_policy_that_names_no_signal_is_an_error_before_anything_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE)
    policy = put(tmp_path / "p.toml", b'[[rules]]\nname = "a"\nsignal = "dup_lines"\nabove = 0.3\naction = "mask"\n')
    out = tmp_path / "out"
    assert main(["audit", str(tmp_path / "in/web"), "-o", str(out), "--policy", str(policy)]) == 2
    assert "dup_lines" in capfd.readouterr().err
    assert not out.exists()


def test_blank_lines_are_no_records_and_blank_records_no_duplicates(tmp_path: Path) -> None:
    put(tmp_path / "in/web/a.jsonl", b"\n".join([b'{"text": ""}', b"", b'{"text": " "}', b"   ", b'{"text": ""}', b""]))
    summary = audit(tmp_path / "out", tmp_path / "in/web")
    assert (summary.account.records, summary.account.ignored_lines) == (3, 2)
    assert (summary.duplicates.copies, summary.duplicates.records, summary.duplicates.blank) == (0, 0, 3)


def test_what_is_taken_out_can_be_seen_with_all_reasons(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", [*PROSE[:30], None, *ODD, PROSE[2]])
    out = tmp_path / "out"
    summary = audit(out, tmp_path / "in/web", policy="gopher")
    table = signals(out)
    by_row = {row: rules for row, rules in rows_of(table, ["row", "rules"]) if rules}
    for row in pq.read_table(out / "withhold.parquet").to_pylist():
        assert row["rules"] == by_row[row["row"]]
    assert any(len(rules) > 3 for rules in by_row.values())
    fired = {rule.rule: rule.fired for rule in summary.rules if rule.fired}
    told = {name for rules in by_row.values() for name in rules}
    assert fired == {name: sum(name in rules for rules in by_row.values()) for name in told}
    for rule in summary.rules:
        assert all(rule.rule in by_row[example.row] for example in rule.examples)
    assert [entry.finding.code for entry in read_findings(out / "manifest.parquet")] == ["null-text"]
    copies = rows_of(pq.read_table(out / "duplicates.parquet"), ["row", "first_row"])
    assert copies == [(45, 2)]


def test_the_terminal_gets_no_escape_from_the_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jsonl(tmp_path / "in/we\x1b[31mb/a.jsonl", [*PROSE[:30], "g4OD" * 500])
    assert main(["audit", str(tmp_path / "in/we\x1b[31mb"), "-o", str(tmp_path / "out")]) == 1
    told = capfd.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "FAIL" in told.out
    assert json.loads((tmp_path / "out/summary.json").read_bytes())["verdict"] == "fail"
