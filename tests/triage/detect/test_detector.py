"""The default detector, row by row, against curves whose events are known."""

from __future__ import annotations

from dataguard.core.spikes import EventClass
from dataguard.triage.detect import Detector
from tests.triage.detect.curves import curve


def test_a_hard_batch_is_told_at_once_and_classified_after_its_aftermath() -> None:
    losses = curve(800, seed=1)
    losses[400] += 1.0
    detector = Detector()
    told = [
        (step, each.kind, each.event.event_class)
        for step, loss in enumerate(losses.tolist())
        for each in detector.observe(step, loss=loss)
    ]
    assert told == [(400, "began", EventClass.TRANSIENT_SPIKE), (600, "ended", EventClass.HARD_BATCH)]
    (event,) = detector.finish()
    assert (event.start, event.stop, event.peak) == (400, 401, 400)
    assert event.size_nats is not None
    assert abs(event.size_nats - 1.0) < 0.1
