"""What has a trainer said of itself, all notes of the journal taken together?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dataguard.core.trainer import PlannedChange, TrainerFacts
from dataguard.run.events import TrainerDescribed
from dataguard.run.journal import Entry
from dataguard.run.notes import noted

__all__ = ["facts_of", "merged"]


def facts_of(entries: Sequence[Entry]) -> TrainerFacts:
    """The facts of all notes; what a later one says as well counts as it says it."""
    return merged(event.facts for _, event in noted(entries, TrainerDescribed))


def merged(parts: Iterable[TrainerFacts]) -> TrainerFacts:
    """Facts put together: of each fact the last that says anything; of changes all, each once.

    >>> from dataguard.core.trainer import OptimizerFacts
    >>> first = TrainerFacts(optimizer=OptimizerFacts(epsilon=1e-8, beta1=0.9))
    >>> both = merged([first, TrainerFacts(optimizer=OptimizerFacts(epsilon=1e-6))]).optimizer
    >>> both.beta1, both.epsilon
    (0.9, 1e-06)
    """
    whole = TrainerFacts()
    for part in parts:
        sections = {}
        for name in TrainerFacts.__struct_fields__:
            if name == "changes":
                continue
            said = {
                field: value
                for field, value in msgspec.structs.asdict(getattr(part, name)).items()
                if value is not None
            }
            sections[name] = msgspec.structs.replace(getattr(whole, name), **said)
        changes: dict[PlannedChange, None] = dict.fromkeys((*whole.changes, *part.changes))
        whole = TrainerFacts(**sections, changes=tuple(sorted(changes, key=lambda change: change.step)))
    return whole
