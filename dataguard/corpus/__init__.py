"""What data there is: discovery, building manifests, formats, the row reader, the storage seam.

In come paths and URLs; out go a `Manifest` (core) with its account, and rows by (block, row), verified against it.
Nothing here knows of steps, plans or runs. Names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataguard.core.lazy import offered

if TYPE_CHECKING:
    from dataguard.corpus.account import Account, take_account
    from dataguard.corpus.build import BuildResult, build_manifest, build_manifest_file
    from dataguard.corpus.corpus import Corpus
    from dataguard.corpus.manifest_read import read_findings, read_manifest
    from dataguard.corpus.manifest_write import write_manifest
    from dataguard.corpus.problems import Retry, RowProblem
    from dataguard.corpus.reader import ReadCounts, RowReader
    from dataguard.corpus.verify import verify_shards

__all__ = [
    "Account",
    "BuildResult",
    "Corpus",
    "ReadCounts",
    "Retry",
    "RowProblem",
    "RowReader",
    "build_manifest",
    "build_manifest_file",
    "read_findings",
    "read_manifest",
    "take_account",
    "verify_shards",
    "write_manifest",
]

_HOMES = {
    "Account": "account",
    "BuildResult": "build",
    "Corpus": "corpus",
    "ReadCounts": "reader",
    "Retry": "problems",
    "RowProblem": "problems",
    "RowReader": "reader",
    "build_manifest": "build",
    "build_manifest_file": "build",
    "read_findings": "manifest_read",
    "read_manifest": "manifest_read",
    "take_account": "account",
    "verify_shards": "verify",
    "write_manifest": "manifest_write",
}
__getattr__, __dir__ = offered(__name__, _HOMES)
