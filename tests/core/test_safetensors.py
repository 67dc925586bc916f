"""Safetensors by hand: what the reference library writes is read, what is written it reads, and damage is told."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.safetensors import safetensors_parts, split_safetensors
from dataguard.core.tensors import ITEM_BYTES, NamedTensor


def tensor(dtype: str, *shape: int) -> NamedTensor:
    size = ITEM_BYTES[dtype] * int(np.prod(shape, dtype=np.int64))
    return NamedTensor(dtype=dtype, shape=shape, data=bytes(i % 2 if dtype == "BOOL" else i % 251 for i in range(size)))


MANY = {
    f"{dtype.lower()}/{i}": tensor(dtype, *shape) for dtype in ITEM_BYTES for i, shape in enumerate([(2, 3), (), (0,)])
}


def content(tensors: dict[str, NamedTensor] = MANY, **metadata: str) -> bytes:
    return b"".join(safetensors_parts(tensors, metadata))


def test_every_dtype_comes_back() -> None:
    metadata, tensors = split_safetensors(content(run="a", odd="\u2028\x00"))
    assert metadata == {"run": "a", "odd": "\u2028\x00"}
    assert {name: (t.dtype, t.shape, bytes(t.data)) for name, t in tensors.items()} == {
        name: (t.dtype, t.shape, bytes(t.data)) for name, t in MANY.items()
    }


def test_the_reference_library_reads_what_is_written() -> None:
    import safetensors as reference

    read = dict(reference.deserialize(content(run="a")))
    assert {name: (one["dtype"], tuple(one["shape"]), bytes(one["data"])) for name, one in read.items()} == {
        name: (t.dtype, t.shape, bytes(t.data)) for name, t in MANY.items()
    }


def test_what_the_reference_library_writes_is_read() -> None:
    import safetensors.numpy as reference

    arrays = {"b": np.arange(6, dtype="<i8").reshape(2, 3), "a": np.array([True, False])}
    metadata, tensors = split_safetensors(reference.save(arrays, metadata={"made": "there"}))
    assert metadata == {"made": "there"}
    assert {n: (t.dtype, t.shape, bytes(t.data)) for n, t in tensors.items()} == {
        "a": ("BOOL", (2,), arrays["a"].tobytes()),
        "b": ("I64", (2, 3), arrays["b"].tobytes()),
    }


def test_every_tensor_is_aligned_and_order_does_not_matter() -> None:
    raw = content()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for name, entry in header.items():
        if name != "__metadata__":
            assert (8 + size + entry["data_offsets"][0]) % ITEM_BYTES[entry["dtype"]] == 0
    assert content(dict(reversed(MANY.items()))) == raw


def with_header(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: object = "U8", shape: object = (2,), begin: object = 0, stop: object = 2) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, stop]}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "0 bytes"),
        ((2**60).to_bytes(8, "little"), "longer than the file"),
        (with_header(b"{"), "no JSON"),
        (with_header(b"[" * 100_000), "no JSON"),
        (with_header([]), "no JSON object"),
        (with_header({"__metadata__": {"a": 1}}), "not all text"),
        (with_header(b'{"x":1,"x":2}'), "twice"),
        (with_header({"x": {"dtype": "U8"}}), "has not dtype, shape and data_offsets"),
        (with_header({"x": entry("Q4")}, b"ab"), "dtype 'Q4'"),
        (with_header({"x": entry(shape=[True, 2])}, b"ab"), "no counts"),
        (with_header({"x": entry(shape=[-1, -2])}, b"ab"), "no counts"),
        (with_header({"x": entry("I8", [3])}, b"ab"), "takes 2 bytes, and I8 .3. is 3"),
        (with_header({"x": entry("U8", [2], 1, 3)}, b"abc"), "begins at byte 1 and not at 0"),
        (with_header({"x": entry()}, b"a"), "ends at byte 2 of 1"),
        (with_header({"x": entry()}, b"abc"), "1 bytes at its end"),
        (with_header({"x": entry(), "y": entry()}, b"ab"), "begins at byte 0 and not at 2"),
    ],
)
def test_what_does_not_fit_is_told(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split_safetensors(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for candidate in (raw, with_header(raw), with_header({"x": entry()}, raw)):
        try:
            _, tensors = split_safetensors(candidate)
        except ValueError:
            continue
        assert sum(t.num_bytes for t in tensors.values()) <= len(candidate)


def test_the_name_of_the_metadata_is_taken() -> None:
    with pytest.raises(ValueError, match="__metadata__"):
        content({"__metadata__": tensor("U8", 1)})
