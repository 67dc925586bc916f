"""Keys are hashed from unambiguous parts: never from sums, never from anything a process could change."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.keys import derive_key

PARTS = st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=5)


def test_encoding_is_the_one_written_down() -> None:
    def piece(mark: bytes, content: bytes) -> bytes:
        return mark + len(content).to_bytes(8, "little") + content

    encoded = b"dataguard-key-1" + piece(b"s", b"window") + piece(b"i", b"\x11") + piece(b"s", "\u00e9".encode())
    encoded += piece(b"i", b"\xff") + piece(b"i", b"\x80\x00") + piece(b"i", b"\x00")
    assert derive_key("window", 17, "\u00e9", -1, 128, 0) == xxhash.xxh3_64_intdigest(encoded)


def test_values_of_version_1_stay() -> None:
    assert derive_key("block-order", 17, "web", 0) == 0xC72A51013CF2F8DD
    assert derive_key("") == 0xF9CC96811A8E967F
    assert derive_key("substitute", 2**70, -(2**70)) == 0xAC0EE50E208CF017


@given(PARTS, PARTS)
def test_different_parts_give_different_keys(one: list[int | str], other: list[int | str]) -> None:
    assert (derive_key("p", *one) == derive_key("p", *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc"), ("ab", "c")),
        (("a", 1), ("a", "1")),
        ((0, 1), (1, 0)),  # seed 0 of epoch 1, seed 1 of epoch 0
        ((2**64, 0), (0, 0)),
        ((2**32, 0), (0, 2**32)),
        ((255,), (-1,)),
        ((128,), (-128,)),
        ((), (0,)),
        (("",), ()),
    ],
)
def test_pairs_that_sums_and_joins_would_mix_up(one: tuple[int | str, ...], other: tuple[int | str, ...]) -> None:
    assert derive_key("p", *one) != derive_key("p", *other)


def test_seeds_and_epochs_share_no_key() -> None:
    keys = {derive_key("block-order", seed, "web", epoch) for seed in range(100) for epoch in range(100)}
    assert len(keys) == 10_000


@pytest.mark.parametrize("part", [True, 1.0, b"a", None])
def test_other_types_are_refused(part: object) -> None:
    with pytest.raises(TypeError, match="integers and text"):
        derive_key("p", part)  # type: ignore[arg-type]


def test_hash_seed_of_the_process_changes_nothing() -> None:
    code = "from dataguard.core.keys import derive_key; print(derive_key('window', 7, 'web', 3))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "12345")
    }
    assert found == {f"{derive_key('window', 7, 'web', 3)}\n"}
