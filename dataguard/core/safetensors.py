"""How do tensors become the bytes of a safetensors file, and how are such bytes read without trusting them?

The format is eight bytes (the length of the header, little-endian), a JSON header, and the tensors' buffers one behind
the other. The header names dtype, shape and place of each, and may hold text under ``__metadata__``. It is written here
by hand, so that bfloat16, float8 and booleans need no framework, no copy is made, and nothing depends on a library
whose calls have changed while the format has not; whatever reads safetensors reads these files.

1. Wider elements come first, then names in byte order: every tensor is aligned, and equal tensors give equal bytes.
2. The header is padded with spaces to a multiple of eight.
3. Reading takes nothing on faith: places must lie one behind the other and reach exactly to the end, and sizes must be
   what dtype and shape say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dataguard.core.tensors import ITEM_BYTES, NamedTensor, Tensors

__all__ = ["MOST_HEADER_BYTES", "safetensors_parts", "split_safetensors"]

MOST_HEADER_BYTES = 100_000_000
"""As every reader of the format has it."""
_METADATA = "__metadata__"


def safetensors_parts(tensors: Tensors, metadata: Mapping[str, str]) -> list[Any]:
    """The file's content as buffers to be written one behind the other; the first is header and length.

    The tensors' own buffers are among them, not copied.

    Raises
    ------
    ValueError
        A tensor has the name that the format keeps for its metadata.

    Examples
    --------
    >>> parts = safetensors_parts({"x": NamedTensor(dtype="U8", shape=(2,), data=b"ab")}, {"made": "here"})
    >>> split_safetensors(b"".join(parts))[0]
    {'made': 'here'}
    """
    if _METADATA in tensors:
        raise ValueError(f"a tensor cannot be called {_METADATA}")
    names = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.num_bytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *(tensors[name].data for name in names)]


def split_safetensors(content: bytes) -> tuple[dict[str, str], dict[str, NamedTensor]]:
    """Metadata and tensors of a file's content; the tensors are views of it.

    Raises
    ------
    ValueError
        It is no such file, or its header does not fit its bytes.

    Examples
    --------
    >>> split_safetensors(b"12345678")
    Traceback (most recent call last):
    ...
    ValueError: its header of 4,050,765,991,979,987,505 bytes is longer than the file
    """
    if len(content) < 8:
        raise ValueError(f"it has {len(content)} bytes, and the length of its header alone takes 8")
    size = int.from_bytes(content[:8], "little")
    if size > len(content) - 8:
        raise ValueError(f"its header of {size:,} bytes is longer than the file")
    if size > MOST_HEADER_BYTES:
        raise ValueError(f"its header of {size:,} bytes is longer than the {MOST_HEADER_BYTES:,} that are read")
    try:
        header = json.loads(content[8 : 8 + size], object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is no JSON: {error}") from error
    metadata = header.pop(_METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its header is no JSON object, or its metadata are not all text")
    data = memoryview(content)[8 + size :]
    places = [(*_place(name, entry), name) for name, entry in header.items()]
    tensors, end = {}, 0
    for begin, stop, dtype, shape, name in sorted(places):
        if begin != end:
            raise ValueError(f"tensor {name!r} begins at byte {begin:,} and not at {end:,}")
        if stop > len(data):
            raise ValueError(f"tensor {name!r} ends at byte {stop:,} of {len(data):,}")
        tensors[name] = NamedTensor(dtype=dtype, shape=shape, data=data[begin:stop])
        end = stop
    if end != len(data):
        raise ValueError(f"{len(data) - end:,} bytes at its end belong to no tensor")
    return metadata, tensors


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands in it twice")
    return dict(pairs)


def _place(name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Begin, end, dtype and shape of a tensor as the header has them, checked against each other."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, stop]}:
            numbers = [*shape, begin, stop]
        case _:
            raise ValueError(f"tensor {name!r} has not dtype, shape and data_offsets")
    if dtype not in ITEM_BYTES:
        raise ValueError(f"tensor {name!r} is of dtype {dtype!r}")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"tensor {name!r} has numbers that are no counts")
    expected = ITEM_BYTES[dtype]
    for number in shape:
        expected *= number
    if stop - begin != expected:
        raise ValueError(f"tensor {name!r} takes {stop - begin:,} bytes, and {dtype} {shape} is {expected:,}")
    return begin, stop, dtype, tuple(shape)
