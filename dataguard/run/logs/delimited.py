"""What does a table with a header say: CSV or TSV, as loggers write it and as dashboards export it?

An empty cell is a point that was not logged; ``nan`` is a NaN. (pandas writes both as empty cells unless told
otherwise, so its NaN cannot be told from nothing.) A logger that was started again may have written its header once
more, perhaps with other columns: that begins a new table in the same file. Columns that hold no number at all are left
out and told.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from dataguard.errors import InputError
from dataguard.run.logs.columns import TIME_COLUMNS, named_like, step_column
from dataguard.run.logs.log import LogRows
from dataguard.run.logs.numbers import number_of, step_of
from dataguard.run.logs.opening import LogFile

__all__ = ["delimiter_of", "read_delimited"]

_DELIMITERS = ",\t;"
_MOST_COLUMNS = 10_000


def delimiter_of(header: str, wanted: str | None) -> str | None:
    """What divides the columns of a header line; None where it is no header of a table that counts steps.

    >>> delimiter_of("epoch,step,loss", None), delimiter_of("step 5, loss 2.5", None)
    (',', None)
    """
    for delimiter in _DELIMITERS:
        try:
            cells = next(csv.reader([header], delimiter=delimiter, skipinitialspace=True), [])
        except csv.Error:
            continue
        cells = [cell.strip() for cell in cells]
        if 1 < len(cells) <= _MOST_COLUMNS and (wanted in cells if wanted is not None else step_column(cells)):
            return delimiter
    return None


class _Table:
    """The columns that one header line names."""

    def __init__(self, cells: Sequence[str], wanted: str | None) -> None:
        self.cells = [cell.strip() for cell in cells]
        column = wanted if wanted is not None else step_column(self.cells)
        assert column is not None
        time = named_like(self.cells, TIME_COLUMNS)
        self.step = self.cells.index(column)
        self.time = None if time is None or time == column else self.cells.index(time)
        apart = {self.step, self.time}
        self.names = [
            (place, name or f"column {place + 1}") for place, name in enumerate(self.cells) if place not in apart
        ]


def read_delimited(file: LogFile, rows: LogRows, *, delimiter: str, wanted: str | None) -> None:
    """Read a table; `wanted` names the column that counts steps, else it is found by its name.

    Raises
    ------
    InputError
        Two columns have one name.
    """
    reader = csv.reader(_text(file), delimiter=delimiter, skipinitialspace=True)
    table: _Table | None = None
    texts: dict[str, tuple[int, int, str]] = {}
    numeric: set[str] = set()
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            rows.problem("unparsed", reader.line_num, str(error))
            continue
        line = reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        if table is None or (step_of(cells[0]) is None and _is_header(cells, table, wanted)):
            # The first line was found to be a header (`delimiter_of`), whatever else stands in it: "NaN" is a name.
            table = _checked(_Table(cells, wanted), file)
            continue
        if len(cells) != len(table.cells):
            rows.problem("unparsed", line, f"{len(cells)} cells where the header names {len(table.cells)}")
            continue
        step = step_of(cells[table.step])
        if step is None:
            rows.problem("without_step", line, f"{table.cells[table.step]} is {cells[table.step]!r}")
            continue
        points = {}
        for place, name in table.names:
            text = cells[place]
            value = number_of(text)
            if value is not None:
                points[name] = value
                numeric.add(name)
            elif text.strip():
                count, first, shown = texts.get(name, (0, line, text))
                texts[name] = (count + 1, first, shown)
        time = None if table.time is None else number_of(cells[table.time])
        rows.add(step, points, line=line, **({} if time is None else {"time": time}))
    tell_texts(rows, texts, numeric)


def tell_texts(rows: LogRows, texts: dict[str, tuple[int, int, str]], numeric: set[str]) -> None:
    """Columns of text are left out; a text in a column of numbers is a problem of its own.

    Parameters
    ----------
    texts
        Of each name: how many values were no numbers, the line of the first, and its text.
    numeric
        Names that held a number somewhere.
    """
    left_out = [name for name in texts if name not in numeric]
    if left_out:
        rows.problem("left_out", None, ", ".join(left_out), count=len(left_out))
    for name, (count, line, text) in texts.items():
        if name in numeric:
            rows.problem("value", line, f"{name} is {text!r}", count=count)


def _is_header(cells: Sequence[str], table: _Table, wanted: str | None) -> bool:
    stripped = [cell.strip() for cell in cells]
    if stripped == table.cells:
        return True
    named = wanted in stripped if wanted is not None else step_column(stripped) is not None
    return named and not any(number_of(cell) is not None for cell in stripped)


def _checked(table: _Table, file: LogFile) -> _Table:
    names = [name for _, name in table.names]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{file.path} has two columns {twice!r}", todo="rename one of them, so that they can be told")
    return table


def _text(file: LogFile) -> Iterator[str]:
    for _, line in file.lines():
        yield line + "\n"
