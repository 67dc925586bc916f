"""How does an attempt begin?

At the first iteration, rank 0 (or the one process of a launch without ranks) appends one AttemptBegun event. What it
holds is made from everything that stands in the journal before it, and made again should another event come first:

1. where: parent and fork step from the loader state, or as asked; refused outside the parent's own steps;
2. with what: the parent's plan, amended from the start position on by what was asked for; every unrevoked skip and
   quarantine; the geometry, which must divide every global batch planned from there on;
3. copies of plan and manifest stand before the event that names them.

A launch that has begun an attempt already gets that attempt again, if it was told the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dataguard.errors import AttemptError, RunDamaged, WriterConflict
from dataguard.plan.attempts import AttemptPlan, AttemptTree, Skip, attempt_digest, check_fork, in_force
from dataguard.plan.document import PlanDocument
from dataguard.plan.state import LoaderState
from dataguard.plan.steps import Steps
from dataguard.run.attempts import applied_skips, begun_events
from dataguard.run.creating import manifests_of
from dataguard.run.events import AttemptBegun, Event, Proposed, RankPlace
from dataguard.run.join import fence, join_attempt
from dataguard.run.journal import Entry, Head, JournalRead
from dataguard.run.launch import (
    AttemptRequest,
    begun_by_launch,
    check_facts,
    check_kind,
    check_root,
    environment_launch_id,
)
from dataguard.run.manifests import keep_manifest, keep_plan
from dataguard.run.policies import KeptChoice, check_fit, keep_choice
from dataguard.run.probe import probe
from dataguard.run.roots import checked_roots
from dataguard.run.run import Run
from dataguard.run.withhold import list_digest

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus

__all__ = [
    "AttemptRequest",
    "begin_attempt",
    "environment_launch_id",
    "fence",
    "idle_skips",
    "join_attempt",
    "propose",
]

NextStep = int | Callable[[int], int]
"""One past the last complete step that the parent recorded, or a function that gives it for an attempt."""


def begin_attempt(
    run: Run,
    request: AttemptRequest,
    *,
    parent_next_step: NextStep | None = None,
    ranks: Iterable[RankPlace] = (),
    roots: Mapping[str, str] | None = None,
    manifest_file: str | Path | None = None,
    corpus: Corpus | None = None,
) -> AttemptPlan:
    """Begin an attempt: what rank 0 does, or a launch of one process.

    Of a named stream it begins an evaluation: anew each time, at step 0, whatever has begun before.

    Parameters
    ----------
    parent_next_step
        One past the last complete step that the parent recorded, or a function that gives it for an attempt. A state
        of a later step counts as well, since whoever wrote it had handed that step over. Not needed for a fresh run.
    ranks
        Where the ranks run, as far as rank 0 knows.
    roots
        Where each source lies for this attempt; remembered, in no digest.
    manifest_file, corpus
        Where the manifest asked for comes from: what the run's own copy is made of.

    Returns
    -------
    AttemptPlan
        The new attempt; where this launch has begun one already with the same facts, that one.

    Raises
    ------
    AttemptError
        The state is of another stream, the fork step is not one of the parent's own, or the run has attempts and
        nothing says where to go on.
    GeometryError
        World size and microbatch size do not divide every global batch planned from there on.
    RanksDisagree
        This launch id has begun an attempt with other facts.
    WriterConflict
        A newer attempt has begun since this launch began its own.
    RunDamaged
        The journal is damaged, or its tail was removed since the state was written.
    """
    check_kind(run, request)
    check_root(run, request)
    probe(run.layout.tmp)
    _check_head(run, request.state)
    places = tuple(sorted(ranks, key=lambda place: place.rank))

    known_roots: dict[str, str] = {}
    if roots:
        manifests = [*run.manifests.values(), *([request.manifest] if request.manifest else [])]
        known_roots = checked_roots(roots, (source.name for each in manifests for source in each.sources))

    def make(read: JournalRead) -> Event:
        if run.stream_identity is None and begun_by_launch(read.entries, request.launch_id) is not None:
            raise _StandsError
        if request.manifest is not None:
            keep_manifest(run.layout, request.manifest, file=manifest_file, corpus=corpus)
        return _make(run, request, read, parent_next_step, places, known_roots)

    try:
        event = run.journal.append(make).event
    except _StandsError:
        event = _begun_already(run, request)
    assert isinstance(event, AttemptBegun)
    return run.attempts().attempt(event.attempt)


def idle_skips(attempt: AttemptPlan) -> tuple[Skip, ...]:
    """Skips that an attempt carries without effect, since they lie before its start: to be said when it begins."""
    return tuple(skip for skip in attempt.skips if skip.stop <= attempt.start_position)


def propose(run: Run, proposals: Iterable[Proposed]) -> tuple[Entry, ...]:
    """Append what ranks of earlier attempts met and could not decide, each proposal once however often it is given."""
    appended = []
    for proposal in proposals:

        def make(read: JournalRead, proposal: Proposed = proposal) -> Event:
            if any(entry.event == proposal for entry in read.entries):
                raise _StandsError
            return proposal

        try:
            appended.append(run.journal.append(make))
        except _StandsError:
            continue
    return tuple(appended)


class _StandsError(Exception):
    """What was to be written stands already; never seen outside."""


def _begun_already(run: Run, request: AttemptRequest) -> AttemptBegun:
    """The attempt that this launch has begun before: of the same facts, and still the newest."""
    read = run.read()
    begun = begun_by_launch(read.entries, request.launch_id)
    assert begun is not None
    check_facts(run, request, begun, f"this launch has begun attempt {begun.attempt} with other facts")
    newest = max(begun_events(read))
    if newest != begun.attempt:
        raise WriterConflict(
            f"attempt {begun.attempt} of launch {request.launch_id!r} is over: fenced by attempt {newest}",
            found=f"attempt {newest} of this run has begun, and only one may write",
            todo="start anew with another launch id (a restart needs one that holds its restart count)",
        )
    return begun


def _make(
    run: Run,
    request: AttemptRequest,
    read: JournalRead,
    parent_next_step: NextStep | None,
    ranks: tuple[RankPlace, ...],
    roots: dict[str, str],
) -> AttemptBegun:
    """The event of a new attempt, made from all that stands before it; its plan and manifests are kept first."""
    tree = run.attempts(read)
    number = max(tree.numbers, default=0) + 1
    pending = run.pending(read)
    parent, fork_step = _place(run, request, tree)
    if parent is None:
        if request.manifest is not None or request.weights is not None:
            raise AttemptError("a run begins with its own mixture", todo="create the run from a plan of the other one")
        document, start = run.plan_document(), 0
        lineage = None
    else:
        lineage = run.steps_of(parent, read)
        document = run.plan_document(run.begun(parent, read).plan)
        start = _fork_start(run, lineage, request, fork_step, parent_next_step)
    document = _amended(run, request, document, start)
    check_fit(request.gate.policy, run.plan_from(document))
    before = run.document if parent is None else run.begun(parent, read)
    kept = keep_choice(run.layout, request.gate, KeptChoice.of(before))
    attempt = AttemptPlan(
        number=number,
        parent=parent,
        fork_step=fork_step,
        start_position=start,
        geometry=request.geometry,
        mixtures=document.mixtures,
        batch_sizes=document.batch_sizes,
        skips=pending.skips,
        withheld=pending.withheld,
        epochs=request.epochs,
        policy=kept.policy,
        profile=kept.profile,
        vocab_size=kept.vocab_size,
    )
    # What cannot be cut, or does not follow its parent, is refused before anything is written.
    Steps(
        (*(lineage.attempts if lineage else ()), attempt),
        lanes=document.root.lanes,
        skip_mode=document.skip_mode,
        first_label=document.first_label,
    )
    return AttemptBegun(
        attempt=number,
        parent=parent,
        fork_step=fork_step,
        start_position=start,
        world_size=request.geometry.world_size,
        microbatch_size=request.geometry.microbatch_size,
        plan=keep_plan(run.layout, document),
        root=document.root.digest,
        seed=document.root.seed,
        manifests=manifests_of(document),
        skips=applied_skips(pending),
        withheld=list_digest((entry.shard, entry.row) for entry in pending.withheld),
        num_withheld=len(pending.withheld),
        attempt_digest=attempt_digest(document.root, attempt),
        launch_id=request.launch_id,
        epochs=request.epochs,
        policy=kept.policy or msgspec.UNSET,
        policy_name=kept.name or msgspec.UNSET,
        profile=kept.profile or msgspec.UNSET,
        vocab_size=kept.vocab_size or msgspec.UNSET,
        transform=request.transform or msgspec.UNSET,
        ranks=ranks,
        roots=roots,
        evaluated_at=request.evaluation or msgspec.UNSET,
    )


def _place(run: Run, request: AttemptRequest, tree: AttemptTree) -> tuple[int | None, int]:
    """Parent and fork step of the attempt asked for; an evaluation has neither."""
    if run.stream_identity is not None:
        return None, 0
    if request.state is not None:
        return tree.attempt(request.state.attempt).number, request.state.next_step
    if not len(tree):
        if request.fork_step:
            raise AttemptError(
                f"step {run.label(request.fork_step):,} cannot be forked from: no attempt of this run has begun",
                todo="begin a fresh attempt, without a step",
            )
        return None, 0
    if request.fork_step is None:
        raise AttemptError(
            "this run has attempts already, and nothing says where to go on",
            found=f"the newest is attempt {tree.newest}",
            allowed="a loader state, or the step to fork from",
            todo=f"load the state of the checkpoint; to begin anew, fork from step {run.first_label}",
        )
    parent = tree.owner(request.fork_step) if request.parent is None else request.parent
    return tree.attempt(parent).number, request.fork_step


def _fork_start(
    run: Run,
    lineage: Steps,
    request: AttemptRequest,
    fork_step: int,
    parent_next_step: NextStep | None,
) -> int:
    """Where the attempt starts; AttemptError where the fork step is not one of the parent's own."""
    parent = lineage.leaf
    recorded = parent_next_step(parent.number) if callable(parent_next_step) else parent_next_step
    reached = max(recorded or parent.fork_step, request.state.next_step if request.state else 0, parent.fork_step)
    check_fork(parent, fork_step, reached, first_label=run.first_label)
    return lineage.start_of(fork_step)


