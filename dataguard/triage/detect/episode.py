"""What was one excursion, once it is over and its aftermath is known?

An `Episode` collects while points stand out, against the line that was expected when it began; then, for as many as
`num_aftermath` points, what came after. `classified` makes an event of it:

1. Where only the gradient norm stood out, it is `grad_norm_only`.
2. Where the point that stands out most lies below the line, it is a `loss_dip`.
3. Where the median of what came after lies above the line by more than can be told from noise (`visible_shift`), or
   where the loss settled on another level, or never came back before the log ends, it is an `absorbing_shift`.
4. Where no more than `num_hard_batch` points stood out, and neither loss nor gradient norm of the points right after
   them is raised, it is a `hard_batch`: the loss belonged to the data.
5. Everything else is a `transient_spike`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import exp, sqrt
from typing import Any

from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.triage.detect.settings import DetectorSettings
from dataguard.triage.detect.tracker import Frozen, Judged
from dataguard.triage.detect.window import median_of

__all__ = ["Episode", "classified", "visible_shift"]

_NUM_RIGHT_AFTER = 8
"""Points after an event that tell whether it left a tail: a damaged state takes tens of steps to mend."""
_TREND_SHARE = 0.5
"""A trend that was read off one stretch is trusted to half of what it says of the next."""
_TAIL_FACTOR = 3.0
"""Standard errors of their median (p = 1.3e-3)."""


@dataclass(slots=True, kw_only=True)
class Episode:
    """One excursion, while it goes on and while its aftermath is awaited."""

    start: int
    """The step that began it."""
    threshold: float
    """Robust standard deviations of the loss that began it, or would have."""
    loss: Frozen | None
    """What was expected of the loss."""
    grad: Frozen | None
    """What was expected of the logarithm of the gradient norm."""
    inflation: float
    """By how much means of this loss differ more than white noise would."""
    change: int | None = None
    """The told change right before it."""
    is_told: bool = False
    """Whether it was noticed already."""
    onset: int | None = None
    first_loss: int | None = None
    """The first step whose loss stood out by the threshold."""
    last_out: int = 0
    """The last step that stood out by the exit threshold."""
    num_points: int = 0
    """Points of the loss since it began."""
    num_out: int = 0
    """Points that stood out by the exit threshold."""
    num_quiet: int = 0
    """Points in a row that did not."""
    peak: int = 0
    peak_excess: float | None = None
    peak_sigmas: float | None = None
    grad_peak: int = 0
    grad_sigmas: float | None = None
    grad_most: float | None = None
    """Largest logarithm of the gradient norm, from the onset's search on."""
    grad_is_zero: bool = False
    recent: list[float] = field(default_factory=list)
    """Excess of its last points, at most `num_window`."""
    values: list[float] = field(default_factory=list)
    """Their values."""
    grad_values: list[float] = field(default_factory=list)
    stop: int | None = None
    """One past its end, once it is over."""
    num_before_after: int = 0
    """Points of the loss from its begin to the first of the aftermath."""
    after: list[float] = field(default_factory=list)
    """Excess of the points after it, in the order they came."""
    grad_after: list[float] = field(default_factory=list)
    """Excess of the logarithm of the gradient norm right after it."""
    is_settled: bool = False

    def take(
        self, step: int, value: float | None, grad: float | None, loss_judged: Judged | None,
        grad_judged: Judged | None, settings: DetectorSettings, *, is_zero: bool,
    ) -> None:  # fmt: skip
        """A row of the episode."""
        out = is_zero
        if loss_judged is not None and value is not None:
            self.num_points += 1
            self.recent.append(loss_judged.excess)
            self.values.append(value)
            del self.recent[: -settings.num_window], self.values[: -settings.num_window]
            sigmas = loss_judged.sigmas
            out = out or abs(sigmas) >= settings.exit_threshold
            if abs(sigmas) >= self.threshold and self.first_loss is None:
                self.first_loss = step
            if self.peak_sigmas is None or abs(sigmas) > abs(self.peak_sigmas):
                self.peak, self.peak_excess, self.peak_sigmas = step, loss_judged.excess, sigmas
        if grad_judged is not None and grad is not None:
            self.grad_values.append(grad)
            del self.grad_values[: -settings.num_window]
            out = out or grad_judged.sigmas >= settings.exit_threshold
            if self.grad_most is None or grad > self.grad_most:
                self.grad_most = grad
            if self.grad_sigmas is None or grad_judged.sigmas > self.grad_sigmas:
                self.grad_peak, self.grad_sigmas = step, grad_judged.sigmas
        if is_zero:
            self.grad_is_zero, self.grad_peak = True, step
        if out:
            self.last_out, self.num_quiet = step, 0
            self.num_out += 1
            self.num_before_after = self.num_points
            self.after, self.grad_after = [], []
        else:
            self.num_quiet += 1
            if loss_judged is not None:
                self.after.append(loss_judged.excess)
            if grad_judged is not None:
                self.grad_after.append(grad_judged.excess)

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Episode:
        """What `state` gave."""
        frozen = {name: Frozen(**state[name]) if state[name] is not None else None for name in ("loss", "grad")}
        return cls(**{**state, **frozen})


