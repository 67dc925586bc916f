"""What counts as a number, and how it is fetched from a device without waiting."""

from __future__ import annotations

import contextlib
import gc
import math
import weakref
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from dataguard.errors import UsageError
from dataguard.torch.monitoring import values
from dataguard.torch.monitoring.values import take, take_samples
from tests.torch.later import FakeDevice


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2.5, 2.5),
        (True, 1.0),
        (7, 7.0),
        (2**60, float(2**60)),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int64(-3), -3.0),
        (np.float16(0.5), 0.5),
        (np.array(1.5), 1.5),
        (np.array([[4]]), 4.0),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 8), 0.125),
        (torch.tensor(2.5), 2.5),
        (torch.tensor([[2.5]], dtype=torch.bfloat16), 2.5),
        (torch.tensor(2**40), float(2**40)),
        (torch.tensor(True), 1.0),
        (torch.tensor(0.1, dtype=torch.float64), 0.1),
        (math.inf, math.inf),
        (torch.tensor(-math.inf), -math.inf),
    ],
)
def test_numbers(value, number: float) -> None:
    assert take({"x": value}).settle().tolist() == [number]


@pytest.mark.parametrize("value", [math.nan, np.float32("nan"), torch.tensor(math.nan)])
def test_nan_is_nan(value) -> None:
    assert math.isnan(take({"x": value}).settle()[0])


def test_none_is_left_out_and_order_is_kept() -> None:
    taken = take({"b": 1, "skipped": None, "a": torch.tensor(2.0), "c": np.float64(3)})
    assert (taken.names, taken.settle().tolist()) == (["b", "a", "c"], [1.0, 2.0, 3.0])
    assert taken.ready()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(2), "loss cannot be logged: it has shape (2,)"),
        (torch.zeros(0), "loss cannot be logged: it has shape (0,)"),
        (torch.zeros(1, 3), "loss cannot be logged: it has shape (1, 3)"),
        (np.zeros((2, 2)), "loss cannot be logged: it has shape (2, 2)"),
        (torch.tensor(1j), "loss holds complex numbers"),
        (torch.zeros((), device="meta"), "loss holds no data: it lies on the meta device"),
        (1j, "a complex is no number"),
        (np.complex128(1), "is no number"),
        ("1.0", "a str is no number"),
        (b"1", "a bytes is no number"),
        ([1.0], "a list is no number"),
        (object(), "a object is no number"),
        (10**400, "loss cannot be logged: int too large"),
    ],
)
def test_what_is_no_number_is_refused_by_name(value, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        take({"lr": 0.1, "loss": value})
    assert message in str(refused.value)


def test_a_graph_is_not_kept() -> None:
    weight = torch.ones(3, requires_grad=True)
    hidden = weight * 2
    alive = weakref.ref(hidden)
    loss = (hidden * hidden).sum()
    taken = [take({"loss": loss}), take_samples("loss", (hidden * 1), 3)]
    del hidden, loss
    gc.collect()
    assert alive() is None
    assert taken[0].settle().tolist() == [12.0]


class _Placement:
    def __init__(self, *, replicated: bool) -> None:
        self.replicated = replicated

    def is_replicate(self) -> bool:
        return self.replicated

    def __repr__(self) -> str:
        return "Replicate()" if self.replicated else "Partial(sum)"


class _Distributed(torch.Tensor):
    """As much of a DTensor as is looked at."""

    placements: tuple[_Placement, ...]

    def to_local(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def test_a_distributed_tensor_is_read_where_every_rank_holds_it_whole() -> None:
    norm = torch.tensor(3.0).as_subclass(_Distributed)
    norm.placements = (_Placement(replicated=True),)
    assert take({"grad_norm": norm}).settle().tolist() == [3.0]
    norm.placements = (_Placement(replicated=True), _Placement(replicated=False))
    with pytest.raises(UsageError, match="a DTensor of which this rank holds a part alone") as refused:
        take({"grad_norm": norm})
    assert "log grad_norm.full_tensor()" in str(refused.value)


def test_all_values_on_a_device_come_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    taken = take({"a": torch.tensor(1.0), "b": 2.0, "c": torch.tensor([3], dtype=torch.int16), "d": torch.tensor(True)})
    assert len(device.copies) == 1
    assert not taken.ready()
    assert np.isnan(taken.numbers).tolist() == [True, False, True, True]
    device.release()
    assert taken.ready()
    assert taken.settle().tolist() == [1.0, 2.0, 3.0, 1.0]
    assert device.waited_for == 0


def test_later_changes_of_a_tensor_change_nothing() -> None:
    losses = torch.tensor([1.0, 2.0], dtype=torch.float64)
    taken = take_samples("loss", losses, 2)
    losses.zero_()
    assert taken.settle().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "losses", [[1, 2.5], (1, 2.5), np.array([1, 2.5], np.float32), torch.tensor([1, 2.5], dtype=torch.bfloat16)]
)
def test_losses_of_samples(losses) -> None:
    taken = take_samples("loss", losses, 2)
    assert (taken.names, taken.settle().tolist()) == (["loss"] * 2, [1.0, 2.5])


@pytest.mark.parametrize("losses", [[1.0], [1.0, 2.0, 3.0], 1.0, torch.zeros(2, 1), np.zeros((1, 2)), torch.zeros(())])
def test_losses_of_another_shape_are_refused(losses) -> None:
    with pytest.raises(UsageError) as refused:
        take_samples("loss", losses, 2)
    assert "has shape" in str(refused.value)
    assert "the microbatch holds 2 slots" in str(refused.value)


@pytest.mark.parametrize("losses", [["a", "b"], [1j, 2], [None, 1.0], [[1.0], [1.0, 2.0]]])
def test_losses_that_are_no_numbers_are_refused(losses) -> None:
    with pytest.raises(UsageError, match="of samples cannot be"):
        take_samples("loss", losses, 2)


def test_losses_of_samples_come_from_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    taken = take_samples("loss", torch.tensor([1.0, math.nan], requires_grad=True), 2)
    assert not taken.ready()
    assert taken.settle().tolist()[0] == 1.0
    assert math.isnan(taken.numbers[1])
    assert device.waited_for == 1


def test_a_cuda_device_is_asked_for_a_copy_and_an_event_in_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without such a device at hand: what is asked of it, and that nothing waits before the numbers are wanted."""
    asked: list[str] = []
    real_empty, real_copy = torch.empty, torch.Tensor.copy_

    class Event:
        arrived = False

        def record(self) -> None:
            asked.append("record")

        def query(self) -> bool:
            return self.arrived

        def synchronize(self) -> None:
            asked.append("synchronize")

    def empty(*shape, dtype, pin_memory):
        assert pin_memory
        return real_empty(*shape, dtype=dtype)

    def copy(host, tensor, *, non_blocking):
        assert non_blocking
        asked.append("copy")
        return real_copy(host, tensor)

    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    monkeypatch.setitem(values._COPIES, "cpu", values._COPIES["cuda"])
    taken = take({"loss": torch.tensor(2.5), "lr": 0.1, "norm": torch.tensor(3)})
    assert asked == ["copy", "record"]
    assert not taken.ready()
    monkeypatch.setattr(Event, "arrived", True)
    assert taken.ready()
    assert asked == ["copy", "record"]
    assert taken.settle().tolist() == [2.5, 0.1, 3.0]
    assert asked == ["copy", "record", "synchronize"]
