"""Distributions: every record in one bin, and the bounds of rules where they are."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.audit.folder import AuditFolder
from dataguard.report.audit.charts import NUM_BINS, Values, charts_of, outliers_in, values_of
from dataguard.report.audit.page import page_of_folder
from dataguard.score.profile import ProfileBuilder, read_profile
from tests.corpus.making import jsonl
from tests.report.audit.making import PERIODIC, PROSE, Read, audit_of

POLICY = """
[[rules]]
name = "periods"
signal = "byte_periodic_repeats"
at_least = 32
action = "mask"

[[rules]]
name = "entropy"
all = [{ signal = "length_bytes", at_least = 256 }, { signal = "byte_entropy", outside = [2.0, 7.2] }]
action = "flag"

[[rules]]
name = "words"
signal = "length_words"
outside = [3, 100_000]
action = "flag"

[[rules]]
name = "longest"
signal = "longest_word_chars"
outlier_mad = 5
action = "flag"

[[rules]]
name = "lines"
signal = "length_lines"
above = 1
action = "flag"

[[rules]]
name = "far"
signal = "length_outlier"
outside = [-6, 6]
action = "flag"

[sources.web]
rules.words = { below = 5 }
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> AuditFolder:
    folder = tmp_path_factory.mktemp("charts")
    jsonl(folder / "in/web/a.jsonl", [*PROSE[:80], "one\ntwo\nthree", PERIODIC * 100])
    jsonl(folder / "in/books/a.jsonl", [" ".join(PROSE[:n]) for n in range(1, 60)])
    return audit_of(folder / "out", folder / "in", policy=POLICY, vocab_size=None)


@pytest.fixture(scope="module")
def data(done: AuditFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Read(page_of_folder(done.path)[0]).scripts[0][1])
    return found


@pytest.fixture(scope="module")
def charts(data: dict[str, Any]) -> dict[str, Any]:
    return {chart["name"]: chart for chart in data["signals"]}


def lines(chart: dict[str, Any], rule: str) -> list[Any]:
    (found,) = [each["lines"] for each in chart["rules"] if each["name"] == rule]
    return found


def test_every_record_is_in_one_bin(done: AuditFolder, data: dict[str, Any]) -> None:
    table = pq.read_table(done.signals / "000000.parquet")
    sources = Counter(table.column("source").to_pylist())
    assert data["sources"] == ["web", "books"], "the one with most records first"
    assert data["not_drawn"] == 0
    for chart in data["signals"]:
        for row in chart["rows"]:
            assert sum(row["counts"]) == row["count"] == sources[data["sources"][row["source"]]]
            assert all(0 <= place < chart["num_bins"] <= NUM_BINS for place in row["bins"])
            assert row["told"] == sorted(row["told"])


def test_whole_numbers_of_a_short_range_are_told_exactly(done: AuditFolder, charts: dict[str, Any]) -> None:
    chart = charts["length_lines"]
    assert (chart["scale"], chart["start"], chart["width"]) == ("whole", 0.5, 1.0)
    table = pq.read_table(done.signals / "000000.parquet", filters=[("source", "==", "web")])
    expected = Counter(table.column("length_lines").to_pylist())
    (row,) = [row for row in chart["rows"] if row["source"] == 0]
    assert {place + 1: number for place, number in zip(row["bins"], row["counts"], strict=True)} == expected


def test_bins_hold_what_the_rows_say(done: AuditFolder, charts: dict[str, Any]) -> None:
    """Up to the width of a bucket of the sketch, by which a value may fall into the neighbouring bin."""
    for name in ("length_bytes", "byte_entropy", "mean_word_chars", "length_outlier"):
        chart = charts[name]
        values = pq.read_table(done.signals / "000000.parquet", filters=[("source", "==", "books")]).column(name)
        reals = np.asarray(values.to_pylist(), float)
        places = np.sign(reals) * np.log10(1 + np.abs(reals)) if chart["scale"] == "log" else reals
        (row,) = [row for row in chart["rows"] if row["source"] == 1]
        edges = chart["start"] + chart["width"] * np.arange(1, chart["num_bins"])
        counts = np.zeros(chart["num_bins"])
        counts[row["bins"]] = row["counts"]
        below = np.cumsum(counts)[:-1]
        for edge, told in zip(edges, below, strict=True):
            error = chart["width"] * 0.5
            assert (places < edge - error).sum() <= told <= (places < edge + error).sum(), name


