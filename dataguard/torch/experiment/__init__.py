"""Does the batch do it, or the state, or the node? Row A8's replay of one step, with its baseline first.

In come a run, a step and two functions of the user's; out comes an `ExperimentReport`, kept in the run directory and
noted in its journal. `judging` is arithmetic alone, `measuring` the only part that trains, always on copies.
Its names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.torch.experiment.answers import ExperimentReport as ExperimentReport
    from dataguard.torch.experiment.hook import run_experiment as run_experiment
    from dataguard.torch.experiment.runner import experiment as experiment

__all__ = ["ExperimentReport", "experiment", "run_experiment"]

_HOMES = {
    "ExperimentReport": "answers",
    "experiment": "runner",
    "run_experiment": "hook",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
