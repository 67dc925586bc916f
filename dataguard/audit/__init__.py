"""Is this corpus fit to train on? Offline scoring of whole corpora: engines, account, duplicates, drift, outputs.

An audit has two halves. The first is long, is done in tasks by an engine and can be interrupted anywhere: every block
is read and scored, and each task leaves one part in the audit's folder. The second reads the parts, in order, and makes
all that is told: profile, verdicts, withheld rows, duplicates, account.

Data goes `tasks` and `sample` (which blocks and rows) -> `scoring` through `engines` (blocks to `parts`) -> `finish`
(parts to documents, which stand in `documents`). `run.run_audit` is the whole of it.

Memory: for each worker its largest block twice (or, in a compressed shard that several tasks share, a task's 8 MiB) and
some 50 MB of signals; then, for the second half, 100 MB for one run of digests, 64 MiB for merging them, and 24 bytes
for every shard and rule. None of it grows with the number of records.
Names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.audit.documents import AuditSummary
    from dataguard.audit.engines.local import LocalEngine
    from dataguard.audit.engines.ray import RayEngine
    from dataguard.audit.opened import Audit, open_audit
    from dataguard.audit.run import AuditRequest, Progress, read_summary, run_audit

__all__ = [
    "Audit",
    "AuditRequest",
    "AuditSummary",
    "LocalEngine",
    "Progress",
    "RayEngine",
    "open_audit",
    "read_summary",
    "run_audit",
]

_HOMES = {
    "Audit": "opened",
    "AuditRequest": "run",
    "AuditSummary": "documents",
    "LocalEngine": "engines.local",
    "Progress": "run",
    "RayEngine": "engines.ray",
    "open_audit": "opened",
    "read_summary": "run",
    "run_audit": "run",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
