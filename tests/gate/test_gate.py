"""The gate over real texts and tokens: signals through the scorers, spans, padding, needs that are not there."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dataguard.errors import PolicyError, UsageError
from dataguard.gate.gate import Gate
from dataguard.gate.masking import merged
from dataguard.gate.policy import named_policy, read_policy
from dataguard.gate.verdict import Skip, Verdict
from dataguard.score.profile import ProfileBuilder, length_outlier
from dataguard.score.registry import HEADLINE
from tests.gate.drawn import Profile

PROSE = (
    b"The ferry left the harbour late, since fog had hidden the far shore until nearly ten. Anna counted gulls on the "
    b"railing and wrote each of them down, while her brother slept under a coat that was too large for him. Nobody "
    b"asked where they went; the crew knew the two by name, and the captain had sailed with their father for years."
)


def texts(gate: Gate, records: list[bytes], source: list[int] | None = None):
    offsets = np.cumsum([0, *map(len, records)])
    numbers = np.zeros(len(records), np.int32) if source is None else np.array(source, np.int32)
    return gate.judge_texts(np.frombuffer(b"".join(records), np.uint8), offsets, numbers)


def tokens(gate: Gate, rows: list[list[int]], source: list[int] | None = None, **given):
    offsets = np.cumsum([0, *map(len, rows)])
    numbers = np.zeros(len(rows), np.int32) if source is None else np.array(source, np.int32)
    return gate.judge_tokens(np.array([each for row in rows for each in row], np.int64), offsets, numbers, **given)


def fired(gate: Gate, judged, i: int) -> list[str]:
    return [rule.name for rule in gate.policy.rules if judged.fired_by(rule.bit)[i]]


def test_default_over_texts() -> None:
    gate = Gate(named_policy("default"), source_names=["web"])
    judged = texts(gate, [PROSE, b"g4OD" * 500, b"abc\xff" * 40, b"", PROSE + b"\x00" * 10])
    assert judged.verdict.tolist() == [
        Verdict.PASS, Verdict.MASK, Verdict.MASK, Verdict.FLAG, Verdict.FLAG,
    ]  # fmt: skip
    assert "byte_periods" in fired(gate, judged, 1)
    assert {"invalid_utf8", "invalid_utf8_many", "nontext", "nontext_many"} <= set(fired(gate, judged, 2))
    assert fired(gate, judged, 3) == ["words", "word_length", "alphabetic_words"]
    assert fired(gate, judged, 4) == ["nontext"]
    assert judged.spans(1) is None
    assert set(judged.signals) >= set(HEADLINE["text"]) - {"length_outlier"}
    assert (judged.why[:, 7] == np.where([True, True, False, False, True], -1, Skip.MINIMUM)).all()


def test_a_periodic_run_masks_its_span_and_nothing_else() -> None:
    gate = Gate(named_policy("default"), source_names=["ids"], vocab_size=5000)
    plain = list(range(100, 1100))
    row = plain[:400] + [7, 8] * 40 + plain[400:]
    judged = tokens(gate, [plain, row])
    assert judged.verdict.tolist() == [Verdict.PASS, Verdict.MASK]
    assert judged.spans(0) is None
    assert judged.spans(1).tolist() == [[400, 480]]


def test_a_short_run_is_not_masked_beside_a_long_one() -> None:
    gate = Gate(named_policy("olmo"), source_names=["ids"])
    row = [1, 2, 3, *[9] * 31, *range(50, 90), *[8] * 32, 4, 5]
    judged = tokens(gate, [row])
    assert judged.spans(0).tolist() == [[74, 106]]
    above = read_policy(gate.policy.text.replace("at_least = 32", "above = 31"), name="t")
    assert tokens(Gate(above, source_names=["ids"]), [row]).spans(0).tolist() == [[74, 106]]


def test_a_rule_without_a_span_masks_the_whole_sample() -> None:
    text = (
        '[[rules]]\nname = "runs"\nsignal = "token_periodic_repeats"\nat_least = 32\naction = "mask"\n'
        '[[rules]]\nname = "poor"\nsignal = "token_entropy"\nbelow = 1\naction = "mask"\n'
        '[[rules]]\nname = "whole"\nsignal = "token_periodic_repeats"\nat_least = 100\naction = "mask"\n'
        'masks = "sample"\n'
        '[[rules]]\nname = "gone"\nsignal = "token_periodic_repeats"\nat_least = 200\naction = "substitute"\n'
    )
    gate = Gate(read_policy(text, name="t"), source_names=["ids"])
    rich = list(range(1000, 1064))
    judged = tokens(gate, [rich + [5] * 40, [5] * 40, rich * 3 + [5] * 120, rich * 8 + [5] * 220])
    assert judged.verdict.tolist() == [Verdict.MASK, Verdict.MASK, Verdict.MASK, Verdict.SUBSTITUTE]
    assert judged.spans(0).tolist() == [[64, 104]]
    assert [judged.spans(i) for i in (1, 2, 3)] == [None, None, None]


def test_spans_are_positions_of_the_row_as_given_and_masked_ones_lie_in_none() -> None:
    gate = Gate(named_policy("olmo"), source_names=["ids"])
    rows = [[1, 2, *[9] * 40, 3], [4] * 50]
    mask = np.ones(93, bool)
    mask[20:22] = False
    judged = tokens(gate, rows, mask=mask)
    assert judged.spans(0).tolist() == [[2, 20], [22, 42]]
    assert judged.spans(1).tolist() == [[0, 50]]


def test_ids_outside_the_vocabulary_halt() -> None:
    gate = Gate(named_policy("default"), source_names=["ids"], vocab_size=100)
    judged = tokens(gate, [list(range(100)), [*range(99), 100], [*range(99), -1]])
    assert judged.verdict.tolist() == [Verdict.PASS, Verdict.HALT, Verdict.HALT]


def test_out_of_vocabulary_may_mask_the_ids_alone() -> None:
    text = '[[rules]]\nname = "oov"\nsignal = "out_of_vocabulary"\nabove = 0\naction = "mask"'
    gate = Gate(read_policy(text, name="t"), source_names=["ids"], vocab_size=10)
    assert tokens(gate, [[1, 10, 11, 2, -1]]).spans(0).tolist() == [[1, 3], [4, 5]]


def test_padding_is_never_judged() -> None:
    text = '[[rules]]\nname = "a"\nsignal = "anomaly"\nat_least = 0.4\naction = "halt"'
    gate = Gate(read_policy(text, name="t"), source_names=["ids"])
    rows = [[0] * 8, [0] * 8, [0] * 8, []]
    mask = np.array([True] * 8 + [False] * 8 + [True] * 8)
    judged = tokens(gate, rows, [0, 0, -1, 0], mask=mask)
    assert judged.verdict.tolist() == [Verdict.HALT, Verdict.PASS, Verdict.PASS, Verdict.PASS]
    assert judged.why[:, 0].tolist() == [-1, Skip.PADDING, Skip.PADDING, Skip.PADDING]
    assert judged.scored.tolist() == [True, False, False, False]


def test_what_a_rule_needs_and_lacks_is_told_and_counted() -> None:
    policy = named_policy("default")
    gate = Gate(policy, source_names=["web", "ids"], source_kinds=["text", "tokens"])
    told = {remark.where for remark in gate.remarks}
    assert told == {"rule 'length_outlier'", "rule 'out_of_vocabulary'", "rule 'token_entropy'"}
    judged = tokens(gate, [[1, 2, 3]], [1])
    for name in ("out_of_vocabulary", "token_entropy"):
        bit = next(rule.bit for rule in policy.rules if rule.name == name)
        assert judged.why[0, bit] == Skip.NEED
    assert not {"out_of_vocabulary", "token_entropy_ratio"} & set(judged.signals)
    with pytest.raises(PolicyError, match="3 problems"):
        Gate(policy, source_names=["web", "ids"], source_kinds=["text", "tokens"], strict=True)
    assert not Gate(policy, source_names=["ids"], source_kinds=["tokens"], vocab_size=9, strict=True).remarks


def test_fertility_is_judged_where_the_bytes_are_known() -> None:
    text = '[[rules]]\nname = "f"\nsignal = "fertility"\nabove = 0.5\naction = "flag"'
    gate = Gate(read_policy(text, name="t"), source_names=["ids"])
    assert tokens(gate, [[1, 2, 3]]).why[0, 0] == Skip.NEED
    judged = tokens(gate, [[1, 2, 3], [1, 2, 3]], text_bytes=np.array([4, 30]))
    assert judged.signals["fertility"].tolist() == [0.75, 0.1]
    assert judged.verdict.tolist() == [Verdict.FLAG, Verdict.PASS]


def test_length_outliers_by_a_profile() -> None:
    builder = ProfileBuilder()
    builder.add("web", {"length_bytes": np.array([90, 95, 100, 105, 110]), "digit_fraction": np.array([0.1, 0.2, 0.3])})
    profile = builder.profile()
    text = (
        '[[rules]]\nname = "long"\nsignal = "length_outlier"\nabove = 6\naction = "flag"\n'
        '[[rules]]\nname = "odd"\nsignal = "digit_fraction"\noutlier_mad = 5\naction = "mask"\n'
    )
    gate = Gate(read_policy(text, name="t"), source_names=["new", "web"], profile=profile)
    judged = texts(gate, [b"a" * 100, b"a" * 1000, b"a" * 1000, b"7" * 100], [1, 1, 0, 1])
    assert judged.verdict.tolist() == [Verdict.PASS, Verdict.FLAG, Verdict.PASS, Verdict.MASK]
    assert judged.why[2].tolist() == [Skip.REFERENCE, Skip.REFERENCE]
    assert [remark.asked.rpartition(" ")[2] for remark in gate.remarks] == ["new", "new"]
    expected = length_outlier([100, 1000, 1000, 100], [1, 1, 0, 1], profile, source_names=["new", "web"])
    assert judged.signals["length_outlier"].tobytes() == expected.tobytes()


def test_a_mad_of_zero_makes_no_outlier() -> None:
    text = '[[rules]]\nname = "r"\nsignal = "digit_fraction"\noutlier_mad = 1\naction = "flag"'
    profile = Profile({("web", "digit_fraction"): (0.5, 0.0)})
    gate = Gate(read_policy(text, name="t"), source_names=["web"], profile=profile, also=())
    judged = gate.judge_columns({"digit_fraction": np.array([0.0, 1.0])}, np.zeros(2, np.int32), "text")
    assert judged.rules.tolist() == [0, 0]
    assert judged.evaluated.tolist() == [2]


def test_sources_that_are_not_there_are_told() -> None:
    rule = '[[rules]]\nname = "r"\nsignal = "anomaly"\nabove = 0.5\naction = "flag"\n'
    with pytest.raises(PolicyError) as raised:
        Gate(
            read_policy(f'{rule}sources = ["wbe", "code-*"]\n[sources.books]\noff = ["r"]', name="t"),
            source_names=["web"],
        )
    told = str(raised.value)
    assert "did you mean web?" in told
    assert "'code-*'" in told
    assert "line 7, section sources.books" in told
    with pytest.raises(PolicyError, match="it is over tokens, and its sources are not"):
        Gate(
            read_policy(f'{rule}sources = ["web"]', name="t"),
            source_names=["web", "ids"],
            source_kinds=["text", "tokens"],
        )
    Gate(read_policy(f'{rule}sources = ["*"]', name="t"), source_names=["web", "ids"], source_kinds=["text", "tokens"])
    elsewhere = read_policy(f'{rule}sources = ["ids"]\n[sources.books]\noff = ["r"]', name="t")
    Gate(elsewhere, source_names=["web"], source_kinds=["text"], known_sources=["books", "ids", "web"])
    with pytest.raises(PolicyError, match="no source is called 'books'"):
        Gate(elsewhere, source_names=["web"], source_kinds=["text"], known_sources=["ids"])
    text = f'{rule}sources = ["ids"]\n[sources.web]\nrules.r = {{above = 0.6}}'
    with pytest.raises(PolicyError, match="is not for these sources"):
        Gate(read_policy(text, name="t"), source_names=["web", "ids"])


def test_a_policy_over_other_data_than_there_is_says_so() -> None:
    (remark,) = Gate(named_policy("olmo"), source_names=["web"], source_kinds=["text"]).remarks
    assert remark.kind == "nothing"


def test_columns_that_are_missing_or_too_short_are_refused() -> None:
    gate = Gate(named_policy("olmo"), source_names=["ids"])
    source = np.zeros(2, np.int32)
    with pytest.raises(UsageError, match="token_periodic_repeats is missing"):
        gate.judge_columns({}, source, "tokens")
    with pytest.raises(UsageError, match="one value a sample"):
        gate.judge_columns({"token_periodic_repeats": np.zeros(3)}, source, "tokens")
    for number in (1, -2):
        with pytest.raises(UsageError, match="has no name"):
            gate.judge_columns({"token_periodic_repeats": np.zeros(1)}, np.array([number], np.int32), "tokens")
    with pytest.raises(UsageError, match="vocabulary of 0"):
        Gate(named_policy("olmo"), source_names=["ids"], vocab_size=0)


def test_no_samples_and_no_rules() -> None:
    gate = Gate(named_policy("default"), source_names=["web"], vocab_size=9)
    none = texts(gate, [])
    assert (len(none), none.evaluated.sum(), none.verdict.dtype, none.rules.dtype) == (0, 0, np.uint8, np.uint64)
    seed = Gate(named_policy("seed-batch"), source_names=["ids"])
    judged = tokens(seed, [[1] * 20, [1, 2]])
    assert judged.verdict.tolist() == [Verdict.PASS, Verdict.PASS]
    assert judged.rules.dtype == np.uint64
    assert [verdict.fired for verdict in seed.judge_batch(judged.signals, np.zeros(2, np.int32))] == [True, True]


def test_the_64th_rule_has_the_last_bit() -> None:
    text = "".join(
        f'[[rules]]\nname = "r{i}"\nsignal = "digit_fraction"\nabove = 0.5\naction = "flag"\n' for i in range(64)
    )
    gate = Gate(read_policy(text, name="t"), source_names=["web"], also=())
    judged = gate.judge_columns({"digit_fraction": np.array([0.6, 0.5])}, np.zeros(2, np.int32), "text")
    assert judged.rules.tolist() == [2**64 - 1, 0]
    assert judged.fired.tolist() == [1] * 64


def test_a_gate_goes_to_another_process() -> None:
    gate = Gate(named_policy("default"), source_names=["web"])
    texts(gate, [PROSE])
    again = pickle.loads(pickle.dumps(gate))
    records = [PROSE, b"g4OD" * 500]
    assert texts(again, records).rules.tobytes() == texts(gate, records).rules.tobytes()


@pytest.mark.parametrize(
    ("spans", "expected"),
    [([], []), ([[1, 2]], [[1, 2]]), ([[5, 6], [0, 9], [2, 3]], [[0, 9]]), ([[0, 1], [2, 3]], [[0, 1], [2, 3]])],
)
def test_spans_are_merged(spans, expected) -> None:
    assert merged(np.array(spans, np.int64).reshape(-1, 2)).tolist() == expected
