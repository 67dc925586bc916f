"""Batches and shards: judged over all ranks, in any order, exactly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.gate.account import Account, exceeds
from dataguard.gate.gate import Gate
from dataguard.gate.policy import named_policy, read_policy
from dataguard.gate.shards import ShardCounts
from dataguard.gate.verdict import Skip, Verdict

TEXT = """
[[rules]]
name = "spam"
signal = "dup_line_fraction"
above = 0.5
action = "mask"

[[rules]]
name = "short"
signal = "length_words"
below = 5
action = "flag"

[[rules]]
name = "bad_shard"
scope = "shard"
at_least = 0.05
action = "propose_quarantine"

[[rules]]
name = "short_shard"
scope = "shard"
counts = ["short"]
above = 0.5
min_samples = 10
sources = ["web"]
action = "propose_quarantine"

[sources.code]
off = ["bad_shard"]
"""


def gate() -> Gate:
    return Gate(read_policy(TEXT, name="t"), source_names=["code", "web"])


def columns(fractions: list[float], words: list[int]) -> dict[str, np.ndarray]:
    return {"dup_line_fraction": np.array(fractions), "length_words": np.array(words)}


def counted(num_bad: int, num_good: int, *, shard: int, source: int = 1) -> ShardCounts:
    n = num_bad + num_good
    judged = gate().judge_columns(
        columns([0.9] * num_bad + [0.1] * num_good, [9] * n), np.full(n, source, np.int32), "text"
    )
    return gate().shard_counters(judged, np.full(n, shard), np.full(n, source, np.int32))


def test_five_percent_of_at_least_two_hundred() -> None:
    parts = [counted(10, 190, shard=3), counted(9, 190, shard=4), counted(9, 191, shard=5), counted(99, 100, shard=6)]
    verdicts = gate().judge_shards(ShardCounts.total(parts, num_rules=2))
    bad = {verdict.shard: verdict for verdict in verdicts if verdict.rule.name == "bad_shard"}
    assert (bad[3].fired, bad[3].share, bad[3].skip) == (True, 0.05, None)
    assert (bad[4].fired, bad[4].skip) == (False, Skip.MINIMUM)  # 199 samples
    assert (bad[5].fired, bad[5].skip) == (False, None)  # 4.5 %
    assert (bad[6].fired, bad[6].skip) == (False, Skip.MINIMUM)  # half of it is bad, and that is not known well enough


def test_no_rank_alone_has_the_samples_that_all_have() -> None:
    ranks = [counted(2, 23, shard=7) for _ in range(8)]
    assert not any(verdict.fired for rank in ranks for verdict in gate().judge_shards(rank))
    together = gate().judge_shards(ShardCounts.total(ranks, num_rules=2))
    assert [(each.rule.name, each.num_judged, each.num_counted) for each in together if each.fired] == [
        ("bad_shard", 200, 16)
    ]


def test_sources_of_shard_rules() -> None:
    verdicts = gate().judge_shards(counted(100, 100, shard=1, source=0))
    assert {verdict.rule.name: verdict.skip for verdict in verdicts} == {
        "bad_shard": Skip.OFF,
        "short_shard": Skip.SOURCE,
    }


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_counts_add_up_however_the_samples_are_cut(samples, cuts) -> None:
    shard = np.array([each[0] for each in samples], np.int64)
    source = np.where([each[2] for each in samples], shard % 2, -1).astype(np.int32)
    fractions = np.array([0.9 if each[1] else 0.1 for each in samples])
    judged_by = gate()
    parts = []
    edges = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    for start, stop in pairwise(edges):
        part = slice(start, stop)
        judged = judged_by.judge_columns(columns(fractions[part], [9] * (stop - start)), source[part], "text")
        parts.append(judged_by.shard_counters(judged, shard[part], source[part]))
    total = ShardCounts.total(reversed(parts), num_rules=2)
    real = [(s, bad) for (s, bad, is_real) in samples if is_real]
    assert total.shard.tolist() == sorted({s for s, _ in real})
    for k, s in enumerate(total.shard.tolist()):
        assert total.source[k] == s % 2
        assert total.judged[k] == sum(each[0] == s for each in real)
        assert total.counted[k, 0] == sum(each == (s, True) for each in real)


def test_the_seed_judges_the_mean_and_the_worst_of_the_whole_batch() -> None:
    seed = Gate(named_policy("seed-batch"), source_names=["ids"])
    source = np.zeros(4, np.int32)

    def fired(values: list[float], **given) -> list[str]:
        found = seed.judge_batch({"anomaly": np.array(values)}, source[: len(values)], **given)
        return [verdict.rule.name for verdict in found if verdict.fired]

    assert fired([0.35] * 4) == []
    assert fired([0.36] * 4) == ["anomaly_mean"]
    assert fired([0.0, 0.0, 0.0, 0.76]) == ["anomaly_max"]
    assert fired([0.0, 0.0, 0.75, 0.75]) == ["anomaly_mean"]
    assert fired([0.0, 0.9], live=np.array([True, False])) == []  # a withheld slot leaves all statistics


def test_padding_is_in_no_batch() -> None:
    seed = Gate(named_policy("seed-batch"), source_names=["ids"])
    mean, most = seed.judge_batch({"anomaly": np.array([0.2, 0.5])}, np.array([0, -1], np.int32))
    assert (mean.value, mean.num_samples, most.value) == (0.2, 1, 0.2)
    (mean, _) = seed.judge_batch({"anomaly": np.array([0.5])}, np.array([-1], np.int32))
    assert (mean.fired, mean.skip, mean.value) == (False, Skip.PADDING, None)
    (mean, _) = seed.judge_batch({"byte_entropy": np.array([0.5])}, np.array([0], np.int32))
    assert mean.skip is Skip.KIND


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.randoms(use_true_random=False))
def test_a_mean_is_the_same_in_any_order(values: list[float], random) -> None:
    seed = Gate(named_policy("seed-batch"), source_names=["ids"])
    source = np.zeros(len(values), np.int32)
    mean = seed.judge_batch({"anomaly": np.array(values)}, source)[0].value
    random.shuffle(values)
    assert seed.judge_batch({"anomaly": np.array(values)}, source)[0].value == mean


def test_accounts_add_up_and_padding_is_nobodys() -> None:
    judged_by = gate()
    source = np.array([0, 1, -1, 1], np.int32)
    first = Account.of(judged_by.judge_columns(columns([0.9, 0.1, 0.9, 0.9], [9, 1, 9, 1]), source, "text"))
    assert (first.fired.tolist(), first.evaluated.tolist(), first.skipped.tolist()) == ([2, 2], [3, 3], [1, 1])
    assert first.by_verdict.tolist() == [0, 1, 2, 0, 0]
    assert first.skipped_why[:, Skip.PADDING].tolist() == [1, 1]
    total = Account.empty(2) + first + first
    assert (total.num_samples, total.fired.tolist()) == (8, [4, 4])
    assert (total.evaluated + total.skipped == total.num_samples).all()


@pytest.mark.parametrize(
    ("action", "fail_on", "num_bad", "fails"),
    [
        ("mask", "mask", 1, False),
        ("mask", "mask", 2, True),
        ("substitute", "mask", 2, True),
        ("halt", "mask", 1, True),
        ("flag", "mask", 500, False),
        ("flag", "flag", 1, False),
        ("flag", "flag", 2, True),
    ],
)
def test_what_fails_an_audit(action: str, fail_on, num_bad: int, fails: bool) -> None:
    text = f'[[rules]]\nname = "r"\nsignal = "digit_fraction"\nabove = 0.5\naction = "{action}"'
    policy = read_policy(text, name="t")
    judged_by = Gate(policy, source_names=["web"])
    values = np.array([0.9] * num_bad + [0.0] * (1000 - num_bad))
    account = Account.of(judged_by.judge_columns({"digit_fraction": values}, np.zeros(1000, np.int32), "text"))
    assert bool(account.failing(policy, fail_on=fail_on)) == fails


def test_nothing_evaluated_exceeds_nothing() -> None:
    assert not exceeds(named_policy("olmo").rules[0], fired=0, evaluated=0)


def test_all_reasons_are_kept_and_the_gravest_decides() -> None:
    text = "".join(
        f'[[rules]]\nname = "{action}s"\nsignal = "digit_fraction"\nabove = {bound}\naction = "{action}"\n'
        for action, bound in (("halt", 0.8), ("flag", 0.1), ("substitute", 0.6), ("mask", 0.4))
    )
    judged = Gate(read_policy(text, name="t"), source_names=["web"]).judge_columns(
        {"digit_fraction": np.array([0.0, 0.2, 0.5, 0.7, 0.9])}, np.zeros(5, np.int32), "text"
    )
    assert judged.verdict.tolist() == list(Verdict)
    assert judged.rules.tolist() == [0, 0b0010, 0b1010, 0b1110, 0b1111]
