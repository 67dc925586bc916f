"""What does a naive reader make of JSON lines? The slow, obvious twin of the reader of records, on `json` alone.

It splits at LF, asks `json` about every line, and names what is wrong in the order that the product does.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["records"]


def records(content: bytes, text_field: str = "text") -> tuple[list[bytes | str], int]:
    """Every record as its text's bytes or the reason code it is rejected with, and the number of blank lines."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    kept = [line for line in lines if line.strip(b" \t\r")]
    return [_record(line, text_field) for line in kept], len(lines) - len(kept)


def _record(line: bytes, text_field: str) -> bytes | str:
    try:
        decoded = line.decode()
    except UnicodeDecodeError:
        return "invalid-utf8"
    try:
        pairs = json.loads(decoded, object_pairs_hook=_Pairs, parse_constant=_refuse)
    except ValueError:
        return "invalid-json"
    if not _has_utf8(pairs):
        return "lone-surrogate"
    if not isinstance(pairs, _Pairs):
        return "not-an-object"
    if any(key == text_field for key, _ in pairs):
        return _at(pairs, [text_field])
    return _at(pairs, text_field.split("."))


def _at(value: Any, path: list[str]) -> bytes | str:
    """The text at a path, or why there is none."""
    if not path:
        return _text(value)
    if value is None:
        return "null-text"
    if not isinstance(value, _Pairs):
        return "missing-text"
    found = [entry for key, entry in value if key == path[0]]
    if not found:
        return "missing-text"
    return "duplicate-text" if len(found) > 1 else _at(found[0], path[1:])


def _text(value: Any) -> bytes | str:
    if value is None:
        return "null-text"
    if isinstance(value, list) and not isinstance(value, _Pairs):
        for entry in value:
            if not isinstance(entry, str):
                return "null-text" if entry is None else "not-a-string"
        return "\n".join(value).encode()
    return value.encode() if isinstance(value, str) else "not-a-string"


class _Pairs(list[Any]):
    """The pairs of a JSON object, doubles included."""


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _has_utf8(value: Any) -> bool:
    if isinstance(value, str):
        return not any(0xD800 <= ord(char) < 0xE000 for char in value)
    if isinstance(value, list | tuple):
        return all(_has_utf8(entry) for entry in value)
    return True
