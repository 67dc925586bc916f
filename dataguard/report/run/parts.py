"""How are a few columns of a whole record read: file by file, bounded in memory, around whatever is damaged?

Sealed and compacted files give columns, frames give records; both come as arrays by name. A file of very many records
is read some steps at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.corpus.arrow import numbers
from dataguard.errors import RunDamaged
from dataguard.report.run.lineage import Lineage, Owned
from dataguard.report.run.windows import tell
from dataguard.run.columns import read_table
from dataguard.run.sources import Notes, Source, Sources

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "columns_of_record"]

Columns = Mapping[str, NDArray[Any]]
"""By name, arrays of shape (n,): what is unset is 0 there."""

_MOST_RECORDS = 4 << 20
"""Records that are in memory at once, about."""


def columns_of_record(lineage: Lineage, owned: Owned, names: Sequence[str]) -> Iterator[Columns]:
    """Columns of what an attempt recorded of its own complete steps, in no particular order.

    Parameters
    ----------
    names
        Of fields of the index record, `step` among them; one that a file does not have is left out there.
    """
    attempt, notes = owned.attempt, Notes()
    wanted = (owned.first, owned.stop)
    size = lineage.run.steps_of(attempt.number, lineage.read).size_of(owned.first)
    for source in Sources(lineage.run.layout).of_attempt(
        attempt.number, num_ranks=attempt.geometry.world_size, notes=notes
    ):
        if not source.holds(*wanted):
            continue
        share = size if source.rank is None else size // attempt.geometry.world_size
        for columns in _of_source(lineage, source, names, wanted, max(1, _MOST_RECORDS // share), notes):
            inside = (columns["step"] >= wanted[0]) & (columns["step"] < wanted[1])
            yield columns if inside.all() else {name: values[inside] for name, values in columns.items()}
    tell(lineage, attempt.number, notes)


def _of_source(
    lineage: Lineage, source: Source, names: Sequence[str], wanted: tuple[int, int], at_once: int, notes: Notes
) -> Iterator[Columns]:
    if source.kind != "hot" and source.whole:
        assert source.stop is not None
        first, stop = max(source.first, wanted[0]), min(source.stop, wanted[1])
        done = first
        with contextlib.suppress(FileNotFoundError):
            for low in range(first, stop, at_once):
                span = (low, min(low + at_once, stop))
                try:
                    table = read_table(source.path, source.name, steps=span, columns=list(names))
                except RunDamaged as error:
                    notes.damage.append(str(error))
                    return
                yield _within(_arrays(table), span)
                done = span[1]
            return
        wanted = (done, wanted[1])  # it was compacted meanwhile: its successors are looked for
    records = lineage.lookup.index.read(source, wanted, notes)
    if records is not None and len(records):
        yield {name: records[name] for name in names if name in (records.dtype.names or ())}


def _arrays(table: pa.Table) -> Columns:
    return {
        name: np.concatenate([numbers(chunk, null=0) for chunk in table.column(name).chunks])
        if table.column(name).num_chunks
        else np.zeros(0, np.uint64)
        for name in table.column_names
    }


def _within(columns: Columns, span: tuple[int, int]) -> Columns:
    """Steps climb within a file, so those wanted lie together."""
    begin, end = np.searchsorted(columns["step"], np.array(span, np.uint64)).tolist()
    return {name: values[begin:end] for name, values in columns.items()}
