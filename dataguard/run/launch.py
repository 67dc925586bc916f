"""Which launch is this, and was this rank told the same as the rank that began the attempt?

A launch is one start of all ranks together. Its id ties them: whatever starts the ranks gives all of them the same, and
another one at every restart. What one rank was told is an `AttemptRequest`; it is held against the run (root, seed)
and against the event that began the attempt (geometry, start step, parent, global batch, mixture). Every difference is
named with both values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dataguard.core.address import Geometry
from dataguard.core.digests import canonical_json
from dataguard.core.manifest import Manifest
from dataguard.errors import AttemptError, RanksDisagree, UsageError
from dataguard.plan.attempts import in_force
from dataguard.plan.document import whole_weights
from dataguard.plan.plan import Weight
from dataguard.plan.state import LoaderState
from dataguard.run.events import AttemptBegun, EvaluatedAt, TransformIdentity
from dataguard.run.journal import Entry
from dataguard.run.policies import NO_POLICY, GateChoice, KeptChoice
from dataguard.run.run import Run
from dataguard.version import __version__

__all__ = [
    "AttemptRequest",
    "begun_by_launch",
    "begun_for",
    "check_facts",
    "check_kind",
    "check_root",
    "environment_launch_id",
    "facts_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequest:
    """What one rank was told to do; all ranks of a launch must have been told the same."""

    launch_id: str
    """The same on all ranks, another at every restart; see `environment_launch_id`."""
    geometry: Geometry
    state: LoaderState | None = None
    """What to resume from. Its attempt is the parent and its next step the fork step."""
    parent: int | None = None
    """Without a state: the attempt to fork from. Default: the owner of the fork step on the newest lineage."""
    fork_step: int | None = None
    """Without a state: the first step of the attempt (0-based). None: a fresh run, at step 0."""
    root_digest: str | None = None
    """Root of the plan this rank holds; None where it goes by the run's own."""
    seed: int | None = None
    global_batch: int | None = None
    """Another global batch size from the attempt's start on."""
    manifest: Manifest | None = None
    """Another manifest from the attempt's start on."""
    weights: Mapping[str, Weight] | None = None
    """Other weights from the attempt's start on."""
    epochs: int | None = None
    """Whole epochs after which the stream is padding."""
    gate: GateChoice = field(default_factory=GateChoice)
    """Another policy, reference profile or vocabulary size for this attempt; what is left out stays as it was."""
    transform: TransformIdentity | None = None
    """What makes tensors of the samples; None where they are delivered as they are."""
    evaluation: EvaluatedAt | None = None
    """For a named stream, and for that alone: where the training stands."""

    def __post_init__(self) -> None:
        if not self.launch_id.strip():
            raise AttemptError(
                "this launch has no launch id, so its ranks cannot know each other",
                allowed="an id that all ranks share and no other launch has",
                todo="give one, e.g. the job's id with its restart count",
            )
        if self.state is not None and (self.parent, self.fork_step) != (None, None):
            raise AttemptError("a loader state says where to go on; a parent or a fork step cannot be given beside it")
        if self.parent is not None and self.fork_step is None:
            raise AttemptError(
                f"a fork from attempt {self.parent} needs the step to begin with", todo="give the fork step"
            )


def environment_launch_id(environ: Mapping[str, str]) -> str | None:
    """The launcher's id of this launch with its restart count, the same on all ranks; None where it gives none.

    torchrun and SLURM are known. torchrun's id is ``none`` unless one was given or it runs standalone; that names no
    launch, so it is not taken.

    >>> environment_launch_id({"TORCHELASTIC_RUN_ID": "7f3a", "TORCHELASTIC_RESTART_COUNT": "2"})
    'torchelastic 7f3a restart 2'
    >>> environment_launch_id({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"})
    'slurm 4711.0 restart 0'
    >>> environment_launch_id({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}) is None
    True
    """
    parts = []
    if environ.get("SLURM_JOB_ID"):
        step = environ.get("SLURM_STEP_ID", "")
        job = environ["SLURM_JOB_ID"] + (f".{step}" if step else "")
        parts.append(f"slurm {job} restart {environ.get('SLURM_RESTART_COUNT') or '0'}")
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    restart = environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    if elastic and elastic != "none":
        parts.append(f"torchelastic {elastic} restart {restart}")
    elif elastic and parts:
        # torchrun restarts its processes within one job step, so its count is needed even where its id says nothing.
        parts.append(f"torchelastic restart {restart}")
    return ", ".join(parts) or None


def check_root(run: Run, request: AttemptRequest) -> None:
    """RanksDisagree, or AttemptError for a state, where this rank is about another stream than the run's."""
    root = run.plan_document().root
    if request.state is not None:
        request.state.check_root(root.digest)
    for what, ours, theirs in (("seed", request.seed, root.seed), ("root digest", request.root_digest, root.digest)):
        if ours is not None and ours != theirs:
            raise RanksDisagree(
                f"this rank and the run at {run.path} differ in {what}",
                found=f"this rank has {what} {ours}",
                allowed=f"the run has {what} {theirs}",
                todo="give every rank the plan that the run was created from",
            )


def begun_for(run: Run, entries: Iterable[Entry], launch_id: str, rank: int) -> AttemptBegun | None:
    """What a rank is to join: the newest attempt that its launch began.

    A launch evaluates a stream many times, each time with all its ranks: there it is the first evaluation in which the
    rank has had no writer yet.
    """
    entries = tuple(entries)
    if run.stream_identity is None:
        return begun_by_launch(entries, launch_id)
    begun = (entry.event for entry in entries if isinstance(entry.event, AttemptBegun))
    own = (event for event in begun if event.launch_id == launch_id)
    return next((event for event in own if not run.layout.seals(event.attempt, rank).exists()), None)


