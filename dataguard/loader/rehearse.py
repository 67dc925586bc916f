"""What will my run be fed? Walk the loader as every rank would, without a trainer.

All ranks live in this process, each with a loader, a record and a cache of its own, and take turns step by step. What
is written is a real attempt: everything that looks back works on it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from dataguard.core.address import Geometry
from dataguard.errors import AnswerNo, RunDamaged, UsageError
from dataguard.loader.account import GateAccount
from dataguard.loader.answers import Mixed, PlanAnswer, PlannedSample, RehearseAnswer
from dataguard.loader.demand import shared_cache_bytes
from dataguard.loader.loader import Loader
from dataguard.plan.plan import Plan
from dataguard.plan.slots import PADDING, SlotStatus, plan_slots
from dataguard.plan.tables import num_samples
from dataguard.plan.withheld import Withheld, WithheldSet
from dataguard.run.events import Proposed
from dataguard.run.pending import AT_CREATION
from dataguard.run.policies import GateChoice, check_fit
from dataguard.run.reached import complete_before
from dataguard.run.run import Run
from dataguard.run.withhold import Target

__all__ = ["continued_geometry", "mixture_of", "planned_steps", "rehearse"]


def rehearse(
    run: Run,
    *,
    geometry: Geometry,
    steps: int | None = None,
    epochs: int | None = None,
    from_step: int | None = None,
    parent: int | None = None,
    progress: Callable[[int, int | None], None] = lambda _done, _total: None,
    **settings: Any,
) -> RehearseAnswer:
    """Deliver `steps` steps (or `epochs` epochs) to all ranks of a new attempt.

    Parameters
    ----------
    from_step, parent
        Where the attempt forks (0-based step). Default: a fresh run begins at step 0, another goes on where its newest
        attempt stopped.
    progress
        Called with steps done and steps in all.
    settings
        Passed on to `Loader`: roots, global_batch, corpus, weights, policy, profile, vocab_size, on_unreadable,
        cache_bytes.
    """
    tree = run.attempts()
    if from_step is None and len(tree):
        from_step = complete_before(run, tree.newest if parent is None else parent)
        parent = tree.newest if parent is None else parent
    if settings.get("cache_bytes") is None:
        settings["cache_bytes"] = shared_cache_bytes(run.plan_of(), run.stream_of(), geometry)
    launch_id = f"rehearsal {uuid.uuid4().hex}"
    began = time.perf_counter()
    num_slots = num_withheld = num_unreadable = num_padding = content = done = 0
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(
                Loader(
                    run,
                    geometry=geometry,
                    rank=rank,
                    steps=steps,
                    epochs=epochs,
                    from_step=from_step,
                    parent=parent,
                    launch_id=launch_id,
                    num_threads=0,
                    **settings,
                )
            )
            for rank in range(geometry.world_size)
        ]
        ended, halted, gate = False, None, GateAccount(loaders)
        while not ended:
            for loader in loaders:
                try:
                    taken = loader.take_step()
                except AnswerNo as answer:
                    # The gate stops every rank before this step.
                    halted, taken = str(answer), []
                ended = not taken
                for microbatch in taken:
                    padding = int(np.isin(microbatch.status, PADDING).sum())
                    num_slots += len(microbatch)
                    num_padding += padding
                    num_withheld += int((microbatch.status != SlotStatus.LIVE).sum()) - padding
                    num_unreadable += int((microbatch.status == SlotStatus.UNREADABLE).sum())
                    content += int(microbatch.lengths.sum())
            if not ended:
                done += 1
                gate.step(taken[-1].step)
                progress(done, steps)
        seconds = time.perf_counter() - began
        attempt = loaders[0].attempt
        assert attempt is not None
        next_step = loaders[0].next_step
        storage = sum(loader.bytes_read for loader in loaders)
        # Most are the same on all ranks; what the store of a rank let go of is its own.
        notes = tuple(dict.fromkeys(note for loader in loaders for note in loader.notes))
    lost = {
        entry.event.shard: entry.event.reason
        for entry in run.read().entries
        if isinstance(entry.event, Proposed)
        and entry.event.attempt == attempt.number
        and entry.event.shard
        and not entry.event.rule
    }
    gate.propose(run)
    proposed = [
        f"proposed to {entry.event.proposal} {entry.event.shard or 'a batch'}: {entry.event.reason}"
        for entry in run.read().entries
        if isinstance(entry.event, Proposed) and entry.event.attempt == attempt.number and entry.event.rule
    ]
    plan = run.plan_of(attempt.number)
    global_batch = run.steps_of(attempt.number).size_of(attempt.fork_step)
    return RehearseAnswer(
        run=str(run.path),
        attempt=attempt.number,
        parent=attempt.parent,
        steps=(run.label(attempt.fork_step), run.label(next_step)),
        num_steps=done,
        world_size=geometry.world_size,
        microbatch_size=geometry.microbatch_size,
        num_microbatches=geometry.num_microbatches(global_batch),
        global_batch=global_batch,
        num_samples=num_slots - num_padding,
        num_withheld=num_withheld,
        num_unreadable=num_unreadable,
        num_padding=num_padding,
        content_bytes=content * (8 if plan.root.form == "window" else 1),
        storage_bytes=storage,
        corpus_bytes=sum(shard.size_bytes for manifest in plan.manifests.values() for shard in manifest.shards),
        seconds=seconds,
        samples_per_second=(num_slots - num_padding) / seconds if seconds > 0 else 0.0,
        mixture=mixture_of(plan),
        unreadable_shards=tuple(sorted(lost)),
        notes=(*notes, *(f"{shard}: {reason}" for shard, reason in sorted(lost.items())), *proposed),
        gate=gate.answer(run, halted),
    )


def continued_geometry(
    run: Run | None, *, world_size: int | None, microbatch_size: int | None, global_batch: int | None
) -> Geometry:
    """The geometry of an attempt of which only a part was asked for: the rest follows the newest attempt of the run.

    Where only one of the two is given, the number of microbatches follows; where that cannot be, it is an error that
    shows the arithmetic.
    """
    tree = None if run is None else run.attempts()
    last = tree.attempt(tree.newest).geometry if tree is not None and len(tree) else None
    if last is None:
        asked = (("world size", world_size), ("microbatch size", microbatch_size))
        missing = [name for name, value in asked if value is None]
        if missing and run is not None and run.problems():
            raise RunDamaged(
                "the attempts of this run cannot be read",
                found="; ".join(run.problems()[:3]),
                todo="restore the event files from a copy; `dataguard verify` lists what is wrong",
            )
        if missing:
            raise UsageError(
                f"the run has no attempt yet, and no {' and no '.join(missing)} is given",
                todo=f"give {' and '.join('--' + name.replace(' ', '-') + ' N' for name in missing)}",
            )
    geometry = Geometry(
        world_size=world_size or (last.world_size if last else 1),
        microbatch_size=microbatch_size or (last.microbatch_size if last else 1),
    )
    if global_batch is not None:
        geometry.check(global_batch)
    return geometry


def planned_steps(
    plan: Plan,
    geometry: Geometry,
    steps: Iterable[int],
    *,
    rank: int | None = None,
    withheld: Iterable[Target] = (),
    gate: GateChoice | None = None,
) -> PlanAnswer:
    """What steps (counted from 0) would deliver, without any run.

    Parameters
    ----------
    withheld
        Shards and rows to withhold from the start, in the names of the plan's manifests.
    gate
        Policy, profile and vocabulary size of the run to be: checked against the plan's sources, and named.
    """
    if gate is not None:
        check_fit(gate.policy, plan)
    plan.check(geometry)
    if rank is not None:
        geometry.check_rank(rank)
    stream, schedule = plan.stream(), plan.steps()
    first_label = plan.document.first_label
    manifests = stream.manifest_set
    targets = [Withheld(shard=shard, row=row, event=1, reason=AT_CREATION) for shard, row in withheld]
    held = WithheldSet.of(targets, manifests)
    policy = None if gate is None else gate.policy
    fill = (None if policy is None else policy.fill) or plan.document.fill
    samples = []
    asked = list(steps)
    for step in asked:
        batch = schedule.batch(step)
        share = batch.size // geometry.world_size
        found = plan_slots(batch, stream, held, fill=fill)
        names = ("position", "source", "shard", "row", "epoch", "status", "delivered_shard", "delivered_row")
        columns = zip(*(getattr(found, name).tolist() for name in names), strict=True)
        for slot, (position, source, shard, row, epoch, status, instead, instead_row) in enumerate(columns):
            if rank is None or slot // share == rank:
                samples.append(
                    PlannedSample(
                        step=step + first_label,
                        rank=slot // share,
                        microbatch=slot % share // geometry.microbatch_size,
                        slot=slot,
                        position=position,
                        source=stream.source_names[source],
                        shard=manifests.shard_name(shard),
                        row=row,
                        epoch=epoch,
                        status=SlotStatus(status).name.lower(),
                        delivered=f"{manifests.shard_name(instead)}:{instead_row}"
                        if status == SlotStatus.SUBSTITUTED
                        else None,
                    )
                )
    return PlanAnswer(
        plan=plan.digest,
        root=plan.root.digest,
        lanes=plan.root.lanes,
        global_batch=plan.global_batch,
        world_size=geometry.world_size,
        microbatch_size=geometry.microbatch_size,
        mixture=mixture_of(plan),
        left_out=plan.left_out,
        steps=(asked[0] + first_label, asked[-1] + 1 + first_label) if asked else (first_label, first_label),
        num_withheld=len(targets),
        policy=None if policy is None else f"{policy.name} ({policy.digest})",
        profile=None if gate is None or gate.profile is None else gate.profile.digest,
        samples=tuple(samples),
    )


def mixture_of(plan: Plan) -> tuple[Mixed, ...]:
    """The last mixture of a plan, by source."""
    mixture = plan.document.mixtures[-1]
    manifest = plan.manifests[mixture.manifest]
    total = sum(mixture.weights.values())
    counts = num_samples(manifest, plan.root.form, plan.root.seq_len)
    return tuple(
        Mixed(source=name, weight=weight, share=weight / total, num_samples=counts[name])
        for name, weight in sorted(mixture.weights.items())
    )
