"""How is one step of training made so that a bad batch, a spike or a NaN costs a step and nothing else?

1. Every rank counts the labels of its microbatches and scores them, where there is a judge. One collective adds it all
   up. A batch that is refused, or that holds no label, ends here: no forward pass, no NaN from a mean of nothing.
2. Forward and backward of each microbatch, gradients accumulating. The loss that a user gives is a *sum* over labels;
   it is divided by the labels of the global batch, so a step is the mean over its tokens however it is cut.
3. The norm of the gradient, before clipping. A second collective tells what every rank saw.
4. One decision, from the facts of all ranks, so it is the same on all of them. A rank that skipped alone would hang the
   others at their next collective, and from there on they would train different models.
5. The gradient is clipped and the optimizer makes its step; or nothing of the model or the optimizer changes.

Skips in a row are counted, and too many end the training: then it is not a batch that is wrong.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from dataguard.errors import AnswerNo, RanksDisagree, UsageError
from dataguard.torch.stability.history import GradientHistory
from dataguard.torch.stability.judge import BatchJudge
from dataguard.torch.stability.outcome import StepOutcome, StepResult
from dataguard.torch.stability.ranks import gathered

__all__ = ["num_labels_of", "train_step"]

_IGNORED = -100
_M = TypeVar("_M")


def train_step(
    model: nn.Module,
    optimizer: Optimizer,
    microbatches: Sequence[_M],
    loss: Callable[[nn.Module, _M], torch.Tensor],
    *,
    history: GradientHistory,
    num_labels: Callable[[_M], int] | None = None,
    max_grad_norm: float | None = 1.0,
    grad_norm_limit: float | None = None,
    amp_dtype: torch.dtype | None = None,
    scaler: torch.amp.GradScaler | None = None,
    judge: BatchJudge | None = None,
    max_skips: int = 10,
    group: Any = None,
) -> StepResult:
    """Make one step, or skip it, on all ranks alike. A collective where there is a process group.

    Source: the second seed document (rows C2, C11, C12), mended as the module says.

    Parameters
    ----------
    model
        What is trained. With several ranks something that takes the mean of the gradients over them, as
        ``DistributedDataParallel`` and ``fully_shard`` do; where it has ``no_sync``, it is synchronised once a step.
    optimizer
        Of this model. Learning rates are the caller's.
    microbatches
        All of this rank's for the step, at least one, as many on each rank.
    loss
        Gives the *sum* of the losses over the labels of a microbatch, one element with a graph, 0 where it has none.
    history
        The run's past gradient norms; belongs into the checkpoint.
    num_labels
        How many labels a microbatch has. Default: `num_labels_of`.
    max_grad_norm
        To which the gradient is clipped; None leaves it.
    grad_norm_limit
        A limit of the norm before clipping, beside the one of the history; the lower counts.
    amp_dtype
        For autocast of the forward pass: bfloat16, or float16, which needs a scaler. None: as the model is.
    scaler
        For float16 only; bfloat16 has the range of float32 and needs none.
    judge
        Looks at the batch before anything is computed, as `AnomalyJudge` does.
    max_skips
        After so many skipped steps in a row training ends. Steps that a loss scaler skips count only where the scale
        has fallen below 1.
    group
        The data-parallel group. Default: the default group, where one was made.

    Returns
    -------
    StepResult
        The same on all ranks, but for `own_loss`. A monitor is given `StepResult.recorded`.

    Raises
    ------
    UsageError
        Types and scaler do not fit, there are no microbatches, or the loss is not one number.
    RanksDisagree
        Another rank failed before the forward pass; it tells why. (This one would wait for it otherwise.)
    AnswerNo
        `max_skips` steps in a row were skipped.

    Examples
    --------
    >>> model = nn.Linear(4, 8)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> microbatch = {"x": torch.randn(2, 4), "labels": torch.tensor([3, -100])}
    >>> def loss(model, microbatch):
    ...     logits = model(microbatch["x"])
    ...     return nn.functional.cross_entropy(logits, microbatch["labels"], reduction="sum")
    >>> result = train_step(model, optimizer, [microbatch], loss, history=GradientHistory())
    >>> result.outcome, result.num_labels
    (<StepOutcome.UPDATED: 'updated'>, 1)
    """
    _check(amp_dtype, scaler, max_skips)
    batch = _look(microbatches, num_labels or num_labels_of, judge, group)
    facts: dict[str, Any] = {
        "num_labels": batch.num_labels,
        "anomaly_mean": batch.mean,
        "anomaly_max": batch.largest,
        "loss_scale": None if scaler is None or not scaler.is_enabled() else scaler.get_scale(),
        "loss": None,
        "own_loss": None,
        "grad_norm": None,
        "grad_norm_limit": None,
        "nonfinite_ranks": (),
    }
    refused = (
        None
        if judge is None or batch.mean is None or batch.largest is None
        else judge.verdict(batch.mean, batch.largest)
    )
    if refused is not None:
        return _skip(StepOutcome.SKIPPED_BAD_DATA, refused, facts, history, max_skips)
    if not batch.num_labels:
        return _skip(StepOutcome.SKIPPED_NO_LABELS, "no token has a label", facts, history, max_skips)

    optimizer.zero_grad(set_to_none=True)
    total = _backward(model, microbatches, loss, batch.num_ranks / batch.num_labels, amp_dtype, scaler)
    if scaler is not None:
        scaler.unscale_(optimizer)
    parameters = [each for each in model.parameters() if each.grad is not None]
    norm: Any = torch.nn.utils.clip_grad_norm_(parameters, math.inf)  # changes nothing, and knows shards
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    own_limit = _lower(history.limit, grad_norm_limit)
    seen = gathered([total, norm, math.inf if own_limit is None else own_limit], group)
    losses, norms, limits = zip(*seen, strict=True)
    facts["nonfinite_ranks"] = tuple(rank for rank, each in enumerate(losses) if not math.isfinite(each))
    if not facts["nonfinite_ranks"]:
        facts["loss"] = sum(losses) / batch.num_labels
    if math.isfinite(float(total)):
        facts["own_loss"] = float(total) / max(1, batch.num_own_labels)
    largest = max(norms)
    if all(map(math.isfinite, norms)):
        facts["grad_norm"] = largest
        # The lowest of all: ranks whose pasts differ still decide alike.
        facts["grad_norm_limit"] = min(limits) if min(limits) < math.inf else None
    outcome, reason = _decide(facts, scaler)
    if outcome is StepOutcome.UPDATED:
        if max_grad_norm is not None and largest > max_grad_norm:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad.mul_(max_grad_norm / largest)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        history.add(largest)
        return StepResult(outcome=outcome, num_skips=0, reason=None, **facts)
    optimizer.zero_grad(set_to_none=True)
    if scaler is not None:
        scaler.update()
        if outcome is StepOutcome.SKIPPED_LOSS_SCALE and scaler.get_scale() >= 1:
            return StepResult(outcome=outcome, num_skips=len(history.skipped), reason=reason, **facts)
    return _skip(outcome, reason, facts, history, max_skips)


def num_labels_of(microbatch: Any) -> int:
    """How many labels a microbatch has: its ``num_loss_tokens``, else the places of ``labels`` that are not -100.

    >>> num_labels_of({"labels": torch.tensor([[5, -100, 7]])})
    2
    """
    told = getattr(microbatch, "num_loss_tokens", None)
    if told is not None:
        return int(told)
    return int((microbatch["labels"] != _IGNORED).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What the ranks say of the global batch."""

    num_ranks: int
    num_labels: int
    num_own_labels: int
    """Of this rank."""
    mean: float | None
    largest: float | None


