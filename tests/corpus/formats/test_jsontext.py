"""Do the helpers over one JSON text agree with what `json` says, at every boundary they cut at?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.corpus.formats import jsontext
from dataguard.corpus.formats.jsontext import count_key, nesting_depth, patch_lone_surrogates, unescape, utf8_break

_STRINGS = st.text(alphabet='ab"\\/\n\t[{}]:,u0\x00\u00e9\u20ac\U0001f600', max_size=30) | st.just('"key"')
_KEYS = st.sampled_from(["key", "k\\ey", '"key', "key\\", "ke", "other"])
_VALUES = st.recursive(
    st.none() | st.integers() | _STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(text=_STRINGS, ascii_only=st.booleans(), slice_bytes=st.integers(13, 40))
def test_unescape_at_every_slice(text: str, ascii_only: bool, slice_bytes: int) -> None:
    for content in (text, text * 5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jsontext, "_SLICE_BYTES", slice_bytes)
            assert unescape(json.dumps(content, ensure_ascii=ascii_only).encode()) == content.encode()


@given(value=_VALUES, ascii_only=st.booleans(), slice_bytes=st.integers(1, 20))
def test_depth_at_every_slice(value: Any, ascii_only: bool, slice_bytes: int) -> None:
    def depth(entry: Any) -> int:
        inner = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_SLICE_BYTES", slice_bytes)
        assert nesting_depth(json.dumps(value, ensure_ascii=ascii_only).encode()) == depth(value)


@given(pairs=st.lists(st.tuples(_KEYS, _VALUES), max_size=5), spacing=st.sampled_from([("", ""), (" ", "\t \r")]))
def test_keys_of_the_outermost_object_are_counted(pairs: list[tuple[str, Any]], spacing: tuple[str, str]) -> None:
    before, after = spacing
    text = "{" + ",".join(f"{json.dumps(key)}{before}:{after}{json.dumps(value)}" for key, value in pairs) + "}"
    expected = sum(key == "key" for key, _ in pairs)
    assert count_key(text.encode(), "key") == expected
    assert count_key(text.encode(), "key", plain=b'"key"') == expected


@given(content=st.binary(max_size=40) | st.text(max_size=20).map(str.encode), slice_bytes=st.integers(1, 9))
def test_utf8_breaks_where_python_says(content: bytes, slice_bytes: int) -> None:
    expected = -1
    try:
        content.decode()
    except UnicodeDecodeError as error:
        expected = error.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_SLICE_BYTES", slice_bytes)
        assert utf8_break(content) == expected


@given(units=st.lists(st.sampled_from(["\\ud83d", "\\ude00", "\\\\", "\\n", "ud800", "\\u00e9"]), max_size=8))
def test_patched_surrogates_are_the_lone_ones(units: list[str]) -> None:
    text = '"' + "".join(units) + '"'
    patched = json.loads(patch_lone_surrogates(text.encode()))
    # both halves of a pair become one character on decoding, so what is left over is lone
    assert patched == "".join("\ufffd" if 0xD800 <= ord(char) < 0xE000 else char for char in json.loads(text))
