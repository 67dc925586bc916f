"""One process of a launch: it meets the others by gloo, does its jobs one after the other, and says what came of them.

A launch is a list of jobs, each a dict of JSON; `JOBS` says what they do. Words under ``only`` are of single processes.
``dp`` and ``replica`` are groups of processes; who is in no group of ``dp`` does not take part. A ``state`` may be that
of an earlier job: ``{"of": JOB}``, or ``{"of": JOB, "process": P}``. What a job returns, or the error it ends with, is
the answer; between two jobs all processes meet.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.errors import DataguardError
from dataguard.plan.plan import Plan
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, GuardedLoader, Record, TensorMicrobatch, together

Words = dict[str, Any]

SEQ_LEN = 48
MOST_SECONDS = 60

ODD: Words = {}
"""What is odd about this process and no identity tells: as another version of a library would be."""


class Odd:
    """The bytes of documents, until a position; then what the process is odd in."""

    def __call__(self, record: Record) -> dict[str, torch.Tensor]:
        made = ByteTransform(SEQ_LEN)(record)
        if record.position >= ODD.get("from", 1 << 62):
            if ODD["how"] == "fails":
                raise ValueError(f"no tokens for {record.shard} row {record.row}")
            made["input_ids"][0] += 1
        return made


TRANSFORMS: dict[str, Callable[..., Any]] = {"bytes": ByteTransform, "odd": Odd}


def group_of(groups: list[list[int]] | None) -> Any:
    """This process's group, of several that all processes make together."""
    mine = None
    for ranks in groups or ():
        made = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = made
    return mine


def run_of(words: Words) -> Run:
    """The run that a process is told of: opened, or made of a plan where it says how."""
    if "plan" not in words:
        return Run.open(words["run"], policy=words.get("policy"))
    plan = Plan(Corpus.open(words["manifest"]), **words["plan"])
    return Run.open(words["run"], plan=plan, policy=words.get("policy"))


def open_loader(words: Words, ranks: Any = None, replica: Any = None) -> GuardedLoader:
    """The loader that a job is told of."""
    name, *settings = words.get("transform", ["bytes", SEQ_LEN])
    taken = ("steps", "epochs", "launch_id", "from_step", "rank", "roots", "steps_per_epoch", "vocab_size")
    run = run_of(words)
    loader = GuardedLoader(
        run.stream(words["stream"]) if "stream" in words else run,
        geometry=Geometry(world_size=words["world_size"], microbatch_size=words.get("microbatch_size", 1)),
        transform=TRANSFORMS[name](*settings),
        version=words.get("version"),
        num_workers=words.get("num_workers", 0),
        start_method=words.get("start_method", "fork"),
        join_timeout_seconds=words.get("seconds", MOST_SECONDS),
        data_parallel_group=ranks,
        replica_group=replica,
        replica=words.get("mode", "receive"),
        **{name: words[name] for name in taken if name in words},
    )
    if words.get("state") is not None:
        loader.load_state_dict(words["state"])
    return loader


def slots_of(microbatch: TensorMicrobatch) -> list[list[Any]]:
    """Slot, what it spells, and a digest of what is in all of its tensors."""
    held = []
    for i, slot in enumerate(microbatch.slots):
        text = bytes(token for token in microbatch["input_ids"][i].tolist() if token < 256).decode(errors="replace")
        digest = hashlib.sha256(b"".join(microbatch[name][i].numpy().tobytes() for name in sorted(microbatch)))
        held.append([slot, text, digest.hexdigest()[:16]])
    return held


def walk(words: Words, ranks: Any, replica: Any) -> Words:
    """Take microbatches as a trainer does, meeting the other ranks once a step."""
    told: Words = {"slots": {}, "digests": [], "loss_tokens": 0, "next_steps": []}
    loader = open_loader(words, ranks, replica)
    try:
        with loader:
            told["state at first"] = loader.state_dict()
            for number, microbatch in enumerate(loader, start=1):
                told["slots"].setdefault(str(microbatch.step), []).extend(slots_of(microbatch))
                told["digests"].append([str(microbatch.address), microbatch.digest.hex()])
                told["loss_tokens"] += microbatch.num_loss_tokens
                told["next_steps"].append(loader.next_step)
                if words.get("die_after") == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                if words.get("stop_after") == number:
                    break
                if loader.next_step > microbatch.step and words.get("meet", True):
                    dist.all_reduce(torch.ones(1), group=ranks)  # what adding up gradients does, once a step
                    if "save_to" in words and dist.get_rank() == 0:
                        Path(words["save_to"]).write_text(json.dumps(loader.state_dict()))
            told["state"] = loader.state_dict()
            told["attempt"] = None if loader.attempt is None else loader.attempt.number
            told["rank"] = loader.rank
            told["records"] = loader.records
            told["bytes_read"] = loader.bytes_read
            told["length"] = len(loader) if "steps" in words else None
    except DataguardError as error:
        told |= failed(error)
        try:
            next(iter(loader))
            told["again"] = "handed over"
        except (DataguardError, StopIteration) as again:
            told["again"] = failed(again)
    return told


def save(words: Words, ranks: Any, replica: Any) -> Words:
    """A state loaded and saved again before anything was taken."""
    return {"state": open_loader(words, ranks, replica).state_dict()}


def busy(words: Words, ranks: Any, replica: Any) -> Words:
    """A walk with workers, in a process whose threads have scored and read before."""
    import pyarrow.parquet as pq

    from dataguard.score.text import score_text

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: score_text(pq.read_table(words["shard"], use_threads=True)["text"]), range(4)))
    return walk(words, ranks, replica)


def evaluate(words: Words, ranks: Any, replica: Any) -> Words:
    """Two evaluations of a stream by one loader, without meeting anybody."""
    told: Words = {"slots": {}, "again": {}}
    with open_loader(words, ranks, replica) as loader:
        for name in ("slots", "again"):
            for microbatch in loader:
                told[name].setdefault(str(microbatch.step), []).extend(slots_of(microbatch))
    return told


def failed(error: BaseException) -> Words:
    return {"kind": type(error).__name__, "error": str(error)}


JOBS: dict[str, Callable[[Words, Any, Any], Words]] = {"walk": walk, "save": save, "busy": busy, "evaluate": evaluate}


def do(words: Words, states: list[list[Any]]) -> Words:
    """One job of this process."""
    words = {**words, **words.get("only", {}).get(str(dist.get_rank()), {})}
    ranks, replica = group_of(words.get("dp")), group_of(words.get("replica"))
    if words.get("absent") or ("dp" in words and ranks is None):
        return {"absent": True}
    if isinstance(words.get("state"), dict) and "of" in words["state"]:
        saved = states[words["state"]["of"]]
        words["state"] = saved[words["state"]["process"]] if "process" in words["state"] else next(filter(None, saved))
    ODD.clear()
    ODD.update(words.get("odd", {}))
    try:
        with together(data_parallel_group=ranks, replica_group=replica) if words.get("together") else nullcontext():
            return JOBS[words["job"]](words, ranks, replica)
    except DataguardError as error:
        return failed(error)


def main(rank: int, world_size: int, store: str, jobs: list[Words], tell: Callable[[list[Words]], None]) -> None:
    """All jobs of one process of a launch; `tell` is told what came of them so far after each."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=MOST_SECONDS)
    )
    answers: list[Words] = []
    states: list[list[Any]] = []
    for words in jobs:
        answers.append(do(words, states))
        tell(answers)
        saved: list[Any] = [None] * world_size
        dist.all_gather_object(saved, answers[-1].get("state"))
        states.append(saved)
    dist.barrier()
    dist.destroy_process_group()
