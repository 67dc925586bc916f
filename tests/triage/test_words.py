"""Names that people script against: classes of events and verdicts."""

from __future__ import annotations

from dataguard.core.evidence import Verdict
from dataguard.core.spikes import EventClass


def test_classes_of_events_are_what_they_were() -> None:
    assert [each.value for each in EventClass] == [
        "hard_batch",
        "transient_spike",
        "absorbing_shift",
        "creeping_drift",
        "hard_fault",
        "stall",
        "grad_norm_only",
        "loss_dip",
    ]


def test_verdicts_are_what_they_were() -> None:
    assert [each.value for each in Verdict] == [
        "bad_data",
        "data_and_state",
        "hard_batch",
        "optimizer_or_numerics",
        "hardware",
        "application",
        "planned_change",
        "no_incident",
        "inconclusive",
    ]
