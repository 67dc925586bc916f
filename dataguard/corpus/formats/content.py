"""What is the content of a block of text, in the one form that every container leads to?

Every format of text delivers a `pa.LargeBinaryArray`: one entry a stored row, null where the row is rejected, the bytes
of the others one after the other and nothing between them. So a block has one digest whatever it was stored in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.core.digests import block_digest

__all__ = ["is_utf8", "one_text", "text_digest", "text_lengths"]


def text_lengths(text: pa.LargeBinaryArray) -> NDArray[np.int64]:
    """Bytes of every row, -1 for a rejected one: int64, shape (rows,).

    >>> text_lengths(pa.array([b"ab", None, b""], pa.large_binary())).tolist()
    [2, -1, 0]
    """
    if not len(text):
        return np.zeros(0, dtype=np.int64)
    lengths = np.diff(_offsets(text))
    if text.null_count:
        lengths[np.asarray(text.is_null())] = -1
    return lengths


def text_digest(text: pa.LargeBinaryArray) -> tuple[int, bytes]:
    """Bytes of the deliverable content of a block, and its digest (16 bytes, core.digests.block_digest).

    >>> text_digest(pa.array([b"ab", None, b"c"], pa.large_binary()))[0]
    3
    """
    lengths = text_lengths(text)
    if not len(text):
        return 0, block_digest(lengths, b"")
    offsets = _offsets(text)
    start, stop = int(offsets[0]), int(offsets[-1])
    assert stop - start == int(lengths[lengths > 0].sum()), "a rejected row keeps no bytes"
    values = memoryview(text.buffers()[2])[start:stop] if stop > start else b""
    return stop - start, block_digest(lengths, values)


def one_text(content: Any) -> pa.LargeBinaryArray:
    """A block of one row over a buffer of bytes, which is not copied.

    >>> one_text(b"a document").to_pylist()
    [b'a document']
    """
    view = memoryview(content)
    offsets = np.array([0, view.nbytes], dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(view)])


def is_utf8(content: Any) -> bool:
    r"""Whether a buffer is valid UTF-8: no surrogates, nothing overlong, nothing past U+10FFFF. Copies nothing.

    >>> is_utf8(b"\xe2\x82\xac"), is_utf8(b"\xed\xa0\x80"), is_utf8(b"")
    (True, False, True)
    """
    try:
        # As a cast would, but that imports all of pyarrow.compute.
        one_text(content).view(pa.large_string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _offsets(text: pa.LargeBinaryArray) -> NDArray[np.int64]:
    """int64, shape (rows + 1,): where each row begins in the values."""
    return np.frombuffer(text.buffers()[1], dtype=np.int64)[text.offset : text.offset + len(text) + 1]
