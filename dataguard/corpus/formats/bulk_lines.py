"""How are JSON lines read by the compiled kernel, and what becomes of the lines that it is not certain of?

records.py is the only authority on what a line holds. The kernel (corpus/kernels/json_lines.py) is a shortcut for lines
that hold one text beyond doubt, five times as fast; what it is not certain of goes to records.py, line by line, and
comes back into its place. The outcome is the same with and without it, to the byte and the reason.

It is loaded where there is much to be scanned (bulk.py). Once it is there, blocks of any size go through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.corpus.formats.bulk import Shortcut, only_compiled
from dataguard.corpus.formats.line_arrays import LARGE_BYTES
from dataguard.corpus.formats.records import DecodedLines, RecordDecoder, Rejection
from dataguard.corpus.formats.textfield import path_of

__all__ = ["SHORTCUT", "BulkLines", "LineKernel"]

_LEAST_LINE_BYTES = 10  # of lines that hold a text, {"a":"b"} and its ending


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extracted:
    """What the kernel says of a block; arrays of shape (lines,)."""

    text: pa.LargeBinaryArray
    """The text of each line; of one that is not certain, anything."""
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    is_certain: NDArray[np.bool_]


class LineKernel:
    r"""The compiled kernel, for blocks of bytes. Importing and compiling happen when one is made.

    >>> names = LineKernel.names("text")
    >>> found = LineKernel().extract(b'{"id": 1, "text": "a\\n"}\n{"text": 7}\n', names, 1 << 20, 512)
    >>> found.text.to_pylist(), found.is_certain.tolist()
    ([b'a\n', b''], [True, False])
    """

    def __init__(self) -> None:
        from dataguard.corpus.kernels import json_lines, utf8

        self._most_depth = json_lines.MOST_DEPTH
        self._extract = only_compiled(json_lines.extract_lines)
        self._mark_not_utf8 = only_compiled(utf8.mark_not_utf8)
        self.extract(b"", (b"", b""), 0, 0)

    @staticmethod
    def names(text_field: str) -> tuple[bytes, ...] | None:
        """How the kernel is told a text field: the names of its path and the whole of it; None where it cannot be."""
        path = path_of(text_field)
        try:
            return (*(name.encode() for name in path), text_field.encode() if len(path) > 1 else b"")
        except UnicodeEncodeError:  # no JSON in UTF-8 holds such a name
            return None

    def extract(
        self, content: Any, names: tuple[bytes, ...], max_line_bytes: int, max_depth: int, *, is_kept: bool = True
    ) -> _Extracted | None:
        """The certain lines of a block; None where the path is too long, or the lines are shorter than any with a text.

        Parameters
        ----------
        content
            A bytes or bytearray of whole lines.
        names
            As `names` gives them.
        max_line_bytes, max_depth
            As in `ScanOptions`.
        is_kept
            Whether the answer is to hold no more memory than its texts; without that it is had a little faster.
        """
        if len(names) - 1 > self._most_depth:
            return None
        data = np.frombuffer(content, np.uint8)
        data.flags.writeable = False  # one compiled variant for bytes and bytearrays
        most_lines = len(data) // _LEAST_LINE_BYTES + 1
        ends = np.zeros(most_lines + 1, np.int64)
        starts, stops = np.empty(most_lines, np.int64), np.empty(most_lines, np.int64)
        is_certain = np.empty(most_lines, np.bool_)
        bounds = np.zeros(len(names) + 1, np.int64)
        np.cumsum([len(name) for name in names], out=bounds[1:])
        buffer = pa.allocate_buffer(len(data))  # of Arrow's pool, whose pages are warm
        num_lines = self._extract(
            data,
            np.frombuffer(b"".join(names), np.uint8),
            bounds,
            max_line_bytes,
            min(max_depth, self._most_depth),
            np.frombuffer(buffer, np.uint8),
            ends[1:],
            starts,
            stops,
            is_certain,
        )
        if num_lines < 0:
            return None
        is_bad = np.zeros(num_lines, np.bool_)
        bounds_of_lines = np.append(starts[:num_lines], len(data))
        bounds_of_lines.flags.writeable = False
        if self._mark_not_utf8(data, bounds_of_lines, is_bad):
            is_certain[:num_lines] &= ~is_bad
        text_bytes = int(ends[num_lines])
        values = buffer.slice(0, text_bytes)
        if is_kept and text_bytes < len(data):
            values = pa.py_buffer(values.to_pybytes())
        offsets = pa.py_buffer(ends[: num_lines + 1].copy())
        return _Extracted(
            text=pa.Array.from_buffers(pa.large_binary(), num_lines, [None, offsets, values]),
            starts=starts[:num_lines].copy(),
            stops=stops[:num_lines].copy(),
            is_certain=is_certain[:num_lines].copy(),
        )


SHORTCUT = Shortcut(LineKernel, after_bytes=1 << 26)
"""The kernel of this process. Decoding so much without it takes about as long as importing and loading it."""


class BulkLines:
    r"""Decodes blocks of lines as `RecordDecoder` does, with the kernel where it is worth it. Safe for several threads.

    Parameters
    ----------
    text_field, max_record_bytes, max_depth
        As of `RecordDecoder`.

    Examples
    --------
    >>> decoded = BulkLines("text", 1 << 30, 512).decode(b'{"text": "a"}\n\n7\n')
    >>> decoded.text.to_pylist(), [(entry.row, entry.line, entry.code) for entry in decoded.rejected]
    ([b'a', None], [(1, 2, 'not-an-object')])
    """

    def __init__(self, text_field: str, max_record_bytes: int, max_depth: int) -> None:
        self._records = RecordDecoder(text_field, max_record_bytes, max_depth)
        self._names = LineKernel.names(text_field)
        self._max_record_bytes = max_record_bytes
        self._max_depth = max_depth

    def decode(self, content: Any, *, is_scan: bool = False) -> DecodedLines:
        """The records of a block: whole lines in a bytes or bytearray, the last of them with or without its LF.

        `is_scan` where a whole shard is gone through and its texts are not kept.
        """
        kernel = SHORTCUT.worth(len(content), is_scan=is_scan)
        if kernel is None or self._names is None or not 0 < len(content) <= LARGE_BYTES:
            return self._records.decode(content)
        found = kernel.extract(content, self._names, self._max_record_bytes, self._max_depth, is_kept=not is_scan)
        if found is None:
            return self._records.decode(content)
        num_lines = len(found.starts)
        num_certain = int(np.count_nonzero(found.is_certain))
        if num_certain == num_lines:
            return DecodedLines(
                text=found.text,
                rejected=(),
                starts=found.starts,
                stops=found.stops,
                num_lines=num_lines,
                num_blank=0,
            )
        if 2 * num_certain < num_lines:
            return self._records.decode(content)
        return self._with_others(content, found)

    def too_large(self, size_bytes: int) -> DecodedLines:
        """A block of one record over the limit, of which no byte is held."""
        return self._records.too_large(size_bytes)

    def _with_others(self, content: Any, found: _Extracted) -> DecodedLines:
        """A block whose uncertain lines records.py is asked about, as a block of their own."""
        num_lines = len(found.starts)
        lines = np.flatnonzero(~found.is_certain)
        ends = np.append(found.starts[1:], len(content))
        view = memoryview(content)
        pieces = [view[found.starts[line] : ends[line]] for line in lines.tolist()]
        others = self._records.decode(b"".join(pieces))
        first_bytes = np.concatenate([[0], np.cumsum(ends[lines] - found.starts[lines])[:-1]])
        of_record = lines[np.searchsorted(first_bytes, others.starts)]  # blank lines are no records
        is_record = found.is_certain.copy()
        is_record[of_record] = True
        rows = np.cumsum(is_record) - 1
        taken = np.arange(num_lines)
        taken[of_record] = num_lines + np.arange(len(of_record))
        order = pa.Array.from_buffers(pa.int64(), int(is_record.sum()), [None, pa.py_buffer(taken[is_record])])
        return DecodedLines(
            text=pa.concat_arrays([found.text, others.text]).take(order),
            rejected=tuple(_moved(entry, int(lines[entry.line]), rows, found.starts) for entry in others.rejected),
            starts=found.starts[is_record],
            stops=found.stops[is_record],
            num_lines=num_lines,
            num_blank=others.num_blank,
        )


def _moved(entry: Rejection, line: int, rows: NDArray[np.int64], starts: NDArray[np.int64]) -> Rejection:
    """A rejection as it counts in the whole block."""
    return Rejection(
        code=entry.code, detail=entry.detail, row=int(rows[line]), line=line, offset_bytes=int(starts[line])
    )
