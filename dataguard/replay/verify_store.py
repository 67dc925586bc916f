"""Is what the batch store keeps whole, and is it what was delivered?

Every file that stands is read, with every digest in it, and each microbatch is held against the index. What each rank's
store was told, and what it let go of, must be readable as well, or nobody knows whether something is missing. What was
let go of or lost is no fault of the store: ``dataguard store list`` counts it.
"""

from __future__ import annotations

from dataguard.replay.answers import Fault, VerifyCheck
from dataguard.replay.fetch import fetch_step, recorded_digests
from dataguard.replay.lookup import Lookup
from dataguard.run.store_account import account_problems, standing

__all__ = ["store_checks"]

_MOST_FAULTS = 100


def store_checks(lookup: Lookup) -> list[VerifyCheck]:
    """The store of every attempt; no check where nothing is kept."""
    run = lookup.run
    faults: list[Fault] = []
    checked = 0
    for number in lookup.tree.numbers:
        faults += [Fault(kind="damaged", message=each) for each in account_problems(run, number)]
        ranks_of_step: dict[int, list[int]] = {}
        for rank, steps in standing(run.layout, number).items():
            for step in steps:
                ranks_of_step.setdefault(step, []).append(rank)
        num_ranks = lookup.tree.attempt(number).geometry.world_size
        for step, ranks in sorted(ranks_of_step.items()):
            fetched = fetch_step(run, number, step, ranks)
            recorded = recorded_digests(lookup.index.step(number, step, num_ranks=num_ranks).records)
            checked += len(ranks)
            faults += [Fault(kind="damaged", message=each) for each in fetched.damage]
            for (rank, microbatch), kept in fetched.kept.items():
                theirs = recorded.get((rank, microbatch))
                if theirs != kept.digest:
                    where = f"attempt {number}, step {run.label(step):,}, rank {rank}, microbatch {microbatch}"
                    said = "nothing" if theirs is None else theirs.hex()
                    message = f"{where}: the store has {kept.digest.hex()}, and {said} is recorded"
                    faults.append(Fault(kind="differs", message=message))
    if not checked and not faults:
        return []
    notes = () if len(faults) <= _MOST_FAULTS else (f"{len(faults):,} in all; the first {_MOST_FAULTS} are listed",)
    return [VerifyCheck(name="store", checked=checked, unit="files", faults=tuple(faults[:_MOST_FAULTS]), notes=notes)]
