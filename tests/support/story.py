"""The story of PLAN.md through real runs, with a delivery log kept outside the run directory.

Attempt 1 runs steps 0:60 on two ranks. Then batches 40:45 are skipped and a shard is quarantined. Attempt 2 forks from
1 at step 35 and runs to 70 on four ranks. Attempt 3 forks from 1 at step 30 and dies in step 33: rank 0 has taken two
of its microbatches, rank 1 none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataguard.core.microbatch import Microbatch
from dataguard.corpus.corpus import Corpus
from dataguard.plan.slots import SlotStatus
from dataguard.run import amend
from dataguard.run.run import Run
from tests.support.corpora import make_corpus, place_of
from tests.support.runs import Slot, in_turns, make_run, open_loaders, slots_of

SHARDS = {"web": {"a.parquet": 40, "b.jsonl.gz": 15, "c.jsonl.zst": 15}, "code": {"d.parquet": 26}}
LANES = 4


@dataclass(frozen=True)
class Handed:
    """One slot that a consumer was handed."""

    attempt: int
    step: int
    rank: int
    microbatch: int
    slot: int
    position: int
    status: SlotStatus
    content: Slot

    @property
    def place(self) -> tuple[str, int] | None:
        """The shard and row that the content names; None for nothing."""
        return None if self.content is None else place_of(self.content)  # type: ignore[arg-type]


@dataclass
class Story:
    """A run and what was handed over in it."""

    folder: Path
    corpus: Corpus
    run: Run
    log: list[Handed] = field(default_factory=list)

    def note(self, taken: list[Microbatch]) -> None:
        """Write microbatches into the log."""
        for m in taken:
            self.log += [
                Handed(
                    attempt=m.attempt,
                    step=m.step,
                    rank=m.address.rank,
                    microbatch=m.address.microbatch,
                    slot=m.slots.start + i,
                    position=int(m.positions[i]),
                    status=SlotStatus(int(m.status[i])),
                    content=content,
                )
                for i, content in enumerate(slots_of(m))
            ]

    def walk(self, **settings: Any) -> None:
        """A new attempt to its end, on all ranks."""
        loaders = open_loaders(self.run, **settings)
        for taken in in_turns(loaders):
            self.note(taken)
        for loader in loaders:
            loader.close()

    def of_step(self, step: int, attempt: int) -> list[Handed]:
        """What one attempt was handed of a step, in slot order."""
        found = [handed for handed in self.log if (handed.attempt, handed.step) == (attempt, step)]
        return sorted(found, key=lambda handed: handed.slot)


def tell_story(folder: Path, *, fill: str = "mask", skip_mode: str = "jump", first_label: int = 0) -> Story:
    """Make the run of the story."""
    corpus = make_corpus(folder, SHARDS)
    run = make_run(
        folder / "run", corpus, global_batch=4, lanes=LANES, fill=fill, skip_mode=skip_mode, first_label=first_label
    )
    story = Story(folder=folder, corpus=corpus, run=run)
    story.walk(world_size=2, microbatch_size=1, steps=60)
    amend.skip(run, 40 + first_label, 45 + first_label, reason="spike", batches=True)
    amend.quarantine(run, "web/b.jsonl.gz", reason="damaged")
    story.walk(world_size=4, microbatch_size=1, from_step=35, steps=35 if skip_mode == "jump" else 30)
    dying = open_loaders(run, world_size=2, microbatch_size=1, from_step=30, parent=1)
    for _ in range(3):
        for loader in dying:
            story.note(loader.take_step())
    story.note([next(dying[0]), next(dying[0])])
    del dying, loader  # killed: nothing is closed, nothing sealed
    return story
