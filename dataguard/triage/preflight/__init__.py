"""What should be so before a run begins: the 22 points of the hardening list, and how far back checkpoints reach.

In come a run, or facts that its trainer says of itself (`read_facts` reads them from TOML); out comes a
`PreflightAnswer`. Nothing is changed.
"""

from __future__ import annotations

from dataguard.triage.preflight.answers import Point, PreflightAnswer
from dataguard.triage.preflight.facts_file import load_facts, read_facts
from dataguard.triage.preflight.known import Known, MixtureSeen, RunSeen
from dataguard.triage.preflight.points import POINTS, judge
from dataguard.triage.preflight.preflight import preflight
from dataguard.triage.preflight.template import TEMPLATE

__all__ = [
    "POINTS",
    "TEMPLATE",
    "Known",
    "MixtureSeen",
    "Point",
    "PreflightAnswer",
    "RunSeen",
    "judge",
    "load_facts",
    "preflight",
    "read_facts",
]
