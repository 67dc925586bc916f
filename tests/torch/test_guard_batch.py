"""What is found in a batch, what a sample's digest is of, and where masked labels go."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import xxhash

from dataguard.core.tensors import NamedTensor
from dataguard.errors import UsageError
from dataguard.torch.guarding.batch import find_tensors, rows_digest, sample_digests
from dataguard.torch.guarding.begin import place_here
from dataguard.torch.guarding.judge import Naming, put
from dataguard.torch.guarding.take import take
from dataguard.torch.tensors import named_tensors


class Pair(NamedTuple):
    """A tuple with names."""

    left: Any
    right: Any


@dataclasses.dataclass
class Open:
    """A batch with names."""

    labels: torch.Tensor
    text: str = "not counted"


@dataclasses.dataclass(frozen=True)
class Frozen:
    """The same, which nothing can be assigned to."""

    labels: torch.Tensor


def digests(batch: Any, n: int, *, whole: bool = False) -> list[str]:
    return [each.hex() for each in sample_digests(named_tensors(find_tensors(batch)), n, whole=whole)]


def test_tensors_are_found_by_their_path_and_are_the_same_objects() -> None:
    a, b, c, d = (torch.full((2,), i) for i in range(4))
    batch = OrderedDict(a=a, pair=Pair(b, [c, "text", None, 3]), more=Open(d), array=np.zeros(3))
    found = find_tensors(batch)
    assert list(found) == ["a", "pair.0", "pair.1.0", "more.labels"]
    assert all(x is y for x, y in zip(found.values(), (a, b, c, d), strict=True))
    assert list(find_tensors(a)) == ["batch"]
    with pytest.raises(UsageError, match=r"two tensors of a batch are called 'x\.y'"):
        find_tensors({"x.y": a, "x": {"y": b}})


def test_a_sample_has_one_digest_in_whatever_batch_and_slot_it_stands() -> None:
    rows = torch.arange(24).reshape(4, 6)
    batch = {"ids": rows, "weight": torch.arange(4.0), "scalar": torch.tensor(1)}
    mixed = {"weight": torch.arange(4.0)[[2, 0]], "ids": rows[[2, 0]], "scalar": torch.tensor(2)}
    ours = digests(batch, 4)
    assert len(set(ours)) == 4
    assert digests(mixed, 2) == [ours[2], ours[0]]
    # A naive twin: the names, dtypes and shapes of what is cut, then its bytes.
    head = b"3 ids I64 6 48\n6 weight F32  4\n"
    content = rows[1].numpy().tobytes() + np.float32(1).tobytes()
    assert ours[1] == xxhash.xxh3_128_hexdigest(head + content)


@pytest.mark.parametrize(
    "other",
    [
        {"ids": torch.zeros(2, 4, dtype=torch.int32)},
        {"idx": torch.zeros(2, 4, dtype=torch.int64)},
        {"ids": torch.zeros(2, 2, 2, dtype=torch.int64)},
        {"ids": torch.zeros(2, 4, dtype=torch.int64), "more": torch.zeros(2)},
    ],
)
def test_another_dtype_name_shape_or_tensor_is_another_sample(other: dict[str, torch.Tensor]) -> None:
    assert not set(digests({"ids": torch.zeros(2, 4, dtype=torch.int64)}, 2)) & set(digests(other, 2))


def test_what_cannot_be_cut_counts_for_every_sample() -> None:
    packed = {"ids": torch.arange(10).reshape(1, 10)}
    assert len(set(digests(packed, 3))) == 3
    assert not set(digests(packed, 3)) & set(digests({"ids": torch.arange(1, 11).reshape(1, 10)}, 3))
    # One sample is one sample, in a batch of one or without batches.
    assert digests({"ids": torch.arange(3)}, 1, whole=True) == digests({"ids": torch.arange(3).reshape(1, 3)}, 1)


def test_the_microbatch_digest_covers_which_rows_stand_where() -> None:
    batch = {"ids": torch.zeros(2, 4, dtype=torch.int64)}
    made = [
        take(batch, np.array(rows), judge=None, naming=Naming(), whole=False).digest
        for rows in ([1, 2], [2, 1], [1, 2])
    ]
    assert made[0] == made[2] != made[1]
    assert rows_digest(np.array([1, 2])) == rows_digest(np.array([1, 2], np.int32))


@pytest.mark.parametrize("kind", ["dict", "list", "nested", "open", "frozen", "tuple", "tensor"])
def test_a_tensor_is_replaced_where_that_can_be_and_else_written_over(kind: str) -> None:
    old, new = torch.tensor([1, 2]), torch.tensor([1, -100])
    batch: Any = {
        "dict": {"labels": old},
        "list": [0, old],
        "nested": {"a": ({"b": [old]},)},
        "open": Open(old),
        "frozen": Frozen(old),
        "tuple": (0, old),
        "tensor": old,
    }[kind]
    ((path, found),) = find_tensors(batch).items()
    put(batch, path, found, new)
    ((again, held),) = find_tensors(batch).items()
    assert again == path
    assert held.tolist() == [1, -100]
    in_place = kind in ("frozen", "tuple", "tensor")
    assert (held is old) == in_place
    assert old.tolist() == ([1, -100] if in_place else [1, 2])


def test_a_world_size_that_is_no_number_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="WORLD_SIZE=two"):
        place_here(None, None, None, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (place_here(None, None, None, 1).rank, place_here(None, None, None, 1).world_size) == (0, 2)


def test_a_tensor_that_has_no_bytes_is_refused() -> None:
    sparse = torch.zeros(2, 2).to_sparse()
    with pytest.raises(UsageError, match="'x' cannot be recorded"):
        take({"x": sparse}, np.array([0, 1]), judge=None, naming=Naming(), whole=False)
    assert NamedTensor(dtype="U8", shape=(0,), data=b"").num_bytes == 0
