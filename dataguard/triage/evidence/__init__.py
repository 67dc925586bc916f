"""Facts for a verdict, out of what lies around: telemetry and logs of the run, plans, and the logs of machines.

In come a run or a training log with an event, and text files from elsewhere; out come the small facts of `Evidence`,
each with texts that hold the numbers. `finite` says where NaN stood first, `optimizer` what the traces of it show,
`planned` whether somebody planned it; `machine_logs` reads kernel logs, journals, counters and what collective
libraries say, and `matching` holds them against the node and the time. What nobody logged is unknown, never no.
"""

from __future__ import annotations

from dataguard.triage.evidence.finite import finite_of
from dataguard.triage.evidence.lines import LogSource, MachineLine, MachineLogs, Meaning
from dataguard.triage.evidence.machine_logs import read_machine_logs
from dataguard.triage.evidence.matching import match
from dataguard.triage.evidence.optimizer import OptimizerSign, SignKind, optimizer_signs, signs_found
from dataguard.triage.evidence.planned import planned_change, planned_steps
from dataguard.triage.evidence.xid import xid_meaning

__all__ = [
    "LogSource",
    "MachineLine",
    "MachineLogs",
    "Meaning",
    "OptimizerSign",
    "SignKind",
    "finite_of",
    "match",
    "optimizer_signs",
    "planned_change",
    "planned_steps",
    "read_machine_logs",
    "signs_found",
    "xid_meaning",
]
