"""Two steps of hard records at a low rate: their loss is high, and nothing is damaged."""

from __future__ import annotations

import codecs

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.corpus import prose
from tests.incidents.incident import Incident, Segment, clean
from tests.incidents.places import shard_named
from tests.incidents.stage import Settings, constant

INCIDENT = Incident(
    name="hard_batch",
    segments=lambda generator: [
        clean(generator, 184),  # of a shorter past no detector knows the noise well enough
        Segment([codecs.encode(text, "rot13").swapcase() for text in prose(generator, 16)], "hard"),
        clean(generator, 60),
    ],
    settings=lambda seed: Settings(num_steps=240, lr=constant(2e-4)),
    classes=frozenset({EventClass.HARD_BATCH}),
    verdicts=frozenset({Verdict.HARD_BATCH}),
    place=shard_named("hard"),
)
