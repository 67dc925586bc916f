"""What is each token signal of a row? The slow, obvious twin of the kernels, written from the definitions alone.

Tokens are Python integers, windows are tuples, and every run of every period is looked for at every place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

__all__ = ["counted_places", "periodic_runs", "places_of", "token_signals", "windows_of"]


def token_signals(
    tokens: Sequence[int],
    *,
    mask: Sequence[bool] | None = None,
    vocab_size: int | None = None,
    text_bytes: int | None = None,
) -> dict[str, float]:
    """Every signal whose needs are given, by name."""
    row = [tokens[place] for place in counted_places(tokens, mask)]
    entropy = entropy_of(row)
    windows = windows_of(row, 4)
    duplicates = (len(windows) - len(set(windows))) / len(windows) if windows else 0.0
    runs = periodic_runs(row)
    in_long_runs = {place for start, stop, _, repeats in runs if repeats >= 4 for place in range(start, stop)}
    signals = {
        "length_tokens": len(row),
        "distinct_tokens": len(set(row)),
        "token_entropy": entropy,
        "token_dup_ngram_fraction": duplicates,
        "token_periodic_repeats": max((repeats for _, _, _, repeats in runs), default=0),
        "token_periodic_fraction": len(in_long_runs) / len(row) if row else 0.0,
        "anomaly": 0.5 * duplicates + 0.5 * max(0.0, 1 - entropy / 8) if row else 0.0,
    }
    if vocab_size is not None:
        most = min(len(row), vocab_size)
        signals["token_entropy_ratio"] = min(1.0, entropy / math.log2(most)) if most > 1 else 1.0
        signals["out_of_vocabulary"] = sum(not 0 <= token < vocab_size for token in row)
    if text_bytes is not None:
        signals["fertility"] = len(row) / text_bytes if text_bytes else 0.0
    return signals


def counted_places(tokens: Sequence[int], mask: Sequence[bool] | None) -> list[int]:
    return [place for place in range(len(tokens)) if mask is None or mask[place]]


def entropy_of(row: Sequence[int]) -> float:
    """Bits."""
    counts = Counter(row).values()
    return 0.0 - sum(count / len(row) * math.log2(count / len(row)) for count in counts)


def windows_of(row: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(row[start : start + n]) for start in range(len(row) - n + 1)]


def periodic_runs(row: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """(start, stop, period, repeats) of every longest stretch that repeats a unit of 1 to 13 tokens 3 times or more."""
    runs = []
    for period in range(1, 14):
        for start in range(len(row)):
            if start and start - 1 + period < len(row) and row[start - 1] == row[start - 1 + period]:
                continue  # it begins earlier
            stop = start + period
            while stop < len(row) and row[stop] == row[stop - period]:
                stop += 1
            if stop <= len(row) and (stop - start) // period >= 3:
                runs.append((start, stop, period, (stop - start) // period))
    return runs


def places_of(
    tokens: Sequence[int],
    signal: str,
    *,
    at_least: float = 3,
    mask: Sequence[bool] | None = None,
    vocab_size: int | None = None,
) -> set[int]:
    """Positions of the row as given that made the signal."""
    places = counted_places(tokens, mask)
    row = [tokens[place] for place in places]
    made: set[int] = set()
    if signal in {"token_periodic_repeats", "token_periodic_fraction"}:
        least = 4 if signal == "token_periodic_fraction" else at_least
        for start, stop, _, repeats in periodic_runs(row):
            if repeats >= least:
                made |= set(range(start, stop))
    elif signal in {"token_dup_ngram_fraction", "anomaly"}:
        windows = windows_of(row, 4)
        for start, window in enumerate(windows):
            if window in windows[:start]:
                made |= set(range(start, start + 4))
    elif signal == "out_of_vocabulary":
        assert vocab_size is not None
        made = {place for place, token in enumerate(row) if not 0 <= token < vocab_size}
    return {places[place] for place in made}
