"""A slow, obvious twin of the keyed permutation: whole tables, one value at a time, the inverse by looking it up."""

from __future__ import annotations

import math
from functools import lru_cache

WRAP = 2**64


def splitmix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WRAP
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WRAP
    return x ^ (x >> 31)


def shift(other: int, round_key: int, side: int) -> int:
    h = (other ^ round_key) * 0xBF58476D1CE4E5B9 % WRAP
    h = (h ^ (h >> 29)) * 0x94D049BB133111EB % WRAP
    return (h // 2**32) * side // 2**32


def one_place(n: int, key: int, x: int) -> int:
    """The place of x for n >= 64."""
    a = math.isqrt(n)
    while a * a < n:
        a += 1
    b = math.ceil(n / a) if n < 2**40 else (n + a - 1) // a
    while True:
        left, right = x // b, x % b
        for number in range(1, 9):
            round_key = splitmix((key + number * 0x9E3779B97F4A7C15) % WRAP)
            if number % 2:
                left = (left + shift(right, round_key, a)) % a
            else:
                right = (right + shift(left, round_key, b)) % b
        x = left * b + right
        if x < n:
            return x


@lru_cache(maxsize=4096)
def places(n: int, key: int) -> tuple[int, ...]:
    """Place of every index, by index."""
    if n >= 64:
        return tuple(one_place(n, key, x) for x in range(n))
    start = splitmix((key + 0x9E3779B97F4A7C15) % WRAP)
    hashes = [splitmix((start + i * 0x9E3779B97F4A7C15) % WRAP) for i in range(n)]
    in_order = sorted((h, i) for i, h in enumerate(hashes))
    table = [0] * n
    for place, (_, i) in enumerate(in_order):
        table[i] = place
    return tuple(table)
