"""A run that is under way, looked at again and again.

In comes a run directory; out comes a `WatchAnswer` a look. `Watcher` reads at each look what was added since the last;
nothing is written, and nothing is decided here that `triage` decides otherwise: a stall is what `triage.silence` calls
one, an event what the detector finds.
"""

from __future__ import annotations

from dataguard.triage.watching.answers import WatchAnswer
from dataguard.triage.watching.watcher import Watcher

__all__ = ["WatchAnswer", "Watcher"]
