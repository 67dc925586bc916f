"""Transforms that tests give to loaders, at the top level of a module that workers can import; and small runs."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, GuardedLoader, Record, TensorMicrobatch

_LAUNCHES = itertools.count(1)

SEQ_LEN = 32

Delivered = tuple[str, tuple[int, ...], dict[str, list[Any]], str, int, bool]


def loader_of(run: Run, *, microbatch_size: int = 2, world_size: int = 1, **settings: Any) -> GuardedLoader:
    """A loader of one rank of a launch of its own, on bytes unless told otherwise."""
    if run.plan.root.form == "document":
        settings.setdefault("transform", ByteTransform(SEQ_LEN))
    settings.setdefault("rank", 0)
    settings.setdefault("launch_id", f"launch {next(_LAUNCHES)}")
    geometry = Geometry(world_size=world_size, microbatch_size=microbatch_size)
    return GuardedLoader(run, geometry=geometry, **settings)


def told(microbatch: TensorMicrobatch) -> Delivered:
    """All that a consumer sees of a microbatch, but for the attempt."""
    return (
        str(microbatch.address),
        tuple(microbatch.positions.tolist()),
        {name: tensor.tolist() for name, tensor in microbatch.items()},
        microbatch.digest.hex(),
        microbatch.num_loss_tokens,
        microbatch.all_masked,
    )


def all_of(run: Run, **settings: Any) -> list[Delivered]:
    """Walk a new attempt to its end."""
    state = settings.pop("state", None)
    with loader_of(run, **settings) as loader:
        if state is not None:
            loader.load_state_dict(state)
        return [told(microbatch) for microbatch in loader]


def texts_of(microbatch: TensorMicrobatch) -> list[str]:
    """The texts that the ids of `ByteTransform` spell."""
    return [bytes(i for i in ids if i < 256).decode() for ids in microbatch["input_ids"].tolist()]


# -- transforms


def augmented(record: Record) -> dict[str, torch.Tensor]:
    """Adds noise of the record's own."""
    noise = torch.randint(0, 1000, (4,), generator=record.generator)
    return {"input_ids": noise, "labels": noise.clone()}


def from_text(record: Record) -> dict[str, torch.Tensor]:
    """By `text` instead of `bytes`."""
    assert record.text.encode() == record.bytes
    return ByteTransform(SEQ_LEN)(record)


class Raises:
    """Raises on the records whose text holds a word."""

    def __init__(self, word: str, kind: type[BaseException] = ValueError) -> None:
        self.word = word
        self.kind = kind

    def __call__(self, record: Record) -> dict[str, torch.Tensor]:
        if self.word in record.text:
            raise self.kind(f"cannot be tokenized: {record.text[:20]}")
        return ByteTransform(SEQ_LEN)(record)


def pids(folder: Path) -> Iterator[int]:
    """Processes whose working folder is this one."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder:
                yield int(entry.name)
        except OSError:
            continue


def a_run(path: Path, corpus: Corpus, **plan: Any) -> Run:
    """A run of seed 7 and global batch 8 in lanes of 4."""
    from tests.support.runs import make_run

    return make_run(path, corpus, **{"lanes": 4, **plan})


class UnpicklableError(Exception):
    """Cannot be sent between processes, and its message cannot be made of its arguments."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}: {detail}")
        self.held = threading.Lock()  # no lock can be pickled


class Odd:
    """Does something odd with the records whose text holds a word."""

    def __init__(self, word: str, what: str) -> None:
        self.word = word
        self.what = what

    def __call__(self, record: Record) -> Any:
        if self.word not in record.text:
            return ByteTransform(SEQ_LEN)(record)
        tensors = ByteTransform(SEQ_LEN)(record)
        match self.what:
            case "unpicklable":
                raise UnpicklableError(7, detail=record.text)
            case "exit":
                sys.exit("enough")
            case "_exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(600)
            case "nothing":
                return None
            case "text":
                return {"input_ids": record.text}
            case "short":
                return {name: tensor[:5] for name, tensor in tensors.items()}
            case "names":
                return {**tensors, "more": torch.zeros(1)}
            case "sparse":
                return {**tensors, "input_ids": tensors["input_ids"].to_sparse()}
            case "no labels":
                return {"input_ids": tensors["input_ids"]}
        raise AssertionError(self.what)
