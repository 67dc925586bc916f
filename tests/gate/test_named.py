"""The policies that ship: frozen by digest, and of the values that are published."""

from __future__ import annotations

import pytest

from dataguard.gate.policy import POLICY_NAMES, named_policy, policy_text, read_policy
from dataguard.gate.verdict import Verdict
from tests.gate.drawn import columns_of

DIGESTS = {
    "default": "8e2ff2a913fcbda41351a7a67bcee2a2e10fc8e31fa4abfcc5bcc42ff1ad25db",
    "gopher": "1cdab93410c81880e1a47ecec02cf0caae20141e8c1ee023c7935966e88b43cc",
    "olmo": "1bcf36a61e2c01d193451c773a077d5bee907f1c9381128aa8a22a47ea8fe908",
    "seed-batch": "43158c903cc9d1223d74e4ff5bcce44a8496a4b0e49591a6a2df92f968b28391",
}
"""A change of a policy that ships is a change of what people's runs do: it belongs into the changelog."""

GOPHER = {
    "dup_line_fraction above 0.3",
    "dup_paragraph_fraction above 0.3",
    "dup_line_char_fraction above 0.2",
    "dup_paragraph_char_fraction above 0.2",
    "top_2gram_char_fraction above 0.2",
    "top_3gram_char_fraction above 0.18",
    "top_4gram_char_fraction above 0.16",
    "dup_5gram_char_fraction above 0.15",
    "dup_6gram_char_fraction above 0.14",
    "dup_7gram_char_fraction above 0.13",
    "dup_8gram_char_fraction above 0.12",
    "dup_9gram_char_fraction above 0.11",
    "dup_10gram_char_fraction above 0.1",
    "length_words below 50 or above 100,000",
    "mean_word_chars below 3 or above 10",
    "symbol_word_ratio above 0.1",
    "alpha_word_fraction below 0.8",
    "bullet_line_fraction above 0.9",
    "ellipsis_line_fraction above 0.3",
}


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_policies_that_ship_are_frozen(name: str) -> None:
    assert named_policy(name).digest == DIGESTS[name]
    assert named_policy(name).name == name


def test_default_does_what_the_table_says() -> None:
    policy = named_policy("default")
    by_action: dict[str, set[str]] = {}
    for rule in policy.rules:
        by_action.setdefault(rule.action, set()).add(rule.text)
    assert by_action == {
        "mask": {
            "token_periodic_repeats at least 32",
            "byte_periodic_repeats at least 32 and byte_periodic_fraction at least 0.2",
            "invalid_utf8_fraction above 0.05",
            "nontext_fraction above 0.2",
        },
        "halt": {"out_of_vocabulary above 0"},
        "flag": {
            "invalid_utf8_fraction above 0",
            "nontext_fraction above 0.02",
            "length_bytes at least 256 and byte_entropy below 2 or above 7.2",
            "token_entropy_ratio below 0.35",
            "length_outlier below -6 or above 6",
            "encoded_fraction above 0.2",
            "markup_fraction above 0.3",
            "digit_fraction above 0.5",
            *GOPHER,
        },
    }
    assert [rule.masks for rule in policy.rules if rule.name == "token_periods"] == ["span"]
    (shard,) = policy.shard_rules
    assert (shard.low, shard.min_samples, shard.action) == (0.05, 200, "propose_quarantine")
    counted = {rule.name for rule in policy.rules if shard.bits >> rule.bit & 1}
    assert counted == {"token_periods", "byte_periods", "invalid_utf8_many", "nontext_many"}


def test_what_stands_in_comments_of_default_can_be_taken_out_of_them() -> None:
    text = policy_text("default")
    for line in ('# fill = "substitute"', '# [sources."code-*"]', "# off = [", "# rules.dup_lines = {"):
        assert text.count(f"\n{line}") == 1
        text = text.replace(f"\n{line}", f"\n{line[2:]}")
    policy = read_policy(text, name="t")
    assert policy.fill == "substitute"
    (section,) = policy.sections
    assert (section.source, len(section.off), list(section.conditions)) == ("code-*", 4, ["dup_lines"])


def test_gopher_withholds_what_it_flags() -> None:
    policy = named_policy("gopher")
    assert {rule.text for rule in policy.rules} == GOPHER
    assert {rule.action for rule in policy.rules} == {"flag"}
    assert Verdict.FLAG in policy.withhold
    assert Verdict.FLAG not in named_policy("default").withhold


def test_olmo_and_seed_batch() -> None:
    (rule,) = named_policy("olmo").rules
    assert (rule.text, rule.action, rule.masks) == ("token_periodic_repeats at least 32", "mask", "span")
    seed = named_policy("seed-batch")
    assert not seed.rules
    assert [(each.of, str(each.condition), each.action) for each in seed.batch_rules] == [
        ("mean", "anomaly above 0.35", "propose_skip"),
        ("max", "anomaly above 0.75", "propose_skip"),
    ]
    assert "no period of 16 or more" in seed.warning


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_rule_that_ships_fires_on_some_values_and_not_on_others(name: str) -> None:
    """A published policy whose rule matches no signal never fires, and nobody saw."""
    import numpy as np

    from dataguard.gate.gate import Gate
    from tests.gate.drawn import Profile

    policy = named_policy(name)
    gate = Gate(policy, source_names=["web"], vocab_size=10, profile=Profile({("web", "length_outlier"): (0, 1)}))
    fired = quiet = np.zeros(len(policy.rules), bool)
    for kind in ("text", "tokens"):
        columns = columns_of(kind, 4000, 1)
        for signal in columns:
            if signal.startswith(("length_bytes", "length_words", "byte_periodic_repeats", "token_periodic_repeats")):
                columns[signal] = columns[signal] * 100
            if signal == "mean_word_chars":
                columns[signal] = columns[signal] * 2
        judged = gate.judge_columns(columns, np.zeros(4000, np.int32), kind)
        fired = fired | (judged.fired > 0)
        quiet = quiet | (judged.evaluated > judged.fired)
    assert fired.all()
    assert quiet.all()


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_policies_that_ship_fit_a_screen(name: str) -> None:
    assert max(map(len, policy_text(name).splitlines())) <= 120
