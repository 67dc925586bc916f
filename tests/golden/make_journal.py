"""Write the golden run of `tests/run/test_golden_journal.py`. Only for a new format version: a golden is law.

Usage: python -m tests.golden.make_journal FOLDER
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from dataguard.run import creating
from dataguard.run.amend import quarantine, release, revoke, skip
from dataguard.run.begin import begin_attempt, propose
from dataguard.run.events import Proposed, RankPlace
from dataguard.run.run import Run
from tests.run.small import make_plan, request

_RUN_NAME = SimpleNamespace(hex="00112233445566778899aabbccddeeff")


def write(folder: Path) -> Run:
    """A run with every kind of event, at fixed times, by a fixed name."""
    ticks = itertools.count(1_767_323_045_000_006_000, 60_000_000_000)
    with tempfile.TemporaryDirectory() as lists:
        first, audit = Path(lists, "first.csv"), Path(lists, "audit.csv")
        first.write_text("shard,row\nweb/b.jsonl,0\nweb/b.jsonl,1\n")
        audit.write_text("shard,row\nweb/a.jsonl,3\nweb/a.jsonl,4\ncode/a.jsonl,\n")
        with mock.patch.object(creating, "uuid", SimpleNamespace(uuid4=lambda: _RUN_NAME)):
            run = Run.create(
                folder,
                make_plan(first_label=1, fill="substitute"),
                withhold_file=first,
                roots={"web": "/data/web", "code": "/data/code"},
                by="ada@analytical-engine",
                clock=lambda: next(ticks),
            )
        places = [RankPlace(rank=0, host="node-1", device="cuda:0", process=4711)]
        begin_attempt(run, request(4, 2, launch_id="torchelastic 7f3a restart 0"), ranks=places)
        skip(run, 41, 46, reason="spike: loss 2.1 → 7.9", next_step=60)
        quarantine(run, "web/a.jsonl:7", reason="damaged", evidence="page 4 of the file", next_step=60)
        second = request(2, 2, launch_id="torchelastic 7f3a restart 1", fork_step=30, global_batch=16)
        begin_attempt(run, second, parent_next_step=60)
        quarantine(run, withhold_file=audit, reason="audit of July", next_step=40)
    reason = "1 row could not be read in attempt 2"
    met = Proposed(proposal="quarantine", attempt=2, shard="web/b.jsonl", rows=(9,), positions=(301,), reason=reason)
    propose(run, [met])
    release(run, "web/a.jsonl:4", reason="looked at it", next_step=40)
    revoke(run, 3, reason="not the cause", next_step=40)
    third = request(8, 1, launch_id="torchelastic 7f3a restart 2", parent=1, fork_step=35)
    begin_attempt(run, third, parent_next_step=60)
    shutil.rmtree(folder / "tmp")
    shutil.rmtree(folder / "manifest")  # manifests have a golden of their own
    return run


if __name__ == "__main__":
    head = write(Path(sys.argv[1])).head()
    print(f"head {head.number} {head.sha256}")
