"""How are token ids shown: as the text they stand for where a tokenizer is given, else as numbers?

A preview is cut around its first mark, so only ids near that are spelled. Each id keeps its place in the text, so that
ranges of ids become ranges of it. Numbers are shown whole or not at all. What has no text becomes a note: special
tokens by their names, ids that the tokenizer does not have or that lie outside of the vocabulary, places where a
document begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.report.preview import CUT, Note, Piece, Preview, preview

if TYPE_CHECKING:
    from dataguard.corpus.tokenizer import TokenizerFile

__all__ = ["token_preview", "token_text"]

_CHARS_BYTES = 4
_AT_LEAST = 16
_NOTE_CHARS = 24  # about what says where a document begins


def token_text(ids: NDArray[Any], tokenizer: TokenizerFile) -> bytes:
    r"""The bytes that ids stand for, special tokens by their names; ids that the tokenizer does not have by nothing."""
    tokens = [tokenizer.token(int(each)) for each in ids.tolist()]
    return b"".join(token.content for token in tokens if token is not None)


def token_preview(
    ids: NDArray[Any],
    spans: NDArray[np.int64],
    *,
    documents: Sequence[tuple[int, int]] = (),
    tokenizer: TokenizerFile | None = None,
    vocab_size: int | None = None,
    max_chars: int = 200,
) -> Preview:
    """A window of ids as one line, safe to show, cut around its first marked place.

    Parameters
    ----------
    ids
        Any integer type, 1-D.
    spans
        Half-open ranges of positions to mark, in order, shape (k, 2).
    documents
        (position, number) of each document that begins in the window, in order of position.
    tokenizer
        Says what ids stand for.
    vocab_size
        Ids outside ``0:vocab_size`` are noted, whatever the tokenizer says.
    max_chars
        As `preview` takes it.

    Examples
    --------
    >>> from dataguard.report.preview import as_plain
    >>> ids = np.array([5, 6, 6, 900])
    >>> as_plain(token_preview(ids, np.array([[1, 3]]), documents=[(1, 12)], vocab_size=500), marks=("[", "]"))
    '5 ⟦document 12⟧[6 6] ⟦id 900⟧'
    """
    near = max_chars * _CHARS_BYTES
    anchor = int(spans[0, 0]) if len(spans) else 0
    first, stop = max(0, anchor - near), min(len(ids), anchor + near)
    if tokenizer is None:
        first, stop = _whole_numbers(ids, anchor, documents, max_chars)
    spelled = _Spelled(ids[first:stop].tolist(), tokenizer, vocab_size)
    starts = [(at - first, number) for at, number in documents if first <= at < stop]
    cut = np.clip(spans, first, stop) - first
    marked = [(spelled.starts[a], spelled.stops[b - 1]) for a, b in cut.tolist() if a < b]
    # Where whole numbers were chosen all of them are shown, and what lies beyond is said here.
    shown = preview(
        spelled.content, marked, notes=spelled.notes(starts), max_chars=max_chars if tokenizer else _AT_LEAST + near
    )
    if tokenizer is not None:
        return shown
    before, behind = ((Piece(text=CUT, kind="cut"),) if beyond else () for beyond in (first > 0, stop < len(ids)))
    return replace(shown, pieces=(*before, *shown.pieces, *behind))


def _whole_numbers(
    ids: NDArray[Any], anchor: int, documents: Sequence[tuple[int, int]], max_chars: int
) -> tuple[int, int]:
    """The ids, half-open, that have room as numbers: a third of it before the anchor, the rest behind."""
    begins = {at for at, _ in documents}
    room = max_chars - 2 * len(CUT)

    def width(at: int) -> int:
        return len(f"{ids[at]} ") + _NOTE_CHARS * (at in begins)

    first = stop = anchor
    used = 0
    for budget, forward in ((room // 3, False), (room, True), (room, False)):
        while True:
            at = stop if forward else first - 1
            if not 0 <= at < len(ids) or (used + width(at) > budget and first < stop):
                break
            used += width(at)
            first, stop = (first, stop + 1) if forward else (at, stop)
    return first, stop


class _Spelled:
    """Ids, each with its place in what shows them."""

    def __init__(self, ids: list[int], tokenizer: TokenizerFile | None, vocab_size: int | None) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        self._notes: list[Note] = []
        parts: list[bytes] = []
        at = 0
        between = b"" if tokenizer is not None else b" "
        for each in ids:
            outside = each < 0 or (vocab_size is not None and each >= vocab_size)
            token = None if tokenizer is None or outside else tokenizer.token(each)
            if token is not None and not token.special:
                part, note = token.content, None
            elif token is not None:
                part, note = b"\0", token.content.decode("utf-8", "backslashreplace")
            elif tokenizer is not None or outside:
                part, note = b"\0", f"id {each}"
            else:
                part, note = b"%d" % each, None
            if note is not None:
                self._notes.append(Note(start=at, stop=at + len(part), text=note))
            self.starts.append(at)
            self.stops.append(at + len(part))
            parts.append(part)
            at += len(part) + len(between)
        self.content = between.join(parts)

    def notes(self, documents: Sequence[tuple[int, int]]) -> list[Note]:
        """All notes in order, those where documents begin among them."""
        begin = []
        for at, group in groupby(documents, key=lambda each: self.starts[each[0]]):
            numbers = [number for _, number in group]
            text = f"document {numbers[0]}" if len(numbers) == 1 else f"documents {numbers[0]}:{numbers[-1] + 1}"
            begin.append(Note(start=at, stop=at, text=text))
        return sorted([*begin, *self._notes], key=lambda note: (note.start, note.stop))
