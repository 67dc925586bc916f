"""What did the gradient norm do around an event?

Its logarithm is held against the points before the onset, by median and MAD, with the threshold of the detector; slow
climbs are the detector's own. A norm that was not logged says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dataguard.core.evidence import GradNorm
from dataguard.core.robust import MAD_TO_SIGMA
from dataguard.core.spikes import EventClass, SpikeEvent
from dataguard.run.logs import TrainingLog
from dataguard.triage.detect import DetectorSettings

__all__ = ["grad_norm_of"]

_OWN = b"local_grad_norm"


def grad_norm_of(
    curve: TrainingLog,
    rows: NDArray[np.void],
    event: SpikeEvent,
    events: Sequence[SpikeEvent],
    *,
    first_label: int = 0,
    settings: DetectorSettings | None = None,
) -> tuple[GradNorm, tuple[str, ...]]:
    """What it did, and with which numbers.

    Parameters
    ----------
    curve
        One row a step, under the names of telemetry; steps in the trainer's labels.
    rows
        TELEMETRY_ROW of all ranks around the event, steps from 0: they show a rank whose own norm is zero.
    event, events
        The event, and all of its log.
    """
    known = settings or DetectorSettings()
    begin = event.start if event.onset is None else min(event.onset, event.start)
    zero = _zero_on_one(rows, begin - first_label, event.stop - first_label)
    if zero is not None:
        return GradNorm.ZERO_ON_ONE_RANK, (
            f"the gradient norm of rank {zero} is exactly 0 at the event, and of no other",
        )
    if "grad_norm" not in curve.names:
        return GradNorm.UNKNOWN, ("no gradient norm was logged",)
    steps, values = curve.series("grad_norm")
    inside = (steps >= begin - 1) & (steps < event.stop)
    if not inside.any():
        return GradNorm.UNKNOWN, ("no gradient norm was logged at the event",)
    if not np.isfinite(values[inside]).all():
        at = steps[inside][~np.isfinite(values[inside])][0]
        return GradNorm.NONFINITE, (f"the gradient norm of step {at:,} is not finite",)
    climb = next((each for each in (event, *events) if _climbs(each, event)), None)
    if climb is not None:
        return GradNorm.CLIMBING, (f"the gradient norm climbs from step {climb.start:,} on",)
    before = values[(steps < begin - 1) & np.isfinite(values) & (values > 0)][-known.num_window :]
    if len(before) < known.num_history:
        return GradNorm.UNKNOWN, (f"only {len(before):,} gradient norms were logged before the event",)
    logs = np.log(before)
    middle = float(np.median(logs))
    scale = float(np.median(np.abs(logs - middle))) * MAD_TO_SIGMA
    largest = float(values[inside].max())
    height = np.log(max(largest, np.finfo(float).tiny)) - middle
    ratio = f"the largest gradient norm of the event is {largest:.4g}, {np.exp(height):.3g} times the median before it"
    if height > known.threshold * scale and height > 0:
        return GradNorm.BURST, (ratio,)
    return GradNorm.ORDINARY, (ratio,)


def _climbs(each: SpikeEvent, event: SpikeEvent) -> bool:
    """Whether one is a slow climb of the gradient norm that begins before the event ends."""
    is_norm = each.signal.partition("/")[0] in ("grad_norm", "local_grad_norm")
    return each.event_class is EventClass.CREEPING_DRIFT and is_norm and each.start < event.stop


def _zero_on_one(rows: NDArray[np.void], start: int, stop: int) -> int | None:
    """The one rank whose own gradient norm is exactly zero where every other's is not."""
    names = np.char.partition(rows["name"], b"/")[:, 0] if len(rows) else np.empty(0, "S1")
    own = rows[(names == _OWN) & (rows["slot"] < 0) & (rows["step"] >= max(start, 0)) & (rows["step"] < stop)]
    if not len(own):
        return None
    ranks = np.unique(own["rank"])
    zero = [int(rank) for rank in ranks if (own["value"][own["rank"] == rank] == 0).all()]
    return zero[0] if len(zero) == 1 and len(ranks) > 1 else None
