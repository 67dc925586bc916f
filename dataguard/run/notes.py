"""What is remembered in a run's journal beside what amends it: checkpoints, facts, findings, and what was decided.

Notes change no attempt. `Journal.append` writes them; `noted` gives those of a kind. The documents behind them (results
of an experiment, canary records) stand in ``triage/`` of the run directory under the digest that their note names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dataguard.core.digests import sha256_hex
from dataguard.errors import RunDamaged
from dataguard.run.atomic import make_folders, publish_new
from dataguard.run.events import (
    CanaryCompared,
    CheckpointSaved,
    Diagnosed,
    ExperimentDone,
    Note,
    SpikeFound,
    TrainerDescribed,
)
from dataguard.run.journal import Entry
from dataguard.run.layout import Layout
from dataguard.run.run import Run

__all__ = ["keep_document", "noted", "read_document", "text_of_note"]

Kind = TypeVar("Kind", bound=Note)


def noted(entries: Sequence[Entry], kind: type[Kind]) -> list[tuple[Entry, Kind]]:
    """The notes of one kind, in the order of the journal."""
    return [(entry, entry.event) for entry in entries if isinstance(entry.event, kind)]


def keep_document(layout: Layout, what: str, document: bytes) -> str:
    """Write a document to ``triage/<what>-<digest>.json``, once, and give its SHA-256."""
    digest = sha256_hex(document)
    path = layout.triage(what, digest)
    make_folders(path.parent)
    publish_new(path, document, tmp=layout.tmp)
    return digest


def read_document(layout: Layout, what: str, digest: str) -> bytes:
    """The bytes of a kept document; RunDamaged where they are missing or others than the digest says."""
    path = layout.triage(what, digest)
    try:
        document = path.read_bytes()
    except FileNotFoundError as error:
        raise RunDamaged(f"{path} is missing, and the journal names it") from error
    if sha256_hex(document) != digest:
        raise RunDamaged(f"{path} holds other bytes than its name says", todo="restore it, or make it anew")
    return document


def text_of_note(run: Run, event: Note) -> str:
    """What a note says, steps in the trainer's labels."""
    match event:
        case CheckpointSaved():
            return f"checkpoint of step {run.label(event.next_step):,} of attempt {event.attempt}: {event.path}"
        case TrainerDescribed():
            said = sorted(name for name in event.facts.__struct_fields__ if _says(getattr(event.facts, name)))
            return f"the trainer described its {', '.join(said) or 'nothing'}"
        case SpikeFound():
            size = "" if event.size_nats is None else f", {event.size_nats:+.3g} nats"
            rank = "" if event.rank is None else f", rank {event.rank}"
            steps = f"{run.label(event.start):,}:{run.label(event.stop):,}"
            return f"found {event.event_class} in steps {steps} of attempt {event.attempt}{size}{rank}"
        case ExperimentDone():
            return f"experiment on step {run.label(event.step):,} of attempt {event.attempt}: {event.summary}"
        case CanaryCompared():
            return f"canaries of step {run.label(event.step):,}: {event.summary}"
        case Diagnosed():
            where = "" if event.step is None else f" of step {run.label(event.step):,}"
            return f"diagnosis{where} of attempt {event.attempt}: {event.verdict}; {event.summary}"


def _says(section: object) -> bool:
    """Whether a section of facts says anything."""
    return bool(section) and section != type(section)()
