"""Events in training curves: found row by row while training, or in any log afterwards.

In come numbers by step, out come `SpikeEvent`s. `Detector` is the streaming form, `detect` reads a whole log, `spikes`
answers for people and scripts, `compare_logs` holds two runs against each other. Pure: no files, no clock.
"""

from __future__ import annotations

from dataguard.triage.detect.answers import ComparedLogs, SpikesAnswer
from dataguard.triage.detect.changes import ChangePoint
from dataguard.triage.detect.detection import Detection, detect
from dataguard.triage.detect.detector import Detector, Noticed
from dataguard.triage.detect.profiles import PROFILES
from dataguard.triage.detect.recurrence import Recurrence, recurrence
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.spikes import compare_logs, spikes

__all__ = [
    "PROFILES",
    "ChangePoint",
    "ComparedLogs",
    "Detection",
    "Detector",
    "DetectorSettings",
    "Noticed",
    "Recurrence",
    "SpikesAnswer",
    "compare_logs",
    "detect",
    "recurrence",
    "spikes",
]
