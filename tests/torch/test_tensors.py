"""Are tensors the same bytes for digests, on disk and between processes?"""

from __future__ import annotations

import pytest
import torch

from dataguard.core.tensors import ITEM_BYTES, tensors_digest
from dataguard.errors import UsageError
from dataguard.torch.tensors import DTYPES, from_shared, named_tensors, to_shared


def one_of(dtype: torch.dtype) -> torch.Tensor:
    values = torch.tensor([[0, 1, 2], [3, 4, 5]], dtype=torch.float32)
    if dtype.is_complex:
        return torch.complex(values, -values).to(dtype)
    return values.to(dtype)


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
def test_every_dtype_keeps_its_bytes(dtype: torch.dtype) -> None:
    tensors = {"x": one_of(dtype), "scalar": one_of(dtype)[1, 0], "empty": one_of(dtype)[:0]}
    named = named_tensors(tensors)
    assert named["x"].num_bytes == 6 * ITEM_BYTES[DTYPES[dtype]]
    assert named["scalar"].shape == ()
    assert named["empty"].shape == (0, 3)
    meta, made = from_shared(to_shared({"some": "thing"}, tensors))
    assert meta == {"some": "thing"}
    assert {name: (t.dtype, t.shape) for name, t in made.items()} == {
        name: (t.dtype, t.shape) for name, t in tensors.items()
    }
    again = named_tensors(made)
    assert all(bytes(again[name].data) == bytes(named[name].data) for name in named)
    assert tensors_digest(bytes(16), again) == tensors_digest(bytes(16), named)


def test_bytes_are_borrowed() -> None:
    tensor = torch.zeros(4, dtype=torch.bfloat16)
    data = named_tensors({"x": tensor})["x"].data
    tensor[0] = 1
    assert bytes(data)[:2] != b"\0\0"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.arange(6)[::2],
        torch.arange(3).expand(2, 3),
        torch.zeros(2, 3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(2)),
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
        torch.complex(torch.ones(2), torch.ones(2)).conj().imag,
    ],
    ids=["transposed", "strided", "expanded", "with a history", "parameter", "conjugated", "negated"],
)
def test_a_view_is_its_values(tensor: torch.Tensor) -> None:
    plain = tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    assert bytes(named_tensors({"x": tensor})["x"].data) == bytes(named_tensors({"x": plain})["x"].data)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.complex128),
    ],
    ids=["sparse", "meta", "complex128"],
)
def test_what_has_no_bytes_is_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(UsageError, match="tensor 'x' cannot be recorded"):
        named_tensors({"x": tensor})


def test_a_large_block_is_not_copied() -> None:
    block = to_shared(None, {"x": torch.zeros(8 << 20, dtype=torch.uint8)})
    _, made = from_shared(block)
    assert made["x"].untyped_storage().data_ptr() == block.untyped_storage().data_ptr()
    small = to_shared(None, {"x": torch.zeros(8)})
    _, made = from_shared(small)
    assert made["x"].untyped_storage().data_ptr() != small.untyped_storage().data_ptr()
