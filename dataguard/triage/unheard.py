"""Could an incident have shown, where none was found?

*No incident* is said only where one would have been seen. It is not where nothing was logged, where too few losses lie
before the step in question, where telemetry is damaged (what is missing may be it), and where the detector was deaf:
the loss stands out, and a spike there would have had to be larger yet to make an event
(`dataguard.triage.detect.hearing` says by which measure).
"""

from __future__ import annotations

import msgspec

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import SpikeEvent
from dataguard.triage.answers import SmallestSpike
from dataguard.triage.detect import DetectorSettings
from dataguard.triage.diagnose import Diagnosis
from dataguard.triage.looked import Looked
from dataguard.triage.respond.shell import quote

__all__ = ["NOTHING_CHECKED", "nothing_checked", "smallest_spike"]

NOTHING_CHECKED = "nothing_checked"
"""Rule of a diagnosis that no event could have changed, since nothing was there to look at, or could have shown."""


def nothing_checked(diagnosis: Diagnosis, looked: Looked, event: SpikeEvent | None, step: int | None) -> Diagnosis:
    """No incident where nothing could have shown one would be a lie: then nothing is known."""
    if event is not None or diagnosis.verdict is not Verdict.NO_INCIDENT:
        return diagnosis
    found = (_not_judged(looked, step), _unheard(looked, step), _damaged(looked))
    # Where nothing can be read for its damage, that nothing was logged would be another lie.
    why = next((each for each in (reversed(found) if looked.curve is None else found) if each is not None), None)
    if why is None:
        return diagnosis
    return msgspec.structs.replace(
        diagnosis, verdict=Verdict.INCONCLUSIVE, rule=NOTHING_CHECKED, summary=why, next_check=None
    )


def smallest_spike(looked: Looked, event: SpikeEvent | None, step: int | None) -> SmallestSpike | None:
    """What a spike needed to show: at the step in question, the event's first, or else the newest.

    None where that step was not judged, and where nothing was logged.
    """
    hearing = None if looked.detection is None else looked.detection.hearing
    hardest = None if hearing is None else hearing.hardest()
    if hearing is None or hardest is None:
        return None
    newest = int(hearing.steps[-1])
    at = step if step is not None else newest if event is None else event.start
    nats = hearing.smallest_spike(at)
    return None if nats is None else SmallestSpike(step=at, nats=nats, hardest_step=hardest[0], hardest_nats=hardest[1])


def _not_judged(looked: Looked, step: int | None) -> str | None:
    """Why no event could have shown, at a step or anywhere; None where it could."""
    if looked.curve is None:
        what = "" if step is None else f" of step {step:,}"
        return f"nothing was logged{what}: whether the loss misbehaved is not known"
    if "loss" not in looked.curve.names:
        return "no loss was logged: whether it misbehaved is not known"
    steps, _ = looked.curve.series("loss")
    least = DetectorSettings().num_history
    if step is not None and step not in steps:
        return f"no loss was logged of step {step:,}{_skipped(looked, step)}: whether it misbehaved there is not known"
    num_before = len(steps) if step is None else int((steps < step).sum())
    if num_before < least:
        behind = "" if step is None else f" before step {step:,}"
        return f"{num_before:,} losses were logged{behind}; with fewer than {least:,} a spike is not told from noise"
    return None


def _unheard(looked: Looked, step: int | None) -> str | None:
    """What stands out and made no event, since the detector was deaf there; None where there is nothing of it."""
    found = (
        () if looked.detection is None or looked.detection.hearing is None else looked.detection.hearing.unheard(step)
    )
    if not found:
        return None
    worst = max(found, key=lambda each: each.sigmas)
    num = worst.stop - worst.start
    where = f"step {worst.start:,}" if num == 1 else f"steps {worst.start:,}:{worst.stop:,}"
    more = "" if len(found) == 1 else f" (and of {len(found) - 1:,} more stretches)"
    run = quote(str(looked.run.path))
    return (
        f"the loss of {where}{more} stands {worst.size_nats:.3g} nats above those before it ({worst.sigmas:.3g} times "
        f"their own scale), and the detector could not tell: a spike had to reach {worst.smallest_spike_nats:.3g} nats "
        f"to show there. Whether it is an incident is not known; look at the curve (dataguard spikes {run} --plot "
        f"curve.html) and at what was fed (dataguard inspect {run} --step {worst.start})"
    )


def _damaged(looked: Looked) -> str | None:
    """That what is missing may have shown one; None where nothing is."""
    if not looked.damage:
        return None
    return (
        "no event shows in what can be read; telemetry is damaged, and what is missing may hold one "
        f"(dataguard verify {quote(str(looked.run.path))} lists the damage)"
    )


def _skipped(looked: Looked, step: int) -> str:
    """Why a step has no loss, where a skip left it out."""
    assert looked.leaf is not None
    delivered = looked.run.steps_of(looked.leaf, looked.read).next_delivered(looked.run.step(step))
    if delivered == looked.run.step(step):
        return ""
    return f", which a skip of this lineage leaves out (the next is {looked.run.label(delivered):,})"
