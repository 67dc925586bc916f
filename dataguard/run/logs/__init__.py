"""Training logs as people have them: tables, JSON, TensorBoard event files, and what trainers print.

In comes a path, out comes a `TrainingLog`: its rows in the order of the file, with what could not be taken as it is.
One file a format; `sniff` decides by content. `naming` knows what others call the loss. A run's own telemetry is such a
log as well (`recorded.log_of_run`, which is not imported here, since runs are not needed to read a file).
"""

from __future__ import annotations

from dataguard.run.logs.log import LogProblem, TrainingLog
from dataguard.run.logs.naming import Naming, telemetry_names
from dataguard.run.logs.sniff import FORMATS, read_log

__all__ = ["FORMATS", "LogProblem", "Naming", "TrainingLog", "read_log", "telemetry_names"]
