"""Which layer goes first when a model meets this microbatch, and does it go in float32 as well?

1. A copy of the model, without hooks (`copying`), is taken through one forward and one backward pass in float32;
   another one in the run's number type, by autocast or with its weights cast, whichever the run does.
2. In both, what every module gives, the attention logits of every head and every gradient are noted in the order in
   which they were computed (`seeing`).
3. The first that is NaN or infinite is named, forward and backward; where all are finite, the first that is so large
   that the sum of two such values, as in a residual stream, is infinite in the run's type.

What goes in the run's type and not in float32 went by its number type. Nothing of the model under test changes: not its
parameters, buffers, gradients, hooks or mode, nor torch's random state, from which both passes begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from dataguard.core.evidence import Told
from dataguard.errors import UsageError
from dataguard.torch.stability.copying import copied
from dataguard.torch.stability.probe_report import BlockState, Gone, ProbeReport, Seen
from dataguard.torch.stability.seeing import see
from dataguard.torch.watching.blocks import parts_of
from dataguard.torch.watching.numbers import adam_moments, joined_max, joined_rms, joined_sum, ratio

__all__ = ["probe"]

_M = TypeVar("_M")


def probe(
    model: nn.Module,
    microbatch: _M,
    loss: Callable[[nn.Module, _M], torch.Tensor],
    *,
    run_dtype: torch.dtype | None = None,
    how: Literal["autocast", "weights"] = "autocast",
    loss_scale: float = 1.0,
    optimizer: Optimizer | None = None,
) -> ProbeReport:
    """Look at what one microbatch does in a model, layer by layer.

    Source: the second seed document (row C20), whose probe casts the very model it looks at, knows no NaN and no order.

    Parameters
    ----------
    model
        In training or evaluation, as it is; out of ``DistributedDataParallel`` and torch.compile it is taken. It needs
        memory for one more copy with gradients.
    microbatch
        Given to `loss` as it is.
    loss
        Gives the loss of the model (a copy of it) on the microbatch, one element. It must not switch autocast itself.
    run_dtype
        The type that the run computes in. Default: that of the parameters, where they are not float32.
    how
        How a run whose parameters are float32 comes to it: by autocast, or with its weights cast. Parameters that are
        in the run's type already are taken as they are.
    loss_scale
        Of the run's scaler, for the pass in the run's type: without it small gradients of float16 are zero.
    optimizer
        Of the model: what it holds (update ratios, the share at the epsilon floor) is told by block, as it stands.

    Returns
    -------
    ProbeReport

    Raises
    ------
    UsageError
        The type is no floating type, the loss is not one number, or the model cannot be copied.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    >>> _ = nn.init.constant_(model[0].weight, 1e5)
    >>> report = probe(model, torch.ones(2, 4), lambda model, x: model(x).square().mean(), run_dtype=torch.float16)
    >>> report.first_forward.name, report.first_forward.why, str(report.number_type)
    ('0', 'nonfinite', 'yes')
    """
    own = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    dtype = own if run_dtype is None else run_dtype
    if not dtype.is_floating_point:
        raise UsageError(f"a run in {dtype} cannot be", allowed="a floating type")
    if how not in ("autocast", "weights") or not 0 < loss_scale < math.inf:
        raise UsageError(
            f"how {how!r} with a loss scale of {loss_scale!r} cannot be",
            allowed="autocast or weights, and a finite scale above 0",
        )

    def call(which: nn.Module) -> torch.Tensor:
        given = loss(which, microbatch)
        if not isinstance(given, torch.Tensor) or given.numel() != 1:
            raise UsageError("the loss is not one number", allowed="a tensor of one element")
        return given.reshape(())

    devices = sorted({each.device.index or 0 for each in model.parameters() if each.device.type == "cuda"})
    run: Seen | None = None
    with torch.random.fork_rng(devices):
        state, on_devices = torch.random.get_rng_state(), [torch.cuda.get_rng_state(each) for each in devices]
        exact = see(copied(model).float(), call, dtype=torch.float32, limit_dtype=dtype, autocast=None, loss_scale=1.0)
        if dtype != torch.float32:
            torch.random.set_rng_state(state)
            for device, each in zip(devices, on_devices, strict=True):
                torch.cuda.set_rng_state(each, device)
            by = "weights" if own == dtype else how
            which = copied(model)
            run = see(
                which.to(dtype) if by == "weights" else which,
                call,
                dtype=dtype,
                limit_dtype=dtype,
                autocast=dtype if by == "autocast" else None,
                loss_scale=loss_scale,
            )
    told, text = _number_type(exact, run)
    return ProbeReport(
        float32=exact,
        run=run,
        run_dtype=None if run is None else run.dtype,
        how="float32" if run is None else by,
        loss_scale=loss_scale if run is not None else 1.0,
        number_type=told,
        text=text,
        optimizer=_states(model, optimizer),
    )


def _number_type(exact: Seen, run: Seen | None) -> tuple[Told, str]:
    if run is None:
        return Told.UNKNOWN, f"the run computes in float32: {_of(exact)}"
    both = f"in {run.dtype}: {_of(run)}; in float32: {_of(exact)}"
    return Told.YES if exact.finite and not run.finite else Told.NO, both


def _of(seen: Seen) -> str:
    told = []
    for direction, gone in (("forward", seen.first_forward), ("backward", seen.first_backward)):
        if gone is not None:
            told.append(f"{_which(gone)} goes first {direction} ({gone.why}, {gone.value:.4g})")
    return ", ".join(told) or "nothing goes"


def _which(gone: Gone) -> str:
    return f"{gone.place.value.replace('_', ' ')} of {gone.name or 'the model'}"


def _states(model: nn.Module, optimizer: Optimizer | None) -> tuple[BlockState, ...]:
    """What an optimizer holds of each block."""
    if optimizer is None:
        return ()
    groups = {id(each): group for group in optimizer.param_groups for each in group["params"]}
    states = []
    with torch.no_grad():
        for name, held in parts_of(model).parameters.items():
            found: list[tuple[Any, int]] = []
            for parameter in held:
                state = optimizer.state.get(parameter, {})
                moments = adam_moments(state, groups[id(parameter)]) if id(parameter) in groups else None
                if moments is not None:
                    found.append((ratio(moments), moments.first.numel()))
            if found:
                count = sum(each for _, each in found)
                states.append(
                    BlockState(
                        name=name,
                        update_ratio_rms=joined_rms([each[0] for each, _ in found], count).item(),
                        update_ratio_max=joined_max([each[1] for each, _ in found]).item(),
                        epsilon_floor_share=joined_sum([each[2] for each, _ in found]).item() / count,
                    )
                )
    return tuple(states)
