"""What of the configuration should change, and by which sign?

Each change answers one sign, and none is proposed without its sign:

| sign | where it is from | change |
|---|---|---|
| events recur | N spikes within M steps (below) | a lower peak rate (20 to 40 % less, second document) |
| attention logits climb | a drift of ``attention_logit_max`` | QK-norm (or QK-clip) |
| output logits climb | a drift of ``log_z`` | z-loss |
| the gradient norm climbs | a drift of ``grad_norm`` | a lower peak rate |
| the event comes with the end of warm-up | warm-up, from the facts | a longer warm-up |
| warm-up is shorter than 1 % of the run | the facts | a longer warm-up |
| coordinates sit at the epsilon floor | a drift of ``epsilon_floor_share`` | a larger epsilon, state in float32 |
| second moments in less than float32 | the facts, of an event of the optimizer | state in float32 |
| NaN or infinity, computed in float16 | the class of the event, the facts | bfloat16 |
| it goes in the run's type, not in float32 | an experiment | bfloat16, or float32 where it is lost |

**A10.** "Recurring" is three or more spikes of a kind that leaves damage within 1,000 steps. PaLM met about 20 in
some 255,000 steps; at that rate two more within 1,000 steps of one have a chance of 0.3 % (Poisson, 0.078 expected), so
three are no coincidence of isolated spikes. With climbing attention logits the configuration is to blame, and skipping
batches treats a symptom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.core.trainer import TrainerFacts
from dataguard.triage.respond.answers import Change

__all__ = ["Recurrence", "Sign", "configuration_advice", "is_configuration", "recurrence", "signs_of"]

LEAST_EVENTS = 3
WITHIN_STEPS = 1_000
LEAST_WARMUP_SHARE = 0.01
"""Of all steps: what the hardening list says in words (its figure, 1T -> 1B tokens, is a tenth of it)."""

_DAMAGING = frozenset({EventClass.TRANSIENT_SPIKE, EventClass.ABSORBING_SHIFT, EventClass.HARD_FAULT})


class Sign(StrEnum):
    """What points to the optimizer, the schedule or number types."""

    RECURRING = "recurring"
    RISING_ATTENTION_LOGITS = "rising_attention_logits"
    RISING_OUTPUT_LOGITS = "rising_output_logits"
    RISING_GRAD_NORM = "rising_grad_norm"
    END_OF_WARMUP = "end_of_warmup"
    SHORT_WARMUP = "short_warmup"
    EPSILON_FLOOR = "epsilon_floor"
    LOW_PRECISION_STATE = "low_precision_state"
    OVERFLOW = "overflow"
    NUMBER_TYPE = "number_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """How thickly spikes lie around an event."""

    num_events: int
    """Of the stretch of `within_steps` that holds most of them and this event."""
    within_steps: int
    first: int | None
    last: int | None

    @property
    def recurs(self) -> bool:
        """Whether that is more than isolated spikes give by chance."""
        return self.num_events >= LEAST_EVENTS


_DRIFTS = {
    "attention_logit_max": Sign.RISING_ATTENTION_LOGITS,
    "log_z": Sign.RISING_OUTPUT_LOGITS,
    "grad_norm": Sign.RISING_GRAD_NORM,
    "epsilon_floor_share": Sign.EPSILON_FLOOR,
}


def recurrence(event: SpikeEvent, events: Iterable[SpikeEvent], *, within_steps: int = WITHIN_STEPS) -> Recurrence:
    """Count the spikes that leave damage in the fullest stretch of `within_steps` that holds the event.

    >>> spike = lambda start: SpikeEvent(event_class=EventClass.TRANSIENT_SPIKE, start=start, stop=start + 5,
    ...                                  peak=start, size_nats=1.0, sigmas=9.0)
    >>> recurrence(spike(1_500), [spike(600), spike(900), spike(1_500), spike(4_000)]).num_events
    3
    """
    if event.event_class not in _DAMAGING:
        return Recurrence(num_events=0, within_steps=within_steps, first=None, last=None)
    starts = sorted({each.start for each in (*events, event) if each.event_class in _DAMAGING})
    best: list[int] = []
    for low in starts:
        held = [start for start in starts if low <= start < low + within_steps]
        if event.start in held and len(held) > len(best):
            best = held
    return Recurrence(num_events=len(best), within_steps=within_steps, first=best[0], last=best[-1])


def signs_of(event: SpikeEvent, events: Iterable[SpikeEvent], facts: TrainerFacts) -> dict[Sign, str]:
    """The signs that the events of a log and the facts of its trainer give by themselves, each with its numbers.

    Parameters
    ----------
    event
        The one in question.
    events
        All of the log, drifts of other signals among them.
    """
    everything = [*events, event]
    found: dict[Sign, str] = {}
    recurs = recurrence(event, everything)
    if recurs.recurs:
        found[Sign.RECURRING] = (
            f"{recurs.num_events} spikes that leave damage lie within {recurs.within_steps:,} steps, from step "
            f"{recurs.first:,} to {recurs.last:,}"
        )
    for each in everything:
        name, _, part = each.signal.partition("/")
        sign = _DRIFTS.get(name)
        if sign is None or each.event_class is not EventClass.CREEPING_DRIFT or each.start > event.stop:
            continue
        where = f" of {part}" if part else ""
        found.setdefault(sign, f"{name}{where} climbs from step {each.start:,} to {each.stop:,}")
    found |= _of_schedule(event, facts)
    found |= _of_precision(event, facts)
    return found


def is_configuration(signs: Mapping[Sign, str]) -> bool:
    """A10: spikes recur and attention logits climb, so the configuration has to change."""
    return Sign.RECURRING in signs and Sign.RISING_ATTENTION_LOGITS in signs


def configuration_advice(signs: Mapping[Sign, str], facts: TrainerFacts) -> tuple[Change, ...]:
    """What to change, each by the sign that asks for it; nothing where no sign was found."""
    changes: list[Change] = []

    def change(what: str, to: str, *by: Sign) -> None:
        reasons = [signs[sign] for sign in by if sign in signs]
        if reasons:
            changes.append(Change(what=what, to=to, reason="; ".join(reasons)))  # type: ignore[arg-type]

    architecture, schedule, optimizer = facts.architecture, facts.schedule, facts.optimizer
    rate = "20 to 40 % less"
    if schedule.peak_lr is not None:
        rate += f": {schedule.peak_lr * 0.6:.3g} to {schedule.peak_lr * 0.8:.3g} instead of {schedule.peak_lr:.3g}"
    if architecture.qk_norm is True:
        change("qk_norm", "QK-norm is on: clip its gains (QK-clip acts on them)", Sign.RISING_ATTENTION_LOGITS)
    else:
        change("qk_norm", "QK-norm in every attention, or QK-clip", Sign.RISING_ATTENTION_LOGITS)
    if architecture.z_loss:
        change("z_loss", f"more than the {architecture.z_loss:g} that it has", Sign.RISING_OUTPUT_LOGITS)
    else:
        change("z_loss", "1e-5 to 1e-4 for the language-model head", Sign.RISING_OUTPUT_LOGITS)
    change("peak_lr", rate, Sign.RECURRING, Sign.RISING_GRAD_NORM)
    change("warmup", _longer_warmup(facts), Sign.END_OF_WARMUP, Sign.SHORT_WARMUP)
    if optimizer.epsilon is None or optimizer.epsilon < 1e-6:
        now = "" if optimizer.epsilon is None else f" instead of {optimizer.epsilon:g}"
        change("epsilon", f"1e-6 to 1e-5{now}", Sign.EPSILON_FLOOR)
    if facts.precision.optimizer_state != "float32":
        change("optimizer_state", "float32", Sign.LOW_PRECISION_STATE, Sign.EPSILON_FLOOR)
    change(*_number_type(facts), Sign.OVERFLOW, Sign.NUMBER_TYPE)
    return tuple(changes)


def _of_schedule(event: SpikeEvent, facts: TrainerFacts) -> dict[Sign, str]:
    warmup, total = facts.schedule.warmup_steps, facts.schedule.total_steps
    found: dict[Sign, str] = {}
    if warmup is None:
        return found
    begin = event.start if event.onset is None else min(event.onset, event.start)
    # At the end of warm-up: within its last tenth, or as long after it as it took (never less than ten steps).
    low, high = warmup - max(10, warmup // 10), warmup + max(10, warmup)
    if low <= begin <= high:
        found[Sign.END_OF_WARMUP] = f"it begins at step {begin:,}, and warm-up ends with step {warmup:,}"
    if total is not None and warmup < LEAST_WARMUP_SHARE * total and begin <= max(high, LEAST_WARMUP_SHARE * total):
        found[Sign.SHORT_WARMUP] = f"warm-up is {warmup:,} of {total:,} steps, {warmup / total:.2%}"
    return found


def _of_precision(event: SpikeEvent, facts: TrainerFacts) -> dict[Sign, str]:
    found: dict[Sign, str] = {}
    state = facts.precision.optimizer_state
    if state is not None and state != "float32":
        found[Sign.LOW_PRECISION_STATE] = f"the optimizer's state is kept in {state}"
    if event.event_class is EventClass.HARD_FAULT and facts.precision.compute == "float16":
        found[Sign.OVERFLOW] = f"step {event.peak:,} is not finite, and float16 ends at 65,504"
    return found


def _longer_warmup(facts: TrainerFacts) -> str:
    warmup, total = facts.schedule.warmup_steps, facts.schedule.total_steps
    if total is None:
        return "longer: at least 1 % of all steps"
    least = -(-total // 100)
    if warmup is not None and warmup >= least:
        return f"longer than {warmup:,} steps, up to {2 * warmup:,}"
    return f"at least {least:,} steps, 1 % of {total:,}"


def _number_type(facts: TrainerFacts) -> tuple[str, str]:
    if facts.precision.compute == "bfloat16":
        return "compute", "float32 where it is lost (attention logits, the softmax, the loss)"
    return "compute", "bfloat16, whose range is float32's"
