"""How does telemetry look as a table, a row a step and a column a name?

Long form is how it is written; the wide form is how people look at it. A row is a (step, rank); a column is a name and
holds float64: null where nothing of that name was logged, NaN where NaN was. Values of samples are no part of it, since
a step has many of them. pyarrow alone is needed; ``polars.from_arrow`` and ``to_pandas`` take the table from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dataguard.run.telemetry_reading import names_in

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["telemetry_table"]


def telemetry_table(rows: NDArray[np.void], *, names: Sequence[str] | None = None, first_label: int = 0) -> pa.Table:
    """Telemetry in wide form.

    Parameters
    ----------
    rows
        TELEMETRY_ROW, as `read_telemetry` and `telemetry_of_lineage` give it. Of several values of one step, rank and
        name the last one counts.
    names
        Columns, in order; one that was never logged is null throughout. Default: all names there are.
    first_label
        What the trainer calls its first step: added to the steps.

    Returns
    -------
    pyarrow.Table
        ``step`` (int64), ``rank`` (int32), ``attempt`` (int32), then a float64 column a name, in the order of steps
        and ranks.

    Examples
    --------
    >>> from dataguard.run.telemetry_reading import TELEMETRY_ROW
    >>> rows = np.array([(1, 0, 7, 0, b"loss", -1, 2.5), (1, 0, 7, 0, b"lr", -1, 0.1), (1, 0, 8, 0, b"loss", -1,
    ...                  np.nan)], TELEMETRY_ROW)
    >>> telemetry_table(rows).to_pylist()[1]
    {'step': 8, 'rank': 0, 'attempt': 1, 'loss': nan, 'lr': None}
    """
    import pyarrow as pa

    whole = rows[rows["slot"] < 0]
    keys = np.empty(len(whole), [("step", "<u8"), ("rank", "<u4"), ("attempt", "<u4")])
    for field in keys.dtype.names or ():
        keys[field] = whole[field]
    order = np.lexsort((keys["attempt"], keys["rank"], keys["step"]))
    climbing = keys[order]
    begins = np.r_[True, climbing[1:] != climbing[:-1]][: len(climbing)]
    unique = climbing[begins]
    place = np.empty(len(whole), np.int64)
    place[order] = np.cumsum(begins) - 1
    columns: dict[str, pa.Array] = {
        "step": pa.array(unique["step"].astype(np.int64) + first_label),
        "rank": pa.array(unique["rank"].astype(np.int32)),
        "attempt": pa.array(unique["attempt"].astype(np.int32)),
    }
    for name in names_in(whole) if names is None else names:
        own = whole["name"] == name.encode()
        values = np.zeros(len(unique))
        missing = np.ones(len(unique), np.bool_)
        # Where a place occurs twice the later assignment stays.
        values[place[own]] = whole["value"][own]
        missing[place[own]] = False
        # The mask says what is null; without from_pandas a NaN stays one.
        columns[name] = pa.array(values, mask=missing, from_pandas=False)
    return pa.table(columns)
