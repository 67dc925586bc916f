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
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LogFile:
    """One log on disk. Every method reads it anew from its beginning.

    Raises
    ------
    UsageError
        There is no such file.
    InputError
        It cannot be read, or its compressed bytes are damaged (from the methods that read).
    """

    def __init__(self, path: Path) -> None:
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
                    yield from self._gunzip(raw)
                elif self._head.startswith(_ZSTD):
                    yield from self._unzstd(raw)
                else:
                    yield from raw
        except FileNotFoundError:
            raise UsageError(f"there is no {self.path}") from None
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
        number, rest = 0, ""
        for chunk in self.chunks():
            *whole, rest = (rest + decoder.decode(chunk)).split("\n")
            for line in whole:
                number += 1
                yield number, line.removesuffix("\r")
            rest = rest[:_MOST_CHARACTERS]
        rest += decoder.decode(b"", final=True)
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
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
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
