"""Replay one step: from which states, with which batches and on which nodes does it show? (Rows A8 and A16.)

The design is {the checkpoint before the step, an earlier one} x {the batch, placebo batches} x {this node, another}.
Every replay is repeated over its whole horizon first of all: what the run differs from itself is the tolerance of all
that is told. What was not measured is unknown, and what follows from too little is inconclusive.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
import torch

from dataguard.core.evidence import Replay, Told
from dataguard.core.spikes import SpikeEvent
from dataguard.errors import UsageError
from dataguard.replay.lookup import Lookup
from dataguard.run.events import ExperimentDone
from dataguard.run.notes import keep_document
from dataguard.run.run import Run
from dataguard.torch.experiment.answers import (
    CheckpointUsed,
    ExperimentReport,
    FloatCheck,
    LayerNorm,
    PlaceboBatch,
    StateResult,
    WhichCheckpoint,
    encode_report,
    number,
    spelled,
)
from dataguard.torch.experiment.batches import Rebuilding, choose_ranks, placebo_batches
from dataguard.torch.experiment.costs import cost_of
from dataguard.torch.experiment.floats import check_floats, run_dtype_of
from dataguard.torch.experiment.judging import damage_of, ordinary_of, ordinary_threshold
from dataguard.torch.experiment.measuring import Load, Loss, Update
from dataguard.torch.experiment.merging import cells_of, check_given, others_of, read_reports
from dataguard.torch.experiment.recorded import Logged, Wanted, checkpoints_of, facts_of, levels_of, logged, wanted
from dataguard.torch.experiment.replays import Replayed, Replayer, default_update
from dataguard.torch.making import Collate, Transform

__all__ = ["experiment"]

_COMPARED_STEPS = 8  # the last ones before the batch: where the state stands, not how it came there


def experiment(
    run: Run,
    step: int,
    *,
    load: Load,
    loss: Loss,
    checkpoints: Mapping[int, str | Path] | None = None,
    earlier: int | None = None,
    attempt: int | None = None,
    event: SpikeEvent | None = None,
    roots: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    collate: Collate | None = None,
    update: Update | None = None,
    num_repeats: int = 3,
    num_placebos: int = 16,
    num_after: int = 8,
    most_ranks: int | None = None,
    float32: bool = True,
    run_dtype: torch.dtype | None = None,
    node: str | None = None,
    others: Sequence[str | Path] = (),
    by: str | None = None,
    record: bool = True,
    dry_run: bool = False,
) -> ExperimentReport:
    """Replay a step from two checkpoints, with its batch and with ordinary ones, and say what shows the event.

    Nothing that `load` gives is changed: everything is done to copies, and random states are put back. One process
    plays all ranks, so model and optimizer have to fit on one device, unsharded.

    Parameters
    ----------
    step
        In the trainer's labels.
    load
        ``load(path) -> (model, optimizer)`` as the checkpoint has them, on their device, in the mode they train in.
    loss
        ``loss(model, microbatch) -> tensor``: the mean over the loss tokens of one microbatch, one number with its
        history, as the trainer logs it, before it is divided by a number of microbatches or scaled.
    checkpoints
        First step (in the trainer's labels) a checkpoint was not trained on -> its path, as `load` takes it. By default
        those that the lineage noted (`Monitor.checkpoint`).
    earlier
        Which of them is the earlier one; by default the newest but the one before the step.
    attempt
        The lineage; default the newest leaf's.
    event
        What is to be reproduced; by default the newest event that the journal has of this step, else a rise of the
        loss, of no known size.
    roots, transform, collate
        As `dataguard.torch.rebuild_tensors` takes them.
    update
        ``update(model, optimizer, step)``: what the trainer does once the gradients of a step are there. By default
        gradients are clipped as `Monitor.describe` told, the rate that was logged for the step is set, and the
        optimizer steps.
    num_repeats
        Replays of each checkpoint, at least two: the baseline.
    num_placebos
        Ordinary batches, at least four; of fewer than about twelve only large events can be told.
    num_after
        Placebo batches that are measured after an update by the batch; 0 for none. Seven tell damage from chance.
    most_ranks
        Use the microbatches of so many ranks alone, chosen by key.
    float32
        Measure once more in float32, and look for the first layer that goes.
    run_dtype
        What the run computes in, under autocast; by default as `Monitor.describe` told.
    node
        What this node is called; default its host name.
    others
        Documents of the same experiment on other nodes; those in the run's journal are found by themselves.
    by
        Who does it, for the journal.
    record
        Keep the document in ``triage/`` and note it in the journal.
    dry_run
        Choose batches and checkpoints, and tell the cost; load and measure nothing.

    Raises
    ------
    NotInRun
        The lineage did not deliver the step, or no checkpoint from before it is known.
    UsageError
        Tensors that cannot be made again, functions that give something else, numbers that cannot be.
    AnswerNo
        The batch cannot be made again exactly, or the run has too few ordinary ones.
    """
    if num_repeats < 2 or num_placebos < 4 or num_after < 0:
        raise UsageError(
            f"{num_repeats} repeats and {num_placebos} placebo batches tell nothing",
            allowed="at least 2 repeats, which give the baseline, and 4 placebo batches",
        )
    leaf = run.attempts().lineage(attempt)[-1].number
    owner = run.attempts().attempt(run.attempts().owner(run.step(step), leaf))
    Lookup(run).find(step, attempt=leaf)
    notes: list[str] = []
    facts, log, want = facts_of(run.read().entries), logged(run, leaf), wanted(run, step, leaf, event)
    given = None if checkpoints is None else {each: str(path) for each, path in checkpoints.items()}
    before, older = checkpoints_of(run, step, leaf, given, earlier)
    if older is None:
        notes.append("one checkpoint alone is known: whether an earlier state shows it was not looked at")
    ranks = choose_ranks(run, run.step(step), owner.geometry.world_size, most_ranks)
    rebuilding = Rebuilding(run=run, attempt=leaf, roots=roots, transform=transform, collate=collate, ranks=ranks)
    batch = rebuilding.batch(step)
    placebos = placebo_batches(
        rebuilding, batch, event=want.steps, num_placebos=num_placebos, losses=log.losses, notes=notes
    )
    num_after = min(num_after, len(placebos) - 1)
    plans: list[tuple[WhichCheckpoint, int, str, range]] = [("before", *before, range(before[0], step))]
    if older is not None:
        plans.append(("earlier", *older, range(0)))
    num_updates = 2 if num_after else 0
    cost = cost_of(
        train_steps=num_repeats * ((step - before[0]) + num_updates * len(plans)),
        measured_batches=num_repeats * (1 + len(placebos)) * len(plans) + (1 if float32 else 0),
        forward_batches=num_repeats * num_updates * num_after * len(plans),
        seconds_per_step=log.seconds_per_step or facts.checkpoints.seconds_per_step,
        num_nodes=facts.checkpoints.num_nodes or len({each.host for each in run.begun(owner.number).ranks}) or None,
        sampled=1.0 if ranks is None else len(ranks) / owner.geometry.world_size,
    )
    name = node or platform.node() or "unknown"
    report = ExperimentReport(
        run=run.run_id,
        attempt=owner.number,
        step=step,
        event_class=want.event_class,
        signal=want.asked.signal,
        direction="up" if want.asked.sign > 0 else "down",
        effect=want.asked.effect,
        node=name,
        other_node=None,
        batch=batch.digest,
        checkpoints=tuple(_used(plan, None) for plan in plans),
        placebos=tuple(
            PlaceboBatch(step=each.step, digest=each.digest, trained_before=each.step < step) for each in placebos
        ),
        sampled_ranks=ranks,
        states=(),
        cells=(),
        outcome=Replay.NOT_RUN,
        damage=Told.UNKNOWN,
        damage_nats=None,
        float_check=None,
        layers=(),
        cost=cost,
        notes=tuple(notes),
        summary=f"not run; it would cost {cost.text}",
    )
    given_reports = read_reports(others)
    check_given(report, given_reports)
    if dry_run:
        return report
    dtype = run_dtype if run_dtype is not None else run_dtype_of(facts)
    replayer = Replayer(
        rebuilding=rebuilding,
        batch=batch,
        placebos=placebos,
        load=load,
        loss=loss,
        update=update or default_update(facts.optimizer.clip_norm, dict(log.rates), notes),
        num_repeats=num_repeats,
        num_after=num_after,
        dtype=dtype,
        node=name,
    )
    replayed = {plan[0]: replayer.replay(plan[0], plan[2], plan[3]) for plan in plans}
    states = tuple(each.result for each in replayed.values())
    doubts = _doubts(replayed["before"].result, log, want, notes)
    report = msgspec.structs.replace(
        report,
        checkpoints=tuple(_used(plan, replayed[plan[0]].state) for plan in plans),
        states=states,
        layers=_layers(replayed["before"]),
    )
    found = others_of(run, report, given_reports, notes)
    other = found[-1] if found else None
    if len(found) > 1:
        notes.append(f"of {len(found)} other nodes the newest is merged: {', '.join(each.node for each in found)}")
    levels = levels_of(log, want, step, replayed["before"].result, report.checkpoints)
    cells, outcome = cells_of(states, name, other, want.asked, doubts, levels)
    if outcome is Replay.STATE:
        _point_back(replayed["before"].result, notes)
    damage, damage_nats = damage_of(replayed["before"].result)
    report = msgspec.structs.replace(
        report, other_node=None if other is None else other.node, cells=cells, outcome=outcome,
        damage=damage, damage_nats=damage_nats,
    )  # fmt: skip
    if float32:
        report = msgspec.structs.replace(report, float_check=_floats(report, replayed["before"], replayer, want))
    report = msgspec.structs.replace(report, notes=tuple(notes), summary=_summary(report))
    return _recorded(run, report, by=by) if record else report


def _used(plan: tuple[WhichCheckpoint, int, str, range], state: str | None) -> CheckpointUsed:
    which, next_step, path, steps = plan
    return CheckpointUsed(checkpoint=which, next_step=next_step, path=path, state=state, trained_steps=len(steps))


def _doubts(before: StateResult, log: Logged, want: Wanted, notes: list[str]) -> dict[str, str]:
    """Why nothing counts from the checkpoint before: the state that was reached is not the run's.

    Losses of the last steps on the way are held against those that were logged. They may differ by rounding, over
    hundreds of steps by more: by half of the event (or of what stands out), and the replay is of another state.
    """
    steps = [label for label, _, _ in before.repeats[0].trained][-_COMPARED_STEPS:]
    if not steps:
        return {}
    known = [label for label in steps if math.isfinite(log.losses.get(label, math.nan))]
    if not known:
        notes.append("no loss was logged on the way to the step: whether the replay follows the run is not known")
        return {}
    apart = 0.0
    for repeat in before.repeats:
        losses = {label: number(loss) for label, loss, _ in repeat.trained}
        apart = max(apart, *(abs(losses[label] - log.losses[label]) for label in known))
    effect = want.asked.effect if want.asked.signal == "loss" else None
    limit = (ordinary_threshold(before) if effect is None else effect) / 2
    text = f"replayed losses lie within {apart:.3g} nats of those logged in steps {known[0]:,}:{known[-1] + 1:,}"
    notes.append(text)
    if apart <= limit:
        return {}
    return {"before": f"{text}, which is no replay of this run (give update=, and the loss that was logged)"}


def _point_back(before: StateResult, notes: list[str]) -> None:
    """Name the step on the way that is to be looked at first: the loss of a step is that from before its update."""
    trained = [(number(norm), label) for label, _, norm in before.repeats[0].trained]
    if not trained:
        return
    norm, label = max(trained, key=lambda each: (not math.isfinite(each[0]), each[0]))
    notes.append(
        f"the state may have become what it is on the way: of the replayed steps, {label:,} has the largest gradient "
        f"norm ({norm:.3g}); run the experiment on that step as well"
    )


def _layers(before: Replayed) -> tuple[LayerNorm, ...]:
    """Gradient norms by layer, the ones that rose most first."""
    layers = [
        LayerNorm(layer=layer, batch=spelled(batch), placebo=spelled(median(placebos)))
        for layer, (batch, placebos) in before.layers.items()
    ]

    def ratio(each: LayerNorm) -> float:
        batch, placebo = number(each.batch), number(each.placebo)
        return batch / placebo if math.isfinite(batch) and placebo > 0 else math.inf

    return tuple(sorted(layers, key=ratio, reverse=True))


def _floats(report: ExperimentReport, before: Replayed, replayer: Replayer, want: Wanted) -> FloatCheck:
    here = "this" if report.other_node is None else None
    cell = next(
        each
        for each in report.cells
        if (each.checkpoint, each.batch) == ("before", "event") and (here is None or each.node == here)
    )
    return check_floats(
        before.at_step,
        replayer.batch,
        replayer.loss,
        asked=want.asked,
        cell=cell,
        measured=before.result.repeats[0].batch,
        ordinary=ordinary_of(before.result, want.asked),
        dtype=replayer.dtype,
        key=(report.batch,),
    )


_SAYS = {
    Replay.BATCH: "the batch shows it from both checkpoints, placebo batches from neither",
    Replay.BATCH_FROM_THIS_STATE: "the batch shows it from the checkpoint before, not from an earlier one",
    Replay.STATE: "placebo batches show it as well: this state does it, whatever is fed",
    Replay.NODE: "it shows on one node and not on another, with equal inputs",
    Replay.NOT_REPRODUCED: "nothing shows it, which proves nothing by itself",
    Replay.INCONCLUSIVE: "inconclusive",
    Replay.NOT_RUN: "not run",
}


def _summary(report: ExperimentReport) -> str:
    parts = [_SAYS[report.outcome]]
    if report.outcome is Replay.INCONCLUSIVE:
        event = next(each for each in report.cells if (each.checkpoint, each.batch) == ("before", "event"))
        parts.append(event.text)
    if report.damage is Told.YES:
        size = "" if report.damage_nats is None else f" ({report.damage_nats:+.3g} nats)"
        parts.append(f"its update raises the loss of other batches{size}")
    elif report.damage is Told.NO:
        parts.append("its update does other batches no harm")
    if report.float_check is not None and report.float_check.told is Told.YES:
        parts.append(f"in {report.float_check.run_dtype} and not in float32")
    before = report.checkpoints[0]
    parts.append(
        f"from step {before.next_step:,} on, {before.trained_steps:,} steps replayed, "
        f"{len(report.states[0].repeats)} repeats, {len(report.placebos)} placebo batches"
    )
    return "; ".join(parts)


def _recorded(run: Run, report: ExperimentReport, *, by: str | None) -> ExperimentReport:
    digest = keep_document(run.layout, "experiment", encode_report(report))
    check = report.float_check
    note = ExperimentDone(
        attempt=report.attempt,
        step=run.step(report.step),
        outcome=report.outcome,
        number_type=Told.UNKNOWN if check is None else check.told,
        first_layer=None if check is None else check.first_layer,
        results=digest,
        summary=report.summary,
    )
    run.journal.append(note, by=by)
    return msgspec.structs.replace(report, results=digest)
