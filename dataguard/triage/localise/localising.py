"""Which ranks, microbatches, samples and shards does an event point at? The order in which it is looked for.

1. The steps: those of the event, from one before its onset (`searched`), and of the background (`history`); the losses
   of samples and ranks there from the telemetry (`logged`). All that is read is `gathered`.
2. Samples by their loss (`sample_losses`), by their signals, read again and as recorded (`choosing`, `contents`,
   `signals`), copies (`copies`), shards and sources (`shares`); ranks (`ranks`).
3. What stands out is said with the chance of it. `data` says yes where one of three families of comparisons does,
   signals, copies, shards: each corrected for how many there were, each with a third of `FALSE_ALARMS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import Told
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.run import Run
from dataguard.triage.localise import telling
from dataguard.triage.localise.answers import Localised, LocalisedShare, LocalisedSignal, LookedAt
from dataguard.triage.localise.copies_answer import copies_answer, with_earlier_deliveries
from dataguard.triage.localise.gathered import Gathered, gather
from dataguard.triage.localise.judging import Contents, copies_of, look_at_contents
from dataguard.triage.localise.listing import Standing, microbatches, samples_worst_first
from dataguard.triage.localise.rank_answer import RankFindings, answer_of_ranks, pattern_of
from dataguard.triage.localise.ranks import judge_ranks
from dataguard.triage.localise.sample_losses import SampleLosses, judge_losses
from dataguard.triage.localise.shares import Share, hard_for_their_step, share_of_each
from dataguard.triage.localise.signals import NEAR_CHANCE

__all__ = ["FALSE_ALARMS", "localise"]

FALSE_ALARMS = 0.01
"""Chance that `Localised.data` may say yes of an event that no data made: one in a hundred such events, chosen before
anything was measured."""
_FAMILY = FALSE_ALARMS / 3


def localise(
    run: Run,
    event: SpikeEvent,
    *,
    attempt: int | None = None,
    events: Sequence[SpikeEvent] = (),
    roots: Mapping[str, str] | None = None,
    most: int = 20,
) -> Localised:
    r"""Which ranks, microbatches, samples, signals, shards and sources stand out at an event, worst first.

    At most 512 samples are read again, at most 60,000 samples of the background looked up; the background is the same
    whenever it is drawn.

    Parameters
    ----------
    run, event
        What happened, steps in the trainer's labels.
    attempt
        The lineage of this attempt; by default the newest leaf's.
    events
        All events of that lineage: what else the shards were in when the loss misbehaved.
    roots
        Where sources lie now, where that is another place than the run remembers.
    most
        List so many of each.

    Raises
    ------
    NotInRun
        The run has no such attempt.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dataguard import Corpus, Geometry, Plan
    >>> from dataguard.core.spikes import EventClass
    >>> from dataguard.corpus import build_manifest_file
    >>> from dataguard.loader.rehearse import rehearse
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "web").mkdir()
    >>> _ = (here / "web" / "a.jsonl").write_text('{"text": "one"}\n' * 64)
    >>> _ = build_manifest_file([str(here / "web")], here / "M.parquet")
    >>> run = Run.open(here / "run", plan=Plan(Corpus.open(here / "M.parquet"), seed=17, global_batch=4))
    >>> _ = rehearse(run, geometry=Geometry(world_size=1, microbatch_size=4), steps=12)
    >>> event = SpikeEvent(event_class=EventClass.HARD_BATCH, start=11, stop=12, peak=11, size_nats=1.0, sigmas=9.0)
    >>> found = localise(run, event)
    >>> found.looked_at.steps, found.data, found.pattern
    ((10, 12), <Told.NO: 'no'>, <RankPattern.UNKNOWN: 'unknown'>)
    """
    g = gather(run, event, attempt=attempt, events=events)
    losses = judge_losses(
        g.samples, g.loss, g.before, g.loss_before, g.quiet, falls=event.event_class is EventClass.LOSS_DIP
    )
    contents = look_at_contents(g, losses, roots)
    signals, beyond, out_signals = _signals(g, contents)
    copies = copies_of(g)
    copies_out = copies.p_value is not None and copies.p_value < _FAMILY
    num_judged = max(1, int(np.count_nonzero(~np.isnan(losses.chance))))
    standing = Standing(
        losses=losses,
        by_loss=(losses.chance * num_judged < FALSE_ALARMS) & (losses.own_chance * num_judged < FALSE_ALARMS),
        beyond=beyond,
        copied=g.is_tested & copies_out & (copies.num_copies > 0),
        deviations=contents.deviations,
        values=contents.values,
        out_signals=out_signals,
        copies=copies,
        falls=event.event_class is EventClass.LOSS_DIP,
        bar=FALSE_ALARMS / max(1, len(g.samples) * contents.num_measures),
    )
    shares = _shares(g, losses, standing)
    families = [
        name
        for name, stands_out in (
            ("signals", any(each.stands_out for each in signals)),
            ("copies", copies_out),
            ("shards", any(each.stands_out for each in shares)),
        )
        if stands_out
    ]
    data = Told.YES if families else Told.NO if _was_looked_at(contents) else Told.UNKNOWN
    ranks = _rank_findings(g)
    counts = np.unique(g.samples.rank[standing.outlying], return_counts=True)
    all_ranks = answer_of_ranks(ranks, dict(zip(*(each.tolist() for each in counts), strict=True)), run.first_label)
    pattern, rank_texts = pattern_of(ranks, all_ranks, _held_by(g, standing))
    looked = _looked_at(g, contents)
    listed = with_earlier_deliveries(g, samples_worst_first(g.samples, standing, g.names, run.first_label, most))
    batches = microbatches(g.samples, standing, g.before, run.first_label, most)
    duplicates = copies_answer(g, copies, stands_out=copies_out)
    shards, sources = ([each for each in shares if each.kind == kind] for kind in ("shard", "source"))
    num_comparisons = contents.num_comparisons + len(shares) * 2 + (copies.p_value is not None)
    texts = (
        telling.of_data(data, FALSE_ALARMS, num_comparisons, families),
        telling.of_looked(looked),
        *rank_texts,
        *telling.of_microbatches(batches),
        *telling.of_samples(listed, int(standing.outlying.sum()), looked),
        *telling.of_signals(signals),
        *telling.of_copies(duplicates),
        *telling.of_shares(shards),
        *(telling.of_shares(sources) if len(g.names[0].names) > 1 else ()),
    )
    return Localised(
        attempt=g.leaf,
        looked_at=looked,
        pattern=pattern,
        data=data,
        false_alarms=FALSE_ALARMS,
        num_comparisons=num_comparisons,
        ranks=all_ranks[:most],
        microbatches=batches,
        samples=listed,
        signals=tuple(signals[:most]),
        duplicates=duplicates,
        shards=tuple(shards[:most]),
        sources=tuple(sources[:most]),
        texts=texts,
        notes=tuple(dict.fromkeys(g.notes)),
    )


def _was_looked_at(contents: Contents) -> bool:
    """Whether signals of most of the samples chosen were known, and there was a background to hold them against."""
    read = int(contents.scored.rebuilt.sum())
    rebuilt = contents.num_chosen > 0 and read * 2 > contents.num_chosen
    compared = any(one.origin == "rebuilt" for one, _ in contents.compared)
    return (rebuilt and compared) or contents.recorded


def _signals(
    g: Gathered, contents: Contents
) -> tuple[list[LocalisedSignal], NDArray[np.bool_], dict[int, tuple[str, ...]]]:
    """Signals by their chance, samples beyond the bounds of those that stand out, and by which."""
    answers, beyond = [], np.zeros(len(g.samples), np.bool_)
    by_sample: dict[int, tuple[str, ...]] = {}
    for one, places in contents.compared:
        corrected = min(1.0, one.p_value * contents.num_comparisons)
        stands_out = corrected < _FAMILY and (one.near_p_value is None or one.near_p_value < NEAR_CHANCE)
        answers.append(
            LocalisedSignal(
                signal=one.measure,
                unit=one.unit,
                source=g.names[0].names[one.source],
                origin=one.origin,
                side=one.side,
                step=None if one.step is None else g.run.label(one.step),
                num_beyond=one.num_beyond,
                num_samples=one.num_samples,
                num_beyond_before=one.num_beyond_before,
                num_samples_before=one.num_samples_before,
                bound=one.bound,
                usual=one.usual,
                extreme=one.extreme,
                p_value=one.p_value,
                near_p_value=one.near_p_value,
                corrected=corrected,
                stands_out=stands_out,
            )
        )
        if stands_out:
            for sample in places[one.beyond].tolist():
                beyond[sample] = True
                known = by_sample.get(sample, ())
                if one.measure not in known:
                    by_sample[sample] = (*known, one.measure)
    return answers, beyond, by_sample


def _shares(g: Gathered, losses: SampleLosses, standing: Standing) -> list[LocalisedShare]:
    """Shards and sources, those that stand out first."""
    hard = hard_for_their_step(g.samples, losses, g.before)
    tested = np.flatnonzero(g.is_tested)
    found = share_of_each(
        g.samples.part(tested),
        standing.outlying[tested],
        None if hard is None else hard[tested],
        None if hard is None else ~np.isnan(losses.excess[tested]),
        g.before,
        g.steps_out,
        names=g.names,
    )
    shares = [(_share(each, len(found)), _hardness(each, g, losses)) for each in found]
    # Those that stand out first, by how far; of the others the hardest, since it is the one to look at.
    shares.sort(
        key=lambda each: (
            not each[0].stands_out,
            -each[0].num_outlying,
            each[0].corrected if each[0].stands_out else 1.0,
            -each[1],
            each[0].p_value,
            each[0].name,
        )
    )
    return [share for share, _ in shares]


def _hardness(each: Share, g: Gathered, losses: SampleLosses) -> float:
    """The mean excess of the losses of its samples, in nats; no number at all where none is known."""
    numbers = g.samples.shard if each.kind == "shard" else g.samples.source
    excess = losses.excess[g.is_tested & (numbers == each.number) & ~np.isnan(losses.excess)]
    return float(excess.mean()) if len(excess) else -np.inf


def _share(each: Share, num_shares: int) -> LocalisedShare:
    corrected = min(1.0, each.deciding * num_shares)
    return LocalisedShare(
        kind=each.kind,
        name=each.name,
        num_samples=each.num_samples,
        num_outlying=each.num_outlying,
        num_expected=each.num_expected,
        num_samples_before=each.num_before,
        p_value=each.p_value,
        outlying_p_value=each.outlying_p_value,
        steps_before=each.steps_before,
        steps_before_out=each.steps_before_out,
        num_steps_before=each.num_steps_before,
        num_steps_before_out=each.num_steps_before_out,
        steps_p_value=each.steps_p_value,
        corrected=corrected,
        stands_out=corrected < _FAMILY,
    )


def _rank_findings(g: Gathered) -> RankFindings:
    out = [step for step, is_out in g.steps_out.items() if is_out]
    return RankFindings(
        loss=judge_ranks(g.own_loss, g.tested, g.first, out=out),
        grad_norm=judge_ranks(g.own_norm, g.tested, g.first, out=out, logarithm=True),
        num_ranks=g.num_ranks,
        is_reduced=g.is_reduced,
    )


def _held_by(g: Gathered, standing: Standing) -> set[int]:
    """Ranks that held samples which stand out by what they are, or of whose samples at most half have all the loss."""
    tested = g.is_tested
    held = set(g.samples.rank[tested & (standing.beyond | standing.copied)].tolist())
    for rank in np.unique(g.samples.rank[tested & standing.by_loss]).tolist():
        steps = np.unique(g.samples.step[tested & standing.by_loss & (g.samples.rank == rank)])
        mine = tested & (g.samples.rank == rank) & np.isin(g.samples.step, steps)
        if 2 * int((mine & standing.by_loss).sum()) <= int(mine.sum()):
            held.add(rank)
    return held


def _looked_at(g: Gathered, contents: Contents) -> LookedAt:
    start, stop = g.searched.steps
    there = set(g.samples.steps.tolist())
    read, read_before = (int(each.rebuilt.sum()) for each in (contents.scored, contents.scored_before))
    given = g.run.plan_document().root.form == "given"
    recorded = contents.recorded
    failed = 0 if given else len(contents.scored.rebuilt) - read + len(contents.scored_before.rebuilt) - read_before
    lost = dict.fromkeys((*contents.scored.unreadable_shards, *contents.scored_before.unreadable_shards))
    tested = g.samples.held & g.is_tested
    return LookedAt(
        steps=(start, stop),
        tested=g.searched.tested,
        missing_steps=tuple(step for step in range(start, stop) if g.run.step(step) not in there),
        num_samples=len(g.samples),
        num_steps_before=len(g.before.steps),
        num_samples_before=len(g.before),
        num_losses=int(np.count_nonzero(~np.isnan(g.loss))),
        num_losses_before=int(np.count_nonzero(~np.isnan(g.loss_before))),
        num_scored=max(read, int(tested.sum()) if recorded else 0),
        num_scored_before=max(read_before, len(g.before) if recorded else 0),
        num_unreadable=failed,
        unreadable_shards=tuple(lost)[:20],
        scored_from="both" if read and recorded else "rebuilt" if read else "recorded" if recorded else "none",
    )
