"""What is a named stream of a run, and what does evaluating it leave behind?

A fixed set for validation and mid-run evaluation, beside the stream that is trained on and without any part in it:

- It has a plan, a copy of its manifest, a journal and an index of its own, in ``RUN/streams/NAME``, laid out as a run.
  So whatever reads a run reads it: by that path, or with ``--stream NAME``. One event of the run's journal ties the
  two together; nothing else of the run is touched.
- It has an end, and nothing amends it: no skip, no quarantine, no policy. Each evaluation begins at step 0 and gives
  the same batches, at any training step, from any process, on any number of ranks that divides its global batch.
- An evaluation is a record of its own. Where a run has attempts, a stream has evaluations, numbered alike; none forks
  from another, several may go on at once, and none ends another. Where the training stood is written down with it.

Steps of a stream count from 0, whatever the trainer calls its first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dataguard.core.manifest import Manifest
from dataguard.errors import RunDamaged, UsageError
from dataguard.run.creating import create_run, manifests_of
from dataguard.run.events import AttemptBegun, EvaluatedAt, Event, StreamAdded, StreamIdentity
from dataguard.run.journal import JournalRead
from dataguard.run.layout import Layout
from dataguard.run.policies import GateChoice
from dataguard.run.progress import Progress
from dataguard.run.stream_plan import stream_plan

if TYPE_CHECKING:
    from dataguard.plan.plan import HasManifest, Plan
    from dataguard.run.run import Run

__all__ = [
    "Evaluation",
    "NamedStream",
    "added_streams",
    "named_stream",
    "num_steps_of",
    "opened_stream",
    "stream_names",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_ADAPTERS = {"loader": "dataguard.loader.streams:stream_loader", "guarded": "dataguard.torch.loader:GuardedLoader"}
"""What hands a stream over stands above this room, and is imported when it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation of a stream."""

    number: int
    """1-based; what ``--attempt`` takes."""
    at: EvaluatedAt
    """Where the training stood."""
    world_size: int
    microbatch_size: int
    time: str
    """When it began: UTC, ISO 8601."""


class NamedStream:
    r"""A named stream of a run; made by `Run.stream`.

    >>> import tempfile
    >>> from dataguard import Corpus, Geometry, Plan, Run
    >>> from dataguard.corpus.build import build_manifest_file
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text("".join(f'{{"text": "record {row}"}}\n' for row in range(10)))
    >>> _ = build_manifest_file([f"web={folder / 'a.jsonl'}"], folder / "M.parquet")
    >>> corpus = Corpus.open(folder / "M.parquet")
    >>> run = Run.create(folder / "run", Plan(corpus, seed=17, global_batch=4))
    >>> valid = run.stream("valid", corpus)
    >>> valid.num_steps
    3
    >>> for _ in range(2):
    ...     with valid.loader(geometry=Geometry(world_size=1, microbatch_size=4)) as loader:
    ...         print([record.decode() for microbatch in loader for record in microbatch.records][:3])
    ['record 0', 'record 1', 'record 2']
    ['record 0', 'record 1', 'record 2']
    >>> [evaluation.number for evaluation in valid.evaluations()]
    [1, 2]
    """

    def __init__(self, parent: Run, run: Run, identity: StreamIdentity) -> None:
        self.parent = parent
        """The run it belongs to."""
        self.run = run
        """Its own folder, opened: what looks at runs takes this."""
        self.identity = identity

    def __repr__(self) -> str:
        return f"<NamedStream {self.name!r} of {self.parent.path} {self.run.document.plan[:16]}>"

    @property
    def name(self) -> str:
        """What it is called."""
        return self.identity.name

    @property
    def digest(self) -> str:
        """SHA-256 of its plan: equal for streams of the same batches."""
        return self.run.document.plan

    @property
    def plan(self) -> Plan:
        """What fixes its batches."""
        return self.run.plan

    @property
    def num_steps(self) -> int:
        """Steps of one evaluation, the last of which may be filled up with padding."""
        return num_steps_of(self.run)

    def evaluations(self) -> tuple[Evaluation, ...]:
        """Every evaluation that has begun, in order."""
        return tuple(
            Evaluation(
                number=entry.event.attempt,
                at=entry.event.evaluated_at or EvaluatedAt(),
                world_size=entry.event.world_size,
                microbatch_size=entry.event.microbatch_size,
                time=entry.time,
            )
            for entry in self.run.read().entries
            if isinstance(entry.event, AttemptBegun)
        )

    def at(self, step: int | None, attempt: int | None = None, *, rank: int | None = 0) -> EvaluatedAt:
        """Where the training stands: as told (the step by its label), else as a loader of this process has come.

        Of a rank that is not known, as the farthest of them.
        """
        known = self.parent.progress
        progress = known.get(rank) if rank is not None else max(known.values(), key=_reached, default=None)
        told = None if progress is None else progress.step
        if step is not None:
            told = self.parent.step(step)
        if attempt is not None:
            attempt = self.parent.attempts().attempt(attempt).number
        elif progress is not None:
            attempt = progress.attempt
        elif told is not None and len(tree := self.parent.attempts()):
            attempt = tree.owner(told)
        return EvaluatedAt(attempt=attempt, step=told)

    @property
    def end_settings(self) -> dict[str, int | None]:
        """What tells a `Loader` over `run` where an evaluation ends."""
        return {"epochs": 1 if self.identity.num_steps is None else None, "steps": self.identity.num_steps}

    def loader(self, **settings: Any) -> Any:
        """One evaluation, as an iterator of the microbatches of one rank; see `dataguard.loader.streams`."""
        return _adapter("loader")(self, **settings)

    def guarded(self, **settings: Any) -> Any:
        """One evaluation for PyTorch: a `dataguard.torch.GuardedLoader`, with its settings."""
        return _adapter("guarded")(self, **settings)


def _reached(progress: Progress) -> int:
    return -1 if progress.step is None else progress.step


def _adapter(name: str) -> Any:
    module, _, function = _ADAPTERS[name].partition(":")
    return getattr(import_module(module), function)


def num_steps_of(run: Run) -> int:
    """Steps of one evaluation of the stream whose folder is open as a run."""
    identity = run.stream_identity
    assert identity is not None, "a run of its own has no end"
    if identity.num_steps is not None:
        return identity.num_steps
    plan = run.plan
    return -(-plan.stream().end_of_epochs(1) // plan.global_batch)


def added_streams(read: JournalRead) -> dict[str, StreamAdded]:
    """The event of every stream, by name, in the order in which they were added."""
    added: dict[str, StreamAdded] = {}
    for entry in read.entries:
        if isinstance(entry.event, StreamAdded):
            added.setdefault(entry.event.name, entry.event)
    return added


def stream_names(read: JournalRead) -> tuple[str, ...]:
    """Names of the streams that a journal tells of."""
    return tuple(added_streams(read))


def named_stream(
    run: Run, name: str, corpus: HasManifest | Manifest | None, *, end: int | str = "once", **plan: Any
) -> NamedStream:
    """Add a stream to a run, or open the one that stands; see `Run.stream`."""
    if run.stream_identity is not None:
        raise UsageError(f"{run.path} is a stream of a run, and streams have none of their own")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a stream cannot be called {name!r}",
            allowed="1 to 64 letters, digits, '.', '_', '-', of which the first is a letter or digit",
        )
    added = added_streams(run.read())
    if corpus is None:
        if plan or end != "once":
            raise UsageError(f"what stream {name!r} is made of is given with its corpus, or not at all")
        if name not in added:
            raise UsageError(
                f"no stream of {run.path} is called {name!r}",
                found=", ".join(added) or "no streams",
                todo=f"add it: run.stream({name!r}, corpus)",
            )
        return _opened(run, added[name])
    own = run.plan
    asked = _filled(own, plan)
    made, num_steps = stream_plan(corpus, end=end, **asked)
    if name not in added:
        _check_twin(name, added)
        _add(run, name, made, num_steps, corpus)
        added = added_streams(run.read())
    _require_same(run, added[name], made, num_steps)
    return _opened(run, added[name])


def _filled(own: Plan, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, and what is left out as the run's own plan has it."""
    form = plan.get("form", own.root.form)
    defaults = {
        "global_batch": own.global_batch,
        "form": form,
        "seq_len": None if form == "document" else own.root.seq_len,
    }
    return {**defaults, **plan}


