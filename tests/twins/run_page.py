"""What was delivered on a lineage, counted the slow way: record by record, each as `inspect` would show it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from dataguard.replay.answers import InspectedSample
from dataguard.replay.inspect import inspected
from dataguard.run.index import Index
from dataguard.run.policies import policy_of
from dataguard.run.run import Run


@dataclass
class Counted:
    """Counts of a lineage."""

    status: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By source."""
    rules: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    delivered: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By step (label): delivered samples of each source."""
    lengths: Counter[str] = field(default_factory=Counter)
    live: dict[int, list[InspectedSample]] = field(default_factory=lambda: defaultdict(list))
    """By step: samples delivered as planned."""

    @property
    def num_steps(self) -> int:
        """Steps of which anything was recorded."""
        return len(self.delivered)


def counted(run: Run, labels: range, attempt: int | None = None) -> Counted:
    """Count steps of a lineage, each as the attempt that owns it recorded it."""
    counts = Counted()
    chain = run.attempts().lineage(attempt)
    for each in chain:
        stream, policy = run.stream_of(each.number), policy_of(run, each.number)
        for records in Index(run.layout).records(each.number, num_ranks=each.geometry.world_size):
            for record in records:
                step = int(record["step"])
                owner = [one.number for one in chain if one.fork_step <= step][-1]
                if owner != each.number or run.label(step) not in labels:
                    continue
                (sample,) = inspected(np.array([record], records.dtype), stream, policy)
                _count(counts, run.label(step), sample)
    return counts


def _count(counts: Counted, label: int, sample: InspectedSample) -> None:
    counts.status[sample.source][sample.status] += 1
    counts.rules[sample.source].update(sample.rules)
    counts.delivered[label].update([sample.source] if sample.status in {"live", "substituted"} else [])
    if sample.status in {"live", "substituted"}:
        counts.lengths[sample.source] += sample.length
    if sample.status == "live":
        counts.live[label].append(sample)


def quantiles(counts: Counted, signal: str, first: int, stop: int) -> tuple[float, float, float] | None:
    """5 %, 50 % and 95 % of a headline signal over steps; None where no sample has it."""
    samples = [sample for step in range(first, stop) for sample in counts.live.get(step, [])]
    values = [value for sample in samples if (value := (sample.headline or {}).get(signal)) is not None]
    if not values:
        return None
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95], method="inverted_cdf").tolist()
    return low, median, high
