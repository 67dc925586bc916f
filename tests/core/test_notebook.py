"""What a notebook shows: every text escaped, of bounded size, and never a failure."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.core.notebook import MOST_CHARACTERS, MOST_ROWS, Listing, card, guarded
from tests.core.test_manifest import manifest
from tests.run.small import WEB, make_manifest

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</table></div><b>",
    '" onmouseover="alert(1)',
    "' style='position:fixed",
    "&lt;b&gt;",
    "\x1b[31mred\x07",
    "a\u202eb\u2066",
    "line\nbreak",
    "\ud800",
    "{{ 7 * 7 }}",
    "$$x$$",
]
"""What a shard or a source may be called."""

TAGS = {"div", "table", "thead", "tbody", "tr", "td", "th"}


class Looked(HTMLParser):
    """Elements, attributes and text of a piece of HTML, and whether what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        for name, value in attributes:
            self.attributes.add(name)
            self.styles.add(value)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.texts.append(data)


def require_harmless(text: str) -> Looked:
    """Only tables and divisions, only inline styles that are ours, nothing that a terminal or a reader is misled by."""
    looked = Looked(text)
    assert looked.tags <= TAGS
    assert looked.attributes <= {"style"}
    assert not any("url" in style or "position" in style for style in looked.styles)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    text.encode()
    return looked


def test_hostile_texts_are_shown_and_do_nothing() -> None:
    listing = Listing(title=HOSTILE[0], columns=HOSTILE, rows=[HOSTILE], num_rows=1)
    looked = require_harmless(
        card(HOSTILE[0], dict(zip(HOSTILE, HOSTILE, strict=True)), tables=[listing], problems=HOSTILE)
    )
    assert looked.texts.count("<script>alert(1)</script>") == 7
    assert "a\\u202eb\\u2066" in looked.texts


def test_numbers_none_and_words() -> None:
    looked = require_harmless(card("x", {"many": 1_234_567, "nothing": None, "yes": True}))
    assert looked.texts == ["x", "many", "1,234,567", "nothing", "not known", "yes", "True"]


def test_what_is_too_much_is_cut_and_said() -> None:
    rows = ((str(number),) for number in range(10**9))
    text = card("x" * 10**6, {}, tables=[Listing(title="t", columns=("c",), rows=rows, num_rows=10**9)])
    assert len(text) < 10_000
    looked = require_harmless(text)
    assert looked.texts[0] == "x" * MOST_CHARACTERS + "..."
    assert looked.texts[-1] == f"and {10**9 - MOST_ROWS:,} more"
    one = Listing(title="t", columns=("c",), rows=[("r",)] * MOST_ROWS, num_rows=MOST_ROWS + 1)
    assert require_harmless(card("x", {}, tables=[one])).texts[-1] == "and 1 more"
    wrong = require_harmless(card("x", {}, problems=(str(number) for number in range(10**9))))
    assert wrong.texts[-1] == "and more"


def test_colours_are_the_notebooks_own() -> None:
    """Text inherits, nothing has a background of its own: dark and light are both right."""
    text = card("x", {"a": 1}, tables=[Listing(title="t", columns=("c",), rows=[("r",)], num_rows=1)], problems=["p"])
    declared = re.findall(r"(?<![-a-z])(color|background(?:-color)?):([^;\"]+)", text)
    assert {value for _, value in declared} == {"inherit", "transparent"}


def test_whoever_looks_sees_what_went_wrong() -> None:
    def fail() -> str:
        raise ValueError(HOSTILE[0])

    assert any("ValueError: <script>" in text for text in require_harmless(guarded("title", fail)).texts)


# -- a manifest


def test_a_manifest_is_one_line_and_a_table() -> None:
    made = make_manifest(WEB)
    assert repr(made) == f"<Manifest {made.digest[:16]} sources=2 shards=3 blocks=26 deliverable=200>"
    looked = require_harmless(made._repr_html_())
    texts = looked.texts
    assert texts[texts.index("digest") + 1] == made.digest
    start = texts.index("code")
    assert texts[start : start + 9] == ["code", "text", "1", "40", "40", "0", "400", "0", "0"]
    start = texts.index("web")
    assert texts[start : start + 9] == ["web", "text", "2", "160", "160", "0", "1,600", "0", "0"]


def test_an_empty_manifest() -> None:
    made = Manifest(
        sources=(), shards=(), blocks=np.zeros(0, BLOCK_DTYPE), rejected=np.zeros(0, REJECTED_DTYPE), codes=()
    )
    assert "sources=0" in repr(made)
    require_harmless(made._repr_html_())


def test_what_is_excluded_is_not_delivered() -> None:
    made = make_manifest({"web/a": 10, "web/b": 5})
    from dataclasses import replace

    shards = (made.shards[0], replace(made.shards[1], effect="excluded"))
    half = Manifest(sources=made.sources, shards=shards, blocks=made.blocks, rejected=made.rejected, codes=())
    texts = require_harmless(half._repr_html_()).texts
    start = texts.index("web")
    assert texts[start : start + 9] == ["web", "text", "2", "15", "10", "0", "150", "0", "1"]


@pytest.mark.parametrize("name", [name for name in HOSTILE if "/" not in name and name.isprintable()])
def test_a_source_may_be_called_anything(name: str) -> None:
    made = make_manifest({f"{name}/a": 3})
    assert name in require_harmless(made._repr_html_()).texts
    assert len(repr(made)) < 200


def test_its_size_does_not_grow_with_the_manifest() -> None:
    num_shards = 20_000
    blocks = np.zeros(num_shards, BLOCK_DTYPE)
    blocks["shard"] = np.arange(num_shards)
    blocks["num_rows"] = blocks["content_bytes"] = (1 << 53) // num_shards + 1
    names = sorted(f"source {number:05}" for number in range(1_000))
    shards = tuple(
        Shard(source=i * len(names) // num_shards, path=f"{i}", format="jsonl", compression="none", item_type="",
              size_bytes=1, digest="", num_rows=int(blocks["num_rows"][0]), effect="clean")
        for i in range(num_shards)
    )  # fmt: skip
    made = Manifest(
        sources=tuple(Source(name=name, kind="text", text_field="text") for name in names),
        shards=shards,
        blocks=blocks,
        rejected=np.zeros(0, REJECTED_DTYPE),
        codes=(),
    )
    text = made._repr_html_()
    assert len(text) < 100_000
    assert f"{int(blocks['num_rows'].sum()):,}" in text, "sums are exact beyond 2**53"
    assert len(repr(made)) < 200


def test_the_manifest_of_the_other_tests_shows_too() -> None:
    require_harmless(manifest([(0, "a"), (1, "b")])._repr_html_())
