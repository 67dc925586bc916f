"""What do the bytes of a text say about it? All text signals of the registry, over Arrow buffers.

Texts are judged as the UTF-8 bytes stored, before any repair. What the definitions of the registry leave open:

- **Character**: where a well-formed UTF-8 sequence begins (no overlong one, no surrogate, nothing past U+10FFFF), it is
  one character; otherwise the byte alone is one, an invalid one. An invalid byte is neither white space nor alphabetic
  nor a digit. This is how ``bytes.decode("utf-8", "surrogateescape")`` counts.
- **White space**, **alphabetic**, **decimal digit** and the scripts without spaces are the properties White_Space,
  Alphabetic, Nd and Script of the Unicode version that `unicode_ranges` names, whatever Python runs this.
- **Line**: what precedes a LF, without one CR right before it; what follows the last LF is a line too. Lines of white
  space alone are blank and count nowhere. Others are compared and measured with all the white space they have.
- **Paragraph**: the lines between blank ones. Two are equal where their lines are, however these end; its characters
  are those of its lines.
- **Not text** is U+0085 as well, since it is a C1 control, although it is white space.
- **Byte period**: a run of period p is a longest range in which each byte from the p-th on equals the one p before it.
- **N-grams** run on over line ends. Occurrences may overlap.
- **Tag**: ``<``, an ASCII letter, ``/`` or ``!``, and the next ``>``, at most 1,024 characters after the ``<``; both
  count. Where that ``>`` is farther away or missing, the search goes on behind the ``<``.
- **Encoded**: the alphabet is ``A-Z a-z 0-9 + / =``; a run is as long as it goes.
- **Ellipses**: k dots in a row are k // 3 of them. A line ends with one where it does without the white space
  at its end.
- **Bullet**: the first character that is not white space is one of `unicode_ranges.BULLETS`.
- A fraction of nothing is 0. Entropies are rounded into their range.

Lines, paragraphs and words longer than 8 bytes are compared by 64-bit hashes and their lengths: the kernels' pages
state the chance of a collision. A document has fewer than 2^32 bytes.

Every value depends on its document alone, bit for bit: not on its neighbours, nor on how many are scored at once, nor
on the thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dataguard.core.signals import SignalSpec
from dataguard.errors import InputError, UnknownSignal, UsageError
from dataguard.score import text_facts
from dataguard.score.registry import TEXT_SIGNALS, select
from dataguard.score.scorers import columns_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["score_buffers", "score_text"]

_MOST_BYTES = (1 << 32) - 1


def score_text(array: pa.Array | pa.ChunkedArray, signals: Iterable[str] | None = None) -> pa.Table:
    """Text signals of each value of an Arrow array.

    Parameters
    ----------
    array
        string, large_string, string_view or the binary type of each, dictionaries of these, chunked or not.
    signals
        Names, in any order; all that need no reference profile where None.

    Returns
    -------
    pyarrow.Table
        One column a signal, in the registry's order, int64 or float64; a row of nulls where the value is null.

    Raises
    ------
    UnknownSignal
        There is no such text signal, or it needs a profile (`score.profile` has that one).
    UsageError
        The array is of another type.
    InputError
        A value has 2^32 bytes or more.

    Examples
    --------
    >>> import pyarrow as pa
    >>> score_text(pa.array(["aabb", None]), ["byte_entropy", "length_bytes"]).to_pylist()
    [{'length_bytes': 4, 'byte_entropy': 1.0}, {'length_bytes': None, 'byte_entropy': None}]
    """
    import pyarrow as pa

    if not isinstance(array, pa.Array | pa.ChunkedArray):
        raise UsageError(
            f"texts of type {type(array).__name__}", allowed="a pyarrow array of texts", todo="make one: pa.array(...)"
        )
    specs = _checked(signals if signals is None or isinstance(signals, str) else tuple(signals))
    names = [spec.name for spec in specs]
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parts, nulls = [], []
    for chunk in chunks:
        values, offsets, null = _buffers(chunk)
        parts.append(score_buffers(values, offsets, names))
        nulls.append(null)
    is_null = np.concatenate(nulls) if nulls else np.zeros(0, dtype=np.bool_)
    columns = []
    for spec in specs:
        values = np.concatenate([part[spec.name] for part in parts]) if parts else np.zeros(0, dtype=spec.dtype)
        columns.append(pa.array(values, mask=is_null if is_null.any() else None))
    if not columns:  # which a table of nothing but names would have no rows
        return pa.table({"": is_null}).select([])
    return pa.Table.from_arrays(columns, names=names)


def score_buffers(
    values: NDArray[np.uint8], offsets: NDArray[np.int64], signals: Sequence[str]
) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
    """Text signals of documents that lie one behind the other.

    Safe to call from any number of threads; the interpreter lock is released while kernels run.

    Parameters
    ----------
    values
        uint8, the bytes of all documents.
    offsets
        int64, shape (n + 1,): document i is ``values[offsets[i]:offsets[i + 1]]``.
    signals
        Names, in any order.

    Returns
    -------
    dict
        For each signal int64 (whole ones) or float64 values, shape (n,), in the registry's order.

    Raises
    ------
    UnknownSignal, UsageError, InputError
        As `score_text`; and where the offsets fall or lead out of `values`.

    Examples
    --------
    >>> values = np.frombuffer(b"to be or not to be.", dtype=np.uint8)
    >>> scores = score_buffers(values, np.array([0, 18, 19]), ["length_words", "top_2gram_char_fraction"])
    >>> scores["length_words"].tolist(), scores["top_2gram_char_fraction"].round(4).tolist()
    ([6, 1], [0.6154, 0.0])
    """
    specs = _checked(signals if isinstance(signals, str) else tuple(signals))
    values = np.ascontiguousarray(values)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if values.dtype != np.uint8 or values.ndim != 1:
        raise UsageError(f"texts are uint8 in one dimension, not {values.dtype} in {values.ndim}")
    lengths = offsets[1:] - offsets[:-1]
    if (
        offsets.ndim != 1
        or not len(offsets)
        or offsets[0] < 0
        or offsets[-1] > len(values)
        or lengths.min(initial=0) < 0
    ):
        raise UsageError(
            "the offsets of the texts do not lie in their bytes", allowed=f"0..{len(values):,}, never falling"
        )
    if lengths.max(initial=0) > _MOST_BYTES:
        row = int(lengths.argmax())
        raise InputError(
            f"text {row:,} is too long to be scored",
            found=f"{int(lengths[row]):,} bytes",
            allowed=f"{_MOST_BYTES:,} bytes",
        )
    # One array type, one compilation: Arrow's buffers cannot be written, NumPy's can.
    values, offsets = values.view(), offsets.view()
    values.flags.writeable = offsets.flags.writeable = False
    own = [spec for spec in specs if spec.scorer]
    if not own:
        return text_facts.signals_of(values, offsets, specs)
    found = columns_of(own, values, offsets)
    rest = [spec for spec in specs if not spec.scorer]
    found |= text_facts.signals_of(values, offsets, rest) if rest else {}
    return {spec.name: found[spec.name] for spec in specs}


@lru_cache(maxsize=64)
def _checked(signals: tuple[str, ...] | str | None) -> tuple[SignalSpec, ...]:
    specs = select(signals, "text")
    if signals is not None:
        strange = sorted(set(signals) - {spec.name for spec in specs})
        if strange:
            raise UnknownSignal(f"{strange[0]!r} is no signal of texts", allowed=", ".join(_computed()))
    for spec in specs:
        if spec.needs:
            raise UnknownSignal(f"{spec.name!r} needs a reference {spec.needs[0]}", allowed=", ".join(_computed()))
    return specs


@cache
def _computed() -> tuple[str, ...]:
    return tuple(spec.name for spec in TEXT_SIGNALS if not spec.needs)


def _buffers(chunk: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """Bytes, offsets, and which values are null, of one Arrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = chunk.type
    if pa.types.is_dictionary(kind):
        chunk = chunk.dictionary_decode()
        kind = chunk.type
    if pa.types.is_string_view(kind):
        chunk = chunk.cast(pa.large_string())
    elif pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_null(kind):
        chunk = chunk.cast(pa.large_binary())
    kind = chunk.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width: type[np.int32 | np.int64] = np.int32
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.int64
    else:
        raise UsageError(
            f"an array of {kind} holds no texts", allowed="string, large_string, binary, large_binary, views"
        )
    _, starts, data = chunk.buffers()
    values = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    if len(chunk) == 0 or starts is None:
        offsets = np.zeros(len(chunk) + 1, dtype=np.int64)
    else:
        offsets = np.frombuffer(starts, dtype=width)[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    is_null = np.asarray(pc.is_null(chunk).to_numpy(zero_copy_only=False), dtype=np.bool_)
    return values, offsets, is_null
