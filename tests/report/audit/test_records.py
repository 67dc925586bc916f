"""Records as the page shows them: their content, what is marked in it, or why it cannot be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.reader import RowReader
from dataguard.gate.policy import named_policy, read_policy
from dataguard.report.audit.records import read_records, shown_record
from tests.corpus.making import jsonl, npy
from tests.report.audit.making import PERIODIC, PROSE, SCRIPT

IDS = [i * 31 % 997 for i in range(200)] + [5] * 50


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    jsonl(tmp_path / "web/a.jsonl", PROSE)
    jsonl(tmp_path / "web/b.jsonl.gz", PROSE)
    npy(tmp_path / "ids/e.npy", IDS)
    options = ScanOptions(block_bytes=1000, block_tokens=100)
    build_manifest_file([str(tmp_path / "web"), str(tmp_path / "ids")], tmp_path / "M", options=options)
    return Corpus.open(tmp_path / "M")


def test_records_and_windows_are_read_the_short_last_one_too(corpus: Corpus) -> None:
    places = [("web/a.jsonl", 70), ("ids/e.npy", 3), ("web/b.jsonl.gz", 5), ("web/a.jsonl", 0), ("ids/e.npy", 0)]
    found = read_records(corpus, [*places, places[0]], seq_len=64)
    assert found[places[0]] == PROSE[70].encode()
    assert found[places[2]] == PROSE[5].encode()
    assert found[places[3]] == PROSE[0].encode()
    assert np.array_equal(found[places[1]], IDS[192:])
    assert np.array_equal(found[places[4]], IDS[:64])
    assert len(found) == 5


def test_a_compressed_shard_is_decoded_as_far_as_is_worth_it(corpus: Corpus) -> None:
    places = [("web/a.jsonl", 119), ("web/b.jsonl.gz", 119), ("web/b.jsonl.gz", 0)]
    found = read_records(corpus, places, seq_len=64, most_decoded_bytes=1000)
    assert found[places[0]] == PROSE[119].encode(), "a shard that is not compressed costs nothing"
    for place in places[1:]:
        assert found[place] == "it lies deep in a compressed shard, which is not decoded for a page"
    size = sum(map(len, PROSE))
    found = read_records(corpus, places, seq_len=64, most_decoded_bytes=2 * size)
    assert found[places[2]] == PROSE[0].encode()


def test_a_shard_that_is_gone_is_asked_for_once(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web/a.jsonl").unlink()
    (tmp_path / "ids/e.npy").unlink()
    asked, windows = [], RowReader.read_windows
    monkeypatch.setattr(RowReader, "read_windows", lambda *given: (asked.append(given[2]), windows(*given))[1])
    places = [("web/a.jsonl", row) for row in (3, 60, 90)] + [("ids/e.npy", 0), ("ids/e.npy", 1)]
    found = read_records(corpus, places, seq_len=64)
    assert all(str(content).startswith("missing: ") for content in found.values())
    assert len(found) == 5
    assert asked == [[0]]


def test_the_gravest_rule_that_has_a_place_comes_first() -> None:
    policy = named_policy("default")
    rules = ("dup_lines", "words", "byte_periods", "top_2grams")
    text = ("buy now\n" * 3 + PERIODIC * 100).encode()
    first, *others = shown_record(text, rules, "web", policy, vocab_size=None)
    assert first.what == "marked: byte_periodic_repeats (byte_periods: at least 32)"
    assert f"<mark>{PERIODIC * 20}" in str(first.html)
    assert [shown.what for shown in others] == [
        "marked: dup_line_fraction (dup_lines: above 0.3)",
        "marked: top_2gram_char_fraction (top_2grams: above 0.2)",
    ]
    (whole,) = shown_record(b"short", ("words",), "web", policy, vocab_size=None)
    assert whole.what == "nothing to mark: no rule that fired has a place there"
    assert str(whole.html) == "short"
    (beginning,) = shown_record(SCRIPT.encode(), (), "web", policy, vocab_size=None)
    assert beginning.what == "its beginning"
    assert str(beginning.html) == "&lt;script&gt;alert(1)&lt;/script&gt; "


def test_rules_are_those_of_the_source() -> None:
    text = '[[rules]]\nname = "p"\nsignal = "byte_periodic_repeats"\nat_least = 32\naction = "mask"\n'
    policy = read_policy(f"{text}[sources.web]\nrules.p = {{ at_least = 64 }}\n[sources.code]\noff = ['p']\n", name="t")
    content = (PERIODIC * 100).encode()
    (web,) = shown_record(content, ("p",), "web", policy, vocab_size=None)
    assert web.what == "marked: byte_periodic_repeats (p: at least 64)"
    (code,) = shown_record(content, ("p",), "code", policy, vocab_size=None)
    assert code.what == "its beginning"


def test_ids_are_marked_as_they_stand() -> None:
    policy = named_policy("default")
    ids = np.array([1, 22, 999, 333, *[7] * 40, 4], np.int64)
    out, periods = shown_record(ids, ("out_of_vocabulary", "token_periods"), "ids", policy, vocab_size=900)
    assert str(out.html).startswith("1 22 <mark>999</mark> 333 7 7")
    assert out.what == "marked: out_of_vocabulary (out_of_vocabulary: above 0)"
    assert f"333 <mark>{'7 ' * 39}7</mark> 4" in str(periods.html)
    (unknown,) = shown_record(ids, ("out_of_vocabulary",), "ids", policy, vocab_size=None)
    assert "<mark>" not in str(unknown.html)


def test_of_a_long_record_the_beginning_is_looked_at() -> None:
    text = PERIODIC.encode() * (1 << 19)
    late_lines = b"\n".join(b"%07d" % number for number in range(150_000)) + b"\nagain" * 1000
    (late,) = shown_record(late_lines, ("dup_lines",), "web", named_policy("default"), vocab_size=None)
    assert late.what == "nothing to mark, in the first 1 MiB: no rule that fired has a place there"
    (shown,) = shown_record(text, ("byte_periods",), "web", named_policy("default"), vocab_size=None)
    assert shown.what == "marked: byte_periodic_repeats, in the first 1 MiB (byte_periods: at least 32)"
