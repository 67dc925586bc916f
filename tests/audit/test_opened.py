"""An audit opened from Python: its tables as frames, and what a notebook shows of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import polars as pl
import pyarrow.parquet as pq
import pytest

from dataguard.audit.documents import AuditSummary
from dataguard.audit.opened import Audit, open_audit
from dataguard.errors import RunDamaged, UsageError
from tests.audit.making import audit, corpus
from tests.core.test_notebook import HOSTILE, require_harmless


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = corpus(tmp_path_factory.mktemp("corpus"))
    audit(folder / "audit", folder / "web", folder / "ids")
    return open_audit(folder / "audit")


def test_the_frames_are_the_tables(opened: Audit) -> None:
    frame = opened.signals_frame().collect()
    slow = [row for path in sorted((opened.path / "signals").iterdir()) for row in pq.read_table(path).to_pylist()]
    assert frame.to_dicts() == slow
    assert frame.height == opened.summary.account.scored
    assert set(frame["shard"].unique().to_list()) >= {"web/a.jsonl", "web/d.parquet", "ids/e.npy"}
    assert opened.withhold_frame().collect().height == opened.summary.num_withheld > 0
    assert (
        opened.duplicates_frame().collect().to_dicts() == pq.read_table(opened.path / "duplicates.parquet").to_pylist()
    )
    assert opened.shards_frame().collect().to_dicts() == pq.read_table(opened.path / "shards.parquet").to_pylist()


def test_a_query_reads_what_it_asks_for(opened: Audit) -> None:
    query = opened.signals_frame().filter(pl.col("verdict") != "pass").select("shard", "row")
    assert isinstance(query, pl.LazyFrame)
    flagged = query.collect()
    assert 0 < flagged.height < opened.summary.account.scored


def test_it_shows_its_answer(opened: Audit) -> None:
    summary = opened.summary
    assert repr(opened) == f"<Audit {str(opened.path)!r}>"
    account = summary.account
    assert repr(summary) == (
        f"<AuditSummary {summary.verdict} policy='default' records={account.records:,} scored={account.scored:,} "
        f"withheld={summary.num_withheld:,} manifest={summary.manifest[:16]}>"
    )
    for shown in (opened._repr_html_(), summary._repr_html_()):
        texts = require_harmless(shown).texts
        assert texts[texts.index("records") + 1] == f"{account.records:,}"
        assert texts[texts.index("manifest") + 1] == summary.manifest
        assert {rule.rule for rule in summary.rules if rule.fired} <= set(texts)
        assert {source.source for source in summary.sources} <= set(texts)


def test_shards_and_rules_may_be_called_anything(opened: Audit) -> None:
    summary = opened.summary
    first = summary.worst_shards[0]
    hostile = msgspec.structs.replace(
        summary,
        worst_shards=tuple(msgspec.structs.replace(first, shard=name) for name in HOSTILE * 100),
        reasons=tuple(HOSTILE),
        policy=HOSTILE[0],
    )
    text = hostile._repr_html_()
    require_harmless(text)
    assert len(text) < 60_000
    assert "<script>" in repr(hostile), "one line is no page"


def test_what_was_interrupted_says_so_and_how_to_go_on(opened: Audit, tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_bytes((opened.path / "audit.json").read_bytes())
    begun = open_audit(tmp_path)
    assert repr(begun).endswith(" interrupted>")
    assert begun.header == opened.header
    assert any("--resume" in text for text in require_harmless(begun._repr_html_()).texts)
    for ask in (begun.signals_frame, begun.withhold_frame, lambda: begun.summary):
        with pytest.raises(RunDamaged, match="was interrupted"):
            ask()


def test_a_damaged_answer_is_shown_to_be(opened: Audit, tmp_path: Path) -> None:
    for name in ("audit.json", "summary.json"):
        (tmp_path / name).write_bytes((opened.path / name).read_bytes()[:-40])
    damaged = open_audit(tmp_path)
    texts = require_harmless(damaged._repr_html_()).texts
    assert any("it cannot be shown: RunDamaged: " in text for text in texts)
    with pytest.raises(RunDamaged, match="has no signals"):
        damaged.signals_frame()
    with pytest.raises(RunDamaged, match="is missing"):
        damaged.shards_frame()


def test_what_is_no_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no audit stands at"):
        open_audit(tmp_path)
    with pytest.raises(UsageError, match="nothing of that name"):
        open_audit(tmp_path / "nowhere")


def test_the_document_is_what_it_was(opened: Audit) -> None:
    content = (opened.path / "summary.json").read_bytes()
    assert json.loads(msgspec.json.encode(opened.summary)) == json.loads(content)
    assert msgspec.json.decode(content, type=AuditSummary) == opened.summary
