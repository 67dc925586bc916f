r"""How is a Megatron pair of ``.bin`` and ``.idx`` read?

The ``.bin`` holds ids one after the other; the ``.idx`` says of which type they are, how long each sequence is, where
it begins, and which sequences make a document::

    9 bytes MMIDIDX\0\0, u64 version 1, u8 type of the ids, u64 sequences n, u64 document entries d
    n x i32 tokens of a sequence; n x i64 its offset in the .bin; d x i64 first sequence of a document; [n x i8 modes]

A document is the sequences between two entries, so there are d - 1 of them; documents and sequences may be empty. A row
is a token of the ``.bin``, as in every token shard: the pair is one run, cut by nothing, and documents are told beside
it (`Megatron.boundaries`).

The offsets must be those that the lengths add up to. Where they are not (sequences out of order, overlapping, or with
gaps), the bytes of the ``.bin`` are not the sequences in their order, rows would not be what the trainer reads, and
the pair is excluded. The index is read in pieces, so a pair of any size needs a few MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.tokens import Boundaries, FileRanges, file_bytes, read_run, scan_run
from dataguard.errors import ShardDamaged

__all__ = ["Megatron"]

_MAGIC = b"MMIDIDX\x00\x00"
_LEGACY_MAGIC = b"TNTIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES: dict[int, str] = {1: "|u1", 2: "|i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_AT_ONCE = 1 << 18
"""Entries of the index that are held at once."""


class Megatron:
    """Megatron pairs: `Format` of tokens whose documents are known, a run of ids a block."""

    name: str = "megatron"
    kind: Literal["text", "tokens"] = "tokens"
    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:  # noqa: ARG002 - a .bin has no look of its own
        r"""3 where the head is that of an ``.idx``, else 0: a ``.bin`` is told by the ``.idx`` beside it.

        >>> Megatron().recognise(b"MMIDIDX\0\0\1", "x.idx"), Megatron().recognise(b"", "x.bin")
        (3, 0)
        """
        return 3 * head.startswith(_MAGIC)

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        with ExitStack() as stack:
            index = _open_index(shard, stack)
            found = index if isinstance(index, Finding) else _census(index, options.block_tokens)
            if isinstance(index, Finding) or isinstance(found, Finding):
                assert isinstance(found, Finding)
                yield ScanEnd(findings=(found,))
                return
            file = stack.enter_context(shard.open())
            num_bytes, expected = file_bytes(file), found.num_tokens * index.dtype.itemsize
            findings = []
            if index.rest_bytes:
                detail = (
                    f"trailing bytes after the index ({index.rest_bytes:,} bytes): {index.end_bytes:,} are expected"
                )
                findings.append(Finding(code="trailing-bytes", detail=detail))
            if num_bytes < expected:
                detail = f"the .idx promises {found.num_tokens:,} tokens of {index.dtype.str}, {expected:,} bytes"
                findings.append(_finding("too-short", f"{detail}; the .bin holds {num_bytes:,} bytes", num_bytes))
            elif num_bytes > expected:
                rest = f"trailing bytes in the .bin ({num_bytes - expected:,} bytes): {expected:,} bytes are expected"
                findings.append(_finding("trailing-bytes", rest, expected))
            if num_bytes >= expected:
                yield from scan_run(
                    FileRanges(file),
                    dtype=index.dtype,
                    offset_bytes=0,
                    num_tokens=found.num_tokens,
                    block_tokens=options.block_tokens,
                    num_documents=found.num_documents,
                )
            yield ScanEnd(
                findings=tuple(findings),
                item_type=index.dtype.str,
                num_documents=index.num_entries - 1,
                num_sequences=index.num_sequences,
            )

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The ids of one block, native-endian. ShardDamaged where they cannot be read any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self,
        shard: ShardFile,
        places: Sequence[BlockPlace],
        options: ScanOptions,  # noqa: ARG002 - the pair itself says everything
        *,
        fields: bool = False,
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order."""
        with ExitStack() as stack:
            index = _opened(shard, stack)
            file = stack.enter_context(shard.open())
            yield from read_run(FileRanges(file), shard, places, index.dtype, fields=fields)

    def boundaries(
        self,
        shard: ShardFile,
        first_row: int,
        stop_row: int,
        options: ScanOptions,  # noqa: ARG002 - the pair itself says everything
    ) -> Boundaries:
        """The documents and sequences of the tokens ``first_row:stop_row``. Reads a few KiB of the index."""
        with ExitStack() as stack:
            index = _opened(shard, stack)
            low, high = _overlapping(index.document_start, index.num_entries - 1, first_row, stop_row)
            entries = index.documents(low, high + 1)
            starts = np.array([index.sequence_start(int(entry)) for entry in entries], np.int64)
            first, stop = _overlapping(index.sequence_start, index.num_sequences, first_row, stop_row)
            tokens = [*index.sequence_starts(first, stop).tolist(), index.sequence_start(stop)]
            return Boundaries(
                first_document=low,
                documents=np.stack([starts[:-1], starts[1:]], axis=1),
                first_sequence=first,
                sequences=np.stack([np.array(tokens[:-1], np.int64), np.array(tokens[1:], np.int64)], axis=1),
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Index:
    """An ``.idx`` whose header makes sense and whose arrays are all there."""

    file: BinaryIO
    dtype: np.dtype[Any]
    num_sequences: int
    num_entries: int
    """Documents and one."""
    rest_bytes: int
    """What lies behind the arrays, modes not counted."""

    @property
    def end_bytes(self) -> int:
        """Where the arrays end, without modes."""
        return _end_bytes(self.num_sequences, self.num_entries)

    def lengths(self, start: int, stop: int) -> NDArray[np.int64]:
        """Tokens of the sequences ``start:stop``."""
        return self._take(_HEADER.size, "<i4", start, stop)

    def pointers(self, start: int, stop: int) -> NDArray[np.int64]:
        """Byte offsets of the sequences ``start:stop``."""
        return self._take(_HEADER.size + 4 * self.num_sequences, "<i8", start, stop)

    def documents(self, start: int, stop: int) -> NDArray[np.int64]:
        """First sequences of the documents ``start:stop``; the last entry is the number of sequences."""
        return self._take(_HEADER.size + 12 * self.num_sequences, "<i8", start, stop)

    def sequence_starts(self, start: int, stop: int) -> NDArray[np.int64]:
        """First tokens of the sequences ``start:stop``."""
        return self.pointers(start, stop) // self.dtype.itemsize

    def sequence_start(self, sequence: int) -> int:
        """First token of a sequence; of the one past the last, the number of tokens."""
        if sequence < self.num_sequences:
            return int(self.sequence_starts(sequence, sequence + 1)[0])
        if not self.num_sequences:
            return 0
        last = self.num_sequences - 1
        return int(self.sequence_starts(last, last + 1)[0] + self.lengths(last, last + 1)[0])

    def document_start(self, document: int) -> int:
        """First token of a document; of the one past the last, the number of tokens."""
        return self.sequence_start(int(self.documents(document, document + 1)[0]))

    def _take(self, offset_bytes: int, kind: str, start: int, stop: int) -> NDArray[np.int64]:
        item = np.dtype(kind)
        self.file.seek(offset_bytes + start * item.itemsize)
        content = self.file.read((stop - start) * item.itemsize)
        if len(content) != (stop - start) * item.itemsize:
            raise ShardDamaged(
                "an .idx file ends early", found=f"{offset_bytes + start * item.itemsize:,} bytes or more"
            )
        return np.frombuffer(content, item).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Census:
    """What an index adds up to."""

    num_tokens: int
    num_documents: NDArray[np.int64]
    """Documents that begin in each block of tokens, shape (blocks,)."""


def _finding(code: str, detail: str, offset_bytes: int | None = None) -> Finding:
    return Finding(code=code, detail=detail, offset_bytes=offset_bytes)


def _end_bytes(num_sequences: int, num_entries: int) -> int:
    return _HEADER.size + 12 * num_sequences + 8 * num_entries


def _opened(shard: ShardFile, stack: ExitStack) -> _Index:
    index = _open_index(shard, stack)
    if isinstance(index, Finding):
        raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=index.detail)
    return index


