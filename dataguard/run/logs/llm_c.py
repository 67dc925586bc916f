"""What do llm.c's logs say: ``main.log``, and what its programs print?

``main.log``: ``s:250 trl:6.1710 lr:0.000215 norm:1.2339`` (training), ``s:250 tel:6.17`` (validation), ``s:250
eval:0.29`` (HellaSwag). Printed: ``step 250/19560 | loss 6.171 (+1.2z)| norm 1.23 (-0.3z)| lr 2.1e-04 | 341.1 ms |
57.3% bf16 MFU | 153124 tok/s``. Names stay as they are written; of the printed line they are ``loss``, ``norm``,
``lr``, ``ms`` and ``tok/s``.
"""

from __future__ import annotations

import re

from dataguard.run.logs.numbers import number_of, printed_step
from dataguard.run.logs.text import Parsed

__all__ = ["lead", "parse"]

lead = re.compile(r"^\s*s:\d+ (?:trl|tel|eval):|^\s*step\s+\d+/\d+ \| (?:train )?loss ")
_FILE = re.compile(r"\s*s:(\d+)((?: [a-z]+:\S+)+)\s*")
_PRINTED = re.compile(r"\s*step\s+(\d+)/\d+ \|(.*)")
_NAMED = re.compile(r"\s*\(?(?:train )?(loss|norm|lr)\s+(\S+)(?:\s+\(.*\))?\s*")
_UNIT = re.compile(r"\s*\(?([\d.,]+)\s+(ms|tok/s)\)?\s*")


def parse(line: str) -> Parsed | None:
    """Step and points of one line.

    >>> parse("s:250 trl:6.1710 lr:0.000215 norm:1.2339")
    (250, {'trl': 6.171, 'lr': 0.000215, 'norm': 1.2339})
    >>> parse("step   2/10 | loss 6.5 (+nanz)| norm 1.5 (+nanz)| lr 2.0e-04 | 341.1 ms | 57.3% bf16 MFU | 153124 tok/s")
    (2, {'loss': 6.5, 'norm': 1.5, 'lr': 0.0002, 'ms': 341.1, 'tok/s': 153124.0})
    """
    found = _FILE.fullmatch(line)
    if found is not None:
        pairs = [field.partition(":") for field in found[2].split()]
        values = {name: number_of(text) for name, _, text in pairs}
        points = {name: value for name, value in values.items() if value is not None}
        return (printed_step(found[1]), points) if len(points) == len(pairs) else None
    found = _PRINTED.fullmatch(line)
    return None if found is None else _printed(printed_step(found[1]), found[2])


def _printed(step: int, fields: str) -> Parsed | None:
    points = {}
    for field in fields.split("|"):
        named, unit = _NAMED.fullmatch(field), _UNIT.fullmatch(field)
        name, text = (named[1], named[2]) if named else (unit[2], unit[1]) if unit else ("", "")
        value = number_of(text)
        if value is not None:
            points[name] = value
    return (step, points) if "loss" in points else None