def _look(microbatches: Sequence[_M], num_labels: Callable[[_M], int], judge: BatchJudge | None, group: Any) -> _Batch:
    """Labels and scores of the global batch, in one collective that no rank stays away from."""
    own, failed = [0.0, 0.0, 0.0, -math.inf], None
    try:
        _require_some(microbatches)
        own[0] = float(sum(num_labels(each) for each in microbatches))
        for each in microbatches if judge is not None else ():
            assert judge is not None
            scores = judge.scores(each)
            if len(scores):
                own[1:] = [own[1] + float(scores.sum()), own[2] + len(scores), max(own[3], float(scores.max()))]
    except Exception as error:  # noqa: BLE001 - raised below, once the others know
        failed = error
    of_all = gathered([*own, float(failed is not None)], group)
    if failed is not None:
        raise failed
    others = [rank for rank, each in enumerate(of_all) if each[4]]
    if others:
        raise RanksDisagree(
            f"rank {others[0]} failed before the step",
            found=f"{len(others)} of {len(of_all)} ranks did",
            todo="look at the log of that rank; the model was not changed",
        )
    num_scored = sum(each[2] for each in of_all)
    return _Batch(
        num_ranks=len(of_all),
        num_labels=int(sum(each[0] for each in of_all)),
        num_own_labels=int(own[0]),
        mean=sum(each[1] for each in of_all) / num_scored if num_scored else None,
        largest=max(each[3] for each in of_all) if num_scored else None,
    )


