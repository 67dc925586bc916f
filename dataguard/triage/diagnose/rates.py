"""How often does something like this happen by chance, at this number of devices and ranks?

Figures of rows A5, A16 and A19, computed and not remembered: interruptions by the number of devices, the chance that
an unrelated event falls into a window, the chance that some rank stands out, and what one sick rank does to a mean.
"""

from __future__ import annotations

import math

__all__ = [
    "HARDWARE_SHARE",
    "INTERRUPTIONS",
    "INTERRUPTION_DAYS",
    "INTERRUPTION_DEVICES",
    "LEAST_RANKS_ACROSS",
    "chance_in_window",
    "chance_of_outlier",
    "interruptions_per_day",
    "moved_mean",
]

INTERRUPTIONS = 419
"""Unexpected interruptions that were published of one run (The Llama 3 Herd of Models, 2024, section 3.3.4)."""
INTERRUPTION_DAYS = 54
"""The days over which they were counted."""
INTERRUPTION_DEVICES = 16_384
"""The devices of that run."""
HARDWARE_SHARE = 0.78
"""The share of them that was traced to hardware, confirmed or suspected, as published."""

LEAST_RANKS_ACROSS = 8
"""Ranks from which on a rank is held against the others by a robust z (A5). Of fewer, median and MAD are of so few
values that the outlier itself moves the scale: each rank is then held against its own past."""


def interruptions_per_day(num_devices: int) -> float:
    """Unexpected interruptions a day, in proportion to the number of devices (A19).

    >>> round(interruptions_per_day(16_384), 1), round(interruptions_per_day(1_024), 2)
    (7.8, 0.48)
    """
    _check_count(num_devices, "num_devices")
    return INTERRUPTIONS / INTERRUPTION_DAYS * num_devices / INTERRUPTION_DEVICES


def chance_in_window(num_devices: int, window_seconds: float) -> float:
    """The chance that at least one unrelated event of some device falls into a window (A16), as of a Poisson process.

    >>> round(chance_in_window(16_384, 3_600), 2)
    0.28
    >>> round(chance_in_window(8, 3_600), 5)
    0.00016
    """
    if not window_seconds >= 0:
        raise ValueError(f"window_seconds is {window_seconds}, and it lasts 0 seconds or more")
    return -math.expm1(-interruptions_per_day(num_devices) * window_seconds / 86_400)


def chance_of_outlier(num_ranks: int, sigmas: float) -> float:
    """The chance that at least one of many ranks stands above so many sigmas at a step, of normal noise (A16).

    >>> round(chance_of_outlier(512, 4.0), 3)
    0.016
    """
    _check_count(num_ranks, "num_ranks")
    above = 0.5 * math.erfc(sigmas / math.sqrt(2))
    return -math.expm1(num_ranks * math.log1p(-above))


def moved_mean(num_ranks: int, usual: float, odd: float) -> float:
    """By how much one rank at `odd` moves the mean of all when the others stand at `usual` (A5).

    >>> round(moved_mean(512, 2.2, 4.4), 4)
    0.0043
    """
    _check_count(num_ranks, "num_ranks")
    return (odd - usual) / num_ranks


def _check_count(count: int, name: str) -> None:
    if count < 1:
        raise ValueError(f"{name} is {count:,}, and there is at least 1")
