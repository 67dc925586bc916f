"""What do modded-nanogpt's and nanoGPT's logs say?

modded-nanogpt: ``step:125/19073 train_loss:4.85 train_time:16140ms step_avg:140.35ms``, and the same with ``val_loss``,
whose times (of the same step, taken again) are named ``val train_time`` and ``val step_avg``.
nanoGPT: ``iter 125: loss 4.85, time 140.35ms, mfu 35.20%`` and ``step 250: train loss 4.4, val loss 4.5`` (means over
evaluation batches; they are named ``eval train loss`` and ``eval val loss``). Units come off the numbers.
"""

from __future__ import annotations

import re

from dataguard.run.logs.numbers import number_of, printed_step
from dataguard.run.logs.text import Parsed

__all__ = ["lead", "parse"]

lead = re.compile(
    r"^\s*step:\d+/\d+ (?:train|val)_loss:|^\s*iter \d+: loss |^\s*step \d+: train loss .*val loss ",
)
_MODDED = re.compile(r"\s*step:(\d+)/\d+((?: [a-z_]+:\S+)+)\s*")
_ITERATION = re.compile(r"\s*iter (\d+): (.*)")
_EVALUATION = re.compile(r"\s*step (\d+): train loss (\S+), val loss (\S+)\s*")
_FIELD = re.compile(r"\s*([a-z]+) (\S+?)(?:ms|%)?\s*")


def parse(line: str) -> Parsed | None:
    """Step and points of one line.

    >>> parse("step:125/19073 train_loss:4.85 train_time:16140ms step_avg:nanms")
    (125, {'train_loss': 4.85, 'train_time': 16140.0, 'step_avg': nan})
    >>> parse("iter 7: loss 4.85, time 140.35ms, mfu -100.00%")
    (7, {'loss': 4.85, 'time': 140.35, 'mfu': -100.0})
    """
    found = _MODDED.fullmatch(line)
    if found is not None:
        pairs = [field.partition(":") for field in found[2].split()]
        prefix = "val " if any(name == "val_loss" for name, _, _ in pairs) else ""
        named = [(name if name.endswith("loss") else prefix + name, text) for name, _, text in pairs]
        return _checked(printed_step(found[1]), [(name, text.removesuffix("ms")) for name, text in named])
    found = _ITERATION.fullmatch(line)
    if found is not None:
        fields = [_FIELD.fullmatch(field) for field in found[2].split(",")]
        return _checked(printed_step(found[1]), [(field[1], field[2]) if field else ("", "") for field in fields])
    found = _EVALUATION.fullmatch(line)
    if found is None:
        return None
    return _checked(printed_step(found[1]), [("eval train loss", found[2]), ("eval val loss", found[3])])


def _checked(step: int, pairs: list[tuple[str, str]]) -> Parsed | None:
    points = {}
    for name, text in pairs:
        value = number_of(text)
        if value is None:
            return None
        points[name] = value
    return step, points
