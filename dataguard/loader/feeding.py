"""What does a process need to feed microbatches of an attempt that another process has begun?

Names and a few numbers: the run, the attempt, where its sources lie. From them it makes its own reader, gate and
stream, so a worker may be forked, or started anew, and shares no handle with its parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataguard.loader.feed import Feeder, OnUnreadable
from dataguard.run.judging import judge_of
from dataguard.run.policies import fill_of
from dataguard.run.run import Run

__all__ = ["Feeding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeding:
    """The rows and the gate of one attempt, for another process; picklable."""

    path: str
    """Of the run directory."""
    attempt: int
    roots: Mapping[str, str]
    """Where sources lie now, where that is another place than the run remembers."""
    cache_bytes: int
    """Of decoded blocks."""
    on_unreadable: OnUnreadable | None
    """None: as the policy says, else ``withhold``."""

    def feeder(self, run: Run | None = None) -> Feeder:
        """What feeds: reads, judges and assembles. `run` is the run where this process has it open."""
        run = Run.open(self.path) if run is None else run
        attempt = self.attempt
        judge = judge_of(run, attempt)
        return Feeder(
            run.reader(attempt, roots=self.roots, cache_bytes=self.cache_bytes),
            stream=run.stream_of(attempt, bulk=True),
            withheld=run.withheld_of(attempt),
            fill=fill_of(run, attempt),
            attempt=attempt,
            seq_len=run.plan_document().root.seq_len,
            on_unreadable=self.on_unreadable or ("withhold" if judge is None else judge.policy.on_unreadable),
            judge=judge,
        )
