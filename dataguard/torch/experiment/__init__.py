"""Does the batch do it, or the state, or the node? Row A8's replay of one step, with its baseline first.

In come a run, a step and two functions of the user's; out comes an `ExperimentReport`, kept in the run directory and
noted in its journal. `judging` is arithmetic alone, `measuring` the only part that trains, always on copies.
Its names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataguard.torch.experiment.answers import ExperimentReport as ExperimentReport
    from dataguard.torch.experiment.hook import run_experiment as run_experiment
    from dataguard.torch.experiment.runner import experiment as experiment

_HOMES = {
    "ExperimentReport": "dataguard.torch.experiment.answers",
    "experiment": "dataguard.torch.experiment.runner",
    "run_experiment": "dataguard.torch.experiment.hook",
}

__all__ = ["ExperimentReport", "experiment", "run_experiment"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dataguard.torch.experiment' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
