"""What is an incident of the suite, and how is it played?

A corpus is written, a run is trained on it with one known fault, and then an engineer's steps are taken: the replay
experiment where the incident asks for it, and `triage`. Whoever plays an incident tells dataguard nothing of the fault.
What came out is held against what the table of the issue expects: class, place, verdict.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataguard import Run
from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass
from dataguard.errors import AnswerNo
from tests.incidents.corpus import prose, write_corpus
from tests.incidents.stage import BATCH, Settings, Stage
from tests.incidents.training import Training, encode, mean_loss
from tests.torch.forking import Launch

__all__ = ["Incident", "Outcome", "Played", "Segment", "clean", "experiment_on", "play", "shards_of"]

SHARD_RECORDS = 64
"""Records of an ordinary shard."""
RANK_SECONDS = 900.0
"""How long the processes of a run may take, on a machine that does other things as well."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a corpus, in the order in which it is read."""

    texts: Sequence[str]
    tag: str = ""
    """What the incident calls it; it is one shard then. Dataguard never sees it."""
    source: str = "text"


def clean(generator: random.Random, num_steps: int, *, batch: int = BATCH) -> Segment:
    """Prose for so many steps."""
    return Segment(prose(generator, num_steps * batch))


def shards_of(segments: Sequence[Segment]) -> tuple[dict[str, Sequence[str]], dict[str, str]]:
    """Texts by shard (numbered in order, all names alike), and the shard of each tag as dataguard names it."""
    shards: dict[str, Sequence[str]] = {}
    tagged: dict[str, str] = {}
    for segment in segments:
        size = len(segment.texts) if segment.tag else SHARD_RECORDS
        for first in range(0, len(segment.texts), max(1, size)):
            name = f"{segment.source}/part-{len(shards):03d}"
            shards[name] = segment.texts[first : first + size]
            if segment.tag:
                tagged[segment.tag] = f"{name}.jsonl"
    return shards, tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An incident that was played, and what dataguard said."""

    stage: Stage
    settings: Settings
    run: Run
    tagged: Mapping[str, str]
    """Shard by tag."""
    answer: Any
    """Of triage."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else was done, as the incident calls it."""


Place = Callable[[Played], tuple[str, bool]]
"""What dataguard named as the place, and whether it is the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A known fault, and what must come out."""

    name: str
    segments: Callable[[random.Random], Sequence[Segment]]
    settings: Callable[[int], Settings]
    """Of a seed."""
    classes: frozenset[EventClass | None]
    """What the event may be classed as; None where nothing is to be found."""
    verdicts: frozenset[Verdict]
    place: Place
    experiment: bool = False
    """Whether the engineer runs the replay experiment on the event, as triage proposes."""
    after: Callable[[Stage, Settings, Run], Mapping[str, Any]] | None = None
    """What else the engineer does before triage."""
    answers: Callable[[Stage, Settings, Run], tuple[Any, Mapping[str, Any]]] | None = None
    """Asks triage in place of `diagnose`: the answer that is held against the table, and what else was asked."""
    first_to_fail: int | None = None
    """A rank whose process ends with an error when the run has stopped; the others are ended then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row of the table."""

    incident: str
    event_class: str
    place: str
    verdict: str
    wrong: tuple[str, ...]
    """What is not right, in words; empty where all is."""
    seconds: float
    played: Played | None = None

    @property
    def right(self) -> bool:
        """Whether class, place and verdict are what the table expects."""
        return not self.wrong


def stage_of(incident: Incident, folder: Path, warm: Path, seed: int) -> tuple[Stage, dict[str, str]]:
    """Write the corpus of an incident; gives its stage and the shards that are tagged."""
    shards, tagged = shards_of(incident.segments(random.Random(f"{incident.name} {seed}")))
    write_corpus(folder, shards)
    return Stage(folder, seed, warm), tagged


def play(incident: Incident, folder: Path, warm: Path, seed: int, ranks: Launch | None = None) -> Outcome:
    """Play an incident in an empty folder and hold the answer against the table.

    Parameters
    ----------
    ranks
        Starts the processes of an incident of several ranks; the others do without.
    """
    began = time.monotonic()
    stage, tagged = stage_of(incident, folder, warm, seed)
    settings = incident.settings(seed)
    train(incident, stage, settings, ranks)
    run = Run.open(stage.run)
    more = dict(incident.after(stage, settings, run)) if incident.after else {}
    if incident.answers is None:
        answer = diagnose(incident, stage, settings, run)
    else:
        answer, others = incident.answers(stage, settings, run)
        more |= others
    played = Played(stage=stage, settings=settings, run=run, tagged=tagged, answer=answer, more=more)
    return outcome_of(incident, played, time.monotonic() - began)


def outcome_of(incident: Incident, played: Played, seconds: float) -> Outcome:
    """Class, place and verdict against what is expected."""
    event = played.answer.event
    event_class = None if event is None else EventClass(event.event_class)
    verdict = Verdict(played.answer.diagnosis.verdict)
    place, is_place = incident.place(played)
    wrong = []
    if event_class not in incident.classes:
        wrong.append(f"class {event_class}, not {_names(incident.classes)}")
    if not is_place:
        wrong.append(f"place {place}")
    if verdict not in incident.verdicts:
        wrong.append(f"verdict {verdict}, not {_names(incident.verdicts)}")
    return Outcome(
        incident=incident.name,
        event_class=str(event_class or "none"),
        place=place,
        verdict=str(verdict),
        wrong=tuple(wrong),
        seconds=seconds,
        played=played,
    )


def _names(values: frozenset[Any]) -> str:
    return " or ".join(sorted(str(value or "none") for value in values))


def train(incident: Incident, stage: Stage, settings: Settings, ranks: Launch | None) -> None:
    """Train the run: here, or as a process for each rank."""
    if settings.world_size == 1:
        Training(stage, settings).go()
        return
    assert ranks is not None, f"{incident.name} has {settings.world_size} ranks, and nobody to start them"
    ranks(
        "tests.incidents.rank",
        stage.folder,
        settings.world_size,
        patience_seconds=RANK_SECONDS,
        first_to_fail=incident.first_to_fail,
        incident=incident.name,
        stage=str(stage.folder),
        seed=stage.seed,
        warm=str(stage.warm),
    )


def diagnose(incident: Incident, stage: Stage, settings: Settings, run: Run) -> Any:
    """Triage; where the incident has an experiment, it is run on the event that triage found, and triage once more.

    An experiment that dataguard refuses, because the run has no ordinary batches to compare with, is left out.
    """
    from dataguard.triage.triage import triage

    answer = triage(run)
    if incident.experiment and answer.event is not None:
        try:
            experiment_on(stage, settings, run, answer.event.peak)
        except AnswerNo as error:
            print(f"{incident.name}: no experiment: {error.asked}", file=sys.stderr)
        answer = triage(run)
    return answer


def experiment_on(stage: Stage, settings: Settings, run: Run, step: int, *, node: str | None = None) -> Any:
    """The replay experiment of a step, from the checkpoints of the run."""
    from dataguard.torch.experiment import experiment

    return experiment(
        run,
        step,
        load=lambda path: stage.load(path, settings),
        loss=mean_loss,
        transform=encode,
        num_repeats=2,
        num_placebos=12,
        run_dtype=settings.run_dtype,
        node=node,
    )
