"""How does the spelling of one token in a ``tokenizer.json`` become its bytes?

The file's decoder is a chain of steps over a list of tokens. Steps that look at each token by itself are done here, so
that bytes of one token stay apart from those of the next. What a step does only at the beginning of a text (no blank
before the first word) is left out: a window begins anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = ["Spell", "spelling_of"]

Spell = Callable[[str], bytes]
"""Token as the file spells it -> its bytes."""

_Step = Callable[[str], "str | bytes"]
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


def spelling_of(decoder: Any) -> Spell | None:
    r"""What turns a token into bytes, by the ``decoder`` member of the file.

    Returns
    -------
    callable or None
        None where a step is not one that works on a token by itself.

    Examples
    --------
    >>> spell = spelling_of({"type": "ByteLevel"})
    >>> spell("\u0120caf\u00c3\u00a9").decode(), spell("\u00e2\u0124")
    (' café', b'\xe2\x82')
    >>> spelling_of({"type": "Metaspace", "replacement": "\u2581"})("\u2581a")
    b' a'
    """
    if decoder is None:
        return lambda token: b" " + token.encode()  # the library joins tokens with a blank then
    steps = [_step(each) for each in _flat(decoder)]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None

    def spell(token: str) -> bytes:
        done: str | bytes = token
        for step in known:
            if isinstance(done, bytes):
                break
            done = step(done)
        return done if isinstance(done, bytes) else done.encode()

    return spell


def _flat(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder.get("type") != "Sequence":
        return [decoder]
    return [step for each in decoder.get("decoders", []) for step in _flat(each)]


def _step(step: dict[str, Any]) -> _Step | None:
    kind = step.get("type")
    if kind == "ByteLevel":
        return _of_byte_level
    if kind == "ByteFallback":
        return _of_byte
    if kind == "Metaspace":
        sign = str(step.get("replacement", "\u2581"))
        return lambda token: token.replace(sign, " ")
    if kind == "Replace" and "String" in (pattern := step.get("pattern", {})):
        old, new = str(pattern["String"]), str(step.get("content", ""))
        return lambda token: token.replace(old, new)
    if kind == "WordPiece":
        prefix = str(step.get("prefix", "##"))
        return lambda token: token.removeprefix(prefix) if token.startswith(prefix) else " " + token
    if kind == "BPEDecoder":
        suffix = str(step.get("suffix", "</w>"))
        return lambda token: token.replace(suffix, " ")
    if kind in {"Fuse", "Strip"}:
        return lambda token: token
    return None


def _of_byte(token: str) -> str | bytes:
    found = _BYTE.fullmatch(token)
    return token if found is None else bytes([int(found[1], 16)])


def _of_byte_level(token: str) -> bytes:
    """Each character stands for a byte; a token with one that does not (an added one) is what it says."""
    byte_of = _byte_level()
    if all(char in byte_of for char in token):
        return bytes(byte_of[char] for char in token)
    return token.encode()


@lru_cache(maxsize=1)
def _byte_level() -> dict[str, int]:
    """Characters of GPT-2's spelling -> bytes: visible Latin-1 as itself, the other bytes from U+0100 on, in order."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}