def _check_twin(name: str, added: Mapping[str, StreamAdded]) -> None:
    twin = next((each for each in added if each.casefold() == name.casefold()), None)
    if twin is not None:
        raise UsageError(
            f"a stream cannot be called {name!r} beside {twin!r}",
            found="names that only differ in case, which some file systems take for the same",
        )


def _add(run: Run, name: str, plan: Plan, num_steps: int | None, corpus: HasManifest | Manifest) -> None:
    """Create the stream's folder, then tell the run of it; of several at once one wins, and the others find it."""
    from dataguard.corpus.corpus import Corpus

    layout = Layout(run.layout.stream(name))
    journal = run.journal.beside(layout)
    if journal.read().head.number == 0:
        create_run(
            layout,
            journal,
            plan,
            roots={},
            withhold_file=None,
            manifest_files={},
            corpora=[corpus] if isinstance(corpus, Corpus) else [],
            spool=run.document.spool,
            gate=GateChoice(),
            stream=StreamIdentity(name=name, run=run.run_id, first_label=run.document.first_label, num_steps=num_steps),
        )
    own = type(run).open(layout.root)
    event = StreamAdded(
        name=name,
        stream=own.run_id,
        plan=own.document.plan,
        manifest=manifests_of(own.plan_document())[0],
        num_steps=None if own.stream_identity is None else own.stream_identity.num_steps,
    )

    def make(read: JournalRead) -> Event:
        if name in added_streams(read):
            raise _StandsError
        return event

    try:
        run.journal.append(make)
    except _StandsError:
        return


