"""Which rules are used elsewhere, and on how many steps of a log would each have alarmed?

They are as they stand in their sources, faults included, so that they can be compared on one log. A rule is given the
loss of each logged step and says for each whether it alarms there; what NaN does to it is told with it, and mended
nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import UsageError

__all__ = ["DEFAULT", "PROFILES", "Rule", "rule_of"]

DEFAULT = "default"
"""The detector of this package: the only profile that is no rule of one line."""

Rule: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.bool_]]
"""Loss, shape (n,), in order of steps -> whether it alarms, shape (n,)."""


def seed_3sigma(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Loss above mean plus three standard deviations of the 300 points before (row A7: ``t - W : t``).

    After one NaN or infinity mean and deviation are NaN, no comparison holds, and the rule is blind for 300 points.

    >>> seed_3sigma(np.r_[np.tile([1.0, 1.2], 150), 1.6, 1.1]).nonzero()[0].tolist()
    [300]
    """
    mean, deviation = _trailing(loss, 300)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(loss > mean + 3 * deviation)


def olmo_6sigma(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A step is taken where the loss is at most six standard deviations above the mean of the up to 128 points before.

    It wants 64 points. The comparison says when to *take* a step: after one NaN it never holds, and the next 128 steps
    are skipped. (The rule holds the gradient norm against the same bound; here it is the loss alone.)

    >>> olmo_6sigma(np.r_[np.tile([1.0, 1.2], 100), 2.0, 1.1]).nonzero()[0].tolist()
    [200]
    """
    mean, deviation = _trailing(loss, 128, least=64, ddof=1)
    judged = np.arange(len(loss)) >= 64
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(judged & ~(loss - mean <= 6 * deviation))


def seed_window_delta(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mean of the newest 25 points above that of the 25 before them by more than 0.1 nats (row C15, and the checklist).

    A NaN makes it blind as long as it lies in either half: 50 points.

    >>> seed_window_delta(np.r_[np.ones(60), np.full(25, 1.2)]).nonzero()[0][[0, -1]].tolist()
    [72, 84]
    """
    alarms = np.zeros(len(loss), np.bool_)
    if len(loss) >= 50:
        means = np.lib.stride_tricks.sliding_window_view(loss, 25).mean(axis=1)  # windows x points
        with np.errstate(invalid="ignore"):
            alarms[49:] = means[25:] - means[:-25] > 0.1
    return alarms


def seed_rise(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Loss above that of 20 points before by more than 0.2 nats (the second document, "recovery").

    A NaN is not above anything, and nothing is above it: two points are not judged.

    >>> seed_rise(np.r_[np.ones(30), 1.3, 1.0]).nonzero()[0].tolist()
    [30]
    """
    alarms = np.zeros(len(loss), np.bool_)
    with np.errstate(invalid="ignore"):
        alarms[20:] = loss[20:] - loss[:-20] > 0.2
    return alarms


def kill_loss_spike(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """At least twice the mean of the 100 points before, for five points running; it alarms from the fifth on.

    A NaN breaks the run, and makes it blind for 100 points.

    >>> kill_loss_spike(np.r_[np.ones(100), np.full(6, 3.0)]).nonzero()[0].tolist()
    [104, 105]
    """
    mean, _ = _trailing(loss, 100)
    with np.errstate(invalid="ignore"):
        high = loss >= 2 * mean
    alarms = np.zeros(len(loss), np.bool_)
    if len(loss) >= 5:
        alarms[4:] = np.lib.stride_tricks.sliding_window_view(high, 5).all(axis=1)  # windows x points
    return alarms


def lightning(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """At least three times the running mean of the ten points before.

    A NaN makes it blind for ten points.

    >>> lightning(np.r_[np.ones(12), 3.5]).nonzero()[0].tolist()
    [12]
    """
    mean, _ = _trailing(loss, 10)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(loss >= 3 * mean)


PROFILES: dict[str, Rule | None] = {
    DEFAULT: None,
    "seed-3sigma": seed_3sigma,
    "seed-window-delta": seed_window_delta,
    "seed-rise": seed_rise,
    "olmo-6sigma": olmo_6sigma,
    "kill-loss-spike": kill_loss_spike,
    "lightning": lightning,
}
"""Name -> rule; None for the default, which is a `Detector`."""


def rule_of(profile: str) -> Rule:
    """The rule of a profile.

    Raises
    ------
    UsageError
        There is none of that name, or it is the default.
    """
    rule = PROFILES.get(profile)
    if rule is None:
        raise UsageError(f"no rule is called {profile!r}", allowed=", ".join(PROFILES))
    return rule


def _trailing(
    values: NDArray[np.float64], size: int, *, least: int | None = None, ddof: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the `size` points before each, NaN where there are fewer (than `least`)."""
    num = len(values)
    mean, deviation = np.full(num, np.nan), np.full(num, np.nan)
    least = size if least is None else least
    with np.errstate(invalid="ignore", over="ignore"):  # what is too large for a deviation is infinitely far apart
        for i in range(least, min(size, num)):
            mean[i], deviation[i] = values[:i].mean(), values[:i].std(ddof=ddof)
        if num > size:
            windows = np.lib.stride_tricks.sliding_window_view(values, size)[:-1]  # windows x points
            for first in range(0, len(windows), _AT_ONCE):
                part = windows[first : first + _AT_ONCE]
                place = slice(size + first, size + first + len(part))
                mean[place], deviation[place] = part.mean(axis=1), part.std(axis=1, ddof=ddof)
    return mean, deviation


_AT_ONCE = 8192
"""Windows that are laid out in memory together."""
