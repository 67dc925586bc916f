"""What does one line of JSON hold, where its size or its nesting asks for care?

Small helpers over the bytes of one JSON text, all in time linear in its length and in memory that does not grow with
it: how deep it nests, how often its outermost object has a key, what a string is without its escapes, where its
UTF-8 breaks.
"""

from __future__ import annotations

import codecs
import re
import threading
from typing import Any

import msgspec
import numpy as np

__all__ = ["count_key", "decode_deep", "nesting_depth", "patch_lone_surrogates", "unescape", "utf8_break"]

_SLICE_BYTES = 1 << 20
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1

# possessive, so that a string of any length needs no memory to be passed over
_TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"([ \t\r\n]*+:)?|[\[{]|[\]}]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*+:")
_SURROGATES = re.compile(
    rb"(\\\\)|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def nesting_depth(text: Any) -> int:
    """How deep the brackets outside strings nest, in a bytes-like JSON text that may be malformed.

    >>> nesting_depth(b'{"a": ["[[[", {}]}'), nesting_depth(b"7"), nesting_depth(b"[" * 1_000_000)
    (3, 0, 1000000)
    """
    view = memoryview(text)
    depth = deepest = start = 0
    is_inside = False
    while start < len(view):
        stop = min(start + _SLICE_BYTES, len(view))
        piece = bytes(view[start:stop])
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and stop < len(view):  # do not cut an escape in two
            stop += 1
            piece = bytes(view[start:stop])
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[1::2] if is_inside else parts[::2])
        is_inside ^= len(parts) % 2 == 0
        if outside:
            levels = np.cumsum(_STEPS[np.frombuffer(outside, dtype=np.uint8)], dtype=np.int64)
            deepest = max(deepest, depth + int(levels.max()))
            depth += int(levels[-1])
        start = stop
    return deepest


def count_key(text: Any, key: str, *, plain: bytes = b"") -> int:
    r"""How often the outermost object of a valid JSON text has `key`, however it is spelled.

    Parameters
    ----------
    text
        A bytes-like.
    key
        Looked for in every spelling, token by token.
    plain
        The quoted key, where that is known to be its only spelling in this text: looked for directly, which is faster.

    Examples
    --------
    >>> count_key(b'{"a": {"a": 1}, "b": "a", "\\u0061": 2}', "a")
    2
    >>> count_key(b'{"a": {"a": 1}, "b": "a", "c": "\\"a"}', "a", plain=b'"a"')
    1
    """
    if plain and b"\\u" not in bytes(text):
        return _count_plain(bytes(text), plain)
    spelled = key.encode()
    depth = count = 0
    for token in _TOKEN.finditer(text):
        start = token.start()
        first = text[start]
        if first in (0x5B, 0x7B):
            depth += 1
        elif first in (0x5D, 0x7D):
            depth -= 1
        elif depth == 1 and token.start(2) >= 0:
            start, stop = token.span(1)
            if stop - start == len(spelled):
                count += text[start:stop] == spelled
            elif stop - start <= 12 * len(spelled):  # an escape takes up to 12 bytes
                count += msgspec.json.decode(text[start - 1 : stop + 1], type=str) == key
    return count


def _count_plain(text: bytes, quoted: bytes) -> int:
    """The same for a key that has no escapes: how many of its places are in the outermost object and before a colon."""
    count = depth = checked = 0
    at = text.find(quoted)
    while at >= 0:
        if _COLON.match(text, at + len(quoted)):
            # from the last place on, which lay outside strings, to this one
            parts = text[checked:at].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
            if len(parts) % 2:  # this place lies outside strings too
                outside = b"".join(parts[::2])
                depth += outside.count(b"{") + outside.count(b"[") - outside.count(b"}") - outside.count(b"]")
                checked = at + len(quoted)
                count += depth == 1
        at = text.find(quoted, at + 1)
    return count


def patch_lone_surrogates(text: Any) -> bytes:
    r"""The text with every escaped surrogate that lacks its other half replaced by U+FFFD.

    >>> patch_lone_surrogates(rb'"\ud800 \ud83d\ude00 \\ud800"')
    b'"\\ufffd \\ud83d\\ude00 \\\\ud800"'
    """
    return _SURROGATES.sub(lambda match: match[0] if match.lastindex else rb"\ufffd", text)


def unescape(string: Any) -> bytes | bytearray:
    r"""The UTF-8 bytes that a valid JSON string (with its quotes) spells, holding no more than the result.

    >>> unescape(rb'"a\n\ud83d\ude00"')
    b'a\n\xf0\x9f\x98\x80'
    """
    view = memoryview(string)[1:-1]
    if len(view) <= _SLICE_BYTES:
        return msgspec.json.decode(string, type=str).encode()
    content = bytearray()
    start = 0
    while start < len(view):
        stop = _whole(view, start, min(start + _SLICE_BYTES, len(view)))
        content += msgspec.json.decode(b'"%b"' % bytes(view[start:stop]), type=str).encode()
        start = stop
    return content


def _whole(view: memoryview, start: int, stop: int) -> int:
    """The last place up to `stop` where no escape, surrogate pair or UTF-8 sequence is cut; `start` is such a place."""
    if stop == len(view):
        return stop
    while view[stop] & 0xC0 == 0x80:
        stop -= 1
    near = bytes(view[start:stop])
    last = near.rfind(b"\\", max(0, len(near) - 12))  # a surrogate pair is 12 bytes long, nothing is longer
    if last < 0:
        return stop
    run = last + 1 - len(near[: last + 1].rstrip(b"\\"))
    if run % 2 == 0:  # every odd backslash of a run begins an escape, so the last one ended one
        return stop
    last += start
    if view[last + 1] != ord("u"):
        return stop if last + 2 <= stop else last
    unit = int(bytes(view[last + 2 : last + 6]), 16)
    if 0xD800 <= unit < 0xDC00:
        return last
    if last + 6 <= stop:
        return stop
    return last - 6 if 0xDC00 <= unit < 0xE000 else last


def utf8_break(text: Any) -> int:
    r"""Where UTF-8 breaks in a bytes-like: the offset of the first bad byte, -1 where all is well.

    >>> utf8_break(b"a\xff"), utf8_break(b"abc"), utf8_break(b"\xe2\x82")
    (1, -1, 0)
    """
    view = memoryview(text)
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, max(len(view), 1), _SLICE_BYTES):
        piece = view[start : start + _SLICE_BYTES]
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(bytes(piece), final=start + len(piece) == len(view))
        except UnicodeDecodeError as error:
            return start - held + error.start
    return -1


def decode_deep(decoder: Any, text: Any) -> Any:
    """A JSON text decoded however deep the caller's own stack is, so that what can be read does not depend on it.

    >>> decode_deep(msgspec.json.Decoder(), b"[" * 300 + b"]" * 300) != []
    True
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        pass
    outcome: list[tuple[Any, Exception | None]] = []

    def run() -> None:
        try:
            outcome.append((decoder.decode(text), None))
        except Exception as error:  # noqa: BLE001 - raised below, on the caller's thread
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="dataguard-json")  # its stack is its own, and empty
    thread.start()
    thread.join()
    answer, error = outcome[0]
    if error is not None:
        raise error
    return answer
