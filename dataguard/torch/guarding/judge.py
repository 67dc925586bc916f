"""What does the gate say of the samples of a batch, and how are labels masked in a batch that is somebody else's?

1. The policy's token signals are taken of one tensor of ids, shape (n, tokens), where the attention mask says that a
   position counts. A batch that is one sample is judged as one row, whatever its shape.
2. What is to be masked is masked in the tensor of labels, at the same places as the ids: the spans that made the
   signal, or all of the sample. A copy takes the tensor's place in the batch where the batch can be assigned to, so
   that nobody's data set is written to; else it is written in place.
3. Nothing is taken out of a batch and nothing is put in its place: a policy that substitutes is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.errors import PolicyError, UsageError
from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict
from dataguard.run.judging import Answers, Judge
from dataguard.torch.tensors import plain

__all__ = [
    "Masks",
    "Naming",
    "answers_of",
    "can_mask",
    "check_policy",
    "judged_tokens",
    "masked",
    "masks_of",
    "put",
    "token_counts_of",
]

Masks = Mapping[int, NDArray[np.int64] | None]
"""By sample, the token positions that do not count; None for all of the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What the tensors of a batch are called that mean something here."""

    tokens: str = "input_ids"
    labels: str = "labels"
    counts: str = "attention_mask"
    """1 where a position counts, in the shape of the tokens."""
    ignore_index: int = -100

    def found(self, name: str, tensors: Mapping[str, torch.Tensor]) -> str | None:
        """The path of a tensor: the one of that name, or the only one that ends in it; None where there is none."""
        if name in tensors:
            return name
        ends = [path for path in tensors if path.endswith(f".{name}")]
        return ends[0] if len(ends) == 1 else None

    def require(self, name: str, tensors: Mapping[str, torch.Tensor], why: str) -> str:
        """The same; UsageError, naming what there is, where there is none."""
        path = self.found(name, tensors)
        if path is None:
            shown = [f"{path!r} ({_dtype(each)}, {tuple(each.shape)})" for path, each in tensors.items()]
            raise UsageError(
                f"a batch has no tensor {name!r}, {why}",
                found=", ".join(shown[:8]),
                todo="say what it is called: guard(..., tokens=NAME, labels=NAME)",
            )
        return path


def check_policy(policy: Policy | None) -> None:
    """PolicyError where a policy asks for what a loader that is only watched cannot do: to put another sample in."""
    if policy is None:
        return
    asking = [rule.name for rule in policy.rules if rule.kind == "tokens" and rule.verdict == Verdict.SUBSTITUTE]
    if asking:
        raise PolicyError(
            f"policy {policy.name} substitutes samples, and guard() puts nothing in their place",
            found=f"action substitute of {', '.join(asking)}",
            allowed="flag, mask or halt",
            todo="mask them, or read the corpus with GuardedLoader, which can substitute",
        )


def judged_tokens(
    judge: Judge, tensors: Mapping[str, torch.Tensor], naming: Naming, num_samples: int, *, whole: bool
) -> tuple[Judged, NDArray[np.int64]]:
    """What the gate says of each sample, and how many tokens of each count.

    Raises
    ------
    UsageError
        There is no tensor of ids, or it is none of whole numbers with a row a sample.
    """
    ids, counts = _ids(tensors, naming, num_samples, whole=whole)
    num_tokens = ids.size // num_samples
    offsets = np.arange(num_samples + 1, dtype=np.int64) * num_tokens
    judged = judge.gate.judge_tokens(ids.reshape(-1), offsets, np.zeros(num_samples, np.int32), counts)
    return judged, _lengths(counts, num_samples, num_tokens)


def token_counts_of(
    tensors: Mapping[str, torch.Tensor], naming: Naming, num_samples: int, *, whole: bool
) -> NDArray[np.int64]:
    """Tokens of each sample that count, int64, shape (n,); 0 where the batch has no ids that are known by name."""
    path = naming.found(naming.tokens, tensors)
    if path is None or not num_samples or not (whole or tensors[path].shape[:1] == (num_samples,)):
        return np.zeros(num_samples, np.int64)
    num_tokens = tensors[path].numel() // num_samples
    return _lengths(_counts(tensors, naming, tensors[path]), num_samples, num_tokens)


def _counts(tensors: Mapping[str, torch.Tensor], naming: Naming, ids: torch.Tensor) -> NDArray[np.bool_] | None:
    """Where a position counts, flat; None where all of them do."""
    name = naming.found(naming.counts, tensors)
    mask = None if name is None else tensors[name]
    if mask is None or mask.shape != ids.shape:
        return None
    counts: NDArray[np.bool_] = plain(mask != 0).cpu().numpy().reshape(-1)
    return None if counts.all() else counts


def _lengths(counts: NDArray[np.bool_] | None, num_samples: int, num_tokens: int) -> NDArray[np.int64]:
    if counts is None:
        return np.full(num_samples, num_tokens, np.int64)
    return np.array([np.count_nonzero(row) for row in counts.reshape(num_samples, -1)], np.int64)


def _ids(
    tensors: Mapping[str, torch.Tensor], naming: Naming, num_samples: int, *, whole: bool
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    path = naming.require(naming.tokens, tensors, "of which the policy takes its signals")
    tensor = tensors[path]
    if tensor.is_floating_point() or tensor.is_complex() or not (whole or tensor.shape[:1] == (num_samples,)):
        raise UsageError(
            f"tensor {path!r} holds no ids that could be judged sample by sample",
            found=f"{_dtype(tensor)} of shape {tuple(tensor.shape)}, in a batch of {num_samples} samples",
            allowed="whole numbers, one row a sample",
            todo="name another one: guard(..., tokens=NAME), or go without a policy",
        )
    return plain(tensor).cpu().numpy(), _counts(tensors, naming, tensor)


def answers_of(judge: Judge, judged: Judged, positions: NDArray[np.int64]) -> Answers:
    """What the gate said of the samples at these positions, as it stands in the index."""
    answers = judge.answers(positions)
    judge.note(judged, range(len(positions)), answers)
    answers.judged[:] = judged.scored  # where no token counts there is nothing that was judged
    return answers


def masks_of(judged: Judged) -> Masks:
    """What is to be masked: by a rule that masks, and whatever halts until all ranks stop."""
    return {
        int(i): judged.spans(int(i)) if judged.verdict[i] == Verdict.MASK else None
        for i in np.flatnonzero(judged.verdict >= Verdict.MASK)
    }


def masked(labels: torch.Tensor, masks: Masks, tokens: torch.Tensor, naming: Naming, *, whole: bool) -> torch.Tensor:
    """A copy of a tensor of labels with the ignore index where nothing counts.

    Spans are positions of the ids; labels of another shape are masked by the sample.
    """
    copy = labels.detach().clone()
    rows = copy.reshape(1, -1) if whole else copy
    for sample, spans in masks.items():
        if spans is None or labels.shape != tokens.shape:
            rows[sample] = naming.ignore_index
        else:
            row = rows[sample].view(-1)
            for start, stop in spans.tolist():
                row[start:stop] = naming.ignore_index
    return copy


def can_mask(labels: torch.Tensor, num_samples: int, *, whole: bool) -> bool:
    """Whether a tensor can hold the ignore index for some samples and not for others."""
    signed = not (labels.is_floating_point() or labels.is_complex()) and labels.dtype not in (torch.bool, torch.uint8)
    return signed and labels.ndim > 0 and (whole or labels.shape[0] == num_samples)


def put(batch: Any, path: str, old: torch.Tensor, new: torch.Tensor) -> None:
    """Put a tensor in another's place within a batch, or, where nothing can be assigned there, write over it.

    >>> batch = {"labels": torch.tensor([1, 2])}
    >>> put(batch, "labels", batch["labels"], torch.tensor([1, -100]))
    >>> batch["labels"].tolist()
    [1, -100]
    """
    holder, key = _holder(batch, path)
    if isinstance(holder, MutableMapping | MutableSequence):
        holder[key] = new
        return
    if holder is not None and not isinstance(holder, Mapping | tuple):
        try:
            setattr(holder, key, new)
        except AttributeError:
            pass  # frozen: written over instead
        else:
            return
    old.copy_(new)


def _holder(batch: Any, path: str) -> tuple[Any, Any]:
    """What holds the tensor of a path, and under which key; (None, None) for a batch that is the tensor."""
    holder: Any = batch
    rest = path
    while True:
        if isinstance(holder, torch.Tensor):
            return None, None
        if isinstance(holder, Mapping):
            key = next(key for key in holder if rest == str(key) or rest.startswith(f"{key}."))
            name, value = str(key), holder[key]
        elif isinstance(holder, list | tuple):
            name = rest.partition(".")[0]
            key = int(name)
            value = holder[key]
        else:
            name = key = rest.partition(".")[0]
            value = getattr(holder, name)
        if rest == name:
            return holder, key
        holder, rest = value, rest[len(name) + 1 :]


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
