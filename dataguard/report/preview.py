r"""What does a record look like, shown so that nothing in it can act on whoever looks, with the odd places marked?

A preview is one line of bounded length, cut around the first marked span:

1. Bytes are read as UTF-8 character by character; a byte that belongs to no valid sequence stands for itself.
2. The window grows from the first marked character: a third of the room before it, the rest behind it, and what one
   side leaves over goes to the other. Only that window is decoded, so a record of 300 MB costs what one of 1 kB does.
3. What is not plainly visible becomes an escape of visible ASCII or a control picture: controls (``␛``), invalid bytes
   (``\xff``), everything else that acts without being seen (``\u202e``): directional marks, zero-width characters,
   fillers, variation selectors, tags, private use, unassigned code points, marks piled higher than any script does.
4. What stands for units that have no text, or says where something begins, is a note, ``⟦so⟧``; the same brackets in
   the record become escapes, so that no record can write one.

The result is pieces of text that know whether they are marked and whether they are escapes; `as_plain`, `as_terminal`
and `as_html` only dress them.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["CUT", "MARKS", "Note", "Piece", "Preview", "as_html", "as_plain", "as_terminal", "preview"]

PieceKind = Literal["text", "escape", "note", "cut"]

CUT = "…"
"""Where the record goes on."""
_NOTE = ("⟦", "⟧")
MARKS = ("⟪", "⟫")
"""What stands around marked text where it may have no other dress; in a record they become escapes, as those above."""
_MOST_NOTE_CHARS = 40
_MOST_MARKS = 4  # combining marks on one letter that some living script needs; a pile of more hides its neighbours
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters and marks that show nothing
_SPACES = frozenset(" \u00a0\u3000")  # what ordinary text is spaced with; all others are too like nothing or these
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is shown in brackets instead of some units of a record, or before one of them."""

    start: int
    stop: int
    """Half-open, in units of the record; where it is `start`, the note stands before that unit and replaces none."""
    text: str
    """Anything; what is not plainly visible in it is escaped, and beyond 40 characters it is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of a preview in one dress."""

    text: str
    """Visible characters alone."""
    kind: PieceKind = "text"
    """``text`` of the record, an ``escape`` that stands for something unseen, a ``note``, or where it was ``cut``."""
    marked: bool = False
    """Whether it lies in one of the spans asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A record as it may be shown, in pieces."""

    pieces: tuple[Piece, ...]
    """From left to right; neighbours differ in dress."""
    start: int
    """First unit of the record that is shown: a byte of bytes, a character of text."""
    stop: int
    """One past the last unit shown."""
    size: int
    """Units the whole record has."""


@dataclass(frozen=True, slots=True)
class _Char:
    """One character of the record, as it is shown."""

    start: int
    stop: int
    shown: str
    kind: PieceKind
    marked: bool


