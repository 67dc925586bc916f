"""Do all ranks of a training compute the same? Each makes its own record, then they are gathered and compared.

Making a record waits for nobody; gathering is collective, so every rank calls, at the same step. This is what finds a
rank whose gradients are wrong and finite: averaged into all others, its damage shows in no loss.
"""

from __future__ import annotations

import torch.distributed as dist

from dataguard.errors import UsageError
from dataguard.run.run import Run
from dataguard.torch.canary.answers import CanaryComparison, CanaryRecord
from dataguard.torch.canary.comparing import compare
from dataguard.torch.canary.keeping import keep_record, note_comparison

__all__ = ["compare_ranks"]


def compare_ranks(
    run: Run,
    record: CanaryRecord,
    *,
    group: dist.ProcessGroup | None = None,
    keep: bool = True,
    by: str | None = None,
) -> CanaryComparison:
    """Gather the record of every rank and hold them against each other; every rank gets the answer.

    Parameters
    ----------
    record
        This rank's, made with ``take(..., rank=rank)`` from the same microbatch and the same weights.
    group
        Default the whole process group.
    keep
        Rank 0 keeps all records and the comparison in the run, and notes it in the journal.

    Raises
    ------
    UsageError
        There is no process group, or a record does not say its rank.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise UsageError("there is no process group to gather records in", todo="compare records with compare()")
    if record.rank is None:
        raise UsageError("this record does not say its rank", todo="take(..., rank=rank)")
    gathered: list[CanaryRecord | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, record, group=group)
    records = [each for each in gathered if each is not None]
    comparison = compare(records)
    if keep and dist.get_rank(group) == 0:
        for each in records:
            keep_record(run, each)
        return note_comparison(run, comparison, attempt=record.attempt, by=by)
    return comparison
