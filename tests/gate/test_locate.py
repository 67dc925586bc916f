"""Lines of keys, compared with what tomllib reads of the same text."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.gate.locate import key_lines, line_of
from dataguard.gate.policy import POLICY_NAMES, policy_text

HARD = '''\
# [no.table] = 1
top.left = 1
"a key".'b.c' = """
x = 1
[[rules]]
\\""" still "" inside """"
c = \'\'\'
d = 2\'\'\'\'\'

[[rules]]
when = 1979-05-27 07:32:00 # a day
list = [ # begins
  [1, 2],
  { k = "]}", "l m".n = [ ] }, # ,
  "#",
]
[[rules]]
[[rules.inner]]
e = -inf
[rules.inner.deep]
f = true
[[rules.inner]]
[ sources . "x.y" ]
g = {}
'''


def paths(value: Any, path: tuple = ()) -> set[tuple]:
    found = {path} if path else set()
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in members:
        found |= paths(each, (*path, key))
    return found


@pytest.mark.parametrize("text", [HARD, HARD.replace("\n", "\r\n"), *map(policy_text, POLICY_NAMES)])
def test_every_path_has_a_line_and_no_other(text: str) -> None:
    assert set(key_lines(text)) == paths(tomllib.loads(text))


def test_lines_of_a_hard_text_are_those_counted_by_hand() -> None:
    lines = key_lines(HARD)
    expected = {
        ("top", "left"): 2,
        ("a key", "b.c"): 3,
        ("c",): 7,
        ("rules", 0): 10,
        ("rules", 0, "when"): 11,
        ("rules", 0, "list"): 12,
        ("rules", 0, "list", 0): 13,
        ("rules", 0, "list", 1, "l m", "n"): 14,
        ("rules", 0, "list", 2): 15,
        ("rules", 1): 17,
        ("rules", 1, "inner", 0, "e"): 19,
        ("rules", 1, "inner", 0, "deep"): 20,
        ("rules", 1, "inner", 1): 22,
        ("sources", "x.y"): 23,
        ("sources", "x.y", "g"): 24,
    }
    assert {path: lines[path] for path in expected} == expected


keys = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", '"\\u0041"'])
leaves = st.sampled_from(["1", '"x # ]"', "'''\n'''", '"""a\n"b"\\""""', "2.5e3", "true", "07:32:00", "[]", "{}"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: "[" + ", # c ]\n".join(each) + "\n]"),
        st.dictionaries(keys, inner, max_size=3).map(
            lambda each: "{" + ", ".join(f"{key} = {value}" for key, value in each.items()) + "}"
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(["", "[t]", "[[r]]", "[[r.s]]", "[u.v]"]), keys, values), max_size=6))
def test_every_path_of_any_text_has_the_line_of_its_key(parts: list[tuple[str, str, str]]) -> None:
    text, marks = "", []
    for header, key, value in parts:
        text += f"{header}\n" if header else ""
        marks.append((text.count("\n") + 1, key))
        text += f"{key} = {value}\n"
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a key or table stands twice
    lines = key_lines(text)
    assert set(lines) == paths(parsed)
    assert {line for line, _ in marks} <= set(lines.values())


def test_what_has_no_line_has_that_of_its_surroundings() -> None:
    assert line_of(key_lines("a = 1\n[[r]]\nb = 2"), ("r", 0, "missing", 7)) == 2
    assert line_of({}, ("a",)) is None
