"""How are rows of a shard without random access read at random?

One gzip or zstd stream can only be read from its beginning, so such a shard is decoded once, into a local Arrow file
with one record batch a block, and its blocks are read from there: text by copying it out, ids from a memory map, which
all processes of a machine share. (Such a file is never written to again, only unlinked, which leaves maps as they are.)

- **Key**: the digests of the shard and of all its blocks, and the version of this cache. Nothing kept can belong to
  other content.
- **Filling**: one process decodes (a file lock a key), the others wait; each block is compared with its digest
  before the file gets its name, so a changed shard never fills the cache.
- **Is the shard still what was decoded?** Size and mtime are never trusted. A reader compares the shard's stamp (with
  its ctime, which nobody can set back) with those kept when the content was known to be right; where it differs, the
  shard's bytes are hashed. A shard that changed is not answered from the cache.
- **Bounded**: least recently used files go when the folder outgrows its limit. Where the folder cannot be written the
  caller reads without it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import xxhash

from dataguard.corpus.arrow import numbers
from dataguard.corpus.blocks import DecodedBlock, decoded_text, decoded_tokens, of_read_block
from dataguard.corpus.shard_file import StoredShard, shard_digest
from dataguard.errors import InputError, ShardDamaged

if TYPE_CHECKING:
    import pyarrow as pa

    from dataguard.corpus.formats.protocol import ReadBlock

__all__ = ["CachedShard", "ShardCache"]

_VERSION = 1
_SETTLED_NS = 2_000_000_000
"""A file younger than this may still change without its ctime showing it (clock ticks): its stamp is not kept."""

_STALE_NS = 24 * 3600 * 1_000_000_000
"""A temporary file of this age belongs to no process that still lives."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedShard:
    """A shard as the cache is asked for it."""

    stored: StoredShard
    shard_digest: str
    """By the manifest."""
    format: str
    item_type: str
    """NumPy dtype string of ids as stored, empty for text."""
    block_digests: Sequence[bytes]
    """By the manifest, in order."""
    decode: Callable[[], Iterator[ReadBlock]]
    """Decodes all its blocks, in order."""

    @property
    def key(self) -> str:
        """Names the decoded content."""
        state = xxhash.xxh3_128(f"dataguard-shard-cache-{_VERSION}\n{self.format}\n{self.shard_digest}\n".encode())
        for digest in self.block_digests:
            state.update(digest)
        return state.hexdigest()


class _Bypass(Exception):  # noqa: N818 - no error of the caller's
    """A shard cannot be answered from the cache: it changed, or is too large."""


class _CacheFailed(Exception):  # noqa: N818 - no error of the caller's
    """The cache's own folder cannot be used."""


