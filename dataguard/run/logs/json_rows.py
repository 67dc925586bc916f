"""What do rows of JSON say: one object a line, or an array of them?

Nested objects are spelled with slashes, as dashboards do: ``{"train": {"loss": 2}}`` is ``train/loss``. ``null`` is a
point that was not logged. NaN and infinities count as what they are, bare (as Python writes them) or as strings (as
Weights & Biases exports them). The column that counts steps is chosen over the first rows; a row without it is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson

from dataguard.errors import InputError
from dataguard.run.logs.columns import TIME_COLUMNS, named_like, step_column
from dataguard.run.logs.delimited import tell_texts
from dataguard.run.logs.log import LogRows
from dataguard.run.logs.numbers import number_of, step_of
from dataguard.run.logs.opening import LogFile

__all__ = ["add_rows", "json_of", "read_json_lines"]

_FIRST_ROWS = 100


def json_of(text: str | bytes) -> Any:
    """A JSON value; NaN and Infinity are read, as Python's own writer spells them.

    Raises
    ------
    ValueError
        It is none.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def read_json_lines(file: LogFile, rows: LogRows, *, wanted: str | None) -> None:
    """Read one object a line; `wanted` names the column that counts steps, else it is found by its name."""
    add_rows(_objects(file, rows), rows, wanted=wanted, source=str(file.path))


def add_rows(objects: Iterable[tuple[int, dict[str, Any]]], rows: LogRows, *, wanted: str | None, source: str) -> None:
    """Add rows of JSON objects, each with its line.

    Raises
    ------
    InputError
        No column counts steps.
    """
    source_rows = iter(objects)
    first = [(line, _flat(row)) for line, row in islice(source_rows, _FIRST_ROWS)]
    columns = list(dict.fromkeys(name for _, row in first for name in row))
    column = step_column(columns) if wanted is None else wanted
    if column is None or column not in columns:
        raise InputError(
            f"no column of {source} counts the steps" if wanted is None else f"{source} has no column {wanted!r}",
            found=", ".join(columns[:20]),
            todo="name it with --step-column",
        )
    time_column = named_like(columns, TIME_COLUMNS)
    texts: dict[str, tuple[int, int, str]] = {}
    numeric: set[str] = set()
    for line, row in _chain(first, source_rows):
        step = step_of(row.pop(column, None))
        if step is None:
            rows.problem("without_step", line, ", ".join(row)[:100])
            continue
        time = number_of(row.pop(time_column, None)) if time_column is not None else None
        points = {}
        for name, value in row.items():
            number = number_of(value)
            if number is not None:
                points[name] = number
                numeric.add(name)
            elif value is not None:
                count, first_line, shown = texts.get(name, (0, line, str(value)[:100]))
                texts[name] = (count + 1, first_line, shown)
        rows.add(step, points, line=line, **({} if time is None else {"time": time}))
    tell_texts(rows, texts, numeric)


def _chain(
    first: list[tuple[int, dict[str, Any]]], rest: Iterator[tuple[int, dict[str, Any]]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from first
    for line, row in rest:
        yield line, _flat(row)


def _objects(file: LogFile, rows: LogRows) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in file.lines():
        if not text.strip():
            continue
        try:
            row = json_of(text)
        except ValueError:
            rows.problem("unparsed", line, text)
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            rows.problem("unparsed", line, text)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    flat: dict[str, Any] = {}
    waiting = [("", row)]
    while waiting:
        prefix, part = waiting.pop()
        for name, value in part.items():
            if isinstance(value, dict):
                waiting.append((f"{prefix}{name}/", value))
            else:
                flat[prefix + name] = value
    return flat
