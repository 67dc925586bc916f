"""Looking at what samples hold: the row each slot is about, places by its rules, nothing raised for what is gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import UsageError
from dataguard.gate.policy import read_policy
from dataguard.replay.answers import InspectAnswer, InspectedSample
from dataguard.replay.inspect import inspect_step
from dataguard.replay.looking import Looked, Looker
from dataguard.replay.lookup import Lookup
from dataguard.replay.worst import beyond, fired_rules
from dataguard.run.amend import quarantine
from dataguard.run.run import Run
from tests.loader.test_gate import gated, walk
from tests.replay.conftest import roots_of
from tests.support.corpora import place_of
from tests.support.gated import LOW, documents, rule


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents(tmp_path_factory.mktemp("web"))


def looked_at(run: Run, step: int, attempt: int = 1) -> list[tuple[InspectedSample, Looked | None]]:
    answer = inspect_step(Lookup(run), step, attempt=attempt)
    assert isinstance(answer, InspectAnswer)
    with Looker(run, answer.attempt) as looker:
        return list(zip(answer.samples, looker.look(answer.samples), strict=True))


@pytest.mark.parametrize("step", [0, 36, 45, 69])
def test_what_is_looked_at_is_what_was_handed_over(substituted, step: int) -> None:
    attempt = 2 if step > 35 else 1
    found = looked_at(substituted.run, step, attempt)
    handed = {each.slot: each for each in substituted.of_step(step, attempt)}
    for sample, looked in found:
        assert looked is not None
        assert looked.content == handed[sample.slot].content
        assert (looked.shard, looked.row) == place_of(looked.content)
        assert (looked.problem, looked.signal, len(looked.spans), looked.documents) == (None, None, 0, ())


def test_of_a_slot_that_delivers_nothing_nothing_is_looked_at(story) -> None:
    met = 0
    for step in range(35, 45):
        for sample, looked in looked_at(story.run, step, 2):
            assert (looked is None) == (sample.status == "quarantined")
            met += looked is None
    assert met


def test_where_the_gate_substitutes_the_refused_row_is_shown(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("substitute"))
    quarantine(run, "web/1.jsonl", reason="test")
    walk(run)
    refused = delivered = 0
    for step in range(12):
        for sample, looked in looked_at(run, step):
            if sample.status == "quarantined":
                assert looked is None
                continue
            assert looked is not None
            is_refused = sample.verdict == "substitute"
            assert looked.content.startswith(LOW.encode()) == is_refused
            assert (looked.shard, looked.row) == (sample.shard, sample.row)
            assert (looked.signal == "byte_periodic_repeats") == is_refused
            assert looked.spans.tolist() == ([[0, len(LOW)]] if is_refused else [])
            refused, delivered = refused + is_refused, delivered + (not is_refused)
    assert refused > 5
    assert delivered > 40


def test_a_substitute_that_the_plan_put_there_is_what_is_shown(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, 'fill = "substitute"\n' + rule("flag"))
    quarantine(run, "web/1.jsonl", reason="test")
    walk(run)
    met = 0
    for step in range(12):
        for sample, looked in looked_at(run, step):
            assert looked is not None
            if sample.delivered is not None:
                met += 1
                assert (looked.shard, looked.row) == (sample.delivered.shard, sample.delivered.row)
                assert (sample.verdict == "flag") == (looked.signal is not None)
    assert met > 5


def test_roots_that_are_gone_are_told_sample_by_sample(copy) -> None:
    story = copy()
    (story.folder / "web" / "a.parquet").unlink()
    answer = inspect_step(Lookup(story.run), 5, attempt=1)
    with Looker(story.run, 1, roots=roots_of(story)) as looker:
        found = looker.look(answer.samples)
    for sample, looked in zip(answer.samples, found, strict=True):
        assert (looked.content is None) == (sample.shard == "web/a.parquet")
        assert ("is missing" in (looked.problem or "")) == (sample.shard == "web/a.parquet")
    with pytest.raises(UsageError):
        Looker(story.run, 1, roots={"nowhere": "x"})


def test_a_policy_that_is_gone_leaves_rules_without_names_and_places(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("mask"))
    walk(run, steps=2)
    run.layout.policy(run.document.policy).write_text("")
    found = looked_at(Run.open(tmp_path / "run"), 0) + looked_at(Run.open(tmp_path / "run"), 1)
    masked = [(sample, looked) for sample, looked in found if sample.verdict == "mask"]
    assert masked
    for sample, looked in masked:
        assert (sample.rules, sample.why) == (("rule 0",), ())
        assert looked.content.startswith(LOW.encode())
        assert looked.signal is None


POLICY = """
[[rules]]
name = "short"
all = [{ signal = "length_bytes", below = 100 }, { signal = "byte_entropy", below = 4.0 }]
action = "flag"

