"""Is this gradient norm out of what the run has known?

The *raw* norm counts, before clipping: behind it every spike looks alike. A fixed threshold (the seed's five times the
clipping norm) is wrong at every other model size and in every other phase of a run, so a norm is held against the run's
own past:

1. The logarithms of the norms of the last `window` steps *that updated*. What was skipped, NaN and infinity never
   enter, so a spike does not raise the limit for the next, and one NaN does not blind it.
2. The limit is ``exp(median + sigmas * 1.4826 * MAD)``: median and MAD do not follow outliers, logarithms because norms
   vary by factors.
3. It is never below twice the median, however quiet the past was. A gradient x times as large as usual makes Adam's
   step at most x times as large (`update_amplification`), so below a factor of two nothing is worth losing a batch for.
4. Below `least` norms there is no limit.

Six sigmas are 1 in 10**9 where the logarithms are normal. The standard error of a MAD over n norms is about 1.17 /
sqrt(n) of itself: a tenth over 128 and a fifth over 32, so the limit is good to as much. A level that moves for good
within one step would be skipped for ever, since nothing of it enters: that is what `max_skips` of `train_step` ends.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.errors import AttemptError, UsageError
from dataguard.torch.stability.outcome import StepOutcome

__all__ = ["GradientHistory"]

_LEAST_RATIO = 2.0
_VERSION = 1


class GradientHistory:
    """Gradient norms of the steps that updated, and how many were skipped since. Save it with the checkpoint.

    Parameters
    ----------
    window
        How many norms are kept.
    least
        How many there have to be before anything is judged.
    sigmas
        Robust standard deviations of the logarithm above the median.

    Raises
    ------
    UsageError
        Numbers that cannot be.

    Examples
    --------
    >>> history = GradientHistory(least=4)
    >>> for norm in (1.0, 1.1, 0.9, 1.0):
    ...     history.add(norm)
    >>> round(history.limit, 3)
    2.0
    """

    def __init__(self, *, window: int = 128, least: int = 32, sigmas: float = 6.0) -> None:
        if not 1 <= least <= window or not 0 < sigmas < math.inf:
            raise UsageError(
                f"window {window}, least {least}, sigmas {sigmas} cannot be",
                allowed="1 <= least <= window, and sigmas above 0",
            )
        self._least = least
        self._sigmas = sigmas
        self._logs: deque[float] = deque(maxlen=window)
        self._skipped: list[StepOutcome] = []

    @property
    def limit(self) -> float | None:
        """The norm above which a gradient is a spike; None where there is too little past."""
        if len(self._logs) < self._least:
            return None
        middle = median(self._logs)
        spread = MAD_TO_SIGMA * median(abs(each - middle) for each in self._logs)
        return math.exp(middle + max(self._sigmas * spread, math.log(_LEAST_RATIO)))

    @property
    def skipped(self) -> tuple[StepOutcome, ...]:
        """The outcomes of the steps that were skipped since the last update."""
        return tuple(self._skipped)

    def add(self, grad_norm: float) -> None:
        """Keep the norm of a step that updated; one of 0 (nothing was learned) is not kept."""
        if grad_norm > 0 and math.isfinite(grad_norm):
            self._logs.append(math.log(grad_norm))
        self._skipped.clear()

    def skip(self, outcome: StepOutcome) -> None:
        """Count a step that was skipped."""
        self._skipped.append(outcome)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps; JSON can hold it."""
        return {"version": _VERSION, "logs": list(self._logs), "skipped": [each.value for each in self._skipped]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; of a longer window the newest norms are kept.

        Raises
        ------
        AttemptError
            The state is of another version.
        """
        if state.get("version") != _VERSION:
            raise AttemptError(
                f"a gradient history of version {state.get('version')!r} cannot be read", allowed=str(_VERSION)
            )
        self._logs.clear()
        self._logs.extend(float(each) for each in state["logs"])
        self._skipped = [StepOutcome(each) for each in state["skipped"]]