class _SourceFailed(Exception):  # noqa: N818 - carries the storage's error past the cache's own
    """The shard's file failed while it was decoded."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class ShardCache:
    """Decoded shards in a local folder, shared by threads and processes.

    Parameters
    ----------
    folder
        Made where it does not exist.
    limit_bytes
        What the folder may hold.
    clock_ns
        The time since the epoch, for tests.
    """

    def __init__(self, folder: str, *, limit_bytes: int, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        self._clock_ns = clock_ns
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._filling: dict[str, threading.Lock] = {}
        self._known: dict[str, str] = {}  # key and place -> stamp under which the shard held the right bytes
        self._bypassed: dict[str, str] = {}  # key and place -> stamp under which it did not, or was too large
        self._is_usable = True

    def __reduce__(self) -> tuple[object, ...]:
        return (_revive, (str(self.folder), self.limit_bytes))

    def read(self, shard: CachedShard, block: int, *, first_row: int) -> DecodedBlock | None:
        """The block-th block, which has its manifest's digest; None where the shard must be read itself.

        Raises
        ------
        OSError
            The shard's file cannot be read (failures of the cache's own folder are not raised).
        """
        if self._pid != os.getpid():
            self._begin()
        key = shard.key
        place = f"{key}\n{shard.stored.where}"
        stamp = shard.stored.stamp() or "-"  # a missing shard is missing, cached or not
        if not self._is_usable or self._bypassed.get(place) == stamp:
            return None
        with self._lock:
            filling = self._filling.setdefault(key, threading.Lock())
        try:
            if self._known.get(place) != stamp:
                with filling:
                    self._check(shard, key, place, stamp)
            found = _read_block(self._path(key), shard, block, first_row)
            if found is None:  # evicted meanwhile, or damaged on this disk
                with filling:
                    self._fill(shard, key)
                found = _read_block(self._path(key), shard, block, first_row)
        except _Bypass:
            self._bypassed[place] = stamp
            return None
        except _CacheFailed as error:
            self._give_up(error)
            return None
        except _SourceFailed as error:
            raise error.error from None
        except OSError as error:  # the shard's own errors came as _SourceFailed: nobody's data is to blame for these
            self._give_up(error)
            return None
        return found

    def _give_up(self, error: Exception) -> None:
        """Read without the cache from now on, and say so once."""
        self._is_usable = False
        _log.warning("decoded shards cannot be kept in %s (%s): compressed shards read slowly", self.folder, error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.arrow"

    def _check(self, shard: CachedShard, key: str, place: str, stamp: str) -> None:
        """Make sure that the shard holds the bytes that were decoded, decoding it now if nobody has."""
        if self._known.get(place) == stamp:
            return
        if not self._path(key).exists():
            self._fill(shard, key)
        elif stamp == "-" or stamp not in self._stamps(key):
            try:
                found = shard_digest(shard.stored)[0]
            except OSError as error:
                raise _SourceFailed(error) from error
            if found != shard.shard_digest:
                raise _Bypass
            self._keep_stamp(shard, key, stamp)
        self._known[place] = stamp

    def _fill(self, shard: CachedShard, key: str) -> None:
        import filelock

        path = self._path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(path.with_suffix(".lock"))
            lock.acquire()
        except OSError as error:
            raise _CacheFailed(str(error)) from error
        try:
            if path.exists():
                return  # another process was quicker
            stamp = shard.stored.stamp() or "-"
            self._decode(shard, path)
            self._keep_stamp(shard, key, stamp)
            self._evict(keep=path)
        finally:
            lock.release()

    def _decode(self, shard: CachedShard, path: Path) -> None:
        import pyarrow as pa

        kind = pa.from_numpy_dtype(np.dtype(shard.item_type).newbyteorder("=")) if shard.item_type else None
        schema = pa.schema([pa.field("tokens", kind) if kind else pa.field("text", pa.large_binary())])
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
                for column in _checked(shard):
                    writer.write_batch(pa.record_batch([column], schema=schema))
                    if file.tell() > self.limit_bytes:
                        _log.warning(
                            "decoded, shard %s alone is larger than the cache: it reads slowly", shard.stored.name
                        )
                        raise _Bypass
            temporary.replace(path)
        except OSError as error:
            raise _CacheFailed(str(error)) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _stamps(self, key: str) -> set[str]:
        try:
            return set(msgspec.json.decode((self.folder / f"{key}.stamps").read_bytes(), type=list[str]))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return set()  # then the shard is hashed

    def _keep_stamp(self, shard: CachedShard, key: str, stamp: str) -> None:
        """Remember a stamp under which the shard was right, unless it is so young that a change could share it."""
        if stamp == "-" or shard.stored.stamp() != stamp:
            return
        written_ns = shard.stored.changed_ns()
        if written_ns is not None and self._clock_ns() - written_ns < _SETTLED_NS:
            return
        path = self.folder / f"{key}.stamps"
        temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(sorted({*self._stamps(key), stamp})[:64]))
            temporary.replace(path)
        except OSError as error:
            _log.debug("a stamp was not kept: %s", error)  # costs one hash of the shard, no more

    def _evict(self, *, keep: Path) -> None:
        """Let least recently used files go until the folder fits its limit."""
        files = []
        for path in self.folder.iterdir():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if path.suffix == ".tmp" and self._clock_ns() - status.st_mtime_ns > _STALE_NS:
                path.unlink(missing_ok=True)
            elif path.suffix == ".arrow":
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.limit_bytes:
                break
            if path != keep:
                for suffix in (".arrow", ".stamps"):
                    path.with_suffix(suffix).unlink(missing_ok=True)
                total -= size


def _revive(folder: str, limit_bytes: int) -> ShardCache:
    return ShardCache(folder, limit_bytes=limit_bytes)


def _checked(shard: CachedShard) -> Iterator[pa.Array]:
    """The blocks as they are decoded, each compared with its digest."""
    import pyarrow as pa

    blocks = shard.decode()
    expected = iter(shard.block_digests)
    while True:
        try:
            block = next(blocks, None)
        except InputError as error:
            raise _Bypass from error
        except OSError as error:
            raise _SourceFailed(error) from error
        digest = next(expected, None)
        if block is None and digest is None:
            return
        if block is None or digest is None:
            raise _Bypass
        decoded = of_read_block(block, first_row=0, item_type=shard.item_type, name=shard.stored.name)
        if decoded.digest != digest:
            raise _Bypass
        if decoded.tokens is None:
            yield block.text
            continue
        # the buffer itself: pa.array would import pandas, where that is installed
        tokens = np.ascontiguousarray(decoded.tokens)
        yield pa.Array.from_buffers(pa.from_numpy_dtype(tokens.dtype), len(tokens), [None, pa.py_buffer(tokens)])


def _read_block(path: Path, shard: CachedShard, block: int, first_row: int) -> DecodedBlock | None:
    """A block from a cached file, None where it is not there or not what it should be (the file is then removed)."""
    import pyarrow as pa

    try:
        with (pa.memory_map if shard.item_type else pa.OSFile)(os.fspath(path)) as file:
            column = pa.ipc.open_file(file).get_batch(block).column(0)
        if shard.item_type:
            found = decoded_tokens(
                numbers(column), first_row=first_row, item_type=shard.item_type, name=shard.stored.name
            )
        else:
            found = decoded_text(column, first_row=first_row)
        if found.digest == shard.block_digests[block]:
            with contextlib.suppress(OSError):  # another user's file, or a disk mounted for reading: good all the same
                os.utime(path)  # used now
            return found
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, IndexError, ValueError, ShardDamaged) as error:
        _log.debug("cached shard %s: %s", path, error)
    path.unlink(missing_ok=True)
    return None
