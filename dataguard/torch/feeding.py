"""What does a worker process do?

It is given the planned slots of some microbatches after the other, and answers with each of them as it is to be handed
over: read, judged, made into tensors and digested. Those that are given together are read together, and judged in one
call of the gate, which costs little more than one alone. It never raises: what goes wrong is an answer as well, for an
exception may be one that cannot be sent, or whose message is lost on the way. It opens the run for itself and shares no
handle with its parent; and it ends when its parent does, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait

import torch

from dataguard.core.address import Address
from dataguard.errors import DataguardError, EnvironmentFailed, UsageError
from dataguard.loader.feed import Fed, Feeder
from dataguard.loader.feeding import Feeding
from dataguard.loader.walk import Planned
from dataguard.torch.making import Maker, Recipe, message_of
from dataguard.torch.microbatch import TensorMicrobatch
from dataguard.torch.tensors import from_shared, to_shared

__all__ = ["Failed", "Feed", "WorkerDataset", "begin_worker", "received", "with_tensors"]

_LOOKED_AFTER_SECONDS = 1.0
_PARENT_IS_GONE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Why a microbatch cannot be handed over; of text alone, but for errors of ours."""

    address: Address
    kind: str
    message: str
    trace: str
    error: DataguardError | None

    @classmethod
    def of(cls, address: Address, error: BaseException) -> Failed:
        """What was raised at an address."""
        return cls(
            address=address,
            kind=type(error).__name__,
            message=message_of(error),
            trace="".join(traceback.format_exception(error)),
            error=error if isinstance(error, DataguardError) else None,
        )

    def raised(self, where: str) -> DataguardError:
        """The error that the parent raises; `where` is the address in the trainer's labels."""
        error = self.error or EnvironmentFailed(
            f"{where} cannot be read", found=f"{self.kind}: {self.message}", todo="mend it and resume"
        )
        error.add_note(f"where it was raised:\n{self.trace}")
        return error


Answer = tuple[Fed, dict[str, torch.Tensor], int | None]
"""What is handed over, its tensors, and how many labels count."""


class Feed:
    """Feeds microbatches of tensors: what a worker does for each, and the parent where there are no workers."""

    def __init__(self, feeder: Feeder, recipe: Recipe) -> None:
        self._feeder = feeder
        self._maker = Maker(recipe, reader=feeder.reader, stream=feeder.stream)

    def __call__(self, planned: Sequence[Planned]) -> Iterator[Answer]:
        """Feed several microbatches, in order: read and judged together, then made one by one."""
        for fed in self._feeder.feed_many(planned):
            made = self._maker.make(fed.microbatch, fed.settled.slots)
            yield fed.with_digest(made.digest), made.tensors, made.num_loss_tokens


class WorkerDataset(torch.utils.data.Dataset[torch.Tensor]):
    """Map-style, over planned microbatches: what a DataLoader gives to its workers.

    Parameters
    ----------
    feeding
        What a process needs to feed.
    recipe
        What makes tensors; pickled where a worker does not inherit it, so that a failure to unpickle is an answer.
    """

    def __init__(self, feeding: Feeding, recipe: Recipe | bytes) -> None:
        self._feeding = feeding
        self._recipe = recipe
        self._feeder: Feeder | None = None
        self._feed: Feed | None = None
        self._read_bytes = 0

    def __getitem__(self, planned: Sequence[Planned]) -> torch.Tensor:
        """The answers to some planned microbatches, in one block of shared memory; behind a failure there are none."""
        answers: list[tuple[Fed, int | None] | Failed] = []
        tensors: dict[str, torch.Tensor] = {}
        try:
            feeder = self._feeder = self._feeder or self._feeding.feeder()
            if self._feed is None:
                self._feed = Feed(feeder, self._unpickled())
            for fed, made, num_loss_tokens in self._feed(planned):
                tensors |= {f"{len(answers)}/{name}": tensor for name, tensor in made.items()}
                fed = fed.without_content(storage_bytes=self._newly_read(feeder))
                answers.append((fed, num_loss_tokens))
        except BaseException as error:  # noqa: BLE001 - whatever ends it, the parent has to be told
            answers.append(Failed.of(planned[len(answers)].address, error))
        return to_shared(answers, tensors)

    def _newly_read(self, feeder: Feeder) -> int:
        before, self._read_bytes = self._read_bytes, feeder.reader.counts.storage_bytes
        return self._read_bytes - before

    def _unpickled(self) -> Recipe:
        if isinstance(self._recipe, Recipe):
            return self._recipe
        try:
            recipe: Recipe = pickle.loads(self._recipe)  # noqa: S301 - what the parent pickled
        except Exception as error:
            raise UsageError(
                "the transform cannot be brought to a worker process",
                found=f"{type(error).__name__}: {message_of(error)}",
                todo="define it in a module that a worker can import, or give start_method='fork' or num_workers=0",
            ) from error
        return recipe


def received(block: torch.Tensor) -> list[Fed | Failed]:
    """What a worker answered, as the parent hands it over."""
    answers: list[tuple[Fed, int | None] | Failed]
    answers, tensors = from_shared(block)
    of_each: list[dict[str, torch.Tensor]] = [{} for _ in answers]
    for name, tensor in tensors.items():
        place, _, own = name.partition("/")
        of_each[int(place)][own] = tensor
    return [
        answer if isinstance(answer, Failed) else with_tensors(answer[0], own, answer[1])
        for answer, own in zip(answers, of_each, strict=True)
    ]


def with_tensors(fed: Fed, tensors: dict[str, torch.Tensor], num_loss_tokens: int | None) -> Fed:
    """The same with the microbatch that is given to the trainer."""
    return replace(fed, tensors=TensorMicrobatch.delivered(tensors, fed.microbatch, num_loss_tokens=num_loss_tokens))


def begin_worker(_: int) -> None:
    """Prepare a worker process.

    Ctrl-C is the parent's to answer, which may want to finish its step. The process ends as soon as its parent is gone,
    whatever it is doing: a worker of a fork server has another parent process, so looking at that is not enough.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Rust threads of tokenizers beside other workers gain nothing, and warn after a fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # noqa: TID251 - read by tokenizers alone
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), name="dataguard-parent", daemon=True).start()


def _end_with_parent(process: int) -> None:
    parent = multiprocessing.parent_process()
    while os.getppid() == process:
        if parent is not None and wait([parent.sentinel], timeout=_LOOKED_AFTER_SECONDS):
            break
        if parent is None:
            return
    os._exit(_PARENT_IS_GONE)
