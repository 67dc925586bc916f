"""An audit as a whole: every record once, with the signals of the scorer, in a balanced account."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.audit.folder import AuditFolder
from dataguard.core.digests import canonical_tokens, sample_digest
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.errors import InputError, UsageError, WriterConflict
from dataguard.run.withhold import read_withhold_file
from dataguard.score.profile import read_profile
from dataguard.score.registry import TEXT_SIGNALS
from dataguard.score.text import score_text
from dataguard.score.tokens import score_token_rows
from tests.audit.making import PERIODIC, PROSE, SMALL, audit, audit_all, contents, corpus, policy_of, rows_of, signals
from tests.corpus.making import flip, jsonl, npy, parquet
from tests.twins import rows as twin

MASKS = '[[rules]]\nname = "periods"\nsignal = "byte_periodic_repeats"\nat_least = 32\naction = "mask"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return corpus(tmp_path / "in")


def test_every_record_is_there_once_with_the_signals_of_the_scorer(folder: Path, tmp_path: Path) -> None:
    summary = audit_all(tmp_path / "out", folder, workers=3, vocab_size=1000)
    table = signals(tmp_path / "out")
    expected = [
        (f"web/{path.name}", row, text)
        for path in sorted((folder / "web").iterdir())
        for row, text in enumerate(twin.texts(path))
        if text is not None
    ]
    is_text = np.array(table.column("source").to_pylist()) == "web"
    texts = table.filter(pa.array(is_text))
    assert rows_of(texts, ["shard", "row"]) == [(shard, row) for shard, row, _ in expected]
    scored = score_text(pa.array([text for _, _, text in expected], pa.binary()))
    for name in scored.column_names:
        assert texts.column(name).to_pylist() == scored.column(name).to_pylist(), name
    assert texts.column("digest").to_pylist() == [sample_digest(text) for _, _, text in expected]
    assert texts.column("content_bytes").to_pylist() == [len(text) for _, _, text in expected]
    assert texts.column("length_outlier").null_count == 0
    assert set(scored.column_names) == {spec.name for spec in TEXT_SIGNALS} - {"length_outlier"}
    account = summary.account
    assert (account.records, account.scored, account.rejected, account.unreadable) == (len(table) + 3, len(table), 3, 0)
    assert account.balanced
    assert account.rejected_by_code == {"not-a-string": 1, "null-text": 2}
    assert account.content_bytes == sum(table.column("content_bytes").to_pylist())


@pytest.mark.parametrize("seq_len", [64, 100, 7, 150, 5000])
def test_windows_of_tokens_are_scored_whole_whatever_the_blocks(tmp_path: Path, seq_len: int) -> None:
    ids = np.array([i * 31 % 997 for i in range(1000)] + [5] * 300 + list(range(77)), np.uint16)
    npy(tmp_path / "in/ids/e.npy", ids.tolist())
    out = tmp_path / "out"
    summary = audit(out, tmp_path / "in/ids", seq_len=seq_len, vocab_size=900, workers=2, task_bytes=500)
    table = signals(out)
    windows = [ids[start : start + seq_len] for start in range(0, len(ids), seq_len)]
    assert table.column("row").to_pylist() == list(range(len(windows)))
    assert table.column("digest").to_pylist() == [sample_digest(canonical_tokens(window)) for window in windows]
    names = ["length_tokens", "token_periodic_repeats", "token_entropy_ratio", "out_of_vocabulary"]
    offsets = np.cumsum([0, *map(len, windows)])
    expected = score_token_rows(ids, offsets, names, vocab_size=900)
    for name in names:
        assert table.column(name).to_pylist() == expected[name].tolist(), name
    assert (summary.account.scored, summary.account.tokens) == (len(windows), len(ids))
    assert sum(int(n) for n in expected["out_of_vocabulary"]) == int((ids >= 900).sum())


def test_the_short_last_window_is_judged_and_not_withheld(tmp_path: Path) -> None:
    npy(tmp_path / "in/ids/e.npy", [5] * 200)
    out = tmp_path / "out"
    summary = audit(out, tmp_path / "in/ids", seq_len=64, policy="olmo")
    assert signals(out).column("verdict").to_pylist() == ["mask"] * 3 + ["pass"]
    npy(tmp_path / "in/ids/e.npy", [5] * (64 * 3 + 40))
    summary = audit(tmp_path / "out2", tmp_path / "in/ids", seq_len=64, policy="olmo")
    assert signals(tmp_path / "out2").column("verdict").to_pylist() == ["mask"] * 4
    assert read_withhold_file(tmp_path / "out2/withhold.parquet") == [("ids/e.npy", row) for row in range(3)]
    assert summary.num_withheld == 3


def test_the_bytes_are_the_same_whatever_the_number_of_workers(folder: Path, tmp_path: Path) -> None:
    every = []
    for workers in (1, 2, 5):
        audit_all(tmp_path / f"{workers}", folder, workers=workers, task_bytes=SMALL)
        every.append(contents(tmp_path / f"{workers}"))
    assert every[0] == every[1] == every[2]
    assert not (tmp_path / "1/work").exists()


def test_a_manifest_gives_what_its_paths_give(folder: Path, tmp_path: Path) -> None:
    audit_all(tmp_path / "paths", folder)
    options = ScanOptions(block_bytes=1000, block_tokens=100)
    build_manifest_file([str(folder / "web"), str(folder / "ids")], tmp_path / "M.parquet", options=options)
    audit(tmp_path / "manifest", tmp_path / "M.parquet")
    ours, theirs = contents(tmp_path / "paths"), contents(tmp_path / "manifest")
    assert {name for name in ours if ours[name] != theirs[name]} <= {"audit.json", "manifest.parquet"}


def test_outliers_are_judged_by_its_own_profile_or_by_one_that_is_given(tmp_path: Path) -> None:
    texts = [PROSE[i % 50] + "x" * (i % 9) for i in range(300)]
    jsonl(tmp_path / "in/web/a.jsonl", [*texts, "y " * 50_000])
    rule = '[[rules]]\nname = "length"\nsignal = "length_outlier"\noutside = [-6, 6]\naction = "flag"\n'
    rule += '[[rules]]\nname = "mad"\nsignal = "length_chars"\noutlier_mad = 6\naction = "flag"\n'
    first = audit(tmp_path / "own", tmp_path / "in/web", policy=policy_of(rule))
    assert [(entry.evaluated, entry.fired) for entry in first.rules] == [(301, 1), (301, 1)]
    assert [(e.shard, e.row) for e in first.rules[0].examples] == [("web/a.jsonl", 300)]
    assert not first.profile_given
    profile = read_profile((tmp_path / "own/profile.json").read_bytes())
    assert first.profile == profile.digest
    by: dict[str, Any] = {"policy": policy_of(rule), "profile": tmp_path / "own/profile.json"}
    given = audit(tmp_path / "given", tmp_path / "in/web", **by)
    assert given.profile_given
    assert signals(tmp_path / "given").equals(signals(tmp_path / "own"))
    jsonl(tmp_path / "in/other/a.jsonl", ["z " * 50_000] * 20)
    other = audit(tmp_path / "other", f"web={tmp_path / 'in/other'}", **by)
    assert [entry.fired for entry in other.rules] == [20, 20], "by the profile that was given, all of them are odd"


@pytest.mark.parametrize(
    ("text", "fail_on", "code", "verdict"),
    [
        (MASKS, (), 1, "fail"),
        (MASKS + "max_fraction = 0.5\n", (), 0, "pass"),
        (MASKS.replace("mask", "flag"), (), 0, "pass"),
        (MASKS.replace("mask", "flag"), ("flag",), 1, "fail"),
        (MASKS.replace("mask", "substitute"), (), 1, "fail"),
        (MASKS.replace("mask", "halt").replace("byte_periodic_repeats", "longest_word_chars"), (), 1, "fail"),
    ],
)
def test_a_rule_fails_beyond_its_allowance(
    folder: Path, tmp_path: Path, text: str, fail_on: tuple[str, ...], code: int, verdict: str
) -> None:
    if "halt" in text:
        text = text.replace("32", "1999")
    summary = audit_all(tmp_path / "out", folder, policy=policy_of(text), fail_on=fail_on)
    assert (summary.exit_code, summary.verdict) == (code, verdict)
    assert bool(summary.reasons) == bool(code)
    (rule,) = summary.rules
    assert (rule.fired, rule.failed) == (1, bool(code))
    assert rule.evaluated + rule.skipped == summary.account.scored
    assert rule.skipped_why == {"kind": rule.skipped}
    (by_ids, by_web) = rule.by_source
    assert (by_ids.evaluated, by_web.evaluated, by_web.fired) == (0, rule.evaluated, 1)
    assert by_web.share_of_bytes == pytest.approx(len(PERIODIC) / summary.sources[1].content_bytes)
    assert [(shard.shard, shard.fired) for shard in rule.worst_shards] == [("web/a.jsonl", 1)]
    withheld = [("web/a.jsonl", 64)] if rule.action != "flag" else []
    assert read_withhold_file(tmp_path / "out/withhold.parquet", may_be_empty=True) == withheld


def test_a_shard_rule_proposes_the_whole_shard(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/bad.jsonl", [PERIODIC if row % 10 == 0 else PROSE[row] for row in range(200)])
    jsonl(tmp_path / "in/web/good.jsonl", PROSE[:250])
    jsonl(tmp_path / "in/web/small.jsonl", [PERIODIC] * 5)
    text = MASKS + "max_fraction = 1\n"
    text += (
        '[[rules]]\nname = "bad"\nscope = "shard"\nat_least = 0.05\nmin_samples = 200\naction = "propose_quarantine"\n'
    )
    summary = audit(tmp_path / "out", tmp_path / "in/web", policy=policy_of(text))
    assert summary.exit_code == 1
    shard_rule = summary.rules[1]
    assert (shard_rule.evaluated, shard_rule.fired, shard_rule.skipped) == (2, 1, 1)
    assert summary.worst_shards[0].proposed == ("bad",)
    listed = read_withhold_file(tmp_path / "out/withhold.parquet")
    assert listed[-1] == ("web/bad.jsonl", None)
    assert (summary.num_withheld, summary.num_withheld_shards) == (20 + 5 + 1, 1)


def test_gopher_withholds_what_it_flags(folder: Path, tmp_path: Path) -> None:
    summary = audit_all(tmp_path / "out", folder, policy="gopher")
    table = signals(tmp_path / "out")
    odd = [(s, r) for s, r, v in rows_of(table, ["shard", "row", "verdict"]) if v != "pass"]
    assert odd
    assert read_withhold_file(tmp_path / "out/withhold.parquet") == odd
    assert summary.num_withheld == len(odd)


def test_all_reasons_are_recorded_and_not_the_first_alone(folder: Path, tmp_path: Path) -> None:
    audit_all(tmp_path / "out", folder)
    *_, row = pq.read_table(tmp_path / "out/withhold.parquet").to_pylist()
    assert (row["shard"], row["row"], row["verdict"]) == ("web/a.jsonl", 64, "mask")
    assert {"byte_periods", "words", "word_length"} <= set(row["rules"])


@pytest.mark.parametrize("what", ["no record", "only rejected", "only batches", "no vocabulary"])
def test_nothing_checked_is_never_a_pass(tmp_path: Path, what: str) -> None:
    policy: Any = "default"
    jsonl(tmp_path / "in/web/a.jsonl", [None] * 3 if what == "only rejected" else [] if what == "no record" else PROSE)
    if what == "only batches":
        policy = "seed-batch"
    if what == "no vocabulary":
        policy = policy_of('[[rules]]\nname = "v"\nsignal = "out_of_vocabulary"\nabove = 0\naction = "halt"\n')
    summary = audit(tmp_path / "out", tmp_path / "in/web", policy=policy)
    assert (summary.verdict, summary.exit_code) == ("nothing", 3)
    assert summary.account.records == {"no record": 0, "only rejected": 3}.get(what, len(PROSE))
    assert summary.account.balanced
    assert any("nothing was checked" in reason for reason in summary.reasons)


def test_duplicates_are_told_by_source_and_blanks_apart(folder: Path, tmp_path: Path) -> None:
    summary = audit_all(tmp_path / "out", folder)
    ids, web = summary.duplicates.by_source
    assert (web.copies, web.within_shards, web.across_shards, web.blank) == (2, 1, 1, 3)
    assert ids.copies == 3, "windows of one id over and over"
    assert web.records + web.blank == summary.sources[1].scored
    copies = rows_of(pq.read_table(tmp_path / "out/duplicates.parquet"), ["shard", "row", "first_shard", "first_row"])
    assert ("web/a.jsonl", 65, "web/a.jsonl", 3) in copies
    assert ("web/d.parquet", 41, "web/a.jsonl", 0) in copies
    assert len(copies) == summary.duplicates.copies == 5
    assert summary.duplicates.largest[0].records == 4


def test_a_mixture_is_held_against_what_is_there(folder: Path, tmp_path: Path) -> None:
    summary = audit_all(tmp_path / "out", folder, weights={"web": "1", "ids": "3"})
    ids, web = summary.mixture.sources
    assert (ids.weight, web.weight) == (0.75, 0.25)
    assert ids.share_of_bytes + web.share_of_bytes == pytest.approx(1)
    of_ids, of_web = (source.content_bytes for source in summary.sources)
    assert ids.share_of_bytes == pytest.approx(of_ids / (of_ids + of_web))
    assert abs(ids.share_of_bytes - ids.share_of_records) > 0.01, "records are of other sizes here, so it shows"
    assert ids.share_of_tokens == 1.0
    assert web.share_of_tokens is None
    assert ids.epochs_by_bytes == pytest.approx(0.75 / ids.share_of_bytes)
    assert any("source ids is asked for with 75.0%" in remark for remark in summary.mixture.remarks)
    for weights in ({"web": "1"}, {"web": "1", "nope": "2"}, {"web": "x", "ids": "1"}, {"web": "0", "ids": "0"}):
        with pytest.raises(UsageError):
            audit_all(tmp_path / "wrong", folder, weights=weights)


def test_drift_tells_a_source_of_which_two_fifths_are_gone(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE)
    code = [f"def f{i}(x):\n    return x + {i}\n" * (1 + i % 5) for i in range(400)]
    jsonl(tmp_path / "in/code/a.jsonl", code)
    paths = (tmp_path / "in/web", tmp_path / "in/code")
    audit(tmp_path / "old", *paths)
    same = audit(tmp_path / "same", *paths, baseline=tmp_path / "old/profile.json", fail_on=("drift",))
    assert same.drift is not None
    assert (same.drift.drifted, same.drift.signals, same.exit_code) == (False, (), 0)
    assert same.drift.num_compared > 50
    jsonl(tmp_path / "in/code/a.jsonl", [text for i, text in enumerate(code) if i % 5 > 1])
    told = audit(tmp_path / "told", *paths, baseline=tmp_path / "old/profile.json")
    assert told.drift is not None
    assert (told.exit_code, told.drift.drifted) == (0, True), "told, and no failure unless asked for"
    source = told.drift.sources[0]
    assert (source.source, source.records_then, source.records_now, source.state) == ("code", 400, 240, "drifted")
    length = next(entry for entry in told.drift.signals if entry.signal == "length_bytes")
    assert (length.source, length.state) == ("code", "drifted")
    assert length.median_now > length.median_then
    failed = audit(tmp_path / "fail", *paths, baseline=tmp_path / "old/profile.json", fail_on=("drift",))
    assert (failed.exit_code, failed.verdict) == (1, "fail")


def test_a_sample_is_keyed_by_block_and_row_and_says_so(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE * 10)
    jsonl(tmp_path / "in/web/b.jsonl.gz", [*PROSE * 10, None])
    npy(tmp_path / "in/ids/c.npy", [i % 500 for i in range(64 * 1000)])
    paths = (tmp_path / "in/web", tmp_path / "in/ids")
    whole = audit(tmp_path / "whole", *paths, task_bytes=1 << 18)
    part = audit(tmp_path / "part", *paths, sample="5%", workers=3, task_bytes=1 << 17)
    again = audit(tmp_path / "again", *paths, sample="5%", task_bytes=1 << 20)
    assert (part.sample, part.account.records + part.account.not_sampled) == ("1/20", whole.account.records)
    assert part.account.balanced
    assert 0.5 < part.account.records / (whole.account.records * 0.05) < 1.5
    mine, all_rows = signals(tmp_path / "part"), signals(tmp_path / "whole")
    columns = [name for name in mine.column_names if name not in ("length_outlier", "verdict", "rules")]
    every = {row[:2]: row for row in rows_of(all_rows, ["shard", "row", *columns])}
    chosen = rows_of(mine, ["shard", "row", *columns])
    assert [every[row[:2]] for row in chosen] == chosen
    assert mine.to_pylist() == signals(tmp_path / "again").to_pylist()
    assert again.account == part.account


@pytest.mark.parametrize("asked", ["0%", "-1%", "101%", "x", "", "1/0", "nan"])
def test_a_sample_that_is_no_share_is_refused(tmp_path: Path, asked: str) -> None:
    jsonl(tmp_path / "in/web/a.jsonl", PROSE)
    with pytest.raises(UsageError, match="share"):
        audit(tmp_path / "out", tmp_path / "in/web", sample=asked)


def test_what_changed_since_the_manifest_is_unreadable_and_named(folder: Path, tmp_path: Path) -> None:
    options = ScanOptions(block_bytes=1000, block_tokens=100)
    build_manifest_file([str(folder / "web"), str(folder / "ids")], tmp_path / "M", options=options)
    path = folder / "web/a.jsonl"
    flip(path, path.read_bytes().index(b"20th") + 1)
    (folder / "web/d.parquet").unlink()
    content = (folder / "web/b.jsonl.gz").read_bytes()
    (folder / "web/b.jsonl.gz").write_bytes(content[: len(content) // 2])
    flip(folder / "ids/e.npy", 200 * 2 + 128)
    summary = audit(tmp_path / "out", tmp_path / "M", workers=3)
    assert summary.exit_code == 3
    assert [(shard.shard, shard.codes, shard.effect) for shard in summary.shards.damaged] == [
        ("ids/e.npy", ("changed",), "unreadable"),
        ("web/a.jsonl", ("changed",), "unreadable"),
        ("web/b.jsonl.gz", ("changed",), "unreadable"),
        ("web/d.parquet", ("missing",), "unreadable"),
    ]
    account = summary.account
    assert account.balanced
    assert account.records == account.scored + account.rejected + account.unreadable
    assert account.unreadable >= 42 - 1 + 1
    assert account.rejected == 3, "rows that the manifest has as rejected stay so"
    by_shard = {row["shard"]: row for row in pq.read_table(tmp_path / "out/shards.parquet").to_pylist()}
    assert by_shard["web/c.jsonl.zst"]["unreadable"] == 0
    assert by_shard["web/d.parquet"]["scored"] == 0
    assert 0 < by_shard["web/a.jsonl"]["scored"] < 62
    for row in by_shard.values():
        assert row["records"] == row["scored"] + row["rejected"] + row["unreadable"]


def test_a_folder_is_used_by_one_audit_at_a_time_and_only_by_its_own(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with AuditFolder(out).held(), pytest.raises(WriterConflict, match="another process is auditing"):
        audit_all(out, folder)
    done = audit_all(out, folder)
    before = contents(out)
    with pytest.raises(UsageError, match="complete audit"):
        audit_all(out, folder)
    assert audit_all(out, folder, resume=True) == done
    for asked in ({"policy": "olmo"}, {"seq_len": 65}, {"sample": "50%"}, {"vocab_size": 5}, {"fail_on": ("flag",)}):
        with pytest.raises(UsageError, match="of something else"):
            audit_all(out, folder, resume=True, **asked)
    with pytest.raises(UsageError, match="profile"):
        audit_all(out, folder, resume=True, profile=out / "profile.json")
    with pytest.raises(UsageError, match="something else: paths"):
        audit(out, folder / "web", resume=True)
    jsonl(folder / "web/f.jsonl", PROSE)
    build_manifest_file([str(folder / "web")], tmp_path / "M2")
    with pytest.raises(UsageError, match="manifest"):
        audit(out, tmp_path / "M2", resume=True)
    audit(tmp_path / "given", tmp_path / "M2")
    (tmp_path / "M2").rename(tmp_path / "M3")
    audit(tmp_path / "given", tmp_path / "M3", resume=True)
    assert contents(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="no folder of an audit"):
        audit_all(tmp_path / "mine", folder)
    with pytest.raises(InputError):
        audit_all(tmp_path / "new", folder, profile=tmp_path / "none.json")


def test_the_answer_on_disk_is_the_answer(folder: Path, tmp_path: Path) -> None:
    summary = audit_all(tmp_path / "out", folder)
    told = json.loads((tmp_path / "out/summary.json").read_bytes())
    assert list(told)[:4] == ["verdict", "account", "shards", "rules"]
    assert told["account"]["records"] == summary.account.records
    assert {"rule", "signal", "action", "evaluated", "fired", "skipped"} <= set(told["rules"][0])


def test_a_corpus_inside_a_parquet_group_of_many_rows_is_scored_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path / "in/web/a.parquet", PROSE, group=len(PROSE))
    audit(tmp_path / "whole", tmp_path / "in/web")
    monkeypatch.setattr("dataguard.audit.scoring._MOST_ROWS", 7)
    monkeypatch.setattr("dataguard.audit.parts._GROUP_ROWS", 11)
    audit(tmp_path / "pieces", tmp_path / "in/web")
    assert signals(tmp_path / "pieces").equals(signals(tmp_path / "whole"))
