"""Where do the numbers of a monitor go, and what goes with them?

To the run's telemetry, with how long the trainer waited for the step's data, and to those who scrape, where somebody
does. It holds what must be let go of at the end: a monitor that is dropped without being closed loses nothing.
"""

from __future__ import annotations

import time

from dataguard.run.run import Run
from dataguard.torch.monitoring.decision import Decision
from dataguard.torch.monitoring.judging import Judging
from dataguard.torch.monitoring.scraped import Scraped
from dataguard.torch.monitoring.serving import Endpoint, port_of
from dataguard.torch.monitoring.sink import Sink
from dataguard.torch.monitoring.standing import Standing
from dataguard.torch.monitoring.values import Taken

__all__ = ["DATA_WAIT", "Keeping"]

DATA_WAIT = "data_wait_seconds"
"""Seconds that a rank waited for the microbatches of a step."""


class Keeping:
    """The keeping side of a monitor.

    Parameters
    ----------
    standing, judging
        Of the monitor.
    port, host
        Where scrapes are answered, as `Monitor` takes them; no port, no answers.

    Raises
    ------
    UsageError, EnvironmentFailed
        Nobody can be answered there.
    """

    def __init__(self, standing: Standing, judging: Judging | None, *, port: int | None, host: str) -> None:
        self._standing = standing
        self._scraped: Scraped | None = None
        self._endpoint: Endpoint | None = None
        run: Run = standing.run
        if port is not None:
            self._scraped = Scraped(run, None if judging is None else judging.num_alerts)
            self._endpoint = Endpoint(host, port_of(port, standing.rank), self._scraped.families)
        self._sink = Sink(run, wrote=None if self._scraped is None else self._scraped.wrote)
        self._waited: tuple[int, int, int] | None = None
        """Attempt, step and number of microbatches of which the wait was written last."""

    @property
    def num_pending(self) -> int:
        """Values that are still on their way from a device."""
        return self._sink.num_pending

    @property
    def address(self) -> str | None:
        """Where scrapes are answered, ``host:port``; None where they are not."""
        return None if self._endpoint is None else self._endpoint.address

    def stepped(self, label: int) -> None:
        """A step is logged, whether or not its numbers are kept."""
        if self._scraped is not None:
            standing = self._standing
            attempt, rank = standing.attempt, standing.settle()
            self._scraped.stepped(attempt, rank, label, time.time(), standing.progress)  # noqa: TID251 - for people

    def decided(self, decision: Decision | None) -> None:
        """A step was judged."""
        if self._scraped is not None:
            self._scraped.decided(decision)

    def put(self, steps: list[int], taken: Taken, *, slots: range | None = None, with_wait: bool = False) -> None:
        """Keep numbers; what is raised is as for `Sink.put`."""
        standing = self._standing
        attempt, progress = standing.attempt, standing.progress
        if with_wait and progress is not None and progress.step is not None:
            newest = (progress.attempt, progress.step, progress.num_microbatches)
            if newest != self._waited:
                steps = steps * len(taken.names) + [progress.step]
                taken = taken.with_number(DATA_WAIT, progress.waited_seconds)
                self._waited = newest
        self._sink.put(attempt, standing.settle(), steps, taken, slots=slots, time_ns=time.time_ns())

    def flush(self) -> None:
        """Wait for values that are on their way, and write them."""
        self._sink.flush()

    def close(self) -> None:
        """Write all there is and let go of everything; closing twice is fine."""
        try:
            self._sink.close()
        finally:
            if self._endpoint is not None:
                self._endpoint.close()
