"""What was trained on before a step, counted record by record from a delivery log, with dictionaries alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.support.story import Story


@dataclass
class Count:
    """Of one source or shard."""

    num_samples: int = 0
    length: int = 0
    rows: set[tuple[str, int]] = field(default_factory=set)
    num_withheld: int = 0


def count(
    story: Story, leaf: int, stop: int, planned: dict[int, tuple[str, int]]
) -> tuple[dict[str, Count], dict[str, Count], list[tuple[int, int, str, int]]]:
    """By source, by shard, and every row (step, position, shard, row); ``planned`` names the record of a position."""
    chain = story.run.attempts().lineage(leaf)
    sources: dict[str, Count] = defaultdict(Count)
    shards: dict[str, Count] = defaultdict(Count)
    rows = []
    for i, attempt in enumerate(chain):
        end = chain[i + 1].fork_step if i + 1 < len(chain) else stop
        for handed in story.log:
            if handed.attempt != attempt.number or not attempt.fork_step <= handed.step < min(end, stop):
                continue
            source = planned[handed.position][0].split("/")[0]
            if handed.place is None:
                sources[source].num_withheld += 1
                continue
            assert isinstance(handed.content, bytes)
            assert handed.place[0].split("/")[0] == source
            for counted in (sources[source], shards[handed.place[0]]):
                counted.num_samples += 1
                counted.length += len(handed.content)
                counted.rows.add(handed.place)
            rows.append((handed.step, handed.position, *handed.place))
    return dict(sources), dict(shards), sorted(rows)
