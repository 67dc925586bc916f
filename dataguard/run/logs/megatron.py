"""What does a line of Megatron-LM (and its relatives: Megatron-DeepSpeed, NeMo's Megatron) say?

``[2024-03-01 10:00:00] iteration 100/ 500000 | consumed samples: 51200 | ... | lm loss: 1.073129E+01 | ... |``, with
whatever a launcher puts before it (``[default7]:``, ``0: ``). Every ``name: number`` field between bars becomes a
point under its own name; a field without a number is skipped, and a line that does not end with a bar was torn. An
iteration whose update was skipped prints no loss: it is missing there. Validation prints ``validation loss at
iteration 1000 | lm loss value: ... | lm loss PPL: ... |``, which become ``validation lm loss value`` and so on.
"""

from __future__ import annotations

import re

from dataguard.run.logs.numbers import number_of, printed_step
from dataguard.run.logs.text import Parsed

__all__ = ["lead", "parse"]

lead = re.compile(r"\biteration\s+\d+\s*/|\bloss at iteration\s+\d+\s")
_TRAINING = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|(.*)\|\s*$")
_VALIDATION = re.compile(
    r"\b(validation|test) loss at iteration\s+(\d+)\s+(?:on (?:validation|test) set\s+)?\|(.*)\|\s*$"
)


def parse(line: str) -> Parsed | None:
    """Step and points of one line.

    >>> parse(" iteration       7/     100 | lm loss: 1.5E+00 | loss scale: 1.0 | grad norm: nan |")
    (7, {'lm loss': 1.5, 'loss scale': 1.0, 'grad norm': nan})
    """
    found = _TRAINING.search(line)
    if found is not None:
        return _with_points(printed_step(found[1]), "", found[2])
    found = _VALIDATION.search(line)
    return None if found is None else _with_points(printed_step(found[2]), f"{found[1]} ", found[3])


def _with_points(step: int, prefix: str, fields: str) -> Parsed | None:
    points = {}
    for field in fields.split("|"):
        name, colon, text = field.rpartition(":")
        value = number_of(text) if colon else None
        if value is not None and name.strip():
            points[prefix + name.strip()] = value
    return (step, points) if points else None