def check_kind(run: Run, request: AttemptRequest) -> None:
    """UsageError where an attempt is asked of a named stream, or an evaluation of a run."""
    identity = run.stream_identity
    if identity is not None and request.evaluation is None:
        raise UsageError(
            f"{run.path} is stream {identity.name!r} of a run: it is evaluated, and has no attempts",
            todo=f"in Python: Run.open(RUN).stream({identity.name!r}).loader(geometry=...)",
        )
    if identity is None and request.evaluation is not None:
        raise UsageError(f"{run.path} is no named stream, so it cannot be evaluated", todo="give run.stream(NAME, ...)")


def begun_by_launch(entries: Iterable[Entry], launch_id: str) -> AttemptBegun | None:
    """The newest attempt that a launch began."""
    begun = None
    for entry in entries:
        if isinstance(entry.event, AttemptBegun) and entry.event.launch_id == launch_id:
            begun = entry.event
    return begun


def check_facts(run: Run, request: AttemptRequest, begun: AttemptBegun, what: str) -> None:
    """RanksDisagree, naming every fact with both values, where what was begun is not what this rank was told."""
    document = run.plan_document(begun.plan)
    size = in_force(document.batch_sizes, begun.start_position)[0].size
    mixture = in_force(document.mixtures, begun.start_position)[0]
    state = request.state
    fresh = state is None and request.fork_step is None
    fork_step = state.next_step if state else request.fork_step or 0
    facts: list[tuple[str, object, object]] = [
        ("world size", request.geometry.world_size, begun.world_size),
        ("microbatch size", request.geometry.microbatch_size, begun.microbatch_size),
        ("epochs", request.epochs, begun.epochs),
        ("start step", run.label(fork_step), run.label(begun.fork_step)),
    ]
    if state is not None or request.parent is not None or fresh:
        facts.append(("parent", state.attempt if state else request.parent, begun.parent))
    if request.seed is not None:
        facts.append(("seed", request.seed, begun.seed))
    if request.root_digest is not None:
        facts.append(("root digest", request.root_digest, begun.root))
    if request.global_batch is not None:
        facts.append(("global batch", request.global_batch, size))
    if request.manifest is not None:
        facts.append(("manifest", request.manifest.digest, mixture.manifest))
    if request.weights is not None:
        facts.append(("weights", _asked_weights(request.weights), _shown(mixture.weights)))
    facts += request.gate.differences(KeptChoice.of(begun))
    if request.transform is not None:
        facts.append(("transform", _told(request.transform), _told(begun.transform or None)))
    if request.evaluation is not None:
        facts.append(("training at", _stands(request.evaluation), _stands(begun.evaluated_at or EvaluatedAt())))
    different = [(name, ours, theirs) for name, ours, theirs in facts if ours != theirs]
    if different:
        raise RanksDisagree(
            what,
            found="; ".join(
                f"this rank has {name} {ours}, the attempt has {theirs}" for name, ours, theirs in different
            ),
            allowed="the same facts on all ranks of a launch",
            todo=f"if this is another launch than {request.launch_id!r}, give it a launch id of its own "
            "(a restart needs one that holds its restart count)",
        )


def facts_of(run: Run, request: AttemptRequest) -> dict[str, str]:
    """What a rank was told, as ranks hold it against each other before any of them begins; the words of `check_facts`.

    A fact that is left open is left out.
    """
    state, gate = request.state, request.gate
    facts: dict[str, object] = {
        "dataguard": __version__,
        "run": run.run_id,
        "launch id": request.launch_id,
        "world size": request.geometry.world_size,
        "microbatch size": request.geometry.microbatch_size,
        "epochs": request.epochs,
        "start step": None if request.fork_step is None else run.label(request.fork_step),
        "parent": request.parent,
        "state": None if state is None else f"of attempt {state.attempt}, step {run.label(state.next_step):,}",
        "seed": request.seed,
        "root digest": request.root_digest,
        "global batch": request.global_batch,
        "manifest": None if request.manifest is None else request.manifest.digest,
        "weights": None if request.weights is None else _asked_weights(request.weights),
        "policy": NO_POLICY if gate.no_policy else None if gate.policy is None else gate.policy.digest,
        "profile": None if gate.profile is None else gate.profile.digest,
        "vocabulary size": gate.vocab_size,
        "transform": None if request.transform is None else _told(request.transform),
        "training at": None if request.evaluation is None else _stands(request.evaluation),
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _told(transform: TransformIdentity | None) -> str:
    return "none" if transform is None else canonical_json(transform).decode()


def _stands(at: EvaluatedAt) -> str:
    """Where the training stands, steps counted from 0.

    >>> _stands(EvaluatedAt(attempt=2, step=300)), _stands(EvaluatedAt())
    ('step 300 (from 0) of attempt 2', 'no step that was told')
    """
    step = "no step that was told" if at.step is None else f"step {at.step:,} (from 0)"
    return step if at.attempt is None else f"{step} of attempt {at.attempt}"


def _asked_weights(weights: Mapping[str, Weight]) -> str:
    return _shown(whole_weights(weights))


def _shown(weights: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={weight}" for name, weight in sorted(weights.items()))
