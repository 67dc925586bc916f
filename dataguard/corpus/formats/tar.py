"""Which members does a tar archive hold, and where does it end?

An archive is read from front to back, as a file or as a decoded stream: 512 bytes of header with a check sum, the
member's bytes padded to 512, the next header, and at last two blocks of zeros. Long names and sizes come in members
of their own, as GNU tar ('L') or as POSIX writes them ('x', pax); they belong to the member behind them. Global pax
headers ('g') say nothing about a single member here.

How an archive ended is part of the answer (`TarEnd`), and damage is no exception: members are handed out until a
header cannot be trusted. One block of zeros is an end mark as two are; a few zeros where a header should stand are an
end mark that was cut off, behind which no member can be missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from dataguard.corpus.formats.streams import DecodedStream

__all__ = ["BLOCK_BYTES", "TarBytes", "TarEnd", "TarMember", "is_header", "members_of", "readable_name"]

BLOCK_BYTES = 512
_MOST_EXTRA_BYTES = 1 << 20  # of a long name or a pax header
_READ_BYTES, _MOST_READ_BYTES = 1 << 16, 1 << 22
_ZEROS = bytes(BLOCK_BYTES)
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_PAX_RECORD = re.compile(rb"([0-9]{1,9}) ")
_REGULAR = b"0\0007"
_WITHOUT_BYTES = b"123456"  # links, devices, folders: their size is no size of bytes that follow


@dataclass(frozen=True, slots=True, kw_only=True)
class TarMember:
    """One entry of an archive."""

    name: bytes
    header_bytes: int
    """Where its headers begin, the extended ones included."""
    data_bytes: int
    """Where its bytes begin."""
    size_bytes: int
    is_file: bool
    """A regular file; not a folder, a link or a device."""
    has_holes: bool = False
    """Whether only parts of a file lie here, with a map of them: its bytes are not these."""


@dataclass(slots=True, kw_only=True)
class TarEnd:
    """How an archive ended."""

    code: str = ""
    """Reason code of a finding; empty for a clean end."""
    detail: str = ""
    offset_bytes: int = 0
    stop_bytes: int = 0
    """One past the last whole member."""
    is_complete: bool = True
    """Whether no member can be missing before it: an end mark was there, or began."""


class TarBytes:
    """The bytes of an archive, taken from front to back; what is passed over in a file is not read.

    Parameters
    ----------
    source
        A seekable file, or a stream that is not yet iterated.
    start_bytes, stop_bytes
        The range of a file that is read; of a stream all is.
    """

    def __init__(self, source: BinaryIO | DecodedStream, *, start_bytes: int = 0, stop_bytes: int = -1) -> None:
        self.offset = start_bytes
        """Of the next byte to be taken, in the archive."""
        self._file = None if isinstance(source, DecodedStream) else source
        self._chunks = iter(source) if isinstance(source, DecodedStream) else iter(())
        self._held = b""
        self._at = 0
        self._stop_bytes = stop_bytes
        if self._file is not None:
            end = self._file.seek(0, os.SEEK_END)
            self._stop_bytes = end if stop_bytes < 0 else min(stop_bytes, end)
            self._file.seek(start_bytes)

    def take(self, num_bytes: int) -> bytes:
        """The next bytes, fewer only at the end."""
        parts: list[bytes] = []
        missing = num_bytes
        while missing and self._fill(missing):
            part = self._held[self._at : self._at + missing]
            self._at += len(part)
            missing -= len(part)
            parts.append(part)
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        self.offset += len(content)
        return content

    def skip(self, num_bytes: int) -> int:
        """Pass over bytes: how many there were."""
        held = min(num_bytes, len(self._held) - self._at)
        self._at += held
        self.offset += held
        missing = num_bytes - held
        if missing and self._file is not None:
            passed = max(min(missing, self._stop_bytes - self.offset), 0)
            self.offset += passed
            self._file.seek(self.offset)
            self._held, self._at = b"", 0
            return held + passed
        while missing and self._fill(missing):
            passed = min(missing, len(self._held) - self._at)
            self._at += passed
            self.offset += passed
            missing -= passed
        return num_bytes - missing

    def rest(self) -> tuple[int, bool]:
        """Pass over all that is left: how many bytes, and whether any of them is not zero."""
        num_bytes, is_zero = 0, True
        while self._fill(_READ_BYTES):
            part = self._held[self._at :]
            self._at = len(self._held)
            num_bytes += len(part)
            is_zero = is_zero and not part.strip(b"\0")
        self.offset += num_bytes
        return num_bytes, not is_zero

    def _fill(self, wanted_bytes: int) -> bool:
        """Hold something if there is anything left."""
        if self._at < len(self._held):
            return True
        if self._file is not None:
            size = min(max(min(wanted_bytes, _MOST_READ_BYTES), _READ_BYTES), self._stop_bytes - self._file.tell())
            self._held = self._file.read(size) if size > 0 else b""
        else:
            self._held = next(self._chunks, b"")
        self._at = 0
        return bool(self._held)


def is_header(block: bytes) -> bool:
    """Whether 512 bytes are a header whose check sum is right; older archives have no other sign.

    >>> is_header(bytes(512)), is_header(b"x" * 512)
    (False, False)
    """
    if len(block) < BLOCK_BYTES or block == _ZEROS:
        return False
    stored = _octal(block[148:156])
    outside = block[:148] + b" " * 8 + block[156:BLOCK_BYTES]
    # some writers added the bytes as signed ones
    return stored is not None and stored in (sum(outside), sum(byte - 256 * (byte > 127) for byte in outside))


def members_of(source: TarBytes, end: TarEnd, *, stop_bytes: int | None = None) -> Iterator[TarMember]:
    """The members in the order of the archive; `end` is filled in when the last has been taken.

    The bytes of a member may be taken from the source before the next member is asked for.

    Parameters
    ----------
    source
        At a header.
    end
        Yet unknown.
    stop_bytes
        Where to stop, between two members; None for the end of the archive.
    """
    header_bytes = source.offset
    long_name = b""
    pax: dict[bytes, bytes] = {}
    while stop_bytes is None or source.offset < stop_bytes:
        at = source.offset
        block = source.take(BLOCK_BYTES)
        if not block.strip(b"\0"):
            _close(source, end, block, is_extended=at != header_bytes)
            return
        if len(block) < BLOCK_BYTES:
            _cut(source, end, f"the header at byte {at:,}")
            return
        kind, size = block[156:157], _number(block[124:136])
        if not is_header(block) or size is None:
            _break(end, at, f"the header at byte {at:,} makes no sense: {bytes(block[:20])!r}")
            return
        if kind in b"LKxXg":
            content = source.take(size) if size <= _MOST_EXTRA_BYTES else b""
            if (
                size <= _MOST_EXTRA_BYTES
                and len(content) + source.skip(-size % BLOCK_BYTES) < size + -size % BLOCK_BYTES
            ):
                _cut(source, end, f"the extended header at byte {at:,}")
                return
            records = _pax_records(content) if kind in b"xX" else {}
            if size > _MOST_EXTRA_BYTES or records is None:
                _break(end, at, f"the extended header at byte {at:,} makes no sense ({size:,} bytes)")
                return
            long_name = content.split(b"\0", 1)[0] if kind == b"L" else long_name
            pax |= records
            continue
        has_holes = kind == b"S" or any(key.startswith(b"GNU.sparse.") for key in pax)
        if kind == b"S" and block[482] and not _pass_sparse_map(source):
            _cut(source, end, f"the map of the file at byte {at:,}")
            return
        name = pax.get(b"GNU.sparse.name") or pax.get(b"path") or long_name or _short_name(block)
        if b"size" in pax:
            size = int(pax[b"size"]) if pax[b"size"].isdigit() and len(pax[b"size"]) < 20 else None
        if size is None:
            _break(end, at, f"the size of the member at byte {at:,} makes no sense")
            return
        if kind in _WITHOUT_BYTES:
            size = 0
        data_bytes = source.offset
        is_folder = kind == b"\0" and name.endswith(b"/")  # as the oldest archives have them
        yield TarMember(
            name=name,
            header_bytes=header_bytes,
            data_bytes=data_bytes,
            size_bytes=size,
            is_file=kind == b"S" or (kind in _REGULAR and not is_folder),
            has_holes=has_holes,
        )
        padded_bytes = data_bytes + size + -size % BLOCK_BYTES
        source.skip(padded_bytes - source.offset)
        if source.offset < data_bytes + size:
            _cut(source, end, f"member {readable_name(name)}, of {size:,} bytes at byte {data_bytes:,},")
            return
        if source.offset < padded_bytes:
            _cut(source, end, f"the padding of member {readable_name(name)}")
            return
        header_bytes, long_name, pax = padded_bytes, b"", {}
        end.stop_bytes = header_bytes


def readable_name(name: bytes) -> str:
    r"""A member's name for people.

    >>> readable_name(b"a/caf\xe9.txt")
    'a/caf\\xe9.txt'
    """
    return name.decode("utf-8", "backslashreplace")


def _close(source: TarBytes, end: TarEnd, block: bytes, *, is_extended: bool) -> None:
    """What follows is no header: an end mark, whole or begun, or nothing at all."""
    end.offset_bytes = source.offset
    if is_extended:
        _cut(source, end, "an extended header without its member: the archive")
    elif not block:
        _cut(source, end, "the archive")
    elif len(block) < BLOCK_BYTES:
        end.code, end.detail = "cut-short", f"the end mark is cut after {len(block):,} zeros"
    else:
        num_bytes, is_junk = source.rest()
        if is_junk:
            end.code = "trailing-bytes"
            end.detail = f"trailing bytes after the end of the archive ({num_bytes:,} bytes)"


def _cut(source: TarBytes, end: TarEnd, what: str) -> None:
    end.code, end.is_complete, end.offset_bytes = "cut-short", False, source.offset
    end.detail = f"{what} is cut: there is no end mark before byte {source.offset:,}, where the data ends"


def _break(end: TarEnd, at: int, detail: str) -> None:
    end.code, end.detail, end.offset_bytes, end.is_complete = "bad-member-header", detail, at, False


def _short_name(block: bytes) -> bytes:
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _octal(field: bytes) -> int | None:
    found = _OCTAL.match(field)
    if found is None or field[found.end() : found.end() + 1].strip(b"\0 "):
        return None
    return int(found[1] or b"0", 8)


def _number(field: bytes) -> int | None:
    """Octal digits, or for large sizes big-endian bytes behind a set bit; None for a negative size or nonsense."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return None if field[0] == 0xFF else _octal(field)


def _pax_records(content: bytes) -> dict[bytes, bytes] | None:
    """The records ``LENGTH KEY=VALUE`` of a pax header, None where they make no sense."""
    records = {}
    at = 0
    while at < len(content) and content[at]:
        found = _PAX_RECORD.match(content, at)
        stop = at + int(found[1]) if found else 0
        if found is None or stop <= found.end() or stop > len(content) or content[stop - 1] != ord("\n"):
            return None
        key, sign, value = content[found.end() : stop - 1].partition(b"=")
        if not sign:
            return None
        records[key] = value
        at = stop
    return records


def _pass_sparse_map(source: TarBytes) -> bool:
    """Pass over the further blocks of an old GNU map of holes."""
    while True:
        block = source.take(BLOCK_BYTES)
        if len(block) < BLOCK_BYTES:
            return False
        if not block[504]:
            return True