def visible_shift(episode: Episode, num_points: int, settings: DetectorSettings) -> float | None:
    """The least median excess of `num_points` points after an event that is no noise, in nats."""
    line = episode.loss
    if line is None:
        return None
    middle = episode.num_before_after + num_points // 2
    noise = settings.shift_factor * line.up * episode.inflation * line.error(middle, num_points)
    return noise + _TREND_SHARE * abs(line.trend(middle))


def classified(episode: Episode, settings: DetectorSettings, *, newest: int) -> SpikeEvent:
    """The event, with what is known up to step `newest`."""
    is_open = episode.stop is None
    stop = newest + 1 if episode.stop is None else episode.stop
    aftermath, num_after = _aftermath(episode, settings)
    ratio = None
    if episode.grad is not None and episode.grad_most is not None:
        ratio = 0.0 if episode.grad_is_zero else exp(min(700.0, episode.grad_most - episode.grad.level))
    of_loss = episode.first_loss is not None
    return SpikeEvent(
        event_class=_class_of(episode, settings, aftermath, num_after, is_open=is_open),
        start=episode.first_loss if episode.first_loss is not None else episode.start,
        stop=stop,
        peak=episode.peak if of_loss else episode.grad_peak,
        size_nats=episode.peak_excess if of_loss else None,
        sigmas=episode.peak_sigmas if of_loss else episode.grad_sigmas,
        aftermath_nats=aftermath,
        grad_norm_ratio=ratio,
        onset=episode.onset,
        is_open=is_open,
        signal="loss" if of_loss else "grad_norm",
    )


def _aftermath(episode: Episode, settings: DetectorSettings) -> tuple[float | None, int]:
    if episode.is_settled and episode.recent:
        half = max(1, settings.num_settle // 2)
        return median_of(episode.recent[-half:]), half
    if episode.stop is None or len(episode.after) < settings.num_least_aftermath:
        return None, len(episode.after)
    return median_of(episode.after), len(episode.after)


def _class_of(
    episode: Episode, settings: DetectorSettings, aftermath: float | None, num_after: int, *, is_open: bool
) -> EventClass:
    if episode.first_loss is None:
        return EventClass.GRAD_NORM_ONLY
    if (episode.peak_excess or 0.0) < 0:
        return EventClass.LOSS_DIP
    if is_open:
        is_long = episode.num_points >= settings.num_settle
        return EventClass.ABSORBING_SHIFT if is_long else EventClass.TRANSIENT_SPIKE
    if episode.is_settled and (aftermath or 0.0) > 0:
        return EventClass.ABSORBING_SHIFT
    if aftermath is not None:
        least = visible_shift(episode, num_after, settings)
        if least is not None and aftermath > least:
            return EventClass.ABSORBING_SHIFT
    if episode.num_out <= settings.num_hard_batch and not _has_tail(episode):
        return EventClass.HARD_BATCH
    return EventClass.TRANSIENT_SPIKE


def _has_tail(episode: Episode) -> bool:
    """Whether loss or gradient norm stay raised right after the points that stood out."""
    for line, after in ((episode.loss, episode.after), (episode.grad, episode.grad_after)):
        first = after[:_NUM_RIGHT_AFTER]
        if line is not None and first and _is_raised(line, first):
            return True
    return False


def _is_raised(line: Frozen, first: list[float]) -> bool:
    num = len(first)
    error = line.error(1, num) if line.num_points else sqrt(2.0)
    return median_of(first) > _TAIL_FACTOR * line.up * error + _TREND_SHARE * abs(line.trend(num))