def _require_some(microbatches: Sequence[Any]) -> None:
    if not microbatches:
        raise UsageError("a step without microbatches", allowed="at least one, as many on each rank")


def _backward(
    model: nn.Module,
    microbatches: Sequence[_M],
    loss: Callable[[nn.Module, _M], torch.Tensor],
    factor: float,
    amp_dtype: torch.dtype | None,
    scaler: torch.amp.GradScaler | None,
) -> torch.Tensor:
    """The sum of this rank's losses; gradients accumulate, those of the last pass meet those of other ranks."""
    total: torch.Tensor | None = None
    device = next(model.parameters()).device.type
    quiet: Any = getattr(model, "no_sync", contextlib.nullcontext)
    for number, microbatch in enumerate(microbatches, start=1):
        with quiet() if number < len(microbatches) else contextlib.nullcontext():
            with torch.autocast(device, amp_dtype) if amp_dtype is not None else contextlib.nullcontext():
                own = loss(model, microbatch)
            if not isinstance(own, torch.Tensor) or own.numel() != 1:
                raise UsageError("the loss is not one number", allowed="a tensor of one element: a sum over labels")
            scaled = own.float() * factor
            scaled = scaled if scaler is None else scaler.scale(scaled)
            torch.autograd.backward(scaled)
        own = own.detach().double() if own.device.type != "mps" else own.detach().float()
        total = own if total is None else total + own
    assert total is not None
    return total


def _decide(facts: dict[str, Any], scaler: torch.amp.GradScaler | None) -> tuple[StepOutcome, str]:
    if facts["nonfinite_ranks"]:
        return StepOutcome.SKIPPED_NONFINITE, f"the loss of ranks {list(facts['nonfinite_ranks'])} is not finite"
    norm, limit = facts["grad_norm"], facts["grad_norm_limit"]
    if norm is None:
        if scaler is not None and scaler.is_enabled():
            return StepOutcome.SKIPPED_LOSS_SCALE, f"scaled by {facts['loss_scale']:g} the gradient overflows"
        return StepOutcome.SKIPPED_NONFINITE, "the gradient is not finite, and every rank's loss is"
    if limit is not None and norm > limit:
        return StepOutcome.SKIPPED_GRAD_SPIKE, f"a gradient norm of {norm:.4g}, above {limit:.4g}"
    return StepOutcome.UPDATED, ""


def _skip(
    outcome: StepOutcome, reason: str, facts: dict[str, Any], history: GradientHistory, max_skips: int
) -> StepResult:
    history.skip(outcome)
    num_skips = len(history.skipped)
    if num_skips >= max_skips:
        counts = Counter(each.value for each in history.skipped)
        raise AnswerNo(
            f"{num_skips} steps in a row were skipped: it is not a batch that is wrong",
            found=f"{', '.join(f'{count} {name}' for name, count in counts.most_common())}; the last: {reason}",
            allowed=f"fewer than {max_skips} in a row (max_skips)",
            todo="dataguard triage RUN tells what began first; go on from a checkpoint before it",
        )
    return StepResult(outcome=outcome, num_skips=num_skips, reason=reason, **facts)


def _check(amp_dtype: torch.dtype | None, scaler: torch.amp.GradScaler | None, max_skips: int) -> None:
    if max_skips < 1:
        raise UsageError(f"max_skips {max_skips} cannot be", allowed="at least 1")
    scales = scaler is not None and scaler.is_enabled()
    if scales and amp_dtype is not torch.float16:
        raise UsageError(
            f"a loss scaler with {amp_dtype or 'no autocast'}",
            allowed="a scaler with float16 alone",
            todo="leave scaler out: bfloat16 and float32 do not underflow where float16 does",
        )
    if amp_dtype is torch.float16 and not scales:
        raise UsageError("float16 without a loss scaler", todo="give scaler=torch.amp.GradScaler(), or take bfloat16")


def _lower(*limits: float | None) -> float | None:
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None
