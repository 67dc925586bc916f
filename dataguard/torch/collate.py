"""How do the samples of a microbatch become its tensors, and what of them counts?

1. What the transform gave for each slot is checked: a mapping of names to tensors, the same names, dtypes and shapes in
   every slot. They are stacked, or the user's own `collate` puts them together.
2. Labels of what may not be trained on become the ignore index: of a whole slot where nothing of it counts, of spans of
   a window where the gate masks just those.
3. What is left of the labels is counted. The number goes with the microbatch, since a mean over all ranks needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.errors import UsageError
from dataguard.torch.tensors import DTYPES, plain

__all__ = ["checked_sample", "masked_labels", "stacked"]

Sample = dict[str, torch.Tensor]


def checked_sample(given: Any, what: str) -> Sample:
    """The tensors of one sample (or of a collated microbatch), as ordinary tensors on the CPU.

    NumPy arrays, numbers and lists of them become tensors.

    Raises
    ------
    UsageError
        It is something else; `what` begins the message.
    """
    if not isinstance(given, Mapping) or not given:
        raise UsageError(
            f"{what} gave no tensors",
            found=f"an empty {type(given).__name__}" if isinstance(given, Mapping) else type(given).__name__,
            allowed="a dict of names to tensors, such as input_ids, labels, attention_mask",
        )
    return {name: _checked(name, value, what) for name, value in given.items()}


def _checked(name: Any, value: Any, what: str) -> torch.Tensor:
    if not isinstance(name, str):
        raise UsageError(f"{what} gave a tensor under the name {name!r}", allowed="names that are text")
    if type(value) is torch.Tensor and value.is_cpu and value.layout == torch.strided and value.dtype in DTYPES:
        return plain(value)
    if isinstance(value, np.ndarray | np.generic):
        value = np.array(value)  # a copy: arrays that came from Arrow may not be written
    if not isinstance(value, torch.Tensor):
        if not isinstance(value, np.ndarray | list | tuple | Number):
            raise UsageError(
                f"{what} gave {name!r} as {type(value).__name__}",
                allowed="tensors, NumPy arrays, and numbers or lists of them",
            )
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"{what} gave {name!r} as {type(value).__name__}, which is no tensor", found=str(error)
            ) from error
    if value.device.type != "cpu" or value.layout != torch.strided or value.dtype not in DTYPES:
        raise UsageError(
            f"{what} gave {name!r} as a tensor that cannot be recorded",
            found=f"{value.dtype}, {value.layout}, on {value.device}",
            allowed="dense tensors on the CPU of " + ", ".join(sorted(str(d).removeprefix("torch.") for d in DTYPES)),
            todo="move what the loader hands over to the device: microbatch.to(device)",
        )
    return plain(value)


def stacked(samples: Sequence[Sample], slots: Sequence[int], what: str) -> Sample:
    """Samples of equal names, dtypes and shapes stacked along a new first axis.

    Raises
    ------
    UsageError
        They differ; slots and shapes are in the message.
    """
    first = samples[0]
    for slot, sample in zip(slots, samples, strict=True):
        if sample.keys() != first.keys():
            raise UsageError(
                f"{what} gave other names in slot {slot} than in slot {slots[0]}",
                found=f"{', '.join(sorted(sample))} and {', '.join(sorted(first))}",
                allowed="the same names for every record, an empty one (record.is_padding) included",
            )
    made = {}
    for name, model in first.items():
        parts = [sample[name] for sample in samples]
        if any(part.shape != model.shape or part.dtype != model.dtype for part in parts):
            raise UsageError(
                f"{what} gave {name!r} in different shapes, which cannot be stacked",
                found="; ".join(
                    f"slot {slot}: {str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}"
                    for slot, part in zip(slots, parts, strict=True)
                ),
                allowed="one dtype and shape for every record, an empty one (record.is_padding) included",
                todo="cut and pad to a fixed length in the transform, or give a collate= of your own",
            )
        made[name] = torch.stack(parts)
    return made


def masked_labels(
    tensors: Sample, mask: NDArray[np.bool_], *, label_names: Sequence[str], ignore_index: int, what: str
) -> tuple[Sample, int | None]:
    """Labels masked where they may not count, and the number of those that do (of the first name); None without labels.

    Parameters
    ----------
    mask
        True where it counts: shape (microbatch_size,), or (microbatch_size, seq_len). Labels of another length than
        seq_len are masked as a whole where any part of the slot is.

    Raises
    ------
    UsageError
        Labels are missing, or their first axis is not the slot.
    """
    if not label_names:
        return tensors, None
    missing = [name for name in label_names if name not in tensors]
    if missing:
        raise UsageError(
            f"{what} gave no {', '.join(missing)}",
            found=f"{', '.join(sorted(tensors))}",
            allowed="labels beside the inputs, so that a withheld slot can be kept out of the loss",
            todo="return them (at the same places as input_ids), name yours with label_names=, or say label_names=() "
            "and mask by microbatch.status yourself",
        )
    made = dict(tensors)
    counts = torch.from_numpy(mask)
    for name in label_names:
        labels = tensors[name]
        if labels.ndim == 0 or labels.shape[0] != len(mask):
            raise UsageError(
                f"{what} gave {name!r} of shape {tuple(labels.shape)} for {len(mask)} slots",
                allowed=f"a first axis of {len(mask)}, one entry a slot",
            )
        if not mask.all():
            made[name] = _masked(labels, counts, ignore_index)
    return made, int((made[label_names[0]] != ignore_index).sum())


def _masked(labels: torch.Tensor, counts: torch.Tensor, ignore_index: int) -> torch.Tensor:
    labels = labels.clone()
    if counts.ndim == 2 and labels.ndim >= 2 and labels.shape[1] == counts.shape[1]:
        labels[~counts] = ignore_index
    else:
        labels[~counts.reshape(len(counts), -1).all(dim=1)] = ignore_index
    return labels
