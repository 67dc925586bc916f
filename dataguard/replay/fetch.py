"""What does the batch store hold of a step, and is it what the index says was delivered?

Names are computed, so looking costs one `open` a rank. A file that cannot be trusted is named and counts as damage; a
microbatch whose digest is not the one recorded is told as such. `fetch_step` gives the contents, `show_stored` says
what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun, RunDamaged
from dataguard.replay.answers import SkippedBatch
from dataguard.replay.lookup import Lookup
from dataguard.run.run import Run
from dataguard.run.store_account import standing
from dataguard.run.store_file import KeptMicrobatch, StoredForm, read_store

__all__ = ["Fetched", "StoreShown", "StoredShown", "TensorShown", "fetch_step", "recorded_digests", "show_stored"]


class TensorShown(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor that is kept."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


class StoredShown(msgspec.Struct, frozen=True, kw_only=True):
    """One microbatch that is kept."""

    rank: int
    microbatch: int
    form: StoredForm
    slots: tuple[int, int]
    digest: str
    """Of what is kept: 16 bytes, hexadecimal."""
    recorded: str | None
    """Of what was delivered; null where the index has no record of it."""
    made_of: str
    """Of the samples that it was made of."""
    tensors: tuple[TensorShown, ...]
    path: str
    """In the run directory."""


class StoreShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one step. It stands in the trainer's label."""

    step: int
    attempt: int
    size_bytes: int
    """Of its files."""
    microbatches: tuple[StoredShown, ...]
    damage: tuple[str, ...] = ()
    """Files that cannot be trusted; the command then ends with 3."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fetched:
    """What the store holds of one step."""

    kept: Mapping[tuple[int, int], KeptMicrobatch]
    """By rank and microbatch."""
    damage: tuple[str, ...]


def fetch_step(run: Run, attempt: int, step: int, ranks: Iterable[int]) -> Fetched:
    """Read what is kept of a step (counted from 0) of an attempt; ranks with nothing are passed over."""
    kept: dict[tuple[int, int], KeptMicrobatch] = {}
    damage = []
    for rank in ranks:
        path = run.layout.store(attempt, step, rank)
        try:
            _, found = read_store(path, run=run.run_id, attempt=attempt, rank=rank, step=step)
        except FileNotFoundError:
            continue
        except RunDamaged as error:
            damage.append(f"{error.asked}: {error.found}")
            continue
        kept.update({(rank, each.microbatch): each for each in found})
    return Fetched(kept=kept, damage=tuple(damage))


def recorded_digests(records: NDArray[np.void]) -> dict[tuple[int, int], bytes]:
    """The digest of each recorded microbatch, by rank and microbatch; records are ranked."""
    first = [i for i, value in enumerate(records["microbatch_digest"]) if any(value.tobytes())]
    return {
        (int(record["rank"]), int(record["microbatch"])): record["microbatch_digest"].tobytes()
        for record in records[first]
    }


def show_stored(lookup: Lookup, label: int, *, attempt: int | None = None, rank: int | None = None) -> StoreShown:
    """What is kept of a step (in the trainer's labels) that a lineage delivered.

    Raises
    ------
    NotInRun
        No attempt on the lineage delivered it, or nothing of it is kept.
    """
    found = lookup.find(label, attempt=attempt, rank=rank)
    if isinstance(found, SkippedBatch):
        raise NotInRun(f"step {label} of attempt {found.attempt} was skipped, so nothing of it is kept")
    run, number = lookup.run, found.attempt.number
    ranks = range(found.attempt.geometry.world_size) if rank is None else [rank]
    fetched = fetch_step(run, number, found.step, ranks)
    if not fetched.kept and not fetched.damage:
        raise NotInRun(
            f"nothing of step {label} of attempt {number} is kept{'' if rank is None else f' by rank {rank}'}",
            found=_near(run, number, found.step, ranks),
            todo="dataguard store list shows what is kept; dataguard replay rebuilds from the shards",
        )
    recorded = recorded_digests(found.records.records)
    paths = {each: run.layout.store(number, found.step, each) for each, _ in fetched.kept}
    return StoreShown(
        step=label,
        attempt=number,
        size_bytes=sum(path.stat().st_size for path in paths.values()),
        microbatches=tuple(
            StoredShown(
                rank=of_rank,
                microbatch=microbatch,
                form=kept.form,
                slots=(kept.slots.start, kept.slots.stop),
                digest=kept.digest.hex(),
                recorded=recorded[of_rank, microbatch].hex() if (of_rank, microbatch) in recorded else None,
                made_of=kept.made_of.hex(),
                tensors=tuple(
                    TensorShown(name=name, dtype=one.dtype, shape=one.shape, num_bytes=one.num_bytes)
                    for name, one in sorted(kept.tensors.items())
                ),
                path=str(paths[of_rank].relative_to(run.path)),
            )
            for (of_rank, microbatch), kept in sorted(fetched.kept.items())
        ),
        damage=fetched.damage,
    )


def _near(run: Run, attempt: int, step: int, ranks: Iterable[int]) -> str:
    """The kept steps next to one that is not."""
    stands = standing(run.layout, attempt)
    steps = sorted({each for rank in ranks for each in stands.get(rank, {})}, key=lambda each: abs(each - step))[:6]
    if not steps:
        return "no step of this attempt is kept"
    return f"steps {', '.join(str(run.label(each)) for each in sorted(steps))} are, next to it"
