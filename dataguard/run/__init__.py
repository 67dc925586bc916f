"""The run directory: the journal, the record of every delivered sample, and all that is derived from them.

In come a `Plan`, loader states and the records of ranks; out go a `Run` with its attempts, steps and streams, an
`Index` of what was delivered, and what people amend. What loader and replay must decide alike lies here as well:
which policy judges the samples of an attempt (`policies`, `judging`), what then becomes of a slot (`settling`), how all
ranks stop (`halting`). Nothing here opens a shard. Names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.run.amend import quarantine, release, revoke, skip
    from dataguard.run.amended import Amended
    from dataguard.run.begin import begin_attempt
    from dataguard.run.index import Index
    from dataguard.run.join import fence, join_attempt
    from dataguard.run.journal import Head, Journal
    from dataguard.run.launch import AttemptRequest, environment_launch_id
    from dataguard.run.layout import Layout
    from dataguard.run.run import Run
    from dataguard.run.telemetry_reading import read_telemetry, telemetry_of_lineage
    from dataguard.run.writer import RankWriter

__all__ = [
    "Amended",
    "AttemptRequest",
    "Head",
    "Index",
    "Journal",
    "Layout",
    "RankWriter",
    "Run",
    "begin_attempt",
    "environment_launch_id",
    "fence",
    "join_attempt",
    "quarantine",
    "read_telemetry",
    "release",
    "revoke",
    "skip",
    "telemetry_of_lineage",
]

_HOMES = {
    "Amended": "amended",
    "AttemptRequest": "launch",
    "Head": "journal",
    "Index": "index",
    "Journal": "journal",
    "Layout": "layout",
    "RankWriter": "writer",
    "Run": "run",
    "begin_attempt": "begin",
    "environment_launch_id": "launch",
    "fence": "join",
    "join_attempt": "join",
    "quarantine": "amend",
    "read_telemetry": "telemetry_reading",
    "release": "amend",
    "revoke": "amend",
    "skip": "amend",
    "telemetry_of_lineage": "telemetry_reading",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
