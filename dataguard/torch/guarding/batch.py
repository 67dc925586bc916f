"""What does a batch of somebody else's loader hold: which tensors, of how many samples, and what is the digest of each?

1. Tensors are found wherever they lie in nested dicts, lists, tuples and dataclasses, and named by their path:
   ``input_ids``, ``0``, ``images.left``; a batch that is a tensor is called ``batch``. Nothing else of it is counted.
2. A tensor whose first dimension is the number of samples is cut along it: sample i is the i-th slice of each of
   these, with its names, dtypes and shapes. A data set without batches gives one sample, which is not cut.
3. The digest of the microbatch covers names, dtypes, shapes and bytes of all its tensors, and the numbers of its rows
   in slot order.

A sample's digest is taken of what the loader gave; the microbatch's of what is handed over, with masked labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from dataguard.core.tensors import Tensors
from dataguard.errors import UsageError

__all__ = ["find_tensors", "is_one_sample", "num_samples_of", "rows_digest", "sample_digests"]

_WHOLE = "batch"


def find_tensors(batch: Any) -> dict[str, torch.Tensor]:
    """The tensors of a batch by their path, the very same objects.

    Raises
    ------
    UsageError
        It has none; the message names what was found.

    Examples
    --------
    >>> sorted(find_tensors({"x": torch.zeros(2), "more": [torch.ones(2), "text"]}))
    ['more.0', 'x']
    """
    found: dict[str, torch.Tensor] = {}
    _collect(batch, "", found)
    if not found:
        raise UsageError(
            "a batch without any tensor cannot be recorded",
            found=_shown(batch),
            allowed="tensors, or dicts, lists, tuples and dataclasses that hold some, however nested",
            todo="have collate_fn make tensors of it, or guard a loader that does",
        )
    return found


def _collect(value: Any, path: str, found: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        name = path or _WHOLE
        if name in found:
            raise UsageError(f"two tensors of a batch are called {name!r}", todo="give one of them another name")
        found[name] = value
        return
    prefix = f"{path}." if path else ""
    if isinstance(value, Mapping):
        for key in value:
            _collect(value[key], f"{prefix}{key}", found)
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            _collect(each, f"{prefix}{i}", found)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _collect(getattr(value, field.name), f"{prefix}{field.name}", found)


def _shown(batch: Any) -> str:
    if isinstance(batch, Mapping):
        inside = ", ".join(f"{key}: {type(batch[key]).__name__}" for key in list(batch)[:8])
        return f"{type(batch).__name__} of {inside or 'nothing'}"
    if isinstance(batch, list | tuple):
        inside = ", ".join(dict.fromkeys(type(each).__name__ for each in batch[:64]))
        return f"{type(batch).__name__} of {len(batch)} x {inside or 'nothing'}"
    return type(batch).__name__


def num_samples_of(tensors: Mapping[str, torch.Tensor], tokens: str | None) -> int:
    """Samples of a batch that comes without indices: the first dimension of its tokens, else of its first tensor."""
    if is_one_sample(tensors, tokens):
        return 1
    first = next(iter(tensors.values()))
    told = first if tokens is None else tensors[tokens]
    return int(told.shape[0]) if told.ndim else 1


def is_one_sample(tensors: Mapping[str, torch.Tensor], tokens: str | None) -> bool:
    """Whether what comes without indices is no batch but a sample: its tokens are one sequence."""
    return tokens is not None and tensors[tokens].ndim == 1


def rows_digest(rows: NDArray[np.int64]) -> bytes:
    """xxh3-128 over which rows stand in which slots of a microbatch: what its tensors were made of.

    >>> rows_digest(np.array([3, 1])) == rows_digest(np.array([1, 3]))
    False
    """
    return xxhash.xxh3_128_digest(b"dataguard-given-1" + rows.astype("<i8").tobytes())


def sample_digests(tensors: Tensors, num_samples: int, *, whole: bool) -> list[bytes]:
    """xxh3-128 of each sample, 16 bytes.

    Parameters
    ----------
    tensors
        As the loader gave them.
    num_samples
        Of the batch.
    whole
        The batch is one sample and is not cut. Where no tensor can be cut, each sample stands for all of them.
    """
    if not num_samples:
        return []
    names = sorted(tensors)
    cut = [] if whole else [name for name in names if tensors[name].shape[:1] == (num_samples,)]
    heads, parts = [], []
    for name in cut or names:
        tensor = tensors[name]
        shape = tensor.shape[1:] if cut else tensor.shape
        size = tensor.num_bytes // num_samples if cut else tensor.num_bytes
        heads.append(f"{len(name.encode())} {name} {tensor.dtype} {','.join(map(str, shape))} {size}\n")
        parts.append((memoryview(tensor.data).cast("B") if size else memoryview(b""), size))
    head = "".join(heads).encode()
    if not cut:
        return [
            _digest(head, [view for view, _ in parts], b"" if whole else bytes([i & 255])) for i in range(num_samples)
        ]
    return [_digest(head, [view[i * size : (i + 1) * size] for view, size in parts], b"") for i in range(num_samples)]


def _digest(head: bytes, parts: Sequence[memoryview], tail: bytes) -> bytes:
    state = xxhash.xxh3_128(head)
    for part in parts:
        state.update(part)
    state.update(tail)
    return state.digest()
