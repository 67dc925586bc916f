"""How does the telemetry of a run look as a training log?

As that of any other tool: one row a step, so that whatever reads logs reads runs as well. A run has several ranks; a
log is of one of them. Values of samples are no part of it.
"""

from __future__ import annotations

from collections.abc import Collection

from dataguard.errors import NotInRun
from dataguard.run.logs.log import LogRows, TrainingLog
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage

__all__ = ["log_of_run"]


def log_of_run(
    run: Run,
    *,
    attempt: int | None = None,
    rank: int = 0,
    names: Collection[str] | None = None,
    damage: list[str] | None = None,
) -> TrainingLog:
    """What one rank logged on a lineage, steps in the trainer's labels.

    Parameters
    ----------
    run, attempt
        The lineage of this attempt; by default the newest leaf's.
    rank
        Whose telemetry.
    names
        Only these; by default all.
    damage
        What cannot be trusted is told here and left out; without a list for it, it raises.

    Raises
    ------
    NotInRun
        No such attempt, or the rank logged nothing there.
    RunDamaged
        Telemetry that cannot be trusted, and no list for damage was given.
    """
    torn: list[str] = []
    found = telemetry_of_lineage(run, attempt, ranks=[rank], names=names, torn=torn, damage=damage)
    whole = found[found["slot"] < 0]
    if not len(whole):
        raise NotInRun(
            f"rank {rank} of {run.path} logged nothing", todo="log with Monitor, or telemetry import RUN FILE"
        )
    values = {
        (step, name): (time, value)
        for step, name, time, value in whole[["step", "name", "time", "value"]].tolist()  # the later counts
    }
    rows = LogRows()
    for (step, name), (time, value) in values.items():
        rows.add(run.label(step), {name.decode("utf-8", "replace"): value}, time=time / 1e9 if time else float("nan"))
    for each in torn:
        rows.problem("torn", None, each)
    return rows.finish(str(run.path), "dataguard").wide()
