"""Who is this content? xxh3 for samples, microbatches, blocks and shards; SHA-256 for plans, manifests and the journal.

Canonical bytes of a sample are the record's bytes, or its ids as little-endian int64 (FORMATS.md). The digest of a
microbatch covers slot order, the loss mask and the samples' canonical bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

__all__ = [
    "block_digest",
    "canonical_json",
    "canonical_tokens",
    "microbatch_digest",
    "sample_digest",
    "sha256_hex",
]


def canonical_tokens(ids: NDArray[Any]) -> bytes:
    """Ids of one sample as little-endian int64, the form its digest is taken over.

    >>> canonical_tokens(np.array([1, 258], ">u2")).hex()
    '01000000000000000201000000000000'
    """
    return np.ascontiguousarray(ids).astype("<i8").tobytes()


def sample_digest(content: bytes) -> bytes:
    """xxh3-128 of a sample's canonical bytes: 16 bytes, of which the index keeps the first 8."""
    return xxhash.xxh3_128_digest(content)


def microbatch_digest(contents: Sequence[bytes], masks: Sequence[bytes]) -> bytes:
    """xxh3-128 (16 bytes) over slot order, mask and canonical bytes of one microbatch.

    Parameters
    ----------
    contents
        Canonical bytes of each slot, in slot order; empty for padding.
    masks
        Loss mask of each slot as bytes: one byte for a document (1 counts, 0 is masked), one a token for a window.
    """
    state = xxhash.xxh3_128(b"dataguard-microbatch-1")
    for content, mask in zip(contents, masks, strict=True):
        state.update(len(mask).to_bytes(8, "little") + mask + len(content).to_bytes(8, "little"))
        state.update(content)
    return state.digest()


def block_digest(lengths: NDArray[np.int64], values: Any) -> bytes:
    """xxh3-128 (16 bytes) of a block's content, whatever container it lies in.

    Parameters
    ----------
    lengths
        int64, shape (rows,): bytes of each stored row, -1 for a rejected one. For tokens: one entry, the token count.
    values
        A buffer: the deliverable rows' bytes one after the other, or the tokens as little-endian ids of the stored
        width.
    """
    state = xxhash.xxh3_128(np.ascontiguousarray(lengths, dtype="<i8").tobytes())
    state.update(values)
    return state.digest()


def sha256_hex(content: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def canonical_json(document: Any) -> bytes:
    """The one spelling of a document that digests are taken over: sorted keys, no white space, UTF-8.

    >>> canonical_json({"b": 1, "a": [2, None]})
    b'{"a":[2,null],"b":1}'
    """
    return msgspec.json.encode(document, order="sorted")
