"""Is a batch fit to be trained on, by what its samples look like?

`AnomalyJudge` is the batch rule of the second seed document (rows C1 and C2) on the project's own signal: ``anomaly``
of `dataguard.score_tokens`, whose faults are mended (the last n-gram counts, padding does not). The rule is kept as it
is, with what is known of it: no period of 16 tokens or more ever exceeds .75, so repeated boilerplate, its own example,
passes; and the entropy is held against 8 bits, which a row of fewer than 256 tokens cannot have, so short rows score
high without any fault. A loader with a policy judges better, and withholds samples rather than batches.

Scores are of one rank's part, the rule is of the global batch: `train_step` adds them up over the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dataguard.errors import UsageError

__all__ = ["AnomalyJudge", "BatchJudge"]

_IGNORED = -100


class BatchJudge(Protocol):
    """What `train_step` asks before it computes anything."""

    def scores(self, microbatch: Any, /) -> NDArray[np.float64]:
        """One number for each sample that can be scored, shape (n,), finite."""

    def verdict(self, mean: float, largest: float, /) -> str | None:
        """Why the global batch is not trained on, from the scores of all its samples; None where it is."""


class AnomalyJudge:
    """Refuses a global batch whose samples repeat themselves.

    Parameters
    ----------
    mean_above, any_above
        It is refused where the mean of the scores, or one of them, exceeds this.
    ids
        The key of the ids in a microbatch, integers of shape (size, length).
    mask
        Gives which places count, bool of that shape. Default: ``attention_mask`` where there is one, else the places
        that have a label, else all. Padding that is not left out makes a row look repetitive.

    Examples
    --------
    >>> judge = AnomalyJudge()
    >>> one = {"input_ids": torch.tensor([[7] * 64])}
    >>> judge.scores(one).tolist(), judge.verdict(0.3, 1.0)
    ([0.9918032786885246], 'the worst sample has an anomaly of 1.000, above 0.75')
    """

    def __init__(
        self,
        *,
        mean_above: float = 0.35,
        any_above: float = 0.75,
        ids: str = "input_ids",
        mask: Callable[[Any], torch.Tensor | None] | None = None,
    ) -> None:
        if not 0 <= mean_above <= 1 or not 0 <= any_above <= 1:
            raise UsageError(f"bounds {mean_above} and {any_above} cannot be", allowed="0 to 1, as the signal")
        self._mean_above = mean_above
        self._any_above = any_above
        self._ids = ids
        self._mask = mask or _counted

    def scores(self, microbatch: Any) -> NDArray[np.float64]:
        """The ``anomaly`` of each sample that has a place that counts, shape (n,)."""
        from dataguard.score.tokens import score_tokens

        ids = microbatch[self._ids].detach().cpu().numpy()
        mask = self._mask(microbatch)
        counted = np.ones(ids.shape, dtype=np.bool_) if mask is None else mask.detach().cpu().numpy().astype(np.bool_)
        table = score_tokens(ids, counted, signals=["anomaly"])
        scores: NDArray[np.float64] = table["anomaly"].to_numpy()
        return scores[counted.any(1)]

    def verdict(self, mean: float, largest: float) -> str | None:
        """Why the batch is refused; None where it is not."""
        if largest > self._any_above:
            return f"the worst sample has an anomaly of {largest:.3f}, above {self._any_above:g}"
        if mean > self._mean_above:
            return f"the mean anomaly is {mean:.3f}, above {self._mean_above:g}"
        return None


def _counted(microbatch: Any) -> torch.Tensor | None:
    if "attention_mask" in microbatch:
        mask: torch.Tensor = microbatch["attention_mask"]
        return mask != 0
    if "labels" in microbatch:
        labels: torch.Tensor = microbatch["labels"]
        return labels != _IGNORED
    return None
