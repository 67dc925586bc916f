"""How far does Adam move a parameter, and what follows from it: the numbers both seed documents argue with?

All are ratios |m| / sqrt(v), the step of a coordinate in units of the learning rate, for gradients g of one coordinate
whose past has the root mean square 1. Adam updates v *before* it divides by it, so a gradient that comes out of nothing
damps itself, and how far depends on beta2.
"""

from __future__ import annotations

import math

from dataguard.errors import UsageError

__all__ = ["largest_update_ratio", "peak_learning_rate", "update_amplification", "usual_update_ratio"]


def peak_learning_rate(d_model: int, c: float) -> float:
    """The middle of a sweep for the peak learning rate of AdamW: c / sqrt(d_model).

    Source: the second seed document (row C3). It is a rule of width alone, in standard parametrisation; the batch size
    has one of its own. Published configurations have c from 6e-3 to 2e-2.

    Raises
    ------
    UsageError
        The width or c cannot be.

    Examples
    --------
    >>> f"{peak_learning_rate(4096, 2e-2):.3g}", f"{peak_learning_rate(12_288, 6e-3):.3g}"
    ('0.000313', '5.41e-05')
    """
    if isinstance(d_model, bool) or not isinstance(d_model, int) or d_model < 1:
        raise UsageError(f"a width of {d_model!r} cannot be", allowed="a whole number, at least 1")
    if not 0 < c < math.inf:
        raise UsageError(f"c {c!r} cannot be", allowed="a finite number above 0, usually 6e-3 to 2e-2")
    return float(c / math.sqrt(d_model))


def largest_update_ratio(beta1: float, beta2: float) -> float:
    """The ratio that one gradient can reach, however large: (1 - beta1) / sqrt(1 - beta2).

    It holds while sqrt(v) is far above epsilon. The .447 that is often quoted is that of beta2 = .95 alone.

    Source: the first seed document (row A11).

    Examples
    --------
    >>> round(largest_update_ratio(0.9, 0.95), 3), round(largest_update_ratio(0.9, 0.999), 2)
    (0.447, 3.16)
    """
    _check(beta1, beta2)
    return (1 - beta1) / math.sqrt(1 - beta2)


def usual_update_ratio(beta1: float) -> float:
    """The root mean square of the ratio where gradients are noise of a steady size: sqrt((1 - beta1) / (1 + beta1)).

    What "a normal step" is: with beta1 = .9 it is .23, so the .44 of one gradient thirty times as large, at
    beta2 = .95, is twice a normal step and not "damped below" it (row A12). Where all gradients point the same way the
    ratio is 1 instead.

    Examples
    --------
    >>> round(usual_update_ratio(0.9), 3)
    0.229
    """
    _check(beta1, 0.5)
    return math.sqrt((1 - beta1) / (1 + beta1))


def update_amplification(outlier: float, beta2: float) -> float:
    """How many times larger the step of a gradient `outlier` times the usual is than that of a usual one.

    Both from the same past, of what the new gradient itself contributes: x / sqrt(beta2 + (1 - beta2) * x**2). It is
    never more than x, and never more than 1 / sqrt(1 - beta2). Held against a stale v it would be x, which is what the
    second seed document says (25 and 5); the mended numbers are these (row C22).

    Examples
    --------
    >>> [round(update_amplification(x, 0.95), 1) for x in (1, 5, 25)]
    [1.0, 3.4, 4.4]
    """
    _check(0.5, beta2)
    if not 0 < outlier < math.inf:
        raise UsageError(f"an outlier of {outlier!r} cannot be", allowed="a finite number above 0")
    return outlier / math.sqrt(beta2 + (1 - beta2) * outlier**2)


def _check(beta1: float, beta2: float) -> None:
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise UsageError(f"{name} {beta!r} cannot be", allowed="at least 0 and below 1")
