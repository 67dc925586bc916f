"""What is said of canary records to people?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataguard.core.evidence import Told
from dataguard.report.tables import table

if TYPE_CHECKING:
    from rich.table import Table

    from dataguard.torch.canary.answers import CanaryComparison, CanaryRecord

__all__ = ["render_comparison", "render_record"]

_DIFFERS = {Told.YES: "yes", Told.NO: "no", Told.UNKNOWN: "not known"}
_SHOWN = 12


def render_record(record: CanaryRecord) -> Iterator[str]:
    """What ``canary`` says of a record that it made."""
    loss = record.tensors[0]
    same = sum(len(set(each.digests)) == 1 for each in record.tensors)
    yield (
        f"{record.member}: step {record.step:,}, {record.address}, {record.num_repeats} repeats of "
        f"{len(record.tensors):,} tensors"
    )
    yield f"weights {record.state[:_SHOWN]}, batch {record.batch[:_SHOWN]}, loss {loss.norm}"
    if record.num_repeats < 2:
        yield "nothing was repeated, so whether this device reproduces itself is not known"
    elif same == len(record.tensors):
        yield "it reproduces itself, bit by bit"
    else:
        yield f"it does not reproduce itself: {len(record.tensors) - same:,} of {len(record.tensors):,} tensors differ"


def render_comparison(answer: CanaryComparison) -> Iterator[str | Table]:
    """What ``canary --compare`` says."""
    yield f"step {answer.step:,}: {answer.summary}"
    yield table(
        ("member", "records", "repeats", "reproduces itself", "differs", "first in", "by"),
        (
            (
                each.member,
                len(each.times),
                each.num_repeats,
                _itself(each.num_repeats, reproducible=each.reproducible),
                _DIFFERS[each.differs],
                each.tensor,
                None if each.distance is None else f"{each.distance:.2g}",
            )
            for each in answer.members
        ),
        right=("records", "repeats", "by"),
    )
    yield from (f"not compared: {each}" for each in answer.not_compared)
    yield from answer.notes
    if answer.odd:
        yield f"look at {', '.join(answer.odd)}: drain it, and run the vendor's diagnostics (dcgmi diag -r 3)"


def _itself(num_repeats: int, *, reproducible: bool) -> str:
    if num_repeats < 2:
        return "not known"
    return "yes" if reproducible else "no"
