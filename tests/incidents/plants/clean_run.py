"""Nothing is planted."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from tests.incidents.incident import Incident, clean
from tests.incidents.places import nowhere
from tests.incidents.stage import Settings

INCIDENT = Incident(
    name="clean_run",
    segments=lambda generator: [clean(generator, 160)],
    settings=lambda seed: Settings(num_steps=160),
    classes=frozenset({None}),
    verdicts=frozenset({Verdict.NO_INCIDENT}),
    place=nowhere,
)
