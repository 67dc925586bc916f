r"""How do other trainers want to be told what to skip?

All three number iterations from 1 and have a skipped iteration consume its batch of the stream, so iteration i is batch
i - 1 of the grid, whatever a run's own steps are called. Read in their public sources:

- **Megatron-LM**, ``--iterations-to-skip I [I ...]``: a list; `train()` compares ``iteration + 1``, the iteration as it
  is logged. Releases of Megatron Core before that line was changed compare the number of iterations done, one less;
  which of the two a checkout does stands in its ``megatron/training/training.py`` beside ``iterations_to_skip``.
- **BigScience** Megatron-DeepSpeed, ``--skip-train-iteration-range A-B [A-B ...]``: ranges with both ends included
  (its logs: "rollback to 13250 and skip", ``13251-14000``).
- **OLMo-core**, ``steps_to_skip=[StepSkipRange(start=A, stop=B)]``: half-open, "steps start at 1, not 0".

>>> print(to_megatron([(40, 43), (9, 10)]))
--iterations-to-skip 10 41 42 43
>>> print(to_bigscience([(40, 43), (9, 10)]))
--skip-train-iteration-range 10-10 41-43
>>> print(to_olmo_core([(40, 43), (9, 10)]))
steps_to_skip=[StepSkipRange(start=10, stop=11), StepSkipRange(start=41, stop=44)]
>>> from_megatron("10 41 42 43") == from_bigscience("10-10 41-43") == ((9, 10), (40, 43))
True
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dataguard.core.spans import Span, SpanSet
from dataguard.errors import UsageError
from dataguard.triage.respond.answers import Exports

__all__ = [
    "exports_of",
    "from_bigscience",
    "from_megatron",
    "from_olmo_core",
    "to_bigscience",
    "to_megatron",
    "to_olmo_core",
]

_FIRST = 1
"""What these trainers call the iteration that consumes batch 0."""

_RANGE = re.compile(r"(\d+)-(\d+)")
_STEP_RANGE = re.compile(r"StepSkipRange\(start=(\d+), stop=(\d+)\)")


_OLDER = (
    "Megatron-LM: numbers as it logs iterations; a checkout whose training.py compares `iteration in "
    "args.iterations_to_skip`, and not `iteration + 1`, wants each one less"
)


def exports_of(batches: Iterable[Span], *, notes: Iterable[str] = ()) -> Exports:
    """All three forms of some batches (from 0, half-open; merged and ordered)."""
    merged = _merged(batches)
    return Exports(
        batches=merged,
        megatron_lm=to_megatron(merged),
        bigscience=to_bigscience(merged),
        olmo_core=to_olmo_core(merged),
        notes=(*notes, _OLDER),
    )


def to_megatron(batches: Iterable[Span]) -> str:
    """Megatron-LM's flag with every iteration, counted from 1."""
    numbers = (str(batch + _FIRST) for start, stop in _merged(batches) for batch in range(start, stop))
    return " ".join(("--iterations-to-skip", *numbers))


def from_megatron(text: str) -> tuple[Span, ...]:
    """The batches (from 0, half-open) of a list of iterations, with or without its flag."""
    words = _words(text, "--iterations-to-skip")
    for word in words:
        if not word.isdecimal() or int(word) < _FIRST:
            raise UsageError(f"{word!r} is no iteration", allowed="numbers from 1, as Megatron-LM logs them")
    return _merged((int(word) - _FIRST, int(word) - _FIRST + 1) for word in words)


def to_bigscience(batches: Iterable[Span]) -> str:
    """BigScience's flag: ranges of iterations from 1, both ends included."""
    ranges = (f"{start + _FIRST}-{stop - 1 + _FIRST}" for start, stop in _merged(batches))
    return " ".join(("--skip-train-iteration-range", *ranges))


def from_bigscience(text: str) -> tuple[Span, ...]:
    """The batches (from 0, half-open) of inclusive ranges, with or without their flag."""
    spans = []
    for word in _words(text, "--skip-train-iteration-range"):
        found = _RANGE.fullmatch(word)
        if found is None or not _FIRST <= int(found[1]) <= int(found[2]):
            raise UsageError(f"{word!r} is no range of iterations", allowed="A-B with 1 <= A <= B, both included")
        spans.append((int(found[1]) - _FIRST, int(found[2]) - _FIRST + 1))
    return _merged(spans)


def to_olmo_core(batches: Iterable[Span]) -> str:
    """OLMo-core's argument of the trainer's configuration: half-open ranges of steps from 1."""
    ranges = (f"StepSkipRange(start={start + _FIRST}, stop={stop + _FIRST})" for start, stop in _merged(batches))
    return f"steps_to_skip=[{', '.join(ranges)}]"


def from_olmo_core(text: str) -> tuple[Span, ...]:
    """The batches (from 0, half-open) of OLMo-core's ranges."""
    inner = text.strip().removeprefix("steps_to_skip=").removeprefix("[").removesuffix("]")
    spans = []
    for word in filter(None, re.split(r",\s*(?=StepSkipRange)", inner.strip())):
        found = _STEP_RANGE.fullmatch(word)
        if found is None or not _FIRST <= int(found[1]) < int(found[2]):
            raise UsageError(f"{word!r} is no range of steps", allowed="StepSkipRange(start=A, stop=B), 1 <= A < B")
        spans.append((int(found[1]) - _FIRST, int(found[2]) - _FIRST))
    return _merged(spans)


def _merged(batches: Iterable[Span]) -> tuple[Span, ...]:
    return tuple(SpanSet.of(batches).spans)


def _words(text: str, flag: str) -> list[str]:
    return text.strip().removeprefix(flag).split()
