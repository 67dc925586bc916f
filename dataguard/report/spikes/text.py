"""What is said of training curves to people: events, alarm rates, and what two logs share?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataguard.core.spikes import SpikeEvent
from dataguard.report.tables import table
from dataguard.triage.detect.answers import ComparedLogs, Comparison, ProfileRate, SpikesAnswer
from dataguard.triage.detect.detection import Detection
from dataguard.triage.detect.profiles import DEFAULT
from dataguard.triage.detect.recurrence import fullest_recurrence
from dataguard.triage.detect.spikes import Examined

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "MOST_EVENTS",
    "comparison_texts",
    "head_texts",
    "rate_of",
    "recurrence_texts",
    "render_comparison",
    "render_spikes",
    "shift_text",
    "spike_text",
]

MOST_EVENTS = 200
"""Events that are listed; ``--json`` has all."""
_MOST_SHARED = 50


def render_spikes(examined: Examined) -> Iterator[str | Table]:
    """What ``spikes`` says of one log."""
    detection = examined.detection
    yield from head_texts(examined)
    events = detection.events
    if events:
        yield ""
        yield _event_table(events[:MOST_EVENTS])
        if len(events) > MOST_EVENTS:
            yield f"... and {len(events) - MOST_EVENTS:,} more (--json has all)"
    yield ""
    if detection.profile == DEFAULT:
        yield spike_text(examined.answer)
    yield shift_text(detection)
    for change in detection.changes[:MOST_EVENTS]:
        yield f"change at step {change.step:,}: {change.what}{' (seen in the log)' if change.is_seen else ''}"
    yield ""
    yield table(
        ("profile", "alarms", "per 1,000 steps"),
        ((each.profile, each.alarms, rate_of(each)) for each in examined.answer.profiles),
        right=("alarms", "per 1,000 steps"),
        title="alarms of each profile on this log",
    )
    if detection.notes:
        yield ""
        yield from (f"note: {note}" for note in detection.notes)


def head_texts(examined: Examined) -> Iterator[str]:
    """The first lines: what was judged, and how many events of which class there are."""
    answer, detection = examined.answer, examined.detection
    steps = answer.steps
    yield (
        f"{answer.log}: {examined.log.format}, steps {steps.first:,} to {steps.last:,}, {steps.logged:,} of them with "
        f"a loss; profile {detection.profile}"
    )
    if not detection.num_judged and not detection.events:
        yield "nothing was judged: too few points of the loss"
        return
    counts = Counter(event.event_class.value for event in detection.events)
    if counts:
        number = len(detection.events)
        which = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
        yield f"{number:,} event{'' if number == 1 else 's'}: {which}"
    else:
        yield "no event"
    for each in answer.unheard[:MOST_EVENTS]:
        yield (
            f"not known whether steps {each.start:,}:{each.stop:,} are a spike: {each.size_nats:.3g} nats above those "
            f"before them ({each.sigmas:.3g} times their own scale), and one had to reach "
            f"{each.smallest_spike_nats:.3g} nats to show there"
        )
    yield from recurrence_texts(detection)


def recurrence_texts(detection: Detection) -> Iterator[str]:
    """That spikes recur (row A10): one cause, which skipping one of them does not take away."""
    found = fullest_recurrence(detection.events)
    if found is None or detection.profile != DEFAULT:
        return
    signs = [", each of the last three larger than the one before"] if found.is_growing else []
    if found.has_drift:
        signs.append(", and something climbs beside them")
    yield (
        f"spikes recur: {found.num_events:,} that say something of the model's state begin or go on within steps "
        f"{max(found.start, 0):,}:{found.stop:,}{''.join(signs)}; skipping one is no cure, look at the configuration"
    )


def spike_text(answer: SpikesAnswer) -> str:
    """The least spike that the log can show."""
    least = answer.smallest_spike
    if least is None:
        return "smallest spike that this log can show: not known (too short)"
    return (
        f"smallest spike that this log can show: {least.typical_nats:.3g} nats at the median step, "
        f"{least.hardest_nats:.3g} where it is hardest (step {least.hardest_step:,})"
    )


def shift_text(detection: Detection) -> str:
    """The least that the log can show."""
    if detection.smallest_shift_nats is None:
        return "smallest lasting shift that this log can show: not known (too short)"
    return (
        f"smallest lasting shift that this log can show: {detection.smallest_shift_nats:.3g} nats (four standard "
        f"deviations of the difference of two {detection.shift_block_points}-point means)"
    )


def rate_of(rate: ProfileRate) -> str:
    """Alarms for each 1,000 steps, with as many digits as say something."""
    return f"{rate.per_1000:.3g}"


def render_comparison(compared: ComparedLogs) -> Iterator[str | Table]:
    """What ``spikes A B`` says of both together."""
    comparison = compared.comparison
    first, second = (answer.log for answer in compared.logs)
    yield "both together"
    yield from comparison_texts(comparison, first, second)
    if comparison.shared:
        yield ""
        yield table(
            ("step", "nats in the first", "sigmas", "nats in the second", "sigmas "),
            (
                (
                    each.step,
                    *(f"{value:.3g}" for pair in zip(each.size_nats, each.sigmas, strict=True) for value in pair),
                )
                for each in comparison.shared[:_MOST_SHARED]
            ),
            right=("step", "nats in the first", "sigmas", "nats in the second", "sigmas "),
        )
        if len(comparison.shared) > _MOST_SHARED:
            yield f"... and {len(comparison.shared) - _MOST_SHARED:,} more (--json has all)"


def comparison_texts(comparison: Comparison, first: str, second: str) -> Iterator[str]:
    """What follows from holding two logs against each other."""
    yield f"{comparison.num_common_steps:,} steps with a loss in both"
    for i, (own, other) in enumerate(((first, second), (second, first))):
        yield (
            f"{comparison.num_recurring[i]:,} of {comparison.num_spikes[i]:,} spikes of {own} recur in {other} at the "
            f"same step (by chance {comparison.expected_by_chance[i]:.3g}; "
            f"p = {_chance(comparison.log10_chance[i])})"
        )
    if comparison.correlation is not None and comparison.correlation_sigmas is not None:
        yield (
            f"what both do from step to step correlates by {comparison.correlation:+.3f} "
            f"({comparison.correlation_sigmas:+.1f} standard errors)"
        )
    if comparison.one_data_order:
        yield (
            "one data order: what spikes in both are hard batches, whose loss belongs to the data"
            if comparison.shared
            else "one data order"
        )
    elif comparison.one_data_order is False:
        yield "no sign of one data order"
    else:
        yield "whether they have one data order is not known: too little in common"


def _chance(log10: float) -> str:
    if log10 <= -300:
        return "0" if log10 <= -1e8 else f"1e{log10:.0f}"
    return f"{10**log10:.2g}"


def _event_table(events: tuple[SpikeEvent, ...]) -> Table:
    return table(
        ("class", "steps", "peak", "nats", "sigmas", "aftermath", "grad norm", "onset", "shown by"),
        (
            (
                event.event_class.value,
                f"{event.start:,}:{event.stop:,}{' (goes on)' if event.is_open else ''}",
                event.peak,
                _signed(event.size_nats),
                None if event.sigmas is None else f"{event.sigmas:.1f}",
                _signed(event.aftermath_nats),
                None if event.grad_norm_ratio is None else f"x {event.grad_norm_ratio:.3g}",
                event.onset,
                event.signal if event.rank is None else f"{event.signal}, rank {event.rank}",
            )
            for event in events
        ),
        right=("peak", "nats", "sigmas", "aftermath", "grad norm", "onset"),
    )


def _signed(nats: float | None) -> str | None:
    return None if nats is None else f"{nats:+.3g}"
