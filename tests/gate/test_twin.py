"""The gate over arrays says what the naive twin says, of every sample and rule."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dataguard.gate import table
from dataguard.gate.fitting import fit_problems
from dataguard.gate.gate import Gate
from dataguard.gate.policy import Policy, check_policy
from dataguard.gate.verdict import Skip
from tests.gate.drawn import SOURCES, Profile, columns_of, policies, to_toml
from tests.twins import policy as twin

SEEN: Counter[str] = Counter()

drawn_references = st.dictionaries(
    st.tuples(st.sampled_from(SOURCES), st.sampled_from(sorted(twin.SIGNALS))),
    st.tuples(st.floats(0, 5), st.sampled_from([0.0, 0.1, 1.0])),
    max_size=60,
)


def possible(drawn: dict) -> tuple[str, Policy] | None:
    """A drawn policy without the rules that cannot be."""
    while drawn["rules"]:
        text = to_toml(drawn)
        policy, problems = check_policy(text, name="drawn")
        if policy is not None:
            return text, policy
        words = " ".join(problem.told() for problem in problems)
        bad = [rule for rule in drawn["rules"] if f"'{rule['name']}'" in words]
        assert bad, words
        keep = [rule for rule in drawn["rules"] if rule not in bad]
        names = {rule["name"] for rule in keep}
        sections = {
            source: {
                "off": [name for name in section.get("off", []) if name in names],
                "rules": {name: each for name, each in section.get("rules", {}).items() if name in names},
            }
            for source, section in drawn["sources"].items()
        }
        drawn = {"rules": keep, "sources": sections}
    return None


@settings(max_examples=200)
@given(
    drawn=policies(),
    kind=st.sampled_from(["text", "tokens"]),
    references=st.none() | drawn_references,
    has_vocab_size=st.booleans(),
    num_rows=st.integers(0, 40),
    seed=st.integers(0, 2**32),
)
def agree(drawn, kind, references, has_vocab_size, num_rows, seed) -> None:
    made = possible(drawn)
    assume(made is not None)
    text, policy = made
    random = np.random.Generator(np.random.PCG64(seed))
    source = random.integers(-1, len(SOURCES), num_rows).astype(np.int32)
    columns = columns_of(kind, num_rows, seed)
    assume(not fit_problems(policy, SOURCES))  # bounds for a source that the rule is not for
    gate = Gate(
        policy,
        source_names=SOURCES,
        profile=None if references is None else Profile(references),
        vocab_size=1000 if has_vocab_size else None,
    )
    judged = gate.judge_columns(columns, source, kind)
    expected = twin.judge(
        text, SOURCES, kind, columns, source.tolist(), references=references, has_vocab_size=has_vocab_size
    )
    names = {int(reason): reason.name.lower() for reason in Skip}
    for i, answer in enumerate(expected):
        states = [
            names.get(int(judged.why[i, bit])) or ("fired" if judged.fired_by(bit)[i] else "quiet")
            for bit in range(len(policy.rules))
        ]
        assert states == answer["states"]
        assert int(judged.rules[i]) == answer["bits"]
        assert int(judged.verdict[i]) == answer["verdict"]
    states = [state for answer in expected for state in answer["states"]]
    SEEN.update(states)
    assert judged.fired.tolist() == [sum(a["states"][b] == "fired" for a in expected) for b in range(len(policy.rules))]
    assert (judged.evaluated + judged.skipped == num_rows).all()
    assert (judged.skipped_why.sum(axis=1) == judged.skipped).all()


def test_the_twin_agrees_and_every_state_was_met() -> None:
    SEEN.clear()
    agree()
    assert {"fired", "quiet", *(reason.name.lower() for reason in Skip)} == set(SEEN)


def test_no_sample_depends_on_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit-equal one by one, backwards, and in chunks of another size."""
    from dataguard.gate.policy import named_policy

    gate = Gate(named_policy("default"), source_names=["web"], vocab_size=100)
    columns = columns_of("text", 200, 7)
    source = np.zeros(200, np.int32)
    whole = gate.judge_columns(columns, source, "text")
    assert whole.rules.any()
    turned = gate.judge_columns({name: each[::-1] for name, each in columns.items()}, source, "text")
    assert turned.rules[::-1].tobytes() == whole.rules.tobytes()
    single = [
        gate.judge_columns({name: each[i : i + 1] for name, each in columns.items()}, source[:1], "text").rules
        for i in range(200)
    ]
    assert np.concatenate(single).tobytes() == whole.rules.tobytes()
    monkeypatch.setattr(table, "_ROWS", 7)
    chunked = gate.judge_columns(columns, source, "text")
    assert chunked.rules.tobytes() == whole.rules.tobytes()
    assert chunked.why.tobytes() == whole.why.tobytes()
