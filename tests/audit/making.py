"""Corpora to audit, small ones, and audits of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataguard.audit.documents import AuditSummary
from dataguard.audit.engines import Engine
from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.run import AuditRequest, run_audit
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.gate.policy import load_policy, read_policy
from dataguard.gate.rules import Policy
from tests.corpus.making import jsonl, npy, parquet

PERIODIC = "g4OD" * 500
PROSE = [
    f"The {i}th morning was grey, and nobody in the harbour could say whether boat {i * 7 % 101} would come back."
    for i in range(400)
]
SMALL = 4000
"""Bytes of a task, so that a small corpus has many."""


def corpus(folder: Path) -> Path:
    """Text in four containers and ids in one: copies, blanks, rejected and periodic records among them."""
    web = folder / "web"
    jsonl(web / "a.jsonl", [*PROSE[:60], "", "  \n", None, 7, PERIODIC, PROSE[3]])
    jsonl(web / "b.jsonl.gz", PROSE[60:180])
    jsonl(web / "c.jsonl.zst", [*PROSE[180:300], ""])
    parquet(web / "d.parquet", [*PROSE[300:340], None, PROSE[0]], group=7)
    npy(folder / "ids/e.npy", [i * 31 % 997 for i in range(1000)] + [5] * 300 + list(range(77)))
    return folder


def policy_of(text: str) -> Policy:
    return read_policy(text, name="test")


def request_of(out: Path, *paths: Path | str, **asked: Any) -> AuditRequest:
    """What is asked for: folders (as sources of their names) or a manifest."""
    policy = asked.pop("policy", "default")
    scan = asked.pop("scan", ScanOptions(block_bytes=1000, block_tokens=100))
    return AuditRequest(
        paths=tuple(map(str, paths)),
        out=out,
        policy=load_policy(policy) if isinstance(policy, str) else policy,
        scan=scan,
        **{"seq_len": 64, "task_bytes": 5 * SMALL, **asked},
    )


def audit(out: Path, *paths: Path | str, engine: Engine | None = None, workers: int = 1, **asked: Any) -> AuditSummary:
    """Audit folders or a manifest."""
    return run_audit(request_of(out, *paths, **asked), engine or LocalEngine(workers))


def audit_all(out: Path, folder: Path, **asked: Any) -> AuditSummary:
    """Audit what `corpus` made."""
    return audit(out, folder / "web", folder / "ids", **asked)


def signals(out: Path) -> pa.Table:
    """All rows of signals/."""
    return pa.concat_tables([pq.read_table(path) for path in sorted((out / "signals").glob("*.parquet"))])


def contents(out: Path) -> dict[str, str]:
    """SHA-256 of every file of an audit, by name."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def rows_of(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
