"""What is said of an event's data, a line each, with the numbers?"""

from __future__ import annotations

from collections.abc import Sequence

from dataguard.core.evidence import Told
from dataguard.triage.localise.answers import (
    LocalisedDuplicates,
    LocalisedMicrobatch,
    LocalisedSample,
    LocalisedShare,
    LocalisedSignal,
    LookedAt,
)

__all__ = ["number", "of_copies", "of_data", "of_looked", "of_microbatches", "of_samples", "of_shares", "of_signals"]

_FEW = 3
FEW_BY_CHANCE = 0.01
"""Uncorrected chance below which a signal is told beside those that stand out."""


def number(value: float) -> str:
    """A chance as people read it.

    >>> number(0.25), number(3.2e-7), number(0.0)
    ('0.25', '3e-07', 'below 1e-300')
    """
    return "below 1e-300" if value == 0 else f"{value:.2g}" if value >= 0.001 else f"{value:.0e}"


def of_looked(looked: LookedAt) -> str:
    """What was looked at."""
    start, stop = looked.steps
    text = (
        f"looked at steps {start:,}:{stop:,} ({looked.num_samples:,} samples), held against "
        f"{looked.num_samples_before:,} samples of {looked.num_steps_before:,} steps before"
    )
    if looked.missing_steps:
        shown = ", ".join(f"{step:,}" for step in looked.missing_steps[:_FEW])
        text += f"; nothing is recorded of {len(looked.missing_steps):,} of the steps ({shown})"
    if looked.num_scored:
        text += (
            f"; signals of {looked.num_scored:,} samples and {looked.num_scored_before:,} before ({looked.scored_from})"
        )
    if looked.num_unreadable:
        shown = ", ".join(looked.unreadable_shards[:_FEW])
        text += f"; {looked.num_unreadable:,} samples cannot be read now ({shown})"
    return text


def of_samples(samples: Sequence[LocalisedSample], num_outlying: int, looked: LookedAt) -> list[str]:
    """Whose loss or content stands out."""
    if not looked.num_samples:
        return []
    texts = []
    if not looked.num_losses:
        texts.append("samples: losses of single samples were not logged (Monitor.log_samples)")
    if not num_outlying:
        texts.append(f"samples: none of {looked.num_samples:,} stands out")
        return texts
    worst = [sample for sample in samples if sample.outlying][:_FEW]
    told = "; ".join(
        f"step {each.step:,} slot {each.slot} = {each.shard}:{each.row} ({', '.join(each.why)})" for each in worst
    )
    return [*texts, f"samples: {num_outlying:,} of {looked.num_samples:,} stand out: {told}"]


def of_microbatches(microbatches: Sequence[LocalisedMicrobatch]) -> list[str]:
    """The worst microbatch, where its loss is known."""
    known = [each for each in microbatches if each.loss is not None and each.loss_z is not None]
    if not known:
        return []
    worst = known[0]
    where = f"step {worst.step:,} rank {worst.rank} microbatch {worst.microbatch}"
    return [f"microbatches: worst is {where}: loss {worst.loss:.3f} (z {worst.loss_z:+.1f})"]


def of_signals(signals: Sequence[LocalisedSignal]) -> list[str]:
    """Signals that stand out, else the nearest to it."""
    out = [each for each in signals if each.stands_out]
    if not out:
        if not signals:
            return []
        nearest = signals[0]
        counted = f"{nearest.num_beyond} of {nearest.num_samples} beyond {nearest.bound:.4g}"
        return [
            f"signals: none stands out; nearest is {nearest.signal} ({counted}, chance {number(nearest.corrected)})"
        ]
    told = [_signal(each) for each in out[:5]]
    if out[5:]:
        names = ", ".join(f"{each.signal} ({each.num_beyond} of {each.num_samples})" for each in out[5:])
        told.append(f"signals: these stand out as well: {names}")
    # Too few samples to say so by each of these alone, and beyond all of the background.
    also = [
        each
        for each in signals
        if not each.stands_out and each.num_beyond and not each.num_beyond_before and each.p_value < FEW_BY_CHANCE
    ]
    if also:
        names = ", ".join(f"{each.signal} ({each.num_beyond} of {each.num_samples})" for each in also[:5])
        told.append(f"signals: beyond all of the background as well, no proof by themselves: {names}")
    return told


def _signal(each: LocalisedSignal) -> str:
    beyond = "above" if each.side == "high" else "below"
    where = "the steps together" if each.step is None else f"step {each.step:,}"
    if each.signal.startswith("rule "):
        what = f"{each.signal} fired"
    else:
        what = f"{each.signal} {beyond} {each.bound:.4g} {each.unit}"
    usual = "" if each.signal.startswith("rule ") else f"; usual {each.usual:.4g}, here up to {each.extreme:.4g}"
    if each.side == "low":
        usual = usual.replace("up to", "down to")
    return (
        f"signals: {what} in {each.num_beyond} of {each.num_samples} samples of {each.source} at {where}, in "
        f"{each.num_beyond_before} of {each.num_samples_before} before{usual}; chance {number(each.corrected)}"
    )


def of_copies(found: LocalisedDuplicates) -> list[str]:
    """Copies and rows that came before."""
    texts = []
    if found.num_rows_seen_before:
        share = found.num_rows_seen_before_background
        usual = "" if share is None else f", as of {share:,} of as many before"
        first = "" if found.first_seen_step is None else f", first at step {found.first_seen_step:,}"
        texts.append(
            f"duplicates: {found.num_rows_seen_before:,} of {found.num_samples:,} samples are rows of an earlier "
            f"delivery{first}{usual}"
        )
    if found.p_value is None or found.corrected is None:
        return texts
    texts.append(
        f"duplicates: {found.num_copies:,} of {found.num_samples:,} samples hold what another row holds, "
        f"{found.num_copies_before:,} of {found.num_samples_before:,} before; of one step at most "
        f"{found.most_alike_in_step} are alike ({found.most_alike_in_step_before} before); "
        f"chance {number(found.corrected)}"
    )
    return texts


def of_shares(shares: Sequence[LocalisedShare]) -> list[str]:
    """Shards and sources that stand out, else the one with the most of the event."""
    shown = [each for each in shares if each.stands_out][:_FEW] or list(shares[:1])
    return [_share(each) for each in shown]


def _share(each: LocalisedShare) -> str:
    text = (
        f"{each.kind} {each.name}: {each.num_samples} samples ({each.num_outlying} stand out), "
        f"{each.num_expected:.2g} by its share of the steps before (chance {number(each.p_value)})"
    )
    if each.steps_before and each.num_steps_before_out:
        text += (
            f"; of {each.steps_before:,} earlier steps with it the loss stood out at {each.steps_before_out:,}, of all "
            f"{each.num_steps_before:,} at {each.num_steps_before_out:,}"
        )
        if each.steps_p_value is not None:
            text += f" (chance {number(each.steps_p_value)})"
    if each.outlying_p_value is not None:
        text += f"; chance of so many of the hard samples in it {number(each.outlying_p_value)}"
    return text + ("; stands out" if each.stands_out else "")


def of_data(data: Told, false_alarms: float, num_comparisons: int, families: Sequence[str]) -> str:
    """The answer in one line."""
    bound = f"a false alarm in at most {false_alarms:.0%} of events, {num_comparisons:,} comparisons"
    if data is Told.YES:
        return f"data: yes, by {' and '.join(families)} ({bound})"
    if data is Told.NO:
        return f"data: within the background of the run ({bound})"
    return "data: not known; too little could be looked at"
