"""What the page of an audit tells where there is more than a page can hold, and what it says to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dataguard.audit.documents import AuditSummary, DamagedShard, RuleOfSource
from dataguard.audit.run import read_summary
from dataguard.gate.policy import named_policy
from dataguard.report.audit.steps import explain_command, steps_of
from dataguard.report.audit.view import MOST_SOURCES, AuditView, places_of, view_of
from tests.report.audit.making import audit_of, corpus


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> AuditSummary:
    folder = tmp_path_factory.mktemp("view")
    return read_summary(audit_of(folder / "out", corpus(folder / "in")).summary)


def view(summary: AuditSummary) -> AuditView:
    return view_of(summary, named_policy("default"), (), dict.fromkeys(places_of(summary), "gone"), {})


def test_of_many_sources_a_rule_tells_those_on_which_it_fired_most(summary: AuditSummary) -> None:
    def entry(number: int) -> RuleOfSource:
        return RuleOfSource(
            source=f"s{number:03}",
            evaluated=100,
            fired=number % 100,
            skipped=0,
            share_of_records=0.0,
            share_of_bytes=0.0,
            share_of_tokens=None,
        )

    every = tuple(map(entry, range(100)))
    rule = msgspec.structs.replace(summary.rules[0], by_source=every)
    told = view(msgspec.structs.replace(summary, rules=(rule, *summary.rules[1:]))).rules[0]
    assert [source.fired for source in told.by_source] == list(range(100 - MOST_SOURCES, 100))
    assert told.num_more_sources == 100 - MOST_SOURCES
    assert view(summary).rules[0].by_source == summary.rules[0].by_source
    assert view(summary).rules[0].num_more_sources == 0


def test_of_many_damaged_shards_the_rest_is_counted(summary: AuditSummary) -> None:
    damaged = tuple(
        DamagedShard(shard=f"web/{i}", reason="truncated: x", codes=("truncated",), effect="excluded")
        for i in range(450)
    )
    shards = msgspec.structs.replace(summary.shards, damaged=damaged)
    told = view(msgspec.structs.replace(summary, shards=shards))
    assert told.num_more_damaged == 450 - told.most_damaged == 250


def test_every_place_is_asked_for_and_every_record_shown(summary: AuditSummary) -> None:
    told = view(summary)
    assert [record.unseen for record in told.worst_records] == ["gone"] * len(summary.worst_records)
    for rule, account in zip(told.rules, summary.rules, strict=True):
        assert [(each.shard, each.row) for each in (*rule.examples, *rule.further)] == [
            (each.shard, each.row) for each in account.examples
        ]
    assert all(dict(record.values).keys() <= record_signals(summary) for record in told.worst_records)


def record_signals(summary: AuditSummary) -> set[str]:
    return {name for record in summary.worst_records for name in record.signals}


def test_the_states_of_rules_follow_their_accounts(summary: AuditSummary) -> None:
    for rule in view(summary).rules:
        account = rule.account
        assert (rule.state == "failed") == account.failed
        assert (rule.state == "unused") == (account.evaluated == 0)
        assert sum(number for _, number in rule.why) == account.skipped
    assert view(summary).num_fired == sum(rule.fired > 0 for rule in summary.rules)


def test_steps_say_what_is_most_pressing_first(summary: AuditSummary) -> None:
    steps = steps_of(summary)
    assert [step.command.split(" ")[:3] for step in steps] == [
        ["dataguard", "manifest", "show"],
        ["dataguard", "policy", "explain"],
        ["dataguard", "rehearse", "AUDIT/manifest.parquet"],
    ]
    assert steps[-1].command.endswith("--withhold AUDIT/withhold.parquet")
    account = msgspec.structs.replace(summary.account, balanced=False, unreadable=3)
    first, *others = steps_of(msgspec.structs.replace(summary, account=account))
    assert first.text.startswith("The account does not balance")
    assert any(step.text.startswith("3 records could not be read") for step in others)


def test_the_command_of_a_run_fits_what_the_sources_hold(summary: AuditSummary) -> None:
    command = steps_of(summary)[-1].command
    assert " --weight '<img src onerror>=91' --weight ids=0 --weight web=" in command
    by_kind = {source.kind: (source,) for source in summary.sources}
    summary = msgspec.structs.replace(summary, rules=())
    text = steps_of(msgspec.structs.replace(summary, sources=by_kind["text"]))[-1].command
    assert "--weight" not in text
    assert "--form" not in text
    tokens = steps_of(msgspec.structs.replace(summary, sources=by_kind["tokens"]))[-1].command
    assert " --form window --seq-len 64 --withhold" in tokens
    many = steps_of(msgspec.structs.replace(summary, sources=summary.sources * 5))[-1]
    assert many.command == ""


def test_a_command_can_be_typed_or_is_not_given() -> None:
    settings = {"kind": "text", "seq_len": 64, "vocab_size": None}
    command = explain_command("default", "web/it's $HOME.jsonl", 3, **settings)
    assert "--shard 'web/it'\"'\"'s $HOME.jsonl' --row 3" in command
    assert explain_command("default", "web/\u202ea.jsonl", 3, **settings) == ""
    tokens = explain_command("default", "ids/e.npy", 3, kind="tokens", seq_len=64, vocab_size=990)
    assert tokens.endswith("--row 3 --seq-len 64 --vocab-size 990")


def test_commands_of_the_page_are_commands(
    summary: AuditSummary, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As typed, with AUDIT and RUN put in."""
    import shlex

    from dataguard.cli.main import main

    folder = audit_of(tmp_path / "out", corpus(tmp_path / "in")).path
    typed = [step.command for step in steps_of(summary)] + [view(summary).worst_records[0].command]
    assert len(typed) == 4
    for command in typed:
        words = shlex.split(command.replace("AUDIT", str(folder)).replace("RUN", str(tmp_path / "run")))
        assert words[0] == "dataguard"
        assert main(words[1:]) == 0, (command, capfd.readouterr().err)
