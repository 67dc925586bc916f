"""Which ranks, microbatches, samples and shards does an event point at?"""

from __future__ import annotations

from dataguard.triage.localise.answers import (
    Localised,
    LocalisedDuplicates,
    LocalisedMicrobatch,
    LocalisedRank,
    LocalisedSample,
    LocalisedShare,
    LocalisedSignal,
    LookedAt,
    SampleSignal,
)
from dataguard.triage.localise.localising import FALSE_ALARMS, localise

__all__ = [
    "FALSE_ALARMS",
    "Localised",
    "LocalisedDuplicates",
    "LocalisedMicrobatch",
    "LocalisedRank",
    "LocalisedSample",
    "LocalisedShare",
    "LocalisedSignal",
    "LookedAt",
    "SampleSignal",
    "localise",
]
