"""How does a shard's file come to its format: opened anew for every call, every byte counted?

`StoredShard` is the `ShardFile` of formats/protocol.py over a `Root` (storage.py). It holds no handle, so it is safe
for several threads and across forks.

A shard of several files (companions.py) is one here: sizes add up, it changed when any file of it did, and its digest
is taken over the files in their order, then over their sizes, so that no byte can move from one to the other unseen.
"""

from __future__ import annotations

import io
import os
import struct
import threading
from typing import Any, BinaryIO, cast

import xxhash

from dataguard.corpus.companions import companion_paths
from dataguard.corpus.formats.protocol import Declared
from dataguard.corpus.storage import Compression, Root
from dataguard.errors import ShardDamaged

__all__ = ["ByteCounter", "StoredShard", "shard_digest"]

_BUFFER_BYTES = 1 << 12  # what a read may take beyond its end; all reads of any size ask for theirs in one call
_HASH_BYTES = 1 << 22


class ByteCounter:
    """How many bytes were read, counted by all threads together.

    >>> counter = ByteCounter()
    >>> counter.add(3); counter.add(4); counter.total
    7
    """

    __slots__ = ("_lock", "_total")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = 0

    def add(self, num_bytes: int) -> None:
        """Count `num_bytes` more."""
        with self._lock:
            self._total += num_bytes

    @property
    def total(self) -> int:
        """Bytes so far."""
        return self._total

    def __reduce__(self) -> tuple[type[ByteCounter], tuple[()]]:
        return (ByteCounter, ())  # another process counts for itself


class StoredShard:
    """One shard behind its root: the `ShardFile` that formats read from. Safe for several threads and across forks."""

    def __init__(
        self,
        root: Root,
        *,
        name: str,
        path: str,
        size_bytes: int,
        compression: Compression,
        counter: ByteCounter,
        format_name: str = "",
        declared: Declared | None = None,
    ) -> None:
        self.root = root
        self.name = name
        self.path = path
        self.size_bytes = size_bytes
        self.local_path = root.local_path(path)
        self.compression = compression
        self.declared = declared
        self._counter = counter
        self.companions = tuple(
            StoredShard(root, name=name, path=part, size_bytes=0, compression="none", counter=counter)
            for part in companion_paths(format_name, path)
        )

    @property
    def where(self) -> str:
        """Where its file is looked for, for messages."""
        return self.local_path or f"{self.root.url}/{self.path}"

    @property
    def files(self) -> tuple[StoredShard, ...]:
        """All of its files, in the order of its digest."""
        return (self, *self.companions)

    def size_now(self) -> int:
        """Bytes of all its files as they are now. FileNotFoundError or another OSError where that cannot be known."""
        return sum(file.root.size_bytes(file.path) for file in self.files)

    def missing(self) -> list[str]:
        """Paths of those of its files that are not there."""
        return [file.path for file in self.files if not self.has(file.path)]

    def has(self, path: str) -> bool:
        """Whether a file lies at a path of its root. An OSError where that cannot be known."""
        try:
            self.root.size_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def stamp(self) -> str:
        """What changes whenever one of its files is written to; empty where the storage promises no such thing."""
        stamps = [self.root.stamp(file.path) for file in self.files]
        return "+".join(stamps) if all(stamps) else ""

    def changed_ns(self) -> int | None:
        """When the last of its files was written to, in ns; None where a stamp needs no time to settle."""
        times = [self.root.changed_ns(file.path) for file in self.files]
        return max((time for time in times if time is not None), default=None)

    def open(self) -> BinaryIO:
        """The raw file, seekable; bytes are counted as they leave the storage."""
        raw = _Counted(self.root.open(self.path), self._counter)
        return cast("BinaryIO", io.BufferedReader(raw, _BUFFER_BYTES))

    def read_at(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Exactly that range of the raw file; ShardDamaged where it ends early."""
        parts = []
        with self.root.open(self.path) as file:
            file.seek(offset_bytes)
            missing = size_bytes
            while missing:
                part = file.read(missing)
                if not part:
                    break
                parts.append(part)
                missing -= len(part)
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        self._counter.add(len(content))
        if len(content) != size_bytes:
            raise ShardDamaged(
                f"shard {self.name} ends early",
                found=f"{len(content):,} bytes from byte {offset_bytes:,} on",
                allowed=f"{size_bytes:,} bytes, to byte {offset_bytes + size_bytes:,}",
            )
        return content


def shard_digest(shard: StoredShard) -> tuple[str, int]:
    """xxh3-128 of all bytes of a shard, hexadecimal, and their number.

    Files are read in pieces of 4 MiB, one after the other; of several, their sizes are part of the digest.

    Raises
    ------
    OSError
        As the storage raises it.
    """
    state = xxhash.xxh3_128()
    sizes = []
    for stored in shard.files:
        size_bytes = 0
        with stored.open() as file:
            while part := file.read(_HASH_BYTES):
                state.update(part)
                size_bytes += len(part)
        sizes.append(size_bytes)
    if len(sizes) > 1:
        state.update(struct.pack(f"<{len(sizes)}Q", *sizes))
    return state.hexdigest(), sum(sizes)


class _Counted(io.RawIOBase):
    """A raw file that counts what is read from it."""

    def __init__(self, file: BinaryIO, counter: ByteCounter) -> None:
        self._file = file
        self._counter = counter

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read and count."""
        if hasattr(self._file, "readinto"):
            count = self._file.readinto(buffer) or 0
        else:
            part = self._file.read(len(buffer))
            count = len(part)
            buffer[:count] = part
        self._counter.add(count)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As the file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As the file does."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file too."""
        if not self.closed:
            self._file.close()
        super().close()