class _StandsError(Exception):
    """Somebody else has told the run of it; never seen outside."""


def _require_same(run: Run, event: StreamAdded, plan: Plan, num_steps: int | None) -> None:
    """UsageError, with both digests, where the stream that stands is of another corpus or plan."""
    what = f"stream {event.name!r} of {run.path} is there, and is another one"
    todo = f"give the new one another name, or leave the corpus out: run.stream({event.name!r})"
    if plan.root.manifest != event.manifest:
        raise UsageError(
            f"{what}: of another corpus",
            found=f"the corpus given has manifest {plan.root.manifest}",
            allowed=f"the stream has manifest {event.manifest}",
            todo=todo,
        )
    if (plan.digest, num_steps) != (event.plan, event.num_steps):
        raise UsageError(
            f"{what}: of the same corpus, with another seed, batch, form, order or end",
            found=f"what was asked for ends {_ending(num_steps)} and has plan {plan.digest}",
            allowed=f"the stream ends {_ending(event.num_steps)} and has plan {event.plan}",
            todo=todo,
        )


def _ending(num_steps: int | None) -> str:
    return "once" if num_steps is None else f"after {num_steps:,} steps"


def _opened(run: Run, event: StreamAdded) -> NamedStream:
    """The stream that an event tells of.

    Raises
    ------
    RunDamaged
        Its folder is gone, or holds another stream.
    """
    own = opened_stream(run, event)
    assert own.stream_identity is not None
    return NamedStream(run, own, own.stream_identity)


def opened_stream(run: Run, event: StreamAdded) -> Run:
    """The folder of a stream, opened as a run; RunDamaged where it is gone or holds another stream."""
    path = run.layout.stream(event.name)
    try:
        own = type(run).open(path)
    except UsageError as error:
        raise RunDamaged(
            f"stream {event.name!r} of {run.path} is gone: {path} holds no stream",
            todo="restore that folder from a copy",
        ) from error
    told = own.stream_identity
    if (own.run_id, own.document.plan) != (event.stream, event.plan) or told is None or told.run != run.run_id:
        raise RunDamaged(
            f"{path} is another folder in that one's place",
            found=f"{own.run_id} of plan {own.document.plan}",
            allowed=f"{event.stream} of plan {event.plan}",
        )
    return own
