"""The examples in processes of their own, each framework imported once: ``python -m tests.examples.running``.

That process imports an example when it is asked for it and then makes one launch after the other: of each it forks the
ranks, tells them what torchrun would tell them, and waits for them. So all that use a framework pay one import of it,
and not one a rank and launch. Real launches by torchrun stand in tests/end_to_end/test_train.py.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from types import ModuleType
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

END, END_OF_LAUNCH = "== the end of a call\n", "== the end of a launch\n"
DONE, FAILED = "== done\n", "== failed\n"
_PATIENCE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of an example: its ``main(folder, num_steps)`` is called so, one call after the other."""

    calls: Sequence[tuple[Path, int]]
    num_ranks: int = 1
    kill_at: int | None = None
    """Each rank ends by SIGKILL when it has recorded that many microbatches, just before the last of them is handed
    over: the worst moment there is."""
    bare_at: int | None = None
    """From this call on `guard` does nothing, as if its line were not there."""


Launched = Callable[..., list[list[str]]]
"""Launches an example: its name, then each `Launch`. Gives for each launch what rank 0 printed in each of its calls."""


@contextmanager
def launcher() -> Iterator[Launched]:
    """A process that launches examples, while the block goes on."""
    with (
        TemporaryFile("w+") as err,
        subprocess.Popen(
            [sys.executable, "-m", "tests.examples.running"],
            env=ENVIRONMENT,
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def launched(name: str, *launches: Launch) -> list[list[str]]:
            print(json.dumps({"name": name, "launches": [asdict(each) for each in launches]}, default=str), file=asks)
            asks.flush()
            guard = Timer(_PATIENCE_SECONDS, os.killpg, (process.pid, signal.SIGKILL))  # its ranks as well
            guard.start()
            told, line = "", ""
            for line in answers:
                if line in (DONE, FAILED):
                    break
                told += line
            guard.cancel()
            err.seek(0)
            assert line == DONE, err.read()
            assert told.count(END_OF_LAUNCH) == len(launches)
            return [each.split(END)[:-1] for each in told.split(END_OF_LAUNCH)[:-1]]

        try:
            yield launched
        finally:
            asks.close()
            try:
                process.wait(60)
            finally:
                process.kill()


# ---- in that process ----


def main() -> None:
    """Launch what standard input asks for, line by line."""
    warnings.simplefilter("error")
    for message in EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", message)
    sys.path.insert(0, str(TOP / "examples"))
    for line in sys.stdin:
        words = json.loads(line)
        try:
            example = importlib.import_module(words["name"])
            is_rank = any(launch_one(example, launch, number) for number, launch in enumerate(words["launches"]))
        except RanksError as error:
            print(error, file=sys.stderr, flush=True)
            print(FAILED, end="", flush=True)
            continue
        if is_rank:
            return
        print(DONE, end="", flush=True)


class RanksError(Exception):
    """Ranks did not end as they should."""


def launch_one(example: ModuleType, launch: dict[str, Any], number: int) -> bool:
    """Fork the ranks of one launch and wait for them; True in a rank that has come to its end."""
    # A thread that a fork cuts off may hold a lock for ever. Arrow's allocator has one of its own, and knows of forks.
    threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert len(threads) - threads.count("jemalloc_bg_thd") == 1, f"nothing runs beside it when it is forked: {threads}"
    port = free_port()
    ranks = []
    for rank in range(launch["num_ranks"]):
        pid = os.fork()
        if not pid:
            be_told(rank, launch["num_ranks"], port, f"{os.getppid()}-{example.__name__}-{number}")
            be_rank(example, launch)
            return True
        ranks.append(pid)
    wait_for(ranks, killed=launch["kill_at"] is not None)
    print(END_OF_LAUNCH, end="", flush=True)
    return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def be_told(rank: int, num_ranks: int, port: int, run_id: str) -> None:
    """What torchrun tells a rank, of a launch that has several."""
    if num_ranks > 1:
        told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
        told |= {f"{which}RANK": rank for which in ("", "LOCAL_", "ROLE_")}
        told |= {f"{which}WORLD_SIZE": num_ranks for which in ("", "LOCAL_", "ROLE_")}
        told |= {"TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0}
        os.environ.update({name: str(value) for name, value in told.items()})


def be_rank(example: ModuleType, launch: dict[str, Any]) -> None:
    """One rank from its begin to its end."""
    if launch["kill_at"] is not None:
        die_at(launch["kill_at"])
    for i, (folder, num_steps) in enumerate(launch["calls"]):
        if i == launch["bare_at"]:
            example.guard = lambda loader, *args, **settings: loader  # type: ignore[attr-defined]
        example.main(Path(folder), num_steps)
        if os.environ.get("RANK", "0") == "0":
            print(END, end="", flush=True)
    from torch import distributed

    if distributed.is_initialized():  # left behind by a framework; a process that ends without this may be aborted
        distributed.barrier()
        distributed.destroy_process_group()


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


def wait_for(ranks: Sequence[int], *, killed: bool) -> None:
    """Until all ranks have ended; like torchrun, once one of them has failed, end the others."""
    left = set(ranks)
    statuses = []
    while left:
        pid, status = os.wait()
        if pid not in left:
            continue
        left.remove(pid)
        statuses.append(os.waitstatus_to_exitcode(status))
        if statuses[-1]:
            for other in list(left):  # one that was killed first may not have been waited for first
                done, status = os.waitpid(other, os.WNOHANG)
                if done:
                    left.remove(other)
                    statuses.append(os.waitstatus_to_exitcode(status))
                else:
                    os.kill(other, signal.SIGTERM)
            break
    for other in left:
        os.waitpid(other, 0)
    if (-signal.SIGKILL not in statuses) if killed else any(statuses):
        raise RanksError(f"ranks ended with {statuses}")


if __name__ == "__main__":
    main()
