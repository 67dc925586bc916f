"""A shard is cut off on the storage while the run reads others: its slots are withheld, and the run goes on."""

from __future__ import annotations

import os

from dataguard.core.evidence import Verdict
from dataguard.run.events import Proposed
from tests.incidents.corpus import prose
from tests.incidents.incident import Incident, Played, Segment, clean
from tests.incidents.places import nowhere
from tests.incidents.stage import BATCH, Fault, Settings
from tests.incidents.training import Training

_HALF = BATCH // 2
_BEFORE, _AFTER = 80, 40
_ROWS = 32


class _Cut(Fault):
    def before_step(self, training: Training, step: int) -> None:
        if step == _BEFORE // 2:
            shards = sorted((training.stage.folder / "text").glob("*.jsonl"))
            odd = next(path for path in shards if path.stat().st_size < shards[0].stat().st_size * 3 // 4)
            os.truncate(odd, odd.stat().st_size // 3)


def _place(played: Played) -> tuple[str, bool]:
    told, is_nowhere = nowhere(played)
    proposed = {
        entry.event.shard
        for entry in played.run.read().entries
        if isinstance(entry.event, Proposed) and entry.event.proposal == "quarantine"
    }
    named = ", ".join(sorted(str(shard) for shard in proposed)) or "no quarantine proposed"
    return named if is_nowhere else told, is_nowhere and proposed == {played.tagged["cut"]}


INCIDENT = Incident(
    name="truncated_shard",
    segments=lambda generator: [
        clean(generator, _BEFORE + _ROWS // _HALF + _AFTER, batch=_HALF),
        clean(generator, _BEFORE, batch=_HALF),
        Segment(prose(generator, _ROWS), "cut"),
        clean(generator, _AFTER, batch=_HALF),
    ],
    settings=lambda seed: Settings(num_steps=_BEFORE + _ROWS // _HALF + _AFTER - 2, lanes=2, fault=_Cut()),
    classes=frozenset({None}),
    verdicts=frozenset({Verdict.NO_INCIDENT}),
    place=_place,
)
