"""Is a block of JSON lines wholly ordinary, and if so, what are its texts?

Most blocks are: every line one object in UTF-8 with one text, a string. They are told from others at about the cost of
parsing them, for the texts, which are most of the bytes, are looked at as little as can be:

1. One call parses all lines and leaves the text field as the JSON it is. As every line begins with ``{`` and ends with
   ``}``, and there are as many values as lines, each line holds one (records.py says why).
2. In each line the first place of ``"text":`` is looked up. If the value there is the very bytes that were parsed, and
   its name stands nowhere else outside that value, spelled out or with escapes, then the record has its text once. (If
   the place were another's, the real one would lie outside those bytes too: a JSON string holds no quote of its own.)
3. Brackets outside the text are counted where there are enough of them to nest too deep.
4. A text without a backslash is the bytes that stand there; any other is decoded by itself.

None is the answer for anything else, down to a blank between the name and its colon; records.py then looks at each
line. No object is made on the way that Python's garbage collector would have to look at, record by record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.corpus.formats.content import is_utf8

__all__ = ["PlainBlock", "PlainLines"]

_CR, _SPACE, _QUOTE, _OPEN, _CLOSE, _BACKSLASH = b'\r "{}\\'
_LEAST_LINE_BYTES = 2000
"""Shorter lines, on average, are told faster by looking at all of them together, as records.py does."""
_STRINGS = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBlock:
    """The records of an ordinary block."""

    text: pa.LargeBinaryArray
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    """Where each record lies, without its line ending. Shape (records,)."""


class PlainLines:
    r"""Decodes ordinary blocks for one text field.

    Parameters
    ----------
    text_field
        A name of plain characters, which has one spelling without escapes.
    max_line_bytes
        Longer lines, their endings included, are not ordinary.
    max_depth
        Nor are deeper records.

    Examples
    --------
    >>> plain = PlainLines("text", 1 << 20, 512)
    >>> block = plain.decode(b'{"id": 1, "text": "%b"}\n{"text":"b"}\n' % (b"a" * 4000))
    >>> [len(text) for text in block.text.to_pylist()], plain.decode(b'{"text":"%b","text":"b"}' % (b"a" * 4000))
    ([4000, 1], None)
    """

    def __init__(self, text_field: str, max_line_bytes: int, max_depth: int) -> None:
        self._name = f'"{text_field}"'.encode()
        self._max_line_bytes = max_line_bytes
        self._max_depth = max_depth
        record = msgspec.defstruct("_Raw", [("text", msgspec.Raw)], rename={"text": text_field}, gc=False)
        self._decoder: Any = msgspec.json.Decoder(record)

    def decode(self, content: Any) -> PlainBlock | None:
        """The records of a block, a bytes or bytearray of whole lines; None where it is not wholly ordinary."""
        num_lines = content.count(b"\n") + (not content.endswith(b"\n"))
        if len(content) < _LEAST_LINE_BYTES * num_lines or not (content.isascii() or is_utf8(content)):
            return None
        try:
            records = self._decoder.decode_lines(content)
        except (msgspec.DecodeError, RecursionError):
            return None
        if len(records) != num_lines:
            return None
        find, begins, longest = content.find, content.startswith, self._max_line_bytes
        key, unescape = self._name + b":", _STRINGS.decode
        texts: list[bytes] = []
        others: list[bytes] = []
        starts: list[int] = []
        stops: list[int] = []
        at = 0
        for record in records:
            end = find(b"\n", at)
            if end < 0:
                end = len(content)
            place = find(key, at, end)
            stop = end - 1 if content[end - 1] == _CR else end
            if place < 0 or content[at] != _OPEN or content[stop - 1] != _CLOSE or end - at >= longest:
                return None
            raw = bytes(record.text)
            start = place + len(key)
            if content[start] == _SPACE:
                start += 1
            if raw[0] != _QUOTE or not begins(raw, start):
                return None
            texts.append(unescape(raw).encode() if _BACKSLASH in raw else raw[1:-1])
            others.append(content[at:place])
            others.append(content[start + len(raw) : stop])
            starts.append(at)
            stops.append(stop)
            at = end + 1
        if not self._is_ordinary(others):
            return None
        return PlainBlock(
            text=_joined(texts), starts=np.array(starts, dtype=np.int64), stops=np.array(stops, dtype=np.int64)
        )

    def _is_ordinary(self, others: list[bytes]) -> bool:
        """Whether what stands before and behind the texts has no second text and does not nest too deep."""
        # a line feed between them, so that nothing is made of the end of one and the beginning of the next
        rest = b"\n".join(others)
        if rest.find(self._name) >= 0 or rest.find(b"\\u00") >= 0:
            return False
        if rest.count(b"{") + rest.count(b"[") <= self._max_depth:
            return True
        counts = [piece.count(b"{") + piece.count(b"[") for piece in others]
        return all(before + behind <= self._max_depth for before, behind in zip(counts[::2], counts[1::2], strict=True))


def _joined(texts: list[bytes]) -> pa.LargeBinaryArray:
    """Texts as one array over one buffer."""
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.large_binary(), len(texts), buffers, 0)
