"""The examples in a process of their own: ``python -m tests.examples.running WORDS``, a JSON object.

``name`` is the example's module, ``calls`` the arguments of each call of its ``main``, one after the other, so that a
framework is imported once for several runs. With ``kill_at`` the process ends by SIGKILL when that many microbatches of
it were recorded, just before the last of them is handed over: the worst moment there is. With ``bare_at`` one of the
calls finds a `guard` that does nothing, as if its line were not there.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.architecture.tree import TOP
from tests.support.processes import environment

ENVIRONMENT = environment(
    OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1"
)

# What frameworks warn of, about themselves and about what the examples mean to do.
EXPECTED_WARNINGS = [
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r"Checkpoint directory .* exists and is not empty",
    r"'set_vital' is deprecated",
]


END = "== the end of a call"


def call(
    name: str,
    *calls: tuple[Path, int],
    num_ranks: int = 1,
    kill_at: int | None = None,
    bare_at: int | None = None,
    timeout: float = 300,
) -> list[str]:
    """Call an example's ``main(folder, num_steps)`` so, on that many ranks; the standard output of each call."""
    words = {
        "name": name,
        "calls": [[str(folder), num_steps] for folder, num_steps in calls],
        "kill_at": kill_at,
        "bare_at": bare_at,
    }
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    done = subprocess.run(
        [
            sys.executable,
            *(torchrun if num_ranks > 1 else []),
            *("-m", "tests.examples.running", json.dumps(words)),
        ],
        env=ENVIRONMENT,
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    killed = 1 if num_ranks > 1 else -signal.SIGKILL  # torchrun tells how its ranks ended, and ends with 1
    assert done.returncode == (0 if kill_at is None else killed), done.stderr
    assert kill_at is None or num_ranks == 1 or "Signal 9 (SIGKILL)" in done.stderr, done.stderr
    return done.stdout.split(END + "\n")


def die_at(num_microbatches: int) -> None:
    """Have this process end by SIGKILL right after so many microbatches were recorded."""
    from dataguard.run.writer import RankWriter

    append = RankWriter.append
    num_appended = 0

    def append_and_die(self: RankWriter, records: Any) -> None:
        nonlocal num_appended
        append(self, records)
        num_appended += 1
        if num_appended == num_microbatches:
            os.kill(os.getpid(), signal.SIGKILL)

    RankWriter.append = append_and_die  # type: ignore[method-assign]


def main(words: dict[str, Any]) -> None:
    """Import the example and call it."""
    warnings.simplefilter("error")
    for message in EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", message)
    sys.path.insert(0, str(TOP / "examples"))
    if words["kill_at"] is not None:
        die_at(words["kill_at"])
    example = importlib.import_module(words["name"])
    for i, (folder, num_steps) in enumerate(words["calls"]):
        if i == words["bare_at"]:
            example.guard = lambda loader, *args, **settings: loader  # type: ignore[attr-defined]
        example.main(Path(folder), num_steps)
        print(END, flush=True)
    from torch import distributed

    if distributed.is_initialized():  # left behind by a framework; a process that ends without this may be aborted
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
