"""Looks back: what was delivered at a step, rebuilt and compared; where a record was trained on; whether all agrees.

In comes a run directory (and the shards, where content is rebuilt); out come values that the command line and reports
render. Nothing here writes into the run.
Names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.replay.frames import index_frame, telemetry_frame
    from dataguard.replay.inspect import inspect_step
    from dataguard.replay.log import read_log
    from dataguard.replay.lookup import Lookup
    from dataguard.replay.rebuild import Rebuilder, Rebuilt
    from dataguard.replay.replay import replay_step
    from dataguard.replay.seen import seen_before
    from dataguard.replay.verify import verify_run
    from dataguard.replay.where import where_record

__all__ = [
    "Lookup",
    "Rebuilder",
    "Rebuilt",
    "index_frame",
    "inspect_step",
    "read_log",
    "replay_step",
    "seen_before",
    "telemetry_frame",
    "verify_run",
    "where_record",
]

_HOMES = {
    "Lookup": "lookup",
    "Rebuilder": "rebuild",
    "Rebuilt": "rebuild",
    "index_frame": "frames",
    "inspect_step": "inspect",
    "read_log": "log",
    "replay_step": "replay",
    "seen_before": "seen",
    "telemetry_frame": "frames",
    "verify_run": "verify",
    "where_record": "where",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
