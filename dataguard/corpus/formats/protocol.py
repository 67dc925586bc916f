"""What every format is to the rest of the corpus: scan a shard to blocks, read the rows of a block.

1. `recognise` looks at the first bytes (after decompression) and the name; content decides, the name only breaks ties.
2. `scan` walks the whole shard once and yields `ScannedBlock`s in row order, then one `ScanEnd`. What is wrong with a
   record is a `Finding` of its block; what is wrong with the shard is a `Finding` of the end, never an exception. Only
   storage that fails (OSError, EnvironmentFailed) raises.
3. `read` gives the rows of one block again, as scanned: the same rows rejected, the same bytes.

A format never opens a path and never caches: it is given a `ShardFile`, which does both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.errors import UsageError

__all__ = [
    "MOST_DEPTH",
    "BlockPlace",
    "Declared",
    "Finding",
    "Format",
    "ReadBlock",
    "ScanEnd",
    "ScanOptions",
    "ScannedBlock",
    "ShardFile",
]

MOST_DEPTH = 900
"""Every decoder reads so deep a nesting, on a stack of its own."""
_LIMITS = (
    "block_bytes",
    "block_tokens",
    "free_expansion_bytes",
    "max_depth",
    "max_expansion",
    "max_members",
    "max_record_bytes",
    "max_window_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with a shard (``row`` is None) or with one of its records.

    The code decides the effect, by the table in findings.py.
    """

    code: str
    """Reason code, e.g. ``not-an-object``; the table in findings.py gives its effect and its sentence."""
    detail: str
    """What was expected and found, in one line."""
    row: int | None = None
    """Stored row, 0-based."""
    line: int | None = None
    """Physical line, 1-based, where the format has lines."""
    offset_bytes: int | None = None
    """Byte offset in the decoded stream (or in the file where nothing is decoded)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlace:
    """Where a block lies in its shard: what `read` needs, exactly the place fields of BLOCK_DTYPE."""

    first_row: int
    num_rows: int
    offset_bytes: int = -1
    size_bytes: int = -1
    group: int = -1
    """Row group or record batch; of tokens, how many documents begin in the block. -1 where there is no such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedBlock:
    """A block as a scan found it."""

    place: BlockPlace
    content_bytes: int
    digest: bytes
    """16 bytes, core.digests.block_digest."""
    rejected: tuple[Finding, ...] = ()
    """Findings of its rejected rows, in row order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEnd:
    """The last thing a scan yields."""

    findings: tuple[Finding, ...] = ()
    """What is wrong with the shard as a whole (flagged or excluded by the table)."""
    ignored_lines: int = 0
    """Blank lines and the like: no records, counted nevertheless."""
    item_type: str = ""
    """NumPy dtype string of token ids as stored."""
    num_documents: int | None = None
    """Documents of a token shard, empty ones too; None where it does not know them."""
    num_sequences: int | None = None
    """Sequences that its documents are made of; None where it does not know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBlock:
    """The rows of one block.

    For text: `text` is a `pa.LargeBinaryArray` of num_rows entries, null where the row is rejected. A file that was
    changed may reject other rows than its scan did: a null that the manifest does not know of is a changed shard.
    For tokens: `tokens` is a 1-D native-endian integer array of num_rows ids.
    """

    text: pa.LargeBinaryArray | None = None
    tokens: NDArray[Any] | None = None
    fields: pa.Table | None = None
    """All other columns of the same rows, only where they were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """What a scan and a read are told about a source."""

    text_field: str = "text"
    """The field or column that holds the text."""
    block_bytes: int = 1 << 20
    """A block of lines ends with the line that reaches this many bytes; a longer line is a block by itself."""
    block_tokens: int = 1 << 18
    """Tokens of one block of a token shard."""
    max_record_bytes: int = 1 << 30
    """A longer record (a line with its ending) is rejected and never held in memory."""
    max_window_bytes: int = 1 << 27
    """A compressed stream whose decoder would need a larger window is refused before it is decoded."""
    max_expansion: int = 1000
    """Compressed data that decodes to more than this many times its stored size is refused, see below."""
    free_expansion_bytes: int = 1 << 29
    """What decodes to no more than this many bytes is read, however well it was compressed."""
    max_depth: int = 512
    """A record whose arrays and objects nest deeper is rejected; far beyond any data."""
    max_members: int = 1 << 20
    """An archive that holds more members is refused."""
    dtype: str = ""
    """NumPy type of the ids in files that do not say it, e.g. ``<u2``; empty where none was given."""
    token_field: str = ""
    """The column that holds ids, where a format has columns; empty for the one that is called so, or the only one."""

    def __post_init__(self) -> None:
        for name in _LIMITS:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1", found=f"{getattr(self, name):,}")
        if self.max_depth > MOST_DEPTH:
            raise UsageError(f"max_depth {self.max_depth:,} is more than decoders bear", allowed=f"1 to {MOST_DEPTH:,}")
        if self.dtype:
            object.__setattr__(self, "dtype", _integer_type(self.dtype))

    def may_expand_to(self, stored_bytes: int) -> int:
        """How many bytes so many stored bytes may decode to.

        >>> ScanOptions(max_expansion=10, free_expansion_bytes=500).may_expand_to(4), ScanOptions().may_expand_to(4)
        (500, 536870912)
        """
        return max(self.free_expansion_bytes, self.max_expansion * stored_bytes)


def _integer_type(text: str) -> str:
    """A type of ids as NumPy spells it, byte order included."""
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in "iu":
        raise UsageError(
            f"{text!r} is no type of ids", allowed="an integer type of NumPy: uint16, uint32, '>u2', int64"
        )
    return dtype.str


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a file beside a shard says of it, where such a file says anything (corpus/indexes.py)."""

    index: str
    """Path of that file; empty where there is none."""
    entry: str = ""
    """Its words on the shard, JSON; empty where it does not list it."""
    trouble: str = ""
    """Why it says nothing."""


class ShardFile(Protocol):
    """One shard, opened through the storage seam. Safe for several threads: every call opens its own handle."""

    name: str
    """For messages: ``SOURCE/path``."""
    path: str
    """Relative path, for the name's ending."""
    size_bytes: int
    local_path: str | None
    """A path for memory maps where the shard is a local file."""
    compression: Literal["none", "gzip", "zstd"]

    @property
    def declared(self) -> Declared | None:
        """What an index says of it, known to a scan only; None where nothing is known."""
        ...

    @property
    def companions(self) -> Sequence[ShardFile]:
        """Its other files, by its format (corpus/companions.py); `size_bytes` counts them too."""
        ...

    def open(self) -> BinaryIO:
        """The raw file, seekable."""
        ...

    def read_at(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Exactly that range of the raw file; ShardDamaged where it ends early."""
        ...


class Format(Protocol):
    """One kind of data file."""

    name: str
    kind: Literal["text", "tokens"]
    random_access: bool
    """Whether `read` costs about the block, not the shard, on an uncompressed file.

    A compressed stream never has it: its `read` decodes all that stands before the block, so it is read through
    `read_all` and a cache.
    """

    def recognise(self, head: bytes, path: str) -> int:
        """How surely these first decoded bytes are of this format.

        0 no, 1 by name only, 2 by content, 3 by a magic number or check sum: what holds other people's text, as a
        container does, is no text because of that.
        """
        ...

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        ...

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of one block. ShardDamaged where they cannot be read any more."""
        ...

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, decoding the shard once at most: what fills the local cache.

        ShardDamaged where one of them cannot be read any more.
        """
        ...