def preview(
    record: bytes | str,
    spans: Iterable[Sequence[int]] | NDArray[np.int64] | None = None,
    *,
    notes: Iterable[Note] = (),
    max_chars: int = 200,
) -> Preview:
    r"""A record as one line, safe to show, cut around its first marked span.

    Parameters
    ----------
    record
        The bytes of a record as stored, or text made of its tokens. Anything is taken.
    spans
        Half-open (start, stop) pairs in units of the record: bytes of bytes, characters of text. They may overlap and
        stand in any order; empty ones and what lies outside the record marks nothing. An array of shape (k, 2) will do.
    notes
        In order, apart from each other.
    max_chars
        The most characters that are shown, escapes and the signs of a cut included; at least 16.

    Raises
    ------
    ValueError
        `max_chars` is less than 16.

    Examples
    --------
    >>> shown = preview(b"safe \x1b[31mred\x1b[0m, \xff and \xe2\x80\xae gone", [(22, 23)])
    >>> as_plain(shown)
    'safe ␛[31mred␛[0m, \\xff and \\u202e gone'
    >>> as_html(preview("a <b> c", [(2, 5)]))
    'a <mark>&lt;b&gt;</mark> c'
    >>> as_plain(preview("one.two?", notes=[Note(start=4, stop=4, text="document 2"), Note(start=7, stop=8, text="9")]))
    'one.⟦document 2⟧two⟦9⟧'
    """
    if max_chars < 16:
        raise ValueError(f"a preview of {max_chars} characters shows nothing; allowed: 16 and more")
    size = len(record)
    marks = _within(spans, size)
    anchor = int(marks[:, 0].min()) if len(marks) else 0
    room = max_chars - 2 * len(CUT)
    # A character is at most four bytes and shows at least one, so this window holds all that could have room, and a
    # sequence that its ends cut lies beyond that.
    start, stop = max(0, anchor - 4 * room - 8), min(size, anchor + 4 * room + 8)
    near = [note for note in notes if start <= note.start < stop]
    window = _read(record, start, stop, marks[(marks[:, 0] < stop) & (marks[:, 1] > start)], near, room)
    chars = _fit(window, anchor, room)
    pieces = [
        Piece(text="".join(char.shown for char in group), kind=kind, marked=marked)
        for (kind, marked), group in groupby(chars, key=lambda char: (char.kind, char.marked))
    ]
    start, stop = (chars[0].start, chars[-1].stop) if chars else (0, 0)
    if start > 0:
        pieces.insert(0, Piece(text=CUT, kind="cut"))
    if stop < size:
        pieces.append(Piece(text=CUT, kind="cut"))
    return Preview(pieces=tuple(pieces), start=start, stop=stop, size=size)


def as_plain(shown: Preview, *, marks: tuple[str, str] = ("", "")) -> str:
    """A preview as bare text, with signs of your choice around what is marked.

    >>> as_plain(preview("buy now buy now", [(8, 15)]), marks=("[", "]"))
    'buy now [buy now]'
    """
    return "".join(
        "".join(piece.text for piece in group).join(marks if marked else ("", ""))
        for marked, group in groupby(shown.pieces, key=lambda piece: piece.marked)
    )


def as_terminal(shown: Preview, *, marks: tuple[str, str] = ("", "")) -> Text:
    """A preview for a terminal: what is marked in reverse, escapes dim; `rich` leaves both out where none is wanted.

    Signs around what is marked (`MARKS`) show it there, too.

    >>> as_terminal(preview("buy now buy now", [(8, 15)])).spans
    [Span(8, 15, 'reverse')]
    """
    from rich.text import Text

    text = Text()
    for is_marked, group in groupby(shown.pieces, key=lambda piece: piece.marked):
        if is_marked:
            text.append(marks[0], style="reverse")
        for piece in group:
            styles = [style for style, wanted in (("dim", piece.kind != "text"), ("reverse", is_marked)) if wanted]
            text.append(piece.text, style=" ".join(styles) or None)
        if is_marked:
            text.append(marks[1], style="reverse")
    return text


def as_html(shown: Preview) -> str:
    r"""A preview as HTML that goes between two tags: text escaped, marks as ``<mark>``, what is no text as ``<span>``.

    Runs of blanks are kept by the page's style (``white-space: pre-wrap``); the text's direction is kept from its
    neighbours by whatever stands around it (``<bdi>``). Classes: ``escape``, ``note`` and ``cut``.

    >>> as_html(preview(b"\x00<script>"))
    '<span class="escape">␀</span>&lt;script&gt;'
    """
    out = []
    for marked, group in groupby(shown.pieces, key=lambda piece: piece.marked):
        dressed = "".join(_dressed(piece) for piece in group)
        out.append(f"<mark>{dressed}</mark>" if marked else dressed)
    return "".join(out)


def _dressed(piece: Piece) -> str:
    text = html.escape(piece.text, quote=True)
    return text if piece.kind == "text" else f'<span class="{piece.kind}">{text}</span>'


def _within(spans: Iterable[Sequence[int]] | NDArray[np.int64] | None, size: int) -> NDArray[np.int64]:
    """The spans as an array, cut to the record, empty ones left out."""
    if spans is None:
        return np.zeros((0, 2), dtype=np.int64)
    given = np.asarray(spans if isinstance(spans, np.ndarray) else list(spans), dtype=np.int64).reshape(-1, 2)
    cut = np.clip(given, 0, size)
    return cut[cut[:, 0] < cut[:, 1]]


