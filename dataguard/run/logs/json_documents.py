"""What do whole JSON documents say: Megatron's golden values, and the state that Hugging Face's Trainer saves?

Golden values: ``{"lm loss": {"start_step", "end_step", "step_interval", "values"}}``, where values are by step, or a
list from `start_step` on. Their *string* ``"nan"`` stands at every step that was not logged (behind the end of a run,
or where a quantity is not measured), so it is a missing point; a number that is NaN would be NaN.
Trainer: ``trainer_state.json`` has rows under ``log_history``. An array of rows is read as well.
"""

from __future__ import annotations

from typing import Any

from dataguard.errors import InputError
from dataguard.run.logs.json_rows import add_rows
from dataguard.run.logs.log import LogRows
from dataguard.run.logs.numbers import number_of, step_of

__all__ = ["document_format", "read_array", "read_golden", "read_trainer_state"]


def document_format(document: Any) -> str | None:
    """What a JSON document is: ``megatron-golden``, ``trainer-state``, ``json`` (an array of rows), or None."""
    if isinstance(document, list):
        return "json" if document and all(isinstance(row, dict) for row in document) else None
    if not isinstance(document, dict) or not document:
        return None
    if isinstance(document.get("log_history"), list):
        return "trainer-state"
    series = [value for value in document.values() if isinstance(value, dict)]
    golden = len(series) == len(document) and all({"values", "step_interval"} <= value.keys() for value in series)
    return "megatron-golden" if golden else None


def read_golden(document: dict[str, Any], rows: LogRows, *, source: str) -> None:
    """Golden values of Megatron.

    Raises
    ------
    InputError
        A list of values does not say from which step on.
    """
    points: dict[int, dict[str, float]] = {}
    for name, series in document.items():
        for label, value in _by_step(name, series, source):
            step = step_of(label)
            number = number_of(value)
            if step is None:
                rows.problem("without_step", None, f"{name}: {label!r}")
            elif value is None or value == "nan":
                continue
            elif number is None:
                rows.problem("value", None, f"{name} of step {step} is {value!r}")
            else:
                points.setdefault(step, {})[name] = number
    for step in sorted(points):
        rows.add(step, points[step])


def _by_step(name: str, series: dict[str, Any], source: str) -> list[tuple[Any, Any]]:
    values = series["values"]
    if isinstance(values, dict):
        return list(values.items())
    start, interval = step_of(series.get("start_step")), step_of(series["step_interval"])
    if not isinstance(values, list) or start is None or interval is None or interval < 1:
        raise InputError(
            f"{source}: the values of {name!r} belong to no steps",
            allowed="values by step, or a list with start_step and step_interval",
        )
    return [(start + place * interval, value) for place, value in enumerate(values)]


def read_trainer_state(document: dict[str, Any], rows: LogRows, *, source: str, wanted: str | None) -> None:
    """The log history of a saved Trainer."""
    read_array(document["log_history"], rows, source=source, wanted=wanted)


def read_array(objects: list[Any], rows: LogRows, *, source: str, wanted: str | None) -> None:
    """An array of rows."""
    numbered = ((number, dict(row)) for number, row in enumerate(objects, start=1) if isinstance(row, dict))
    add_rows(numbered, rows, wanted=wanted, source=source)
