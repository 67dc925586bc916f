"""How does a training script that has a loader of its own get its batches on record?

`guard(dataloader, run)` wraps it. What it yields is what the loader yields: the very same objects, in the same order,
with the same use of random numbers; only labels that a policy masks are other labels. Beside that,

1. every batch has an address (step, rank, microbatch) and is recorded before it is handed over: which indices of the
   data set it held, or, where it comes without indices, how many samples, and the batch itself into the store;
2. a policy judges its tokens: flag, mask, halt;
3. any step can be made again: by index through data set and collate function, or out of the store.

No plan is needed. Nothing can be moved or withheld, since the loader's own sampler decides what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dataguard.errors import UsageError
from dataguard.run.policies import GateChoice
from dataguard.run.run import Run
from dataguard.run.store_rule import StoreRule
from dataguard.run.writer import Fsync
from dataguard.torch.asked import check_at_least
from dataguard.torch.guarding.guarded import Guarded
from dataguard.torch.guarding.judge import Naming

if TYPE_CHECKING:
    from dataguard.gate.policy import Policy
    from dataguard.score.profile import Profile

__all__ = ["guard"]


def guard(
    dataloader: Any,
    run: Run | str | Path,
    *,
    accumulate: int = 1,
    batch_size: int | None = None,
    by: Literal["index", "order"] | None = None,
    tokens: str = "input_ids",
    labels: str = "labels",
    attention_mask: str = "attention_mask",
    ignore_index: int = -100,
    policy: str | Path | Policy | None = None,
    profile: str | Path | Profile | None = None,
    vocab_size: int | None = None,
    start_step: int | Callable[[], int] | None = None,
    first_label: Literal[0, 1] = 0,
    rank: int | None = None,
    world_size: int | None = None,
    group: Any = None,
    launch_id: str | None = None,
    store: str | StoreRule | None = None,
    store_budget_bytes: int | None = None,
    store_queue_bytes: int | None = None,
    fsync: Fsync = "seal",
    join_timeout_seconds: float = 120.0,
) -> Guarded:
    """Put a loader that exists already on record.

    Parameters
    ----------
    dataloader
        A `torch.utils.data.DataLoader`, one that Accelerate has prepared, a torchdata `StatefulDataLoader`, or any
        iterable of batches. A batch holds tensors, however nested.
    run
        A run directory, or its path; it is created where none stands.
    accumulate
        Batches of one rank that make one optimizer step. A step is cut short where the loader ends.
    batch_size
        The most samples that a batch holds. Default: what the loader says, else the size of the first batch.
    by
        ``index`` records which indices of the data set a batch held, ``order`` numbers samples as they come. Default:
        by index where the loader has a data set with indices.
    tokens, labels, attention_mask, ignore_index
        What tensors are called, and what a label is that does not count. Labels stand at the place of the token that
        they are. A tensor deep in a batch goes by its path, ``text.input_ids``, or by its last part.
    policy, profile, vocab_size
        What judges samples, as `Run.open` takes them: rules over tokens. Samples are flagged, masked or halt all ranks;
        a policy that substitutes is refused. Masked labels are a copy in the batch where the batch can be assigned to,
        else they are written over. Where a batch has no labels, what is to be masked is recorded as such and nothing is
        changed.
    start_step
        Optimizer steps that a trainer which resumes by itself has done: where the attempt begins. A function is asked
        at the first batch. Without it, and without a state, an attempt begins at step 0. A run that has recorded
        nothing begins at step 0 alone.
    first_label
        What the trainer calls its first step; of a run that is created here.
    rank, world_size, group
        As `GuardedLoader` takes them: from the (data-parallel) process group where there is one, else as given, else
        from the launcher's environment.
    launch_id
        What all ranks of this launch share and no other has. Default: one of the process group's own, else the
        launcher's, and in a single process a fresh one.
    store, store_budget_bytes, store_queue_bytes
        Which batches are kept themselves: ``none``, ``flagged``, ``last:N`` or ``all``, and within what bounds, as
        `Loader` takes them. Default: ``none`` by index, ``all`` by order, since nothing else could bring those back.
    fsync
        ``each`` makes each record durable at hand-over; ``seal`` leaves that to the system until a segment ends.
    join_timeout_seconds
        How long ranks wait for each other.

    Raises
    ------
    PolicyError
        The policy substitutes.
    AttemptError
        The run watches another data set; or, at the first batch, an attempt cannot begin at `start_step`.
    UsageError
        The run has a plan of its own, or an argument cannot be.

    Examples
    --------
    >>> import tempfile, torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(torch.arange(6).reshape(6, 1)), batch_size=2)
    >>> guarded = guard(loader, tempfile.mkdtemp() + "/run")
    >>> [batch[0].flatten().tolist() for batch in guarded]
    [[0, 1], [2, 3], [4, 5]]
    >>> print(guarded.address, guarded.replay(1).status)
    step 2, rank 0, microbatch 0 exact
    """
    _check(
        dataloader,
        words={
            "by": (by, (None, "index", "order")),
            "first_label": (first_label, (0, 1)),
            "fsync": (fsync, ("each", "seal")),
        },
        numbers={
            "accumulate": (accumulate, 1),
            "batch_size": (batch_size, 1),
            "start_step": (None if callable(start_step) else start_step, 0),
            "store_budget_bytes": (store_budget_bytes, 1),
            "store_queue_bytes": (store_queue_bytes, 1),
        },
    )
    return Guarded(
        dataloader,
        run,
        accumulate=accumulate,
        batch_size=batch_size,
        by=by,
        naming=Naming(tokens=tokens, labels=labels, counts=attention_mask, ignore_index=ignore_index),
        gate=GateChoice.read(policy, profile, vocab_size),
        start_step=start_step,
        first_label=first_label,
        rank=rank,
        world_size=world_size,
        group=group,
        launch_id=launch_id,
        keep=None if store is None else StoreRule.parse(store),
        store_bounds=(store_budget_bytes, store_queue_bytes),
        fsync=fsync,
        join_timeout_seconds=join_timeout_seconds,
    )


def _check(
    dataloader: Any,
    *,
    words: Mapping[str, tuple[Any, tuple[Any, ...]]],
    numbers: Mapping[str, tuple[Any, int]],
) -> None:
    """UsageError where an argument cannot be, before anything is written: each word with what it may be, each number
    with the least that it may be.
    """
    if not (hasattr(dataloader, "__iter__") or hasattr(dataloader, "__getitem__")):
        raise UsageError(
            f"what was given, {type(dataloader).__name__}, gives no batches",
            allowed="a DataLoader, or any iterable of batches",
        )
    for name, (value, allowed) in words.items():
        if isinstance(value, bool) or value not in allowed:
            shown = " or ".join(repr(each) for each in allowed if each is not None)
            raise UsageError(f"{name}={value!r} cannot be", allowed=shown)
    check_at_least(**{name: number for name, number in numbers.items() if number[0] is not None})