[[rules]]
name = "repeats"
signal = "byte_periodic_repeats"
at_least = 32
action = "mask"

[[rules]]
name = "outlier"
signal = "byte_entropy"
outlier_mad = 6
action = "flag"

[sources.code.rules.repeats]
at_least = 320
"""


def test_the_gravest_rule_and_the_furthest_beyond_come_first() -> None:
    policy = read_policy(POLICY, name="p")
    signals = {"length_bytes": 1.0, "byte_entropy": 1.0, "byte_periodic_repeats": 128.0}
    fired = fired_rules(policy, ["outlier", "short", "repeats", "no such rule"], "web", signals)
    assert [(rule.name, rule.beyond) for rule in fired] == [("repeats", 0.75), ("short", 0.75), ("outlier", 0.0)]
    assert fired[1].text == "length_bytes below 100 and byte_entropy below 4"
    assert [condition.signal.name for condition in fired[1].conditions] == ["byte_entropy"]
    unknown = fired_rules(policy, ["short", "repeats"], "web", None)
    assert [rule.beyond for rule in unknown] == [0.0, 0.0]
    elsewhere = fired_rules(policy, ["repeats"], "code", {"byte_periodic_repeats": 640.0})
    assert [(rule.text, rule.beyond) for rule in elsewhere] == [("byte_periodic_repeats at least 320", 0.5)]


def test_how_far_beyond_is_a_share_that_grows_with_the_distance() -> None:
    policy = read_policy(POLICY, name="p")
    for each in policy.conditions:
        values = np.linspace(0, 8, 81) if each.signal.name == "byte_entropy" else np.arange(0, 5_000, 7)
        shares = [beyond(each, float(value)) for value in values if each.outlier or each.holds(float(value))]
        assert all(0 <= share <= 1 for share in shares)
        ordered = sorted(shares, reverse=bool(np.isinf(each.low)))
        assert each.outlier or shares == ordered


def test_worst_first_is_by_verdict_rules_and_distance(tmp_path: Path, web: Corpus) -> None:
    text = rule("flag") + '[[rules]]\nname = "long"\nsignal = "length_bytes"\nabove = 60\naction = "flag"\n'
    run = gated(tmp_path / "run", web, text)
    walk(run)
    for step in range(12):
        answer = inspect_step(Lookup(run), step)
        flagged = [sample for sample in answer.samples if sample.verdict == "flag"]
        assert [sample.verdict for sample in answer.samples[: len(flagged)]] == ["flag"] * len(flagged)
        counts = [len(sample.rules) for sample in flagged]
        assert counts == sorted(counts, reverse=True)
        single = [sample.signals["length_bytes"] for sample in flagged if sample.rules == ("long",)]
        assert single == sorted(single, reverse=True)
        addresses = [(s.rank, s.microbatch, s.slot) for s in answer.samples[len(flagged) :]]
        assert addresses == sorted(addresses)
        by_slot = inspect_step(Lookup(run), step, order="slot", limit=3)
        assert [sample.slot for sample in by_slot.samples] == [0, 1, 2]
        assert by_slot.num_samples == 8
