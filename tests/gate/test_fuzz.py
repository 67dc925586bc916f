"""No text makes the reader of policies raise: it is a policy, or every problem of it is told."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataguard.gate.document import BOUND_KEYS, PolicyDocument, RuleDocument
from dataguard.gate.fitting import fit_problems, lacking_problems
from dataguard.gate.gate import Gate
from dataguard.gate.policy import POLICY_NAMES, check_policy, policy_text
from dataguard.gate.problem import policy_error

LINES = [line for name in POLICY_NAMES for line in policy_text(name).splitlines() if line and line[0] != "#"]
KEYS = [*PolicyDocument.__struct_fields__, *RuleDocument.__struct_fields__, *BOUND_KEYS, "all", "off", "x"]
VALUES = [
    "-1",
    "0",
    "1",
    "2",
    "200",
    "0.05",
    "1e308",
    "nan",
    '""',
    '"mask"',
    '"web"',
    "[]",
    "[0, 1]",
    "[1, 0]",
    "{}",
    "true",
]
HEADERS = ["[[rules]]", "[sources.web]", "[sources.web.rules.words]", '[sources."*"]', "[rules]", "[[sources]]"]

wild_lines = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from(HEADERS),
    st.builds("{} = {}".format, st.sampled_from(KEYS), st.sampled_from(VALUES)),
    st.sampled_from(["byte_entropy", "anomaly", "digit_fraction", "nothing"]).map('signal = "{}"'.format),
    st.text(max_size=12),
)


def judge(text: str) -> None:
    policy, problems = check_policy(text, name="fuzz")
    assert (policy is None) == bool(problems)
    num_lines = text.count("\n") + 1
    for problem in problems:
        assert problem.line is None or 1 <= problem.line <= num_lines
        assert problem.told() in str(policy_error("fuzz", problems))
    if policy is not None:
        lacking = lacking_problems(policy, ["web"], ["text"], profile=None, vocab_size=None)
        if not fit_problems(policy, ["web"], ["text"]):
            assert Gate(policy, source_names=["web"], source_kinds=["text"]).remarks == lacking


@settings(max_examples=300)
@example(["[[rules]]", 'name = ""', "[sources]", '"" = 1'])
@given(st.lists(wild_lines, max_size=12))
def test_wild_texts(lines: list[str]) -> None:
    judge("\n".join(lines))


@settings(max_examples=200)
@given(
    st.sampled_from(POLICY_NAMES),
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from(["drop", "double", "value", "key"]), st.sampled_from(VALUES))
    ),
)
def test_policies_that_ship_with_lines_changed(name: str, edits: list[tuple[int, str, str]]) -> None:
    lines = [line for line in policy_text(name).splitlines() if not line.startswith("#")]
    for place, edit, value in edits[:4]:
        at = place % len(lines)
        if edit == "drop":
            del lines[at]
        elif edit == "double":
            lines.insert(at, lines[at])
        elif edit == "value":
            lines[at] = re.sub(r"= .*", f"= {value}", lines[at])
        else:
            lines[at] = re.sub(r"^(\w+) =", r"\1x =", lines[at])
        if not lines:
            return
    judge("\n".join(lines))


@settings(max_examples=100)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    judge(text)
