"""From evidence to exactly one diagnosis verdict, with its reasons and the next cheapest check. Pure.

In comes an `Evidence` of small closed facts, out comes a `Diagnosis`. `cells` reads the eight cells of the replay
experiment, `signature` is the table of row A16, `scoring` the rest of what counts, `verdict` the rules, `checks` the
order of row A1 with the costs of `costs` (A9), `rates` what happens by chance (A5, A16, A19).
"""

from __future__ import annotations

from dataguard.triage.diagnose.cells import CELLS, Cell, replay_of
from dataguard.triage.diagnose.checks import Check, NextCheck
from dataguard.triage.diagnose.costs import Cost, Costs, replay_node_seconds, replay_steps
from dataguard.triage.diagnose.signs import Hypothesis
from dataguard.triage.diagnose.verdict import Diagnosis, diagnose, verdict_of

__all__ = [
    "CELLS",
    "Cell",
    "Check",
    "Cost",
    "Costs",
    "Diagnosis",
    "Hypothesis",
    "NextCheck",
    "diagnose",
    "replay_node_seconds",
    "replay_of",
    "replay_steps",
    "verdict_of",
]
