"""How does a microbatch of tensors become bytes, and how does it cross from one process to another?

As `NamedTensor` for digests and the store: the tensor's own memory, borrowed. And as one shared block of memory between
processes: a description, then the tensors one after the other, so that what goes through the pipe is a handle of a few
hundred bytes. Small messages matter: a worker that is killed in the middle of a large one would leave its parent
waiting for the rest for ever.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import torch

from dataguard.core.tensors import NamedTensor
from dataguard.errors import UsageError

__all__ = ["DTYPES", "from_shared", "named_tensors", "to_shared"]

_ALIGNED_BYTES = 64
_COPIED_BYTES = 4 << 20


def _dtypes() -> dict[torch.dtype, str]:
    names = {
        "bool": "BOOL",
        "uint8": "U8",
        "int8": "I8",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
        "uint16": "U16",
        "int16": "I16",
        "float16": "F16",
        "bfloat16": "BF16",
        "uint32": "U32",
        "int32": "I32",
        "float32": "F32",
        "uint64": "U64",
        "int64": "I64",
        "float64": "F64",
        "complex64": "C64",
    }
    return {getattr(torch, ours): theirs for ours, theirs in names.items() if hasattr(torch, ours)}


DTYPES = _dtypes()
"""Names of dtypes as `dataguard.core.tensors` spells them."""


def named_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, NamedTensor]:
    """Tensors as bytes: borrowed where a tensor is contiguous and on the CPU, else copied.

    Raises
    ------
    UsageError
        A tensor that has no such bytes: sparse, quantized, without data, or of a dtype that nobody can name.

    Examples
    --------
    >>> named_tensors({"x": torch.tensor([[1, 2]], dtype=torch.int16)})["x"].shape
    (1, 2)
    """
    return {name: _named(name, tensor) for name, tensor in tensors.items()}


def _named(name: str, tensor: torch.Tensor) -> NamedTensor:
    dtype = DTYPES.get(tensor.dtype)
    if tensor.layout != torch.strided or tensor.is_meta or dtype is None:
        raise UsageError(
            f"tensor {name!r} cannot be recorded",
            found=f"{tensor.dtype}, {tensor.layout}, on {tensor.device}",
            allowed="dense tensors, on a device that holds their values, of "
            + ", ".join(sorted(str(kind).removeprefix("torch.") for kind in DTYPES)),
        )
    return NamedTensor(dtype=dtype, shape=tuple(tensor.shape), data=_bytes_of(plain(tensor).cpu()).numpy())


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as an ordinary contiguous tensor without a history; itself where it is one."""
    ordinary = type(tensor) is torch.Tensor and not (tensor.requires_grad or tensor.is_complex() or tensor.is_neg())
    if ordinary and tensor.is_contiguous():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().as_subclass(torch.Tensor).contiguous()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor, uint8, shape (num_bytes,)."""
    flat = tensor.reshape(-1)
    return (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8)


def to_shared(meta: Any, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Put a picklable value and contiguous tensors into one block of shared memory, uint8."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors.values()]
    shapes = [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    head = pickle.dumps((meta, shapes), protocol=pickle.HIGHEST_PROTOCOL)
    start = _aligned(8 + len(head))
    block: torch.Tensor = torch.zeros(start + sum(map(_aligned, sizes)), dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
    view = block.numpy().data
    view[:8] = len(head).to_bytes(8, "little")
    view[8 : 8 + len(head)] = head
    for tensor, size in zip(tensors.values(), sizes, strict=True):
        if size:
            block[start : start + size] = _bytes_of(tensor)
        start += _aligned(size)
    return block


def from_shared(block: torch.Tensor) -> tuple[Any, dict[str, torch.Tensor]]:
    """What `to_shared` was given.

    The tensors of a small block are copied out of it, so that a consumer may keep as many microbatches as it likes: a
    block of shared memory holds a file open.
    """
    if block.numel() <= _COPIED_BYTES and block.is_shared():  # type: ignore[no-untyped-call]
        block = block.clone()
    view = block.numpy().data
    stop = 8 + int.from_bytes(view[:8], "little")
    # From a worker of ours, over memory that only the two of us share.
    meta, shapes = pickle.loads(view[8:stop])  # noqa: S301
    tensors: dict[str, torch.Tensor] = {}
    start = _aligned(stop)
    for name, dtype, shape in shapes:
        size = torch.Size(shape).numel() * dtype.itemsize
        part = block[start : start + size]
        tensors[name] = (part.view(dtype) if size else torch.empty(0, dtype=dtype)).reshape(shape)
        start += _aligned(size)
    return meta, tensors


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
