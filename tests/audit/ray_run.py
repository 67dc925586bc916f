"""The command line with an engine whose workers wait, die, or tell what they did.

``python -m tests.audit.ray_run FOLDER WHAT... -- WORDS`` runs ``dataguard WORDS`` with tasks of a few kilobytes.
Workers write a line a task they have done to ``FOLDER/done``, and at some tasks do something else first:

    wait-3    the first worker at task 3 tells its process id in ``FOLDER/waiting``, and waits to be ended
    die-3     each worker at task 3 kills itself
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch

from dataguard.audit.job import Job
from dataguard.audit.scoring import Scorer
from dataguard.audit.tasks import Task
from tests.audit.making import SMALL

_PATIENCE_SECONDS = 120


class Watched(Scorer):
    """A scorer that leaves traces."""

    def __init__(self, job: Job, tasks: Sequence[Task], *, folder: Path, what: Sequence[str]) -> None:
        super().__init__(job, tasks)
        self._folder, self._what = folder, what

    def score(self, task: Task, sink: BinaryIO) -> None:
        if f"die-{task.number}" in self._what:
            os.kill(os.getpid(), signal.SIGKILL)
        if f"wait-{task.number}" in self._what and not (self._folder / "waiting").exists():
            (self._folder / "told").write_text(str(os.getpid()))
            (self._folder / "told").rename(self._folder / "waiting")
            time.sleep(_PATIENCE_SECONDS)
        super().score(task, sink)
        with (self._folder / "done").open("a") as file:
            file.write(f"{task.number} {os.getpid()}\n")


def watched(job: Job, tasks: Sequence[Task], *, folder: Path, what: Sequence[str]) -> Watched:
    return Watched(job, tasks, folder=folder, what=what)


def main(words: list[str]) -> int:
    """See the module."""
    import dataguard.audit.engines.ray as engine
    import dataguard.audit.run as run
    from dataguard.cli.main import main as dataguard

    folder, mark = Path(words[0]), words.index("--")
    scorer = functools.partial(watched, folder=folder, what=words[1:mark])
    with (
        patch.multiple(engine, RayEngine=functools.partial(engine.RayEngine, scorer=scorer)),
        patch.multiple(run, AuditRequest=functools.partial(run.AuditRequest, task_bytes=SMALL)),
    ):
        return dataguard(words[mark + 1 :])


if __name__ == "__main__":
    # by its name, so that workers find the scorer
    from tests.audit.ray_run import main as main_by_name

    sys.exit(main_by_name(sys.argv[1:]))