def _read(
    record: bytes | str, start: int, stop: int, spans: NDArray[np.int64], notes: Sequence[Note], room: int
) -> list[_Char]:
    """The characters of a window of the record, each with what shows it; notes among them."""
    chars: list[_Char] = []
    marks: list[list[int]] = spans[np.argsort(spans[:, 0], kind="stable")].tolist()
    next_mark = 0
    piled = _MOST_MARKS  # there is no letter yet that a mark could stand on
    waiting = list(reversed(notes))
    replaced = start  # up to here, notes stand for the record
    for first, last, char in _split(record, start, stop):
        while waiting and waiting[-1].start <= first:
            note = waiting.pop()
            held = next((mark for mark in marks if mark[1] > note.start), None)
            is_marked = held is not None and held[0] < note.stop
            chars.append(_Char(note.start, note.stop, _bracketed(note.text, room), "note", is_marked))
            replaced, piled = max(replaced, note.stop), _MOST_MARKS
        if first < replaced:
            continue
        while next_mark < len(marks) and marks[next_mark][1] <= first:
            next_mark += 1
        marked = next_mark < len(marks) and marks[next_mark][0] < last
        if isinstance(char, int):
            piled = _MOST_MARKS
            chars.append(_Char(first, last, f"\\x{char:02x}", "escape", marked))
            continue
        shown = _shown(char)
        if _is_mark(char):
            piled += 1
            shown = shown if piled <= _MOST_MARKS else _escaped(char)
        else:
            piled = _MOST_MARKS if shown else 0
        chars.append(_Char(first, last, shown or char, "escape" if shown else "text", marked))
    return chars


def _bracketed(text: str, room: int) -> str:
    """A note as it is shown, in no more than `room` characters."""
    open_, close = _NOTE
    shown = "".join(_shown(char) or (_escaped(char) if _is_mark(char) else char) for char in text)
    most = min(_MOST_NOTE_CHARS, room - len(open_) - len(close))
    return open_ + (shown if len(shown) <= most else shown[: most - 1] + CUT) + close


def _split(record: bytes | str, start: int, stop: int) -> Iterable[tuple[int, int, str | int]]:
    """(start, stop, character or invalid byte) of a window."""
    if isinstance(record, str):
        for index in range(start, stop):
            yield index, index + 1, record[index]
        return
    decoded = record[start:stop].decode("utf-8", "surrogateescape")
    at = start
    for char in decoded:
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:  # how the decoder hands over a byte of no valid sequence
            yield at, at + 1, code - 0xDC00
            at += 1
        else:
            num_bytes = 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
            yield at, at + num_bytes, char
            at += num_bytes


def _fit(chars: list[_Char], anchor: int, room: int) -> list[_Char]:
    """As many characters around the anchor as have room: a third before it, the rest behind."""
    if not chars:
        return []
    middle = next(index for index, char in enumerate(chars) if char.stop > anchor)
    left = right = middle
    used = 0
    before = room // 3
    for budget, forward in ((before, False), (room, True), (room, False)):
        while True:
            index = right if forward else left - 1
            if not 0 <= index < len(chars) or used + len(chars[index].shown) > budget:
                break
            used += len(chars[index].shown)
            left, right = (left, right + 1) if forward else (left - 1, right)
    while left < middle and chars[left].kind == "text" and _is_mark(chars[left].shown):
        left += 1  # its letter had no room, and it may not stand on what comes before the preview
    return chars[left:right]


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in {"Mn", "Me"}


def _shown(char: str) -> str | None:
    """What stands for a character that is not plainly visible; None for one that may be shown as it is."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0x7F:
        return None
    category = unicodedata.category(char)
    hidden = category in _HIDDEN_CATEGORIES or char in _BLANK_LETTERS or (category == "Zs" and char not in _SPACES)
    selects = 0xFE00 <= code <= 0xFE0F or 0x180B <= code <= 0x180F or 0xE0000 <= code <= 0xE0FFF
    # A picture in the text must not pass for a control, nor brackets in it for a note.
    picture = 0x2400 <= code <= 0x2426 or char in _NOTE or char in MARKS
    return _escaped(char) if hidden or selects or picture else None


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