def _amended(run: Run, request: AttemptRequest, document: PlanDocument, start: int) -> PlanDocument:
    """The attempt's plan: the parent's, with what is asked for from its start on; unchanged where that is in force."""
    size, mixture = in_force(document.batch_sizes, start)[0].size, in_force(document.mixtures, start)[0]
    global_batch = None if request.global_batch == size else request.global_batch
    manifest = None if request.manifest is None or request.manifest.digest == mixture.manifest else request.manifest
    if (global_batch, manifest, request.weights) == (None, None, None):
        return document
    plan = run.plan_from(document)
    amended = plan.amended(start, manifest=manifest, weights=request.weights, global_batch=global_batch).document
    if manifest is None and in_force(amended.mixtures, start)[0].weights == mixture.weights:
        # The same weights again are no new mixture, which would begin new phases.
        amended = plan.amended(start, global_batch=global_batch).document if global_batch is not None else document
    return amended


def _check_head(run: Run, state: LoaderState | None) -> None:
    """RunDamaged where the journal no longer holds what the state had seen of it."""
    if state is None:
        return
    head = Head(number=state.journal_head.number, sha256=state.journal_head.sha256)
    problems = run.journal.check([head])
    if problems:
        raise RunDamaged(
            "the journal is not the one that the loader state was written with",
            found="; ".join(problem.message for problem in problems),
            todo="restore the event files from a copy; `dataguard verify` lists what is wrong",
        )
