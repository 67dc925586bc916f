"""What do torchtitan's logs say?

Printed, with or without colors and whatever a launcher or ``logging`` puts before it: ``step: 10  loss:  7.0329
grad_norm: 2.1  memory: 0.50GiB(0.53%)  tps: 1,234  tflops: 1.2  mfu: 0.4%``; units come off the numbers (``memory`` is
in GiB). Its lists of losses hold one pair a line: ``10 7.032886028289795``; those are named ``loss``.
"""

from __future__ import annotations

import re

from dataguard.run.logs.log import LogRows
from dataguard.run.logs.numbers import number_of, printed_step, step_of
from dataguard.run.logs.opening import LogFile
from dataguard.run.logs.text import Parsed

__all__ = ["is_pair", "lead", "parse", "read_pairs"]

lead = re.compile(r"\bstep:\s*\d+\s+(?:global_avg_)?loss:")
_LINE = re.compile(r"\bstep:\s*(\d+)((?:\s+[a-z_]+:\s*\S+)+)")
_FIELD = re.compile(r"([a-z_]+):\s*(\S+)")
_UNIT = re.compile(r"(?:GiB(?:\([\d.]+%\))?|%)$")


def parse(line: str) -> Parsed | None:
    """Step and points of one line.

    >>> parse("[rank0]:INFO - step: 10  loss:  7.0329  memory:  0.50GiB(0.53%)  tps: 1,234  mfu: 0.4%")
    (10, {'loss': 7.0329, 'memory': 0.5, 'tps': 1234.0, 'mfu': 0.4})
    """
    found = _LINE.search(line)
    if found is None:
        return None
    points = {}
    for name, text in _FIELD.findall(found[2]):
        value = number_of(_UNIT.sub("", text))
        if value is not None:
            points[name] = value
    return (printed_step(found[1]), points) if "loss" in points or "global_avg_loss" in points else None


def is_pair(line: str) -> bool:
    """Whether a line is a step and a number and nothing else."""
    cells = line.split()
    return len(cells) == 2 and cells[0].isdecimal() and number_of(cells[1]) is not None


def read_pairs(file: LogFile, rows: LogRows) -> None:
    """Read lines of a step and its loss."""
    for number, line in file.lines():
        if not line.strip():
            continue
        cells = line.split()
        step = step_of(cells[0])
        value = number_of(cells[1]) if len(cells) == 2 else None
        if step is None or value is None:
            rows.problem("unparsed", number, line)
        else:
            rows.add(step, {"loss": value}, line=number)
