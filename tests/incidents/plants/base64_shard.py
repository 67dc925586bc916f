"""A shard of attachments: lines of base64, at a rate at which they leave damage."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from tests.incidents.corpus import base64_lines
from tests.incidents.incident import Incident, Segment, clean
from tests.incidents.places import shard_named
from tests.incidents.stage import Settings, constant

INCIDENT = Incident(
    name="base64_shard",
    segments=lambda generator: [
        clean(generator, 104),
        Segment(base64_lines(generator, 48), "base64"),
        clean(generator, 60),
    ],
    settings=lambda seed: Settings(num_steps=160, lr=constant(4e-3), clip=None),
    classes=frozenset({EventClass.TRANSIENT_SPIKE}),
    verdicts=frozenset({Verdict.BAD_DATA}),
    place=shard_named("base64"),
    experiment=True,
)
