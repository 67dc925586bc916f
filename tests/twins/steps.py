"""Steps by walking every position of the stream, one by one: slow, obvious, and the judge of `dataguard.plan.steps`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dataguard.plan.attempts import AttemptPlan
from dataguard.plan.document import BatchSize


@dataclass
class Walk:
    """What a walk along one lineage found."""

    steps: dict[int, list[int]] = field(default_factory=dict)
    """Positions of each step, rising; in mode hole with the skipped ones, and with steps that are skipped whole."""
    attempt_of: dict[int, int] = field(default_factory=dict)
    """Owner of each step."""
    starts: dict[int, int] = field(default_factory=dict)
    """Start position of each attempt as walked."""
    skipped: dict[int, int] = field(default_factory=dict)
    """Skipped positions that were walked over, with the attempt that did."""
    walked: int = 0
    """Positions 0:walked were seen."""


def size_at(batch_sizes: Sequence[BatchSize], position: int) -> int:
    size = 0
    for entry in batch_sizes:
        if entry.start <= position:
            size = entry.size
    return size


def is_skipped(attempt: AttemptPlan, position: int) -> bool:
    return any(skip.start <= position < skip.stop for skip in attempt.skips)


def walk(attempts: Sequence[AttemptPlan], skip_mode: str, stop_step: int) -> Walk:
    """Walk a lineage from position 0 until `stop_step` steps are complete."""
    found = Walk()
    position = 0
    for i, attempt in enumerate(attempts):
        found.starts[attempt.number] = position
        last = attempts[i + 1].fork_step if i + 1 < len(attempts) else stop_step
        for step in range(attempt.fork_step, last):
            batch: list[int] = []
            if skip_mode == "jump":
                while is_skipped(attempt, position):
                    found.skipped[position] = attempt.number
                    position += 1
            size = size_at(attempt.batch_sizes, position)
            while len(batch) < size:
                if is_skipped(attempt, position):
                    found.skipped[position] = attempt.number
                    if skip_mode == "hole":
                        batch.append(position)
                else:
                    batch.append(position)
                position += 1
            found.steps[step] = batch
            found.attempt_of[step] = attempt.number
    found.walked = position
    return found


def grid(batch_sizes: Sequence[BatchSize], stop: int) -> list[int]:
    """The batch of every position ``0:stop`` when nothing is skipped."""
    batches: list[int] = []
    batch = 0
    while len(batches) < stop:
        batches += [batch] * size_at(batch_sizes, len(batches))
        batch += 1
    return batches[:stop]


def in_slots(positions: Sequence[int], lanes: int) -> list[int]:
    return sorted(positions, key=lambda position: (position % lanes, position))
