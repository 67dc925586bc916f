"""What does a block look like in memory, and is it the block that the manifest knows?

A `DecodedBlock` is a block of text as one buffer with offsets, or a run of token ids. Its digest is taken over lengths
and content (core.digests.block_digest), whatever container it came from, and compared with the manifest's on every
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.digests import block_digest
from dataguard.errors import ShardDamaged

if TYPE_CHECKING:
    import pyarrow as pa

    from dataguard.corpus.formats.protocol import ReadBlock

__all__ = ["DecodedBlock", "decoded_text", "decoded_tokens", "of_read_block"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedBlock:
    """The rows of one block."""

    first_row: int
    num_bytes: int
    """Memory it holds."""
    digest: bytes
    """16 bytes, of what was read."""
    starts: NDArray[np.int64] | None = None
    """Text: offsets of the rows in `values`, shape (rows + 1,)."""
    lengths: NDArray[np.int64] | None = None
    """Text: bytes of each row, -1 where it is rejected. Shape (rows,)."""
    values: memoryview | None = None
    tokens: NDArray[Any] | None = None
    """Ids as stored, shape (rows,)."""

    def text(self, row: int) -> bytes | None:
        """The bytes of a stored row; None where it is rejected or not in the block."""
        return self.texts([row])[0]

    def texts(self, rows: Iterable[int]) -> list[bytes | None]:
        """The bytes of stored rows, in the order asked for; see `text`."""
        assert self.starts is not None
        assert self.lengths is not None
        assert self.values is not None
        # Names of this call alone: the loop runs for every sample that is ever delivered.
        first, size, values = self.first_row, len(self.lengths), self.values
        start_of, length_of = self.starts.item, self.lengths.item
        found: list[bytes | None] = []
        for row in rows:
            place = row - first
            if 0 <= place < size and length_of(place) >= 0:
                found.append(bytes(values[start_of(place) : start_of(place + 1)]))
            else:
                found.append(None)
        return found


def of_read_block(block: ReadBlock, *, first_row: int, item_type: str, name: str) -> DecodedBlock:
    """What a format read, in the form that is cached and verified."""
    if block.text is not None:
        return decoded_text(block.text, first_row=first_row)
    assert block.tokens is not None, "a block holds text or tokens"
    return decoded_tokens(block.tokens, first_row=first_row, item_type=item_type, name=name)


def decoded_text(array: pa.LargeBinaryArray, *, first_row: int) -> DecodedBlock:
    """A block of text.

    >>> import pyarrow as pa
    >>> block = decoded_text(pa.array([b"one", None, b""], pa.large_binary()), first_row=7)
    >>> block.text(7), block.text(8), block.text(9), block.text(10)
    (b'one', None, b'', None)
    """
    validity, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset) if offsets else np.zeros(1, np.int64)
    lengths = np.diff(starts)
    values = memoryview(data) if data is not None else memoryview(b"")
    content = values[starts[0] : starts[-1]]
    if validity is not None and array.null_count:
        rejected = np.asarray(array.is_null())
        hidden = lengths[rejected].any()  # bytes under a null are nobody's content
        lengths = np.where(rejected, -1, lengths)
        if hidden:
            content = memoryview(
                b"".join(values[s:e] for s, e, n in zip(starts[:-1], starts[1:], lengths, strict=True) if n >= 0)
            )
    return DecodedBlock(
        first_row=first_row,
        num_bytes=sum(buffer.size for buffer in (validity, offsets, data) if buffer is not None) + lengths.nbytes,
        digest=block_digest(lengths, content),
        starts=starts,
        lengths=lengths,
        values=values,
    )


def decoded_tokens(tokens: NDArray[Any], *, first_row: int, item_type: str, name: str) -> DecodedBlock:
    """A run of token ids.

    Parameters
    ----------
    tokens
        Native-endian integers, 1-D.
    first_row
        The first token's place in the shard.
    item_type
        NumPy dtype string of the ids as stored, e.g. ``>u2``.
    name
        The shard, for messages.

    Raises
    ------
    ShardDamaged
        An id that no int64 holds.
    """
    if tokens.dtype == np.uint64 and len(tokens) and int(tokens.max()) > np.iinfo(np.int64).max:
        raise ShardDamaged(f"shard {name} holds ids that no int64 can hold", found=f"{int(tokens.max()):,}")
    stored = np.ascontiguousarray(tokens, np.dtype(item_type).newbyteorder("<"))
    return DecodedBlock(
        first_row=first_row,
        num_bytes=tokens.nbytes,
        digest=block_digest(np.array([len(tokens)]), stored),
        tokens=tokens,
    )