def _open_index(shard: ShardFile, stack: ExitStack) -> _Index | Finding:
    """The index of a pair, or what is wrong with its header or size."""
    if not shard.companions:
        return _finding("missing-half", f"{shard.name} has no .idx: a .bin alone does not say what it holds")
    file = stack.enter_context(shard.companions[0].open())
    num_bytes = file_bytes(file)
    head = file.read(_HEADER.size)
    if head[: len(_MAGIC)] != _MAGIC:
        is_legacy = head.startswith(_LEGACY_MAGIC)
        what = "it is of the older TNTIDX kind" if is_legacy else f"it begins with {head[:9]!r}"
        return _finding("bad-idx", f"the .idx does not begin with {_MAGIC!r} ({num_bytes:,} bytes): {what}")
    if len(head) < _HEADER.size:
        return _finding("too-short", f"the .idx needs a header of {_HEADER.size} bytes, found {num_bytes:,}", num_bytes)
    _, version, code, num_sequences, num_entries = _HEADER.unpack(head)
    if version != 1:
        return _finding("bad-idx", f"the .idx has version {version:,}, allowed is 1")
    if code not in _TYPES:
        return _finding("bad-idx", f"the .idx has ids of type {code}, allowed are 1 to 8")
    dtype = np.dtype(_TYPES[code])
    if dtype.kind == "f":
        return _finding("not-integers", f"the .idx has ids of type {code}, {dtype}")
    if num_entries < 1:
        return _finding("bad-idx", "the .idx has no document entries, at least 1 is expected")
    expected = _end_bytes(num_sequences, num_entries)
    if num_bytes < expected:
        detail = f"an .idx of {num_sequences:,} sequences and {num_entries:,} document entries has {expected:,} bytes"
        return _finding("too-short", f"{detail}, found {num_bytes:,}", num_bytes)
    has_modes = num_bytes == expected + num_sequences
    rest = 0 if has_modes else num_bytes - expected
    return _Index(file=file, dtype=dtype, num_sequences=num_sequences, num_entries=num_entries, rest_bytes=rest)


