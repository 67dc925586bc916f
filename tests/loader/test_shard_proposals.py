"""Shards on which rules fired over all ranks are proposed, once, and quarantined where the policy says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.loader.rehearse import rehearse
from dataguard.loader.shard_proposals import judged_shards, propose_shards
from dataguard.run.amend import release
from dataguard.run.events import Proposed, Quarantined
from dataguard.run.run import Run
from tests.loader.test_gate import gated, walk
from tests.support.gated import TOKEN_POLICY, documents, rule, tokens

SHARD_RULE = """
[[rules]]
name = "many_low"
scope = "shard"
counts = ["low"]
at_least = 0.5
min_samples = 20
action = "propose_quarantine"
"""
APPLY = SHARD_RULE + "apply_at_next_attempt = true\n"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Shard 1 is bad in nine of ten records, shard 2 in one of ten."""
    return documents(
        tmp_path_factory.mktemp("web"),
        bad=lambda shard, row: (shard == 1 and row % 10 != 0) or (shard == 2 and row % 10 == 0),
    )


def events(run: Run, kind: type) -> list[object]:
    return [entry.event for entry in run.read().entries if isinstance(entry.event, kind)]


@pytest.mark.parametrize("action", ["flag", "mask", "substitute"])
def test_counted_over_all_ranks_and_proposed_once(tmp_path: Path, web: Corpus, action: str) -> None:
    run = gated(tmp_path / "run", web, rule(action) + SHARD_RULE, lanes=2)
    walk(run, world_size=4, steps=20)
    (found,) = [verdict for verdict in judged_shards(run, 1) if verdict.fired]
    assert run.stream_of(1).manifest_set.shard_name(found.shard) == "web/1.jsonl"
    assert found.num_counted / found.num_judged > 0.8
    assert found.num_judged >= 20
    propose_shards(run)
    assert propose_shards(run) == 0
    (proposed,) = events(run, Proposed)
    assert (proposed.shard, proposed.rule, proposed.attempt) == ("web/1.jsonl", "many_low", 1)
    walk(run, world_size=1, steps=2, from_step=20)
    assert not events(run, Quarantined)


def test_counts_are_those_of_any_topology(tmp_path: Path, web: Corpus) -> None:
    told = []
    for ranks in (1, 4):
        run = gated(tmp_path / str(ranks), web, rule("mask") + SHARD_RULE, lanes=4)
        walk(run, world_size=ranks, steps=10)
        told.append([(v.shard, v.num_judged, v.num_counted) for v in judged_shards(run, 1)])
    assert told[0] == told[1]
    assert sum(judged for _, judged, _ in told[0]) == 80


def test_applied_at_the_next_attempt_and_never_over_a_release(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("mask") + APPLY)
    walk(run, steps=20)
    assert not events(run, Quarantined)
    walk(run, steps=2, from_step=20)
    (quarantined,) = events(run, Quarantined)
    assert quarantined.shard == "web/1.jsonl"
    assert [entry.shard for entry in run.attempts().attempt(2).withheld] == ["web/1.jsonl"]
    release(run, "web/1.jsonl", reason="looked at it")
    walk(run, steps=2, from_step=22)
    assert len(events(run, Quarantined)) == 1
    assert not run.attempts().attempt(3).withheld


def test_a_proposal_of_the_gate_is_no_unreadable_shard(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("mask") + SHARD_RULE)
    answer = rehearse(run, geometry=Geometry(world_size=2, microbatch_size=2), steps=20)
    assert answer.unreadable_shards == ()
    assert answer.gate is not None
    by_name = {each.rule: each for each in answer.gate.rules}
    low, many = by_name["low"], by_name["many_low"]
    assert (low.evaluated, low.skipped) == (160, 0)
    assert low.fired == answer.gate.verdicts["mask"] > 0
    assert sum(answer.gate.verdicts.values()) == 160
    assert (many.scope, many.evaluated, many.fired) == ("shard", 3, 1)
    assert any("proposed to quarantine web/1.jsonl" in note for note in answer.notes)


def test_rules_over_batches_are_judged_where_all_ranks_are(tmp_path: Path) -> None:
    text = (
        TOKEN_POLICY
        + """
[[rules]]
name = "periods_in_batch"
scope = "batch"
signal = "token_periodic_fraction"
of = "max"
above = 0.5
action = "propose_skip"
"""
    )
    corpus = tokens(tmp_path / "c", periodic=lambda window: window in {9, 33})
    facts = {"form": "window", "seq_len": 64, "shuffle": "none", "lanes": 1}
    run = gated(tmp_path / "run", corpus, text, **facts)
    answer = rehearse(run, geometry=Geometry(world_size=4, microbatch_size=1), steps=6)
    assert answer.gate is not None
    (account,) = [each for each in answer.gate.rules if each.scope == "batch"]
    assert (account.evaluated, account.fired, account.skipped) == (6, 2, 0)
    proposed = events(run, Proposed)
    assert [(p.proposal, p.positions, p.rule) for p in proposed] == [
        ("skip", tuple(range(8, 16)), "periods_in_batch"),
        ("skip", tuple(range(32, 40)), "periods_in_batch"),
    ]
