"""By which numbers does the default detector judge, and where does each come from?

None of them was fitted to events of any log. `threshold` and what follows from it is the tail of a normal distribution
with the allowance that theory has for a scale that is itself estimated; window lengths are chosen by how well they must
know a median; what is a matter of taste (how long is a stall?) says so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dataguard.errors import UsageError

__all__ = ["DetectorSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """How the default detector judges. All counts are of logged points, not of steps.

    >>> DetectorSettings().threshold
    6.0
    """

    name: str = "default"
    threshold: float = 6.0
    """Robust standard deviations above (or below) which a point begins an event, were the scale known. A normal tail at
    6 is 1e-9; the scale is estimated, so what is compared is the quantile of Student's t with that tail (`Tracker`):
    6.7 for a full window. One false alarm in 10,000 points leaves room for tails that are heavier than normal."""
    exit_threshold: float = 3.0
    """An event lasts as long as points stand out by this: a spike that decays is one event, and noise (1.3e-3 a point)
    seldom prolongs it."""
    num_quiet: int = 5
    """So many points in a row below `exit_threshold` re-arm the detector: by chance alone an excess of 3 sigma hides
    for five points with p < 1e-2."""
    grad_norm_factor: float = 5.0
    """A gradient norm alone, with an ordinary loss, is an event from so many times its baseline on (the checklist's own
    figure for a large one). Its tail is heavier than any window knows, and clipping takes what it does; where the loss
    stands out as well, the norm is evidence from `exit_threshold` on."""
    num_history: int = 24
    """Points with a residual before the window is relied on (a MAD of 24 is known to 24 %); before that the rule of
    early steps holds."""
    num_window: int = 256
    """Residuals that make the scale."""
    num_level: int = 32
    """Points of each of the two medians that make the local trend: their line, read one step on, is off by a third of
    the noise of a point at most."""
    num_reach_back: int = 16
    """Points before an event that are searched for its onset, backwards and with `exit_threshold`, until two in a row
    are quiet: of normal noise one in 200 events has an onset that is none (2 signals x 2 points x 1.3e-3)."""
    num_aftermath: int = 200
    """Points after an event whose median excess is its aftermath, and the length of the means whose block-to-block
    standard deviation tells the smallest shift that can be seen."""
    num_least_aftermath: int = 16
    """Fewer points tell no aftermath."""
    shift_factor: float = 4.0
    """The smallest visible shift in standard deviations of the difference of two block means (p = 6e-5)."""
    num_hard_batch: int = 3
    """A hard batch lasts as many points at most."""
    num_settle: int = 64
    """An event that did not come back for so many points, and no longer moves over its newer half, has settled on
    another level."""
    num_change: int = 8
    """What begins so few points after a told change is held against the change first."""
    num_most_open: int = 4096
    """An event that neither comes back nor settles is cut here, so that the detector is not blind for ever."""
    num_drift_blocks: int = 128
    """Block medians that are kept of each signal over its whole past; pairs are merged when there are more."""
    num_drift_block: int = 10
    """Points of a block at first."""
    stall_factor: float = 30.0
    """A gap of so many median step times is a stall, unless one like it (a third of it) came before (checkpoints,
    evaluations). A matter of taste."""
    stall_least_seconds: float = 1.0
    """Nobody calls less a stall."""
    num_rewind: int = 512
    """A run that goes back so few points or fewer is judged on exactly as if it had never gone further."""
    num_most_skips: int = 10
    """Overflows in a row that a loss scaler may skip: after them the scale is 2**-10 of what it was, and the run is not
    searching for a scale but failing."""
    num_most_events: int = 4096
    """Events that are remembered, so that memory and state stay bounded; the oldest are counted and forgotten."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "name" and not value > 0:
                raise UsageError(f"{field.name} of the detector must be above zero", found=repr(value))
        if self.exit_threshold > self.threshold:
            raise UsageError(
                "an event must end below the threshold that begins it",
                found=f"exit_threshold {self.exit_threshold}, threshold {self.threshold}",
            )
