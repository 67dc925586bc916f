"""How is a canary record made? One microbatch, forward, backward, one update, some times over, always from a copy.

Nothing here is collective: within training each rank makes its own, of the same microbatch from the same weights, and
the records are gathered afterwards (`ranks`). Random numbers are drawn from one key, everywhere and at every repeat.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import torch
import xxhash
from torch import nn
from torch.optim import Optimizer

from dataguard.core.digests import canonical_json, sha256_hex
from dataguard.core.keys import derive_key
from dataguard.errors import AnswerNo, UsageError
from dataguard.run.run import Run
from dataguard.torch.canary.answers import CanaryRecord, CanaryTensor, Kind
from dataguard.torch.experiment.answers import spelled
from dataguard.torch.experiment.measuring import Load, Loss, Trainee, keyed_randomness, loaded, loss_of, state_digest
from dataguard.torch.making import Collate, Transform
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.replaying import rebuild_tensors
from dataguard.torch.tensors import DTYPES, named_tensors
from dataguard.torch.watching.sample import logits_of

__all__ = ["take"]

_NUM_SUMS = 8
_CHUNK = 1 << 20
_WRAPPERS = ("module", "_orig_mod")


def take(
    run: Run,
    step: int | None = None,
    *,
    loss: Loss,
    load: Load | None = None,
    checkpoint: str | None = None,
    model: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    microbatch: TensorMicrobatch | None = None,
    attempt: int | None = None,
    roots: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    collate: Collate | None = None,
    num_repeats: int = 3,
    host: str | None = None,
    rank: int | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> CanaryRecord:
    """Make one record: of a checkpoint (`load`, `checkpoint`), or of a model and optimizer in hand.

    Neither is changed: each repeat works on a copy. A model behind DistributedDataParallel or torch.compile is taken
    out of it, so that nothing waits for other ranks.

    Parameters
    ----------
    step
        In the trainer's labels: the first microbatch of rank 0 that has anything to learn from. By default the run's
        first step, the same for ever.
    loss, load
        As `dataguard.torch.experiment.experiment` takes them.
    microbatch
        One that the loader handed over, instead of rebuilding one; the same on every host and rank.
    attempt, roots, transform, collate
        As `dataguard.torch.rebuild_tensors` takes them.
    num_repeats
        How often; two or more give the baseline.
    host, rank
        Where this is; default the host's name, and no rank.
    clock
        Unix time in ns, for people only.

    Raises
    ------
    UsageError
        Neither a checkpoint nor a model is given, or nothing of the step counts towards a loss.
    AnswerNo
        The microbatch cannot be made again exactly.
    """
    if num_repeats < 1:
        raise UsageError(f"{num_repeats} repeats cannot be", allowed="at least 1; 2 or more give a baseline")
    label = run.label(0) if step is None else step
    fed = _microbatch(run, label, attempt, roots, transform, collate) if microbatch is None else microbatch
    with keyed_randomness("canary", fed.digest.hex()):
        original = _trainee(load, checkpoint, model, optimizer)
    repeats = []
    for _ in range(num_repeats):
        with keyed_randomness("canary", fed.digest.hex()):
            repeats.append(_once(original.copy(), fed, loss))
    device = next((each.device for each in original.model.parameters()), torch.device("cpu"))
    now = clock()
    configuration = _configuration(original.model, device)
    begun = run.begun(fed.attempt)
    return CanaryRecord(
        run=run.run_id,
        attempt=fed.attempt,
        step=run.label(fed.step),
        address=str(fed.address),
        host=host or platform.node() or "unknown",
        device=str(device),
        rank=rank,
        time=datetime.fromtimestamp(now / 1e9, tz=UTC).isoformat(timespec="seconds"),
        plan=begun.plan,
        config=sha256_hex(canonical_json(configuration)),
        configuration=configuration,
        batch=fed.digest.hex(),
        state=state_digest(original),
        tensors=tuple(_tensor(name, kind, [each[name, kind] for each in repeats]) for name, kind in repeats[0]),
    )


def _microbatch(
    run: Run,
    label: int,
    attempt: int | None,
    roots: Mapping[str, str] | None,
    transform: Transform | None,
    collate: Collate | None,
) -> TensorMicrobatch:
    replayed = rebuild_tensors(run, label, attempt=attempt, rank=0, transform=transform, collate=collate, roots=roots)
    status = replayed.answer.status
    if status not in {"exact", "withheld"}:
        raise AnswerNo(
            f"the microbatch of step {label:,} cannot be made again exactly",
            found="; ".join((status, *replayed.answer.notes)[:3]),
            todo=f"dataguard replay {run.path} --step {label} shows what differs",
        )
    useful = [each for each in replayed.microbatches if not each.all_masked]
    if not useful:
        raise UsageError(
            f"step {label:,} has no microbatch to learn from",
            found="; ".join(replayed.answer.notes) or "all of it is masked",
            todo="ask for another step, or give the transform that made its tensors",
        )
    return useful[0]


def _trainee(
    load: Load | None, checkpoint: str | None, model: nn.Module | None, optimizer: Optimizer | None
) -> Trainee:
    if load is not None and checkpoint is not None:
        return loaded(load, checkpoint)
    if model is None or optimizer is None:
        raise UsageError(
            "a canary needs weights",
            allowed="load= and checkpoint=, or model= and optimizer= as they stand in training",
        )
    inner = model
    for name in _WRAPPERS:
        inner = getattr(inner, name) if isinstance(getattr(inner, name, None), nn.Module) else inner
    return Trainee(model=inner, optimizer=optimizer).copy()


def _once(trainee: Trainee, fed: TensorMicrobatch, loss: Loss) -> dict[tuple[str, Kind], torch.Tensor]:
    """Loss, logits, gradients and updated parameters, on the CPU."""
    seen: list[torch.Tensor] = []

    def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
        logits = logits_of(output)
        if logits is not None:
            seen.append(logits.detach())

    for parameter in trainee.model.parameters():
        parameter.grad = None
    handle = trainee.model.register_forward_hook(look)
    try:
        value = loss_of(loss, trainee.model, fed)
    finally:
        handle.remove()
    value.backward()  # type: ignore[no-untyped-call]
    made: dict[tuple[str, Kind], torch.Tensor] = {("loss", "loss"): value.detach().cpu()}
    if seen:
        made[("logits", "logits")] = seen[0].cpu()
    for name, parameter in trainee.model.named_parameters():
        if parameter.grad is not None:
            made[(name, "gradient")] = parameter.grad.detach().cpu()
    trainee.optimizer.step()
    for name, parameter in trainee.model.named_parameters():
        made[(name, "updated")] = parameter.detach().cpu()
    return made


def _tensor(name: str, kind: Kind, repeats: list[torch.Tensor]) -> CanaryTensor:
    first = repeats[0]
    return CanaryTensor(
        name=name,
        kind=kind,
        dtype=DTYPES[first.dtype],
        shape=tuple(first.shape),
        digests=tuple(_digest(each) for each in repeats),
        sketches=tuple(tuple(spelled(value) for value in _sketch(each)) for each in repeats),
        norm=spelled(float(first.double().norm())),
    )


def _digest(tensor: torch.Tensor) -> str:
    (named,) = named_tensors({"x": tensor}).values()
    return xxhash.xxh3_128(named.data).hexdigest()


def _sketch(tensor: torch.Tensor) -> list[float]:
    """Sums of all numbers under random signs, the same signs for tensors of one size: their differences squared have
    the mean of the squared distance.
    """
    flat = tensor.reshape(-1)
    generator = torch.Generator().manual_seed(derive_key("canary-sketch", flat.numel()) % 2**63)
    sums = torch.zeros(_NUM_SUMS, dtype=torch.float64)
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK].double()
        signs = torch.randint(0, 2, (_NUM_SUMS, part.numel()), generator=generator, dtype=torch.int8)
        sums += (signs.double() * 2 - 1) @ part
    values: list[float] = sums.tolist()
    return values


def _configuration(model: nn.Module, device: torch.device) -> dict[str, str]:
    types = sorted({str(each.dtype).removeprefix("torch.") for each in model.parameters()})
    told = {
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "number types": ", ".join(types),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "training": str(model.training),
    }
    if device.type == "cpu":
        told |= {
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": str(torch.get_num_threads()),
        }
    elif device.type == "cuda":
        told |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "tf32": str(torch.backends.cuda.matmul.allow_tf32),
        }
    return told
