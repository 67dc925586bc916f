"""One record beside the rules: the same verdict as the gate gives it, every signal, and where each lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.audit.explain import explain_record
from dataguard.corpus.corpus import Corpus
from dataguard.errors import PolicyError
from dataguard.gate.gate import Gate
from dataguard.gate.policy import named_policy, read_policy
from dataguard.gate.verdict import Verdict
from dataguard.score.registry import TEXT_SIGNALS, TOKEN_SIGNALS
from tests.corpus.making import jsonl, npy
from tests.support.corpora import manifest_of

TEXTS = ["one line\n" * 200, "short", "", "g4OD" * 500, "a\ufffd" * 30]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    jsonl(tmp_path / "web/a.jsonl", TEXTS)
    npy(tmp_path / "ids/t.npy", [*range(100, 200), *[7] * 40, *range(200, 260)])
    return Corpus.open(manifest_of(tmp_path, ["ids", "web"]))


@pytest.mark.parametrize("row", range(len(TEXTS)))
def test_the_verdict_is_the_gates(corpus: Corpus, row: int) -> None:
    policy = named_policy("default")
    document = explain_record(policy, corpus, "web/a.jsonl", row).document
    data = TEXTS[row].encode()
    gate = Gate(policy, source_names=["ids", "web"])
    judged = gate.judge_texts(np.frombuffer(data, np.uint8), np.array([0, len(data)]), np.array([1], np.int32))
    assert document.verdict == Verdict(int(judged.verdict[0])).name.lower()
    assert document.fired == tuple(rule.name for rule in policy.rules if judged.fired_by(rule.bit)[0])
    assert [each.signal for each in document.signals] == [spec.name for spec in TEXT_SIGNALS]
    values = {each.signal: each.value for each in document.signals}
    for name, column in judged.signals.items():
        assert values[name] == column[0]
    assert document.length == len(data)


def test_spans_stand_beside_signals_of_rules_that_fired_and_no_others(corpus: Corpus) -> None:
    document = explain_record(named_policy("default"), corpus, "web/a.jsonl", 0).document
    signals = {each.signal: each for each in document.signals}
    lines = signals["dup_line_fraction"]
    assert (lines.num_spans, len(lines.spans), lines.spans[0]) == (199, 100, (9, 17))
    assert signals["digit_fraction"].spans == ()
    assert signals["digit_fraction"].rules == ("digits",)
    assert signals["longest_line_chars"].rules == ()


def test_a_section_says_what_counts_for_the_source(corpus: Corpus) -> None:
    text = (
        '[[rules]]\nname = "a"\nsignal = "length_bytes"\nabove = 3\naction = "flag"\n'
        '[[rules]]\nname = "b"\nsignal = "length_bytes"\nabove = 3\naction = "substitute"\n'
        '[sources.web]\noff = ["b"]\nrules.a = {above = 5}\n'
    )
    document = explain_record(read_policy(text, name="t"), corpus, "web/a.jsonl", 1).document
    a, b = document.rules
    assert (a.text, a.there, a.state, a.why) == ("length_bytes above 3", "length_bytes above 5", "quiet", None)
    assert (b.state, b.why) == ("skipped", "a section switches it off for this source")
    assert document.verdict == "pass"


def test_a_window_of_tokens_and_ids_outside_of_the_vocabulary(corpus: Corpus) -> None:
    explained = explain_record(named_policy("default"), corpus, "ids/t.npy", 1, seq_len=100, vocab_size=250)
    document = explained.document
    assert explained.content[:40].tolist() == [7] * 40
    assert [each.signal for each in document.signals] == [spec.name for spec in TOKEN_SIGNALS]
    assert document.verdict == "halt"
    assert document.mask_spans is None
    signals = {each.signal: each for each in document.signals}
    assert (signals["out_of_vocabulary"].value, signals["out_of_vocabulary"].spans) == (10, ((90, 100),))
    assert signals["token_periodic_repeats"].spans == ((0, 40),)
    assert "text" in (signals["fertility"].why or "")


def test_a_policy_for_other_sources_is_refused(corpus: Corpus) -> None:
    text = '[[rules]]\nname = "a"\nsignal = "length_bytes"\nabove = 3\naction = "flag"\nsources = ["wbe"]\n'
    with pytest.raises(PolicyError, match="did you mean web"):
        explain_record(read_policy(text, name="t"), corpus, "web/a.jsonl", 1)
