"""How is a log read that may be compressed, torn, or in another encoding?

`LogFile` gives the bytes of a file, decompressed where they are gzip or zstd (content decides, not the name), and its
lines as text. A log is often read while it is written or after its writer died: compressed bytes that end too early are
read as far as they go, and `LogFile.torn` says so. Bytes that are wrong are damage.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from pathlib import Path

import zstandard

from dataguard.errors import InputError, UsageError

__all__ = ["LogFile"]

_CHUNK_BYTES = 1 << 18
_MOST_CHARACTERS = 1 << 24  # of one line; what is longer is no line of a log
_GZIP_BYTES, _ZSTD_BYTES = 1 << 14, 1 << 10
"""Decompressed at once. A byte of gzip may be 1 KiB of content, four bytes of zstd 128 KiB: this is 16 or 32 MiB."""
_MOST_WINDOW_BYTES = 1 << 27
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LogFile:
    """One log on disk. Every method reads it anew from its beginning.

    Raises
    ------
    UsageError
        There is no such file, or it is one that can be read only once (a pipe), or a folder.
    InputError
        It cannot be read, or its compressed bytes are damaged (from the methods that read).
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{path} is no file",
                found="a pipe, a device or a folder",
                todo="save what comes out of it as a file first",
            )
        self.path = path
        self.torn = False
        """Whether compressed bytes ended too early, known once everything was read."""
        self._head = b""
        self._head = self.head(4)

    def chunks(self) -> Iterator[bytes]:
        """The bytes, decompressed."""
        try:
            with self.path.open("rb") as file:
                raw = iter(lambda: file.read(_CHUNK_BYTES), b"")
                if self._head.startswith(_GZIP):
                    yield from self._gunzip(_slices(raw, _GZIP_BYTES))
                elif self._head.startswith(_ZSTD):
                    yield from self._unzstd(_slices(raw, _ZSTD_BYTES))
                else:
                    yield from raw
        except FileNotFoundError:
            raise UsageError(f"there is no {self.path}", todo="check the path as it was typed") from None
        except OSError as error:
            raise InputError(f"{self.path} cannot be read", found=error.strerror or str(error)) from error

    def head(self, num_bytes: int) -> bytes:
        """The first bytes, decompressed."""
        kept = b""
        for chunk in self.chunks():
            kept += chunk
            if len(kept) >= num_bytes:
                break
        return kept[:num_bytes]

    def lines(self) -> Iterator[tuple[int, str]]:
        """Each line with its number, counted from 1, without its end; invalid bytes show as U+FFFD."""
        encoding = "utf-16" if self.head(2) in _UTF16 else "utf-8-sig"
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        number, parts, length = 0, list[str](), 0
        for chunk in self.chunks():
            first, *others = decoder.decode(chunk).split("\n")
            for other in others:
                number += 1
                yield number, _joined(parts, first).removesuffix("\r")
                parts, length, first = [], 0, other
            if length < _MOST_CHARACTERS:
                parts.append(first)
                length += len(first)
        rest = _joined(parts, decoder.decode(b"", final=True))
        if rest:
            yield number + 1, rest

    def content(self) -> bytes:
        """All bytes, decompressed."""
        return b"".join(self.chunks())

    def _gunzip(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        try:
            for data in raw:
                while data:
                    if member.eof:
                        if not data.strip(b"\0"):
                            break  # padding behind the last member
                        member = zlib.decompressobj(wbits=31)
                    yield member.decompress(data)
                    data = member.unused_data
        except zlib.error as error:
            raise InputError(f"{self.path} is damaged gzip", found=str(error)) from error
        if not member.eof:
            yield member.flush()
            self.torn = True

    def _unzstd(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
        frame = decompressor.decompressobj()
        try:
            for data in raw:
                while data:
                    if frame.eof:
                        frame = decompressor.decompressobj()
                    yield frame.decompress(data)
                    data = frame.unused_data
        except zstandard.ZstdError as error:
            raise InputError(f"{self.path} is damaged zstd", found=str(error)) from error
        self.torn = not frame.eof


def _slices(chunks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    for chunk in chunks:
        for at in range(0, len(chunk), num_bytes):
            yield chunk[at : at + num_bytes]


def _joined(parts: list[str], last: str) -> str:
    return "".join([*parts, last])[:_MOST_CHARACTERS] if parts else last