def test_bounds_are_drawn_where_they_are(charts: dict[str, Any]) -> None:
    assert lines(charts["byte_entropy"], "entropy") == [[2.0, 2.0, None], [7.2, 7.2, None]]
    assert lines(charts["length_lines"], "lines") == [[1.5, 1.0, None]], "between 1, which is out, and 2, which is in"
    ((place, value, which),) = lines(charts["byte_periodic_repeats"], "periods")
    assert (value, which) == (32.0, None)
    assert place == pytest.approx(np.log10(33))
    (rule,) = charts["length_bytes"]["rules"]
    assert (rule["name"], rule["minimum"], rule["inside"]) == ("entropy", True, [])
    (entropy,) = charts["byte_entropy"]["rules"]
    assert entropy["alone"] is False, "it counts only together with another condition"
    assert [[low, round(high, 9) if high else high] for low, high in entropy["inside"]] == [[0.0, 2.0], [7.2, 8.0]]
    (mask,) = charts["byte_periodic_repeats"]["rules"]
    assert mask["alone"] is True
    assert mask["inside"] == [[pytest.approx(np.log10(33)), None]]
    assert charts["byte_entropy"]["num_bins"] * charts["byte_entropy"]["width"] >= 7.2


def test_what_moves_by_source_is_drawn_by_source(done: AuditFolder, charts: dict[str, Any]) -> None:
    of_web, *of_books = lines(charts["length_words"], "words")
    assert of_web[1:] == [5.0, 0]
    assert [line[1:] for line in of_books] == [[3.0, 1], [100_000.0, 1]]
    profile = read_profile(done.profile.read_bytes())
    by_source = {line[2]: [] for line in lines(charts["longest_word_chars"], "longest")}
    for _, value, which in lines(charts["longest_word_chars"], "longest"):
        by_source[which].append(value)
    for number, name in enumerate(("web", "books")):
        reference = profile.reference(name, "longest_word_chars")
        assert reference is not None
        away = 5 * 1.4826 * reference.mad
        if away:
            assert by_source[number] == pytest.approx([reference.median - away, reference.median + away])
        else:
            assert number not in by_source


def test_the_first_chart_is_of_what_failed(data: dict[str, Any]) -> None:
    assert data["signals"][data["first"]]["name"] == "byte_periodic_repeats"


def test_outliers_are_those_of_the_rows(done: AuditFolder) -> None:
    found = outliers_in(done.signals)
    assert set(found) == {"web", "books"}
    for name, values in found.items():
        column = pq.read_table(done.signals / "000000.parquet", filters=[("source", "==", name)]).column(
            "length_outlier"
        )
        assert values.counts.sum() == len(column)
        assert (values.low, values.high) == (min(column.to_pylist()), max(column.to_pylist()))


def test_of_many_sources_the_largest_are_drawn(done: AuditFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataguard.audit.run import read_summary
    from dataguard.gate.policy import read_policy

    monkeypatch.setattr("dataguard.report.audit.charts.MOST_SOURCES", 1)
    profile = read_profile(done.profile.read_bytes())
    found = charts_of(read_summary(done.summary), read_policy(POLICY, name="test"), profile, {})
    assert (found["sources"], found["not_drawn"]) == (["web"], 1)
    assert all(len(chart["rows"]) == 1 for chart in found["signals"])
    assert "length_outlier" not in [chart["name"] for chart in found["signals"]]


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50))
def test_values_of_a_profile_stay_within_what_is_known(lengths: list[int]) -> None:
    builder = ProfileBuilder()
    builder.add("web", {"length_bytes": np.array(lengths)})
    values: Values = values_of(builder.profile().sources[0].signals[0])
    assert values.counts.sum() == len(lengths)
    assert (values.low, values.high) == (min(lengths), max(lengths))
    assert min(lengths) <= values.middles.min() <= values.middles.max() <= max(lengths)
    told = np.repeat(values.middles, values.counts)
    assert np.allclose(told, np.sort(lengths), rtol=1 / 128, atol=1)
