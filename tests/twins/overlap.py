"""What two collections have in common, by a dictionary over everything."""

from __future__ import annotations

from collections import defaultdict

Told = list[tuple[bytes, int, int, int]]
"""Digest, kind, shard and row, in the order of the corpus."""


def naive_overlap(side: Told, other: Told, source_of: list[int]) -> dict[tuple[int, int], set[int]]:
    """Place of each record of a side that the other has -> the sources of the other that have it."""
    there: dict[tuple[bytes, int], set[int]] = defaultdict(set)
    for digest, kind, shard, _ in other:
        there[digest, kind].add(source_of[shard])
    return {(shard, row): there[digest, kind] for digest, kind, shard, row in side if (digest, kind) in there}
