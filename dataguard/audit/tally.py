"""How often did each rule fire, in which source and in which shard, over how many records, bytes and tokens?

Counts only: they add up whatever the pieces are. Memory is proportional to shards times rules (16 bytes each), not to
records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.reading import Run
from dataguard.core.manifest import Manifest
from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Skip, Verdict

__all__ = ["NUM_VERDICTS", "Tally"]

NUM_VERDICTS = len(Verdict)


class Tally:
    """Counts of judged samples. R rules over samples, S shards, N sources."""

    def __init__(self, manifest: Manifest, policy: Policy) -> None:
        num_rules, num_shards, num_sources = len(policy.rules), len(manifest.shards), len(manifest.sources)
        self.withheld_verdicts = np.array([verdict in policy.withhold for verdict in Verdict], dtype=bool)
        self.scored = np.zeros(num_shards, np.int64)
        self.verdicts = np.zeros((num_shards, NUM_VERDICTS), np.int64)
        """Samples of each verdict, by shard."""
        self.evaluated = np.zeros((num_shards, num_rules), np.int64)
        self.fired = np.zeros((num_shards, num_rules), np.int64)
        self.skipped_why = np.zeros((num_sources, num_rules, len(Skip)), np.int64)
        self.evaluated_bytes = np.zeros((num_sources, num_rules), np.int64)
        self.fired_bytes = np.zeros((num_sources, num_rules), np.int64)
        self.evaluated_tokens = np.zeros((num_sources, num_rules), np.int64)
        self.fired_tokens = np.zeros((num_sources, num_rules), np.int64)
        self.content_bytes = np.zeros(num_sources, np.int64)
        self.tokens = np.zeros(num_sources, np.int64)
        self.blank = np.zeros(num_sources, np.int64)
        self.withheld_bytes = np.zeros(num_sources, np.int64)
        self._bits = np.arange(num_rules, dtype=np.uint64)

    def count(self, run: Run, judged: Judged) -> None:
        """Take judged samples into account."""
        fired = (judged.rules[:, None] >> self._bits & np.uint64(1)).astype(bool)
        evaluated = judged.why < 0
        withheld = self.withheld_verdicts[judged.verdict]
        starts = np.flatnonzero(np.concatenate([[True], run.shard[1:] != run.shard[:-1]]))
        shards = run.shard[starts]  # each once: samples come in the order of shards
        self.scored[shards] += np.diff(np.append(starts, len(run)))
        self.verdicts[shards] += _sums(judged.verdict[:, None] == np.arange(NUM_VERDICTS), starts)
        self.evaluated[shards] += _sums(evaluated, starts)
        self.fired[shards] += _sums(fired, starts)
        for source, span in run.spans(run.source):
            content, tokens = run.content_bytes[span], run.tokens[span]
            self.content_bytes[source] += content.sum()
            self.tokens[source] += tokens.sum()
            self.blank[source] += np.count_nonzero(run.is_blank[span])
            self.withheld_bytes[source] += content[withheld[span]].sum()
            self.evaluated_bytes[source] += _weighed(evaluated[span], content)
            self.fired_bytes[source] += _weighed(fired[span], content)
            if run.kind == "tokens":
                self.evaluated_tokens[source] += _weighed(evaluated[span], tokens)
                self.fired_tokens[source] += _weighed(fired[span], tokens)
            for reason in Skip:
                self.skipped_why[source, :, reason] += np.count_nonzero(judged.why[span] == reason, axis=0)


def _sums(which: NDArray[np.bool_], starts: NDArray[np.intp]) -> NDArray[np.int64]:
    """How many are True in each stretch of rows that begins at one of `starts`, by column."""
    sums: NDArray[np.int64] = np.add.reduceat(which, starts, axis=0, dtype=np.int64)
    return sums


def _weighed(which: NDArray[np.bool_], weights: NDArray[Any]) -> NDArray[np.int64]:
    """The sum of the weights of the samples that are True, by column: int64, exact."""
    total: NDArray[np.int64] = np.where(which, weights[:, None], 0).sum(axis=0, dtype=np.int64)
    return total
