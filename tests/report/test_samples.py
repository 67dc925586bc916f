"""Blocks of lines about samples: what was said of them, what they hold, nothing that acts, whatever is in them."""

from __future__ import annotations

import io
import sys
import unicodedata
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataguard.cli import output
from dataguard.replay.answers import Delivered, InspectedSample, ReplayAnswer, ReplayMicrobatch, ReplaySample
from dataguard.replay.looking import Looked
from dataguard.report.samples import notable_samples, render_notable, render_samples, sample_preview, shown_samples

PLAIN: dict[str, Any] = {
    "rank": 0, "microbatch": 0, "slot": 3, "position": 3, "source": "web", "shard": "web/a.jsonl", "row": 7,
    "status": "live", "delivered": None, "event": None, "length": 5, "digest": "00" * 8,
}  # fmt: skip


def sample(**changes: Any) -> InspectedSample:
    return InspectedSample(**{**PLAIN, **changes})


def look(content: bytes | np.ndarray | None, **changes: Any) -> Looked:
    nothing = np.zeros((0, 2), np.int64)
    facts = {"shard": "web/a.jsonl", "row": 7, "problem": None, "signal": None, "spans": nothing, "documents": ()}
    return Looked(**{**facts, "vocab_size": None, "content": content, **changes})


def lines_of(*parts: Any) -> list[str]:
    """What a pipe would get."""
    kept, sys.stdout = sys.stdout, io.StringIO()
    try:
        for part in parts:
            output._show(part)
        return sys.stdout.getvalue().splitlines()
    finally:
        sys.stdout = kept


def shown(sample: Any, looked: Looked | None) -> list[str]:
    return lines_of(render_samples(shown_samples([sample], [looked], None)))


def test_a_block_says_why_with_which_numbers_and_shows_where() -> None:
    judged = sample(
        verdict="mask",
        rules=("low", "words"),
        why=("byte_entropy below 2", "length_words below 50 or above 100,000"),
        headline={"byte_entropy": 0.126, "byte_periodic_repeats": 315.2593, "length_outlier": None},
        signals={"byte_entropy": 0.1145, "length_words": 3.0, "dup_line_fraction": 0.5},
    )
    spans = np.array([[4, 7], [8, 11], [13, 14]])
    found = look(b"say now now; x", signal="top_2gram_char_fraction", spans=spans)
    assert shown(judged, found) == [
        "slot 3: mask by low (byte_entropy below 2), words (length_words below 50 or above 100,000)",
        "  byte_entropy 0.1145, byte_periodic_repeats ~315, length_outlier -, length_words 3",
        "  marked top_2gram_char_fraction: say ⟪now now⟫; ⟪x⟫",
    ]


def test_what_was_refused_and_what_stands_there_instead_are_told_apart() -> None:
    drawn = sample(verdict="substitute", rules=("low",), delivered=Delivered(shard="web/b.jsonl", row=9))
    assert shown(drawn, look(b"x"))[0] == "slot 3: substitute by low; web/a.jsonl:7, which was refused"
    planned = sample(verdict="pass", delivered=Delivered(shard="web/b.jsonl", row=9), event=4)
    assert shown(planned, look(b"x", shard="web/b.jsonl", row=9))[0] == (
        "slot 3: pass; web/b.jsonl:9, delivered instead"
    )


def test_what_cannot_be_read_says_so_in_its_place() -> None:
    assert shown(sample(), look(None, problem="row 7 is missing")) == ["slot 3", "  no preview: row 7 is missing"]
    assert shown(sample(), look(b"now", problem="it changed")) == ["slot 3", "  it changed", "  now"]
    assert shown(sample(), None) == ["slot 3"]


def test_a_preview_as_a_document() -> None:
    spans = np.stack([np.arange(0, 300, 2), np.arange(1, 301, 2)], axis=1)
    (found,) = shown_samples([sample()], [look(b"\x1b" * 300, signal="nontext_fraction", spans=spans)], None)
    document = sample_preview(found)
    assert document is not None
    assert (document.size, document.signal, len(document.spans), document.num_spans) == (
        300,
        "nontext_fraction",
        100,
        150,
    )
    assert document.text == "␛" * 198 + "…"
    assert msgspec.json.decode(msgspec.json.encode(document))["text"] == document.text
    (nothing,) = shown_samples([sample()], [None], None)
    assert sample_preview(nothing) is None


def test_of_a_replay_the_wrong_ones_come_first_then_the_gravest() -> None:
    facts = {name: value for name, value in PLAIN.items() if name not in {"rank", "microbatch", "event"}}

    def of(slot: int, status: str, verdict: str | None, num_rules: int = 0) -> ReplaySample:
        rules = tuple(f"r{i}" for i in range(num_rules))
        changes = {"slot": slot, "status": status, "verdict": verdict, "rules": rules, "recorded": None}
        return ReplaySample(**{**facts, **changes})

    samples = (
        of(0, "exact", "pass"), of(1, "exact", "flag", 1), of(2, "exact", "flag", 3), of(3, "withheld", "halt", 1),
        of(4, "differs", "pass"), of(5, "unreadable", None), of(6, "withheld", None),
    )  # fmt: skip
    microbatch = ReplayMicrobatch(rank=0, microbatch=0, status="differs", digest="", recorded=None, samples=samples)
    answer = ReplayAnswer(step=1, batch=1, attempt=1, status="differs", microbatches=(microbatch,))
    notable = notable_samples(answer)
    assert [each.slot for each in notable] == [4, 5, 3, 2, 1]
    few = shown_samples(notable[:2], [None, None], None)
    assert lines_of(render_notable(few, len(notable))) == [
        "", "slot 4, differs: pass", "slot 5, unreadable", "... and 3 more (samples.parquet and --json have all)",
    ]  # fmt: skip


texts = st.text(st.characters(), max_size=30)


@given(
    content=st.one_of(st.binary(max_size=80), texts.map(lambda text: text.encode("utf-8", "surrogatepass"))),
    shard=texts,
    problem=st.one_of(st.none(), texts),
    spans=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)).map(sorted), max_size=4).map(sorted),
)
def test_nothing_of_a_record_or_its_names_acts(content: bytes, shard: str, problem: str | None, spans) -> None:
    judged = sample(shard=shard, verdict="substitute", rules=("low",), delivered=Delivered(shard=shard + "x", row=1))
    marks = np.array(spans, np.int64).reshape(-1, 2)
    lines = shown(judged, look(content, shard=shard, problem=problem, signal="nontext_fraction", spans=marks))
    kinds = {unicodedata.category(char) for line in lines for char in line}
    assert not kinds & {"Cc", "Cs"}
    told = lines[-1]
    assert not {unicodedata.category(char) for char in told} & {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
    assert len(lines) == 2 + (problem is not None)
