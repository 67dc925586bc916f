"""What goes into a page: data blocks that no text can end, and numbers that do not deceive."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dataguard.report.html import _environment, data_block, share, short_number, visible
from tests.report.audit.making import Read

TEXTS = st.text() | st.sampled_from(["</script>", "<!--<script>", "]]>", "\u2028\u2029", "&lt;", "\\u003c"])


@given(st.recursive(TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_a_data_block_holds_anything_and_nothing_ends_it(data: object) -> None:
    text = str(data_block(data))
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == data


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["<b>", '" onclick="', "{{ 7 * 7 }}", "'"]))
def test_text_in_a_template_stays_text(text: str) -> None:
    made = _environment().from_string('<p title="{{ text|visible }}">{{ text|visible }}</p>').render(text=text)
    read = Read(made.encode())
    assert read.tags == [("p", {"title": visible(text)})]
    assert read.text == visible(text)
    assert not set(visible(text)) & set("\x00\x1b\x7f\u202e\u2028\n")


@given(st.floats(0, 1))
def test_a_share_is_never_rounded_to_nothing_or_to_all(part: float) -> None:
    told = share(part)
    assert (told == "0%") == (part == 0)
    assert (told == "100%") == (part == 1)
    if not told.startswith("<"):
        assert abs(float(told[:-1]) / 100 - part) <= 0.00011


@given(st.floats(-1e12, 1e12) | st.integers(-(10**14), 10**14))
def test_a_value_is_told_to_four_digits(value: float) -> None:
    told = float(short_number(value).replace(",", ""))
    assert abs(told - value) <= max(abs(value) * 0.0006, 1e-300)
