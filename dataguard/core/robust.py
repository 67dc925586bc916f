"""By how much is a median absolute deviation multiplied, to speak of standard deviations?"""

from __future__ import annotations

__all__ = ["MAD_TO_SIGMA"]

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation -> standard deviation, of a normal distribution: 1 / its quantile of 3/4, rounded as usual.
Scores on disk and thresholds in policies are made with this rounding; another one would be another signal."""
