"""Upper case was learned, then contradicted for long: a batch of it spikes from this state, from an earlier one not."""

from __future__ import annotations

import random

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.corpus import CHARS, prose
from tests.incidents.incident import Incident, Segment, clean
from tests.incidents.places import step_between
from tests.incidents.stage import BATCH, Settings, constant

_LEARN, _FORGET, _EVENT, _AFTER = 60, 62, 6, 40
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 4


def _upper(generator: random.Random, num_records: int) -> list[str]:
    return [text.upper() for text in prose(generator, num_records)]


def _alphabet(generator: random.Random, num_records: int) -> list[str]:
    starts = [generator.randrange(26) for _ in range(num_records)]
    return [_LETTERS[start : start + CHARS] for start in starts]


def _mixed(generator: random.Random, num_steps: int, special: list[str]) -> Segment:
    """Each batch of prose holds some of the special records."""
    share = len(special) // num_steps
    texts: list[str] = []
    for step in range(num_steps):
        texts += prose(generator, BATCH - share) + special[step * share : (step + 1) * share]
    return Segment(texts)


def _segments(generator: random.Random) -> list[Segment]:
    return [
        _mixed(generator, _LEARN, _upper(generator, 2 * _LEARN)),
        _mixed(generator, _FORGET, _alphabet(generator, 2 * _FORGET)),
        Segment(_upper(generator, _EVENT * BATCH), "upper"),
        _mixed(generator, _AFTER, _alphabet(generator, 2 * _AFTER)),
        clean(generator, 8),
    ]


INCIDENT = Incident(
    name="batch_and_state",
    segments=_segments,
    settings=lambda seed: Settings(
        num_steps=_LEARN + _FORGET + _EVENT + _AFTER, lr=constant(3e-3), clip=None, checkpoint_every=_LEARN
    ),
    classes=frozenset({EventClass.TRANSIENT_SPIKE}),
    verdicts=frozenset({Verdict.DATA_AND_STATE}),
    place=step_between(_LEARN + _FORGET, _LEARN + _FORGET + _EVENT),
    experiment=True,
)
