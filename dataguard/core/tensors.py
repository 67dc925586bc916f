"""What is a delivered tensor where nobody imports a framework, and what is the digest of a microbatch of them?

A `NamedTensor` is a dtype in the spelling of safetensors, a shape and contiguous little-endian bytes. The loader's
adapters make them, the store keeps them, a replay compares them. The digest of a microbatch of tensors covers their
names, dtypes, shapes and bytes, and the digest of what they were made of (slot order, mask and canonical bytes), so a
replay that has the records alone, or the tensors alone, says which of the two is missing and never that all is well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import xxhash

__all__ = ["ITEM_BYTES", "NamedTensor", "Tensors", "tensors_digest"]

ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}
"""Bytes of one element, by dtype."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedTensor:
    """One tensor as bytes."""

    dtype: str
    """A key of `ITEM_BYTES`."""
    shape: tuple[int, ...]
    data: Any
    """A contiguous buffer, little-endian, row-major; it is borrowed, so whoever keeps it copies it."""

    def __post_init__(self) -> None:
        assert self.num_bytes == memoryview(self.data).nbytes, f"{self.dtype} {self.shape} is not its buffer"

    @property
    def num_bytes(self) -> int:
        """Bytes of the buffer."""
        return ITEM_BYTES[self.dtype] * prod(self.shape)


Tensors = Mapping[str, NamedTensor]
"""A microbatch of tensors, by name."""


def tensors_digest(made_of: bytes, tensors: Tensors) -> bytes:
    """xxh3-128 (16 bytes) over names, dtypes, shapes and bytes of tensors, in byte order of their names.

    Parameters
    ----------
    made_of
        Digest of the microbatch that the tensors were made of, 16 bytes: slot order, mask and canonical bytes.

    Examples
    --------
    >>> one = NamedTensor(dtype="U8", shape=(1, 2), data=b"ab")
    >>> tensors_digest(bytes(16), {"x": one}) == tensors_digest(bytes(16), {"y": one})
    False
    """
    state = xxhash.xxh3_128(b"dataguard-tensors-1" + made_of)
    for name in sorted(tensors):
        tensor = tensors[name]
        head = f"{len(name.encode())} {name} {tensor.dtype} {','.join(map(str, tensor.shape))} {tensor.num_bytes}\n"
        state.update(head.encode())
        state.update(tensor.data)
    return state.digest()
