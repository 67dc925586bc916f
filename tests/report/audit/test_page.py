"""The page of an audit: all of its facts, whole in itself, and nothing from data that could act."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.folder import AuditFolder
from dataguard.audit.run import read_summary, run_audit
from dataguard.cli.main import main
from dataguard.errors import UsageError
from dataguard.report.audit.page import audit_page, page_of_folder
from dataguard.report.html import PAGE_START
from tests.report.audit.making import ENDS, PERIODIC, PROSE, SCRIPT, SHARD, SOURCE, Read, audit_of, corpus, request


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> AuditFolder:
    folder = tmp_path_factory.mktemp("page")
    return audit_of(folder / "out", corpus(folder / "in"), weights={"web": "3", "ids": "1", SOURCE: "1"})


@pytest.fixture(scope="module")
def page(done: AuditFolder) -> Read:
    return Read(done.report.read_bytes())


def test_the_page_tells_the_answer(done: AuditFolder, page: Read) -> None:
    summary = read_summary(done.summary)
    assert done.report.read_bytes().startswith(PAGE_START)
    assert summary.verdict == "fail"
    account = summary.account
    for told in (account.records, account.scored, account.rejected, account.unreadable):
        assert f"{told:,}" in page.words
    for reason in summary.reasons:
        assert reason in page.text
    for rule in summary.rules:
        assert rule.rule in page.words
        assert rule.text in page.text
    (damaged,) = summary.shards.damaged
    assert damaged.shard == "web/cut.jsonl.gz"
    assert damaged.reason in page.text
    assert "--withhold AUDIT/withhold.parquet" in page.text
    assert f"are byte for byte copies of an earlier one; {summary.duplicates.blank} blank" in page.text
    for remark in summary.mixture.remarks:
        assert remark in page.text
    windows = sum(source.scored for source in summary.sources if source.kind == "tokens")
    assert f"skipped on {windows} of the other kind (text or tokens)" in page.text


def test_what_made_a_rule_fire_is_marked(page: Read) -> None:
    assert any(text.startswith(PERIODIC * 50) for text in page.marked)
    assert any(text.startswith("5 5 5 5 5") for text in page.marked), "the run of one id"
    assert any(SCRIPT.strip() in text for text in page.marked)
    assert "marked: byte_periodic_repeats (byte_periods: at least 32)" in page.text


def test_nothing_from_data_is_an_element_an_attribute_or_a_script(page: Read) -> None:
    assert [attrs.get("type") for attrs, _ in page.scripts] == ["application/json", None, None, None]
    assert not [tag for tag, _ in page.tags if tag in {"img", "iframe", "object", "embed", "form", "base", "svg"}]
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    for _, attrs in page.tags:
        for name in ("href", "src"):
            assert (attrs.get(name) or "#").startswith(("#", "data:,")), attrs
    assert SCRIPT.strip() in page.text
    assert SHARD in page.text
    assert SOURCE in page.text


def test_only_the_scripts_of_the_page_may_run(done: AuditFolder, page: Read) -> None:
    (policy,) = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for _, text in page.scripts[1:]]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    content = done.report.read_text()
    assert content.index("Content-Security-Policy") < content.index("<style")
    assert [text[:12] for _, text in page.scripts[1:]] == ["/**\n* plotly", '"use strict"', '"use strict"']
    assert "</script" not in page.scripts[0][1]
    assert "\u2028" not in page.scripts[0][1]
    assert json.loads(page.scripts[0][1])["sources"].count(SOURCE) == 1


def test_controls_and_directional_marks_are_spelled_out(done: AuditFolder) -> None:
    content = done.report.read_text().replace("\n", "")
    shown = re.sub(r"<script>.*?</script>", "", content)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", shown)
    assert '<span class="escape">␛</span>[31mred' in shown
    assert '<span class="escape">\\u202e</span>' in shown


def test_what_is_no_folder_is_asked_for_by_both_its_names(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="run directory"):
            page_of_folder(folder)


def test_the_same_audit_gives_the_same_bytes(done: AuditFolder, tmp_path: Path) -> None:
    content, summary = page_of_folder(done.path)
    assert content == done.report.read_bytes()
    assert summary == read_summary(done.summary)
    shutil.copytree(done.path, tmp_path / "moved")
    assert page_of_folder(tmp_path / "moved")[0] == content, "it says nothing of the folder it lies in"


def test_records_that_cannot_be_read_say_so(done: AuditFolder, tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in")
    (folder / SHARD).unlink()
    content, _ = page_of_folder(done.path, {"web": str(folder / "web")})
    gone = Read(content)
    assert gone.text.count("Its content cannot be shown: missing:") >= 4
    assert any(text.startswith(PERIODIC * 50) for text in gone.marked), "of the other source"
    assert ENDS[:9] not in "".join(gone.marked)
    (folder / SHARD).write_bytes(b"{}\n")
    changed = Read(page_of_folder(done.path, {"web": str(folder / "web")})[0])
    assert "Its content cannot be shown: changed:" in changed.text


def test_the_page_is_written_before_the_answer(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in")

    def fails(*_: object) -> bytes:
        assert not (tmp_path / "out/summary.json").exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_audit(request(tmp_path / "out", folder), LocalEngine(1), render=fails)
    assert not (tmp_path / "out/summary.json").exists()
    shutil.copytree(tmp_path / "out", tmp_path / "other")
    (tmp_path / "other/report.html").write_bytes(b"of another answer")
    run_audit(request(tmp_path / "other", folder, resume=True), LocalEngine(1))
    assert not (tmp_path / "other/report.html").exists()
    run_audit(request(tmp_path / "out", folder, resume=True), LocalEngine(1), render=audit_page)
    whole = (tmp_path / "out/report.html").read_bytes()
    assert whole == page_of_folder(tmp_path / "out")[0]
    (tmp_path / "out/report.html").unlink()
    run_audit(request(tmp_path / "out", folder, resume=True), LocalEngine(1))
    assert not (tmp_path / "out/report.html").exists(), "nobody asked for one"
    run_audit(request(tmp_path / "out", folder, resume=True), LocalEngine(1), render=audit_page)
    assert (tmp_path / "out/report.html").read_bytes() == whole
    assert not (tmp_path / "out/work").exists()


def test_a_corpus_in_which_nothing_is_wrong_has_a_calm_page(tmp_path: Path) -> None:
    from tests.corpus.making import jsonl

    jsonl(tmp_path / "in/web/a.jsonl", PROSE)
    text = '[[rules]]\nname = "periods"\nsignal = "byte_periodic_repeats"\nat_least = 32\naction = "mask"\n'
    page = Read(audit_of(tmp_path / "out", tmp_path / "in", policy=text, vocab_size=None).report.read_bytes())
    assert "Pass" in page.words
    assert "No rule fired on any record." in page.text
    assert "Nothing has to be withheld." in page.text
    assert "Damaged shards" not in page.text


def test_a_corpus_that_drifted_passes_with_a_but(tmp_path: Path) -> None:
    from tests.corpus.making import jsonl

    jsonl(tmp_path / "in/web/a.jsonl", PROSE)
    jsonl(tmp_path / "in/code/a.jsonl", [f"x = {text}" for text in PROSE])
    text = '[[rules]]\nname = "periods"\nsignal = "byte_periodic_repeats"\nat_least = 32\naction = "mask"\n'
    then = audit_of(tmp_path / "then", tmp_path / "in", policy=text, vocab_size=None)
    assert "Drift" not in Read(then.report.read_bytes()).words
    jsonl(tmp_path / "in/code/a.jsonl", [f"x = {text}" for text in PROSE[:30]])
    now = audit_of(tmp_path / "now", tmp_path / "in", policy=text, vocab_size=None, baseline=then.profile)
    page = Read(now.report.read_bytes())
    assert "Pass" in page.words
    assert "But the corpus has drifted from its baseline." in page.text
    summary = read_summary(now.summary)
    assert summary.drift is not None
    assert f"{len(summary.drift.signals)} of {summary.drift.num_compared} signals moved" in page.text
    row = page.words.index("drifted")
    assert [word for word in page.words[row + 1 :] if word.strip()][:4] == ["120", "30", "50.00%", "20.00%"]


def test_nothing_checked_is_told_as_that(tmp_path: Path) -> None:
    from tests.corpus.making import jsonl

    jsonl(tmp_path / "in/web/a.jsonl", [None])
    done = audit_of(tmp_path / "out", tmp_path / "in", vocab_size=None)
    page = Read(done.report.read_bytes())
    assert "Nothing was checked" in page.words
    assert "No record was scored, so nothing is known of this corpus." in page.text
    assert "No record was scored, so there is nothing to draw." in page.text
    assert not [attrs for _, attrs in page.tags if attrs.get("id") in {"signal", "chart", "numbers"}]
    assert [attrs.get("type") for attrs, _ in page.scripts] == ["application/json", None, None], "no plotly.js"


def test_the_command_writes_the_page(
    done: AuditFolder, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(done.path), "-o", str(out), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    size = out.stat().st_size
    of_runs = {"attempt": None, "num_events": None, "damage": []}
    of_audit = {"of": "audit", "folder": str(done.path), "verdict": "fail"}
    assert told == {"path": str(out), "size_bytes": size, **of_audit, **of_runs}
    assert main(["report", str(done.path), "-o", str(out), "--step", "3"]) == 2
    assert out.read_bytes() == done.report.read_bytes()
    assert main(["report", str(done.path), "-o", str(out)]) == 0, "a page of ours is replaced"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    out.write_text("my thesis")
    assert main(["report", str(done.path), "-o", str(out)]) == 2
    assert out.read_text() == "my thesis"
    assert main(["report", str(done.path), "-o", "/dev/null"]) == 2
    assert main(["report", str(tmp_path / "none"), "-o", str(tmp_path / "x")]) == 2
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "x")]) == 2


def test_the_command_refuses_what_is_no_complete_audit(
    done: AuditFolder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run/journal").mkdir(parents=True)
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "x")]) == 2
    assert "no run stands at" in capfd.readouterr().err
    part = AuditFolder(shutil.copytree(done.path, tmp_path / "part"))
    part.profile.unlink()
    assert main(["report", str(part.path), "-o", str(tmp_path / "x")]) == 3
    assert "is not whole" in capfd.readouterr().err
    part.summary.unlink()
    assert main(["report", str(part.path), "-o", str(tmp_path / "x")]) == 3
    assert "--resume" in capfd.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_audit_command_writes_it_and_resume_completes_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = corpus(tmp_path / "in")
    command = ["audit", str(folder / "web"), "-o", str(tmp_path / "out")]
    assert main(command) == 3
    assert f"see {tmp_path}/out/report.html" in capfd.readouterr().err
    whole = (tmp_path / "out/report.html").read_bytes()
    (tmp_path / "out/report.html").unlink()
    assert main([*command, "--resume"]) == 3
    assert (tmp_path / "out/report.html").read_bytes() == whole
