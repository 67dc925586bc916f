"""K13, the parallel runtime, through an audit: threads before a fork, several audits at once, any number of workers.

Cases G25 and G26 for kernels stand in test_parallel_runtime.py.
"""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from pathlib import Path

from tests.audit.making import SMALL, audit_all, contents, corpus


def _audit_into(out: str, folder: str) -> None:
    audit_all(Path(out), Path(folder), workers=2, task_bytes=SMALL)


def test_g25_a_forked_process_audits_after_its_parent_has_run_threads(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in")
    audit_all(tmp_path / "parent", folder, workers=3, task_bytes=SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: that is the case
        child = multiprocessing.get_context("fork").Process(
            target=_audit_into, args=(str(tmp_path / "child"), str(folder))
        )
        child.start()
    child.join(60)
    assert not child.is_alive(), "a forked audit hangs"
    assert child.exitcode == 0
    assert contents(tmp_path / "child") == contents(tmp_path / "parent")


def test_g26_audits_side_by_side_give_the_same_bytes(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "in")
    threads = [
        threading.Thread(target=_audit_into, args=(str(tmp_path / str(number)), str(folder))) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    every = [contents(tmp_path / str(number)) for number in range(3)]
    assert every[0] == every[1] == every[2]
    assert "summary.json" in every[0]