def _census(index: _Index, block_tokens: int) -> _Census | Finding:
    """Walk the whole index: what it adds up to, or the first place where it contradicts itself.

    1. Sequences, a piece at a time: lengths are added up in 64 bits, and each offset must be the sum so far.
    2. Document entries that name a sequence of the piece become first tokens, and first tokens blocks.
    """
    item_bytes, total = index.dtype.itemsize, 0
    blocks = np.zeros(0, np.int64)
    entries = _Entries(index)
    for start in range(0, index.num_sequences, _AT_ONCE):
        stop = min(start + _AT_ONCE, index.num_sequences)
        lengths, pointers = index.lengths(start, stop), index.pointers(start, stop)
        if lengths.min() < 0:
            at = int(np.argmax(lengths < 0))
            return _finding("bad-idx", f"sequence {start + at:,} has {int(lengths[at]):,} tokens")
        first_tokens = total + np.cumsum(lengths) - lengths
        if not np.array_equal(pointers, first_tokens * item_bytes):
            at = int(np.argmax(pointers != first_tokens * item_bytes))
            return _finding(
                "bad-pointers",
                f"sequence {start + at:,} begins at byte {int(pointers[at]):,} by its pointer, "
                f"at byte {int(first_tokens[at]) * item_bytes:,} by the lengths before it",
            )
        total += int(lengths.sum())
        if (total + (_AT_ONCE << 31)) * item_bytes > np.iinfo(np.int64).max:
            return _finding("bad-idx", f"{total:,} tokens and more are promised, which no file can hold")
        mine = entries.below(stop)
        if isinstance(mine, Finding):
            return mine
        blocks = _counted(blocks, first_tokens[mine - start] // block_tokens)
    mine = entries.below(index.num_sequences + 1)
    if isinstance(mine, Finding):
        return mine
    if not len(mine) or not entries.is_done:
        return _finding("bad-idx", f"the document entries do not end with {index.num_sequences:,}, where sequences do")
    last = max(-(-total // block_tokens) - 1, 0)
    blocks = _counted(blocks, np.full(len(mine) - 1, last), at_least=last + 1)
    blocks[last] += blocks[last + 1 :].sum()  # empty documents behind the last token
    return _Census(num_tokens=total, num_documents=blocks[: last + 1])


def _counted(blocks: NDArray[np.int64], more: NDArray[np.int64], *, at_least: int = 0) -> NDArray[np.int64]:
    counts = np.bincount(more, minlength=max(len(blocks), at_least)).astype(np.int64)
    counts[: len(blocks)] += blocks
    return counts


class _Entries:
    """The document entries of an index in order, a piece at a time."""

    def __init__(self, index: _Index) -> None:
        self._index = index
        self._read = 0
        self._held = np.zeros(0, np.int64)
        self._last = 0

    @property
    def is_done(self) -> bool:
        """Whether all were taken."""
        return self._read == self._index.num_entries and not len(self._held)

    def below(self, sequence: int) -> NDArray[np.int64] | Finding:
        """The entries not yet taken that name a sequence below this one, or which of them makes no sense."""
        while self._read < self._index.num_entries and (not len(self._held) or self._held[-1] < sequence):
            stop = min(self._read + _AT_ONCE, self._index.num_entries)
            piece = self._index.documents(self._read, stop)
            before = np.concatenate([[self._last], piece[:-1]])
            is_wrong = (piece < before) | (piece > self._index.num_sequences)
            if self._read == 0:
                is_wrong[0] = piece[0] != 0
            if is_wrong.any():
                at = int(np.argmax(is_wrong))
                allowed = f"{int(before[at]):,} to {self._index.num_sequences:,}" if self._read + at else "0"
                return _finding(
                    "bad-idx",
                    f"document entry {self._read + at:,} names sequence {int(piece[at]):,}, allowed is {allowed}",
                )
            self._read, self._last = stop, int(piece[-1])
            self._held = np.concatenate([self._held, piece])
        num_mine = int(np.searchsorted(self._held, sequence))
        mine, self._held = self._held[:num_mine], self._held[num_mine:]
        return mine


def _overlapping(start_of: Any, count: int, first_row: int, stop_row: int) -> tuple[int, int]:
    """Which of `count` adjoining spans (``low:high``) hold tokens ``first_row:stop_row`` or stand empty in them."""
    low, high = _first_from(start_of, count, first_row), _first_from(start_of, count, stop_row)
    if low and start_of(low) > first_row:  # the one before reaches into the range
        low -= 1
    return low, max(high, low)


def _first_from(start_of: Any, count: int, token: int) -> int:
    """The first of `count` spans that begins at a token or after it, by halving."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if start_of(middle) < token:
            low = middle + 1
        else:
            high = middle
    return low
