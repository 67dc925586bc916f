"""What a policy may say: every problem told at once, each with its line, and what the good ones mean."""

from __future__ import annotations

import pytest

from dataguard.errors import PolicyError, UsageError
from dataguard.gate.answers import checked
from dataguard.gate.policy import check_policy, load_policy, named_policy, policy_copy, read_policy, stem_of
from dataguard.gate.verdict import Skip, Verdict

RULE = '[[rules]]\nname = "r"\naction = "flag"\nsignal = "byte_entropy"\n'


def kinds(text: str) -> list[tuple[int | None, str]]:
    policy, problems = check_policy(text, name="t")
    assert (policy is None) == bool(problems)
    return [(problem.line, problem.kind) for problem in problems]


def rule(body: str, *, name: str = "r", action: str = "flag") -> str:
    return f'[[rules]]\nname = "{name}"\naction = "{action}"\n{body}\n'


WRONG = {
    "no TOML": ("a = [1,\nb", [(2, "syntax")]),
    "a number of 5,000 digits": (f"{RULE}below = {'1' * 5000}", [(None, "syntax")]),
    "brackets without end": ("a = " + "[" * 5000 + "]" * 5000, [(None, "syntax")]),
    "a key twice": (f"{RULE}below = 2\nbelow = 3", [(6, "syntax")]),
    "cut off": ('a = """', [(1, "syntax")]),
    "a key at the top": (f"ruls = 1\n{RULE}below = 2", [(1, "unknown-key")]),
    "a key of a rule": (f"{RULE}bellow = 2\nbelow = 2", [(5, "unknown-key")]),
    "a key of a condition": (
        rule('all = [\n{signal="digit_fraction", abov=1},\n]'),
        [(5, "unknown-key"), (5, "missing-key")],
    ),
    "unknown signal": (rule('signal = "byte_entrpy"\nbelow = 2'), [(4, "unknown-signal")]),
    "unknown signal in all": (rule('all = [{signal = "x", below = 2}]'), [(4, "unknown-signal")]),
    "a number as text": (f'{RULE}below = "2"', [(5, "wrong-type")]),
    "true as a number": (f"{RULE}below = true", [(5, "wrong-type")]),
    "nan": (f"{RULE}below = nan", [(5, "wrong-type")]),
    "infinity": (f"{RULE}above = inf", [(5, "wrong-type")]),
    "a number beyond floats": (f"{RULE}above = 1{'0' * 400}", [(5, "wrong-type")]),
    "no pair": (f"{RULE}outside = [1]", [(5, "wrong-type")]),
    "signal is no text": (rule("signal = 3\nbelow = 2"), [(4, "wrong-type")]),
    "rules are no list": ("rules = 3", [(1, "wrong-type")]),
    "a rule is no table": ("rules = [3]", [(1, "wrong-type")]),
    "sources are no table": (f"sources = 3\n{RULE}below = 2", [(1, "wrong-type")]),
    "a section is no table": (f"sources.web = 3\n{RULE}below = 2", [(1, "wrong-type")]),
    "unknown action": (RULE.replace("flag", "flog") + "below = 2", [(3, "unknown-value")]),
    "unknown scope": (f'{RULE}below = 2\nscope = "batches"', [(6, "unknown-value")]),
    "another version": (f"version = 2\n{RULE}below = 2", [(1, "unknown-value")]),
    "version as truth": (f"version = true\n{RULE}below = 2", [(1, "unknown-value")]),
    "withholds passes": (f'withhold = ["pass"]\n{RULE}below = 2', [(1, "unknown-value")]),
    "no name": ('[[rules]]\naction = "flag"\nsignal = "byte_entropy"\nbelow = 2', [(1, "missing-key")]),
    "a name with a blank": (rule('signal = "byte_entropy"\nbelow = 2', name="a b"), [(2, "wrong-type")]),
    "the name of an action": (rule('signal = "byte_entropy"\nbelow = 2', name="mask"), [(2, "doubled-name")]),
    "no action": ('[[rules]]\nname = "r"\nsignal = "byte_entropy"\nbelow = 2', [(1, "missing-key")]),
    "no signal": (rule("below = 2"), [(1, "missing-key")]),
    "no bounds": (RULE, [(1, "missing-key")]),
    "no rules": ("version = 1", [(None, "missing-key")]),
    "an empty list of rules": ("rules = []", [(None, "missing-key")]),
    "an empty all": (rule("all = []"), [(4, "missing-key")]),
    "all beside a signal": (f'{RULE}all = [{{signal = "length_bytes", above = 3}}]', [(4, "no-meaning")]),
    "a fraction above one": (rule('signal = "dup_line_fraction"\nabove = 1.5'), [(5, "out-of-range")]),
    "a count below zero": (rule('signal = "length_words"\nbelow = -1'), [(5, "out-of-range")]),
    "entropy of nine bits": (f"{RULE}outside = [2, 9]", [(5, "out-of-range")]),
    "never below the least": (f"{RULE}below = 0", [(5, "never")]),
    "never at the open end": (rule('signal = "dup_line_fraction"\nat_least = 1'), [(5, "never")]),
    "never above the top": (rule('signal = "digit_fraction"\nabove = 1'), [(5, "never")]),
    "contradiction": (f"{RULE}above = 5\nbelow = 3", [(5, "never")]),
    "a touch": (f"{RULE}above = 3\nat_most = 3", [(5, "never")]),
    "no integer between": (rule('signal = "length_words"\nabove = 3\nbelow = 4'), [(5, "never")]),
    "half of outside": (f"{RULE}outside = [0, 7]", [(5, "never")]),
    "outside reversed": (f"{RULE}outside = [7, 2]", [(5, "never")]),
    "contradiction in all": (
        rule('all = [{signal="byte_entropy", above=5}, {signal="byte_entropy", below=3}]'),
        [(4, "never")],
    ),
    "always": (f"{RULE}at_least = 0", [(1, "always")]),
    "always, all of it": (
        rule('all = [{signal="digit_fraction", at_most=1}, {signal="length_words", at_least=0}]'),
        [(1, "always")],
    ),
    "text and tokens": (
        rule('all = [{signal="byte_entropy", below=3}, {signal="anomaly", above=0.5}]'),
        [(4, "mixed-kinds")],
    ),
    "outside and below": (f"{RULE}outside = [2, 7]\nbelow = 1", [(5, "no-meaning")]),
    "outlier and above": (f"{RULE}outlier_mad = 6\nabove = 1", [(5, "no-meaning")]),
    "no MADs": (f"{RULE}outlier_mad = 0", [(5, "wrong-type")]),
    "MADs of MADs": (rule('signal = "length_outlier"\noutlier_mad = 6'), [(5, "no-meaning")]),
    "no source": (f"{RULE}below = 2\nsources = []", [(6, "never")]),
    "a share of two": (f"{RULE}below = 2\nmax_fraction = 2", [(6, "wrong-type")]),
    "a span where none is": (
        rule('signal = "byte_entropy"\nbelow = 2\nmasks = "span"', action="mask"),
        [(6, "no-meaning")],
    ),
    "a span that is not masked": (
        rule('signal = "token_periodic_repeats"\nat_least = 32\nmasks = "span"'),
        [(6, "no-meaning")],
    ),
    "a span of the quiet": (
        rule('signal = "token_periodic_repeats"\nbelow = 5\nmasks = "span"', action="mask"),
        [(6, "no-meaning")],
    ),
    "keys of another scope": (
        f'{RULE}below = 2\ncounts = ["flag"]\nof = "max"',
        [(6, "no-meaning"), (7, "no-meaning")],
    ),
    "a batch is not masked": (
        rule('scope = "batch"\nsignal = "anomaly"\nof = "max"\nabove = 0.5', action="mask"),
        [(3, "unknown-value")],
    ),
    "mean or max": (rule('scope = "batch"\nsignal = "anomaly"\nabove = 0.5'), [(1, "missing-key")]),
    "a batch has no outlier": (
        rule('scope = "batch"\nsignal = "anomaly"\nof = "max"\noutlier_mad = 3'),
        [(7, "no-meaning")],
    ),
    "a shard of nothing": (rule('scope = "shard"\nat_least = 0.05', action="propose_quarantine"), [(1, "never")]),
    "a shard without a share": (
        f'{RULE}below = 2\n[[rules]]\nname = "s"\naction = "propose_quarantine"\nscope = "shard"\ncounts = ["r"]',
        [(6, "missing-key")],
    ),
    "a shard that always is": (
        (
            f'{RULE}below = 2\n[[rules]]\nname = "s"\naction = "propose_quarantine"\nscope = "shard"\ncounts = ["flag"]'
            "\nat_least = 0"
        ),
        [(11, "always")],
    ),
    "a shard that counts the unknown": (
        (
            f'{RULE}below = 2\n[[rules]]\nname = "s"\naction = "propose_quarantine"\nscope = "shard"'
            '\ncounts = ["r", "rr"]\nat_least = 0.1'
        ),
        [(10, "unknown-rule")],
    ),
    "a section for no rule": (f'{RULE}below = 2\n[sources.web]\noff = [\n"rr"]', [(8, "unknown-rule")]),
    "bounds for no rule": (f"{RULE}below = 2\n[sources.web]\nrules.q = {{below = 1}}", [(7, "unknown-rule")]),
    "bounds that cannot be, in a section": (
        f"{RULE}below = 2\n[sources.web]\nrules.r = {{below = 9}}",
        [(7, "out-of-range")],
    ),
    "off and bounds": (f'{RULE}below = 2\n[sources.web]\noff = ["r"]\nrules.r = {{below = 1}}', [(8, "never")]),
    "a section that says nothing": (f"{RULE}below = 2\n[sources.web]", [(6, "missing-key")]),
    "one bound for several conditions": (
        rule('all = [{signal="length_bytes", above=3}]') + "[sources.web]\nrules.r = {below = 1}",
        [(6, "missing-key")],
    ),
    "another kind in a section": (
        f'{RULE}below = 2\n[sources.web]\nrules.r = {{all = [{{signal = "anomaly", above = 0.5}}]}}',
        [(7, "mixed-kinds")],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_told_with_its_line_and_nothing_else_is(name: str) -> None:
    text, expected = WRONG[name]
    assert kinds(text) == expected


def test_all_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = "\n".join(text for text, _ in (WRONG["a key of a rule"], WRONG["unknown signal"], WRONG["always"]))
    with pytest.raises(PolicyError) as raised:
        read_policy(text, name="P")
    told = str(raised.value)
    assert "policy P has 5 problems" in told  # the three, and two more rules that are called r
    lines = [int(line.split()[1].rstrip(",")) for line in told.splitlines() if line.lstrip().startswith("line ")]
    assert lines == [5, 8, 10, 13, 14]
    assert "did you mean below?" in told
    assert "did you mean byte_entropy?" in told
    assert raised.value.exit_code == 2


def test_two_rules_of_one_name_name_both_lines() -> None:
    _, problems = check_policy(f"{RULE}below = 2\n{RULE}above = 7", name="t")
    (problem,) = problems
    assert (problem.kind, problem.line) == ("doubled-name", 7)
    assert "line 2" in problem.asked


def test_below_and_above_apart_suggests_outside() -> None:
    _, (problem,) = check_policy(f"{RULE}below = 2\nabove = 7", name="t")
    assert problem.todo == "did you mean outside = [2, 7]?"


def test_at_most_64_rules_over_samples() -> None:
    many = "".join(rule('signal = "byte_entropy"\nbelow = 2', name=f"r{i}") for i in range(64))
    assert len(read_policy(many, name="t").rules) == 64
    text = many + rule('signal = "byte_entropy"\nbelow = 2', name="r64")
    assert kinds(text) == [(64 * 5 + 1, "too-many")]


def test_a_rule_that_holds_at_one_value_is_none_that_never_fires() -> None:
    policy = read_policy(f"{RULE}at_least = 3\nat_most = 3", name="t")
    (condition,) = policy.rules[0].conditions
    assert [condition.holds(value) for value in (2.9, 3.0, 3.1)] == [False, True, False]


def test_defaults_of_what_is_left_out() -> None:
    text = (
        rule('signal = "byte_entropy"\nbelow = 2', name="f")
        + rule('signal = "out_of_vocabulary"\nabove = 0', name="h", action="halt")
        + rule('signal = "token_periodic_repeats"\nabove = 31', name="m", action="mask")
        + rule('scope = "shard"\nat_least = 0.05', name="s", action="propose_quarantine")
        + rule('scope = "batch"\nsignal = "anomaly"\nof = "mean"\nabove = 0.3', name="b")
    )
    policy = read_policy(text, name="t")
    assert [each.max_fraction for each in policy.rules] == [0.001, 0, 0.001]
    assert [each.masks for each in policy.rules] == ["sample", "span", "span"]
    assert (policy.shard_rules[0].min_samples, policy.shard_rules[0].max_fraction) == (200, 0)
    assert policy.shard_rules[0].bits == 0b110
    assert not policy.shard_rules[0].apply_at_next_attempt
    assert policy.batch_rules[0].max_fraction == 0
    assert policy.withhold == {Verdict.MASK, Verdict.SUBSTITUTE, Verdict.HALT}
    assert (policy.fill, policy.on_unreadable, policy.name) == (None, "withhold", "t")


def test_a_later_section_outweighs_an_earlier_one() -> None:
    text = f'{RULE}below = 2\n[sources."*"]\noff = ["r"]\n[sources."code-*"]\nrules.r = {{below = 1}}\n'
    policy = read_policy(text, name="t")
    assert policy.conditions_of(policy.rules[0], "web") is Skip.OFF
    assert [str(each) for each in policy.conditions_of(policy.rules[0], "code-c")] == ["byte_entropy below 1"]
    assert (policy.is_off("r", "web"), policy.is_off("r", "code-c")) == (True, False)


def test_the_digest_is_that_of_the_bytes() -> None:
    import hashlib

    text = f"# ü\n{RULE}below = 2\n"
    policy = read_policy(text, name="t")
    assert policy.digest == hashlib.sha256(text.encode()).hexdigest()
    assert policy == read_policy(text, name="other")
    assert policy != read_policy(text + "\n", name="t")


def test_load_by_name_or_file(tmp_path) -> None:
    assert load_policy("olmo") is named_policy("olmo")
    path = tmp_path / "strict.toml"
    path.write_bytes(b"\xef\xbb\xbf" + f"{RULE}below = 2\r\n".encode())
    policy = load_policy(str(path))
    assert (policy.name, policy.text) == ("strict", f"{RULE}below = 2\r\n")
    path.write_bytes(b"# fine\n\xff")
    with pytest.raises(PolicyError, match="UTF-8"):
        load_policy(str(path))
    with pytest.raises(UsageError) as raised:
        load_policy("defualt")
    assert raised.value.todo == "did you mean default?"


def test_a_copy_is_the_same_but_for_its_name() -> None:
    copy = policy_copy("gopher", name="mine")
    assert copy.name == "mine"
    assert copy.text.replace('name = "mine"', 'name = "gopher"', 1) == named_policy("gopher").text
    with pytest.raises(UsageError, match="no name of a policy"):
        policy_copy("gopher", name="a b")


BATCH = '[[rules]]\nname = "r"\nscope = "batch"\nsignal = "length_tokens"\naction = "flag"\nof = '


def test_the_mean_of_whole_numbers_is_none() -> None:
    between = "above = 3\nbelow = 4"
    policy, problems = check_policy(f'{BATCH}"mean"\n{between}', name="t")
    assert problems == ()
    assert policy is not None
    assert policy.batch_rules[0].condition.signal.whole  # the signal stays what it is
    _, (problem,) = check_policy(f'{BATCH}"max"\n{between}', name="t")
    assert (problem.kind, problem.todo) == ("never", None)  # outside = [4, 3] would be no better


def test_outside_of_no_whole_number_is_always() -> None:
    whole = '[[rules]]\nname = "r"\naction = "flag"\nsignal = "length_words"\noutside = '
    assert [each.kind for each in check_policy(f"{whole}[3.2, 3.7]", name="t")[1]] == ["always"]
    assert check_policy(f"{whole}[3.0, 3.7]", name="t")[1] == ()  # all but 3


@pytest.mark.parametrize(
    ("sources", "sections", "is_never"),
    [
        ("", '[sources."*"]\noff = ["r"]', True),
        ("", '[sources.web]\noff = ["r"]', False),
        ('sources = ["web"]\n', '[sources.web]\noff = ["r"]', True),
        ('sources = ["web-a"]\n', '[sources."web-*"]\noff = ["r"]', True),
        ('sources = ["web", "code"]\n', '[sources.web]\noff = ["r"]', False),
        ("", '[sources."*"]\noff = ["r"]\n[sources.code]\nrules.r = { below = 1 }', False),
        ("", '[sources.code]\nrules.r = { below = 1 }\n[sources."*"]\noff = ["r"]', True),
    ],
)
def test_a_rule_that_is_off_wherever_it_is_meant_never_fires(sources: str, sections: str, is_never: bool) -> None:
    _, problems = check_policy(f"{RULE}below = 2\n{sources}{sections}\n", name="t")
    assert [each.kind for each in problems] == (["never"] if is_never else [])


def test_no_source_is_called_nothing() -> None:
    _, (problem,) = check_policy(f'{RULE}below = 2\nsources = ["web", ""]', name="t")
    assert problem.kind == "never"


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("below = true", "a number, and a finite one"),
        ('below = "2"', "a number, and a finite one"),
        ("below = inf", "a number, and a finite one"),
        (f"below = {'9' * 400}", "a number, and a finite one"),
        ("below = 2\nmax_fraction = 2", "a number of at least 0 and of at most 1"),
        ("outlier_mad = 0", "a number above 0"),
        ("below = 2\nnote = 2020-01-01", 'text in quotes, "..."'),
    ],
)
def test_what_may_stand_there_is_told_in_words(written: str, allowed: str) -> None:
    _, (problem,) = check_policy(RULE + written, name="t")
    assert (problem.kind, problem.allowed, problem.found) == ("wrong-type", allowed, None)


def test_a_policy_is_called_by_a_name_whatever_its_file_is_called() -> None:
    assert [stem_of(path) for path in ("a/\x1b[31mb\nc.toml", "名.toml", "x" * 99, "strict.v2.toml")] == [
        "31mb_c",
        "policy",
        "x" * 64,
        "strict.v2",
    ]
    with pytest.raises(UsageError, match="there is no policy"):
        load_policy("a\0b")


def test_a_rule_that_no_run_can_feed_is_told() -> None:
    text = '[[rules]]\nname = "r"\naction = "flag"\nsignal = "fertility"\nabove = 2'
    found = checked("p.toml", *check_policy(text, name="t"))
    assert found.ok
    assert [(each.kind, each.line) for each in found.remarks] == [("need", 1)]
