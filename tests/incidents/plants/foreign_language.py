"""A shard in another alphabet, two bytes a letter: a tokenizer of English bytes makes twice as many tokens of it."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.corpus import foreign, prose
from tests.incidents.incident import Incident, Played, Segment, clean
from tests.incidents.places import shard_named
from tests.incidents.stage import Settings


def _place(played: Played) -> tuple[str, bool]:
    shard, is_shard = shard_named("foreign")(played)
    localised = played.answer.localised
    signals = () if localised is None else localised.signals
    is_named = any("fertility" in signal.signal for signal in signals)
    return f"{shard}, {'fertility' if is_named else 'no fertility'}", is_shard and is_named


INCIDENT = Incident(
    name="foreign_language",
    segments=lambda generator: [
        clean(generator, 104),
        Segment(foreign(prose(generator, 24)), "foreign"),
        clean(generator, 60),
    ],
    settings=lambda seed: Settings(num_steps=150, clip=None),
    classes=frozenset({EventClass.TRANSIENT_SPIKE, EventClass.HARD_BATCH}),
    verdicts=frozenset({Verdict.BAD_DATA, Verdict.HARD_BATCH}),
    place=_place,
    experiment=True,
)
