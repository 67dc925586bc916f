"""Rows C13 and C14: the tree as it was printed contradicts itself and leaves cases open; ours answers each of them.

The tree asks for the size in nats, how long it lasted, the gradient norm against the clip, and whether a batch can be
named. Its three questions stand side by side, so all that answer are asked.
"""

from __future__ import annotations

from itertools import product

import pytest

from dataguard.core.evidence import Evidence, Finite, RankPattern, Replay, Told, Verdict
from dataguard.core.spikes import EventClass
from dataguard.triage.diagnose import verdict_of


def printed(size_nats: float, num_steps: int, grad_norm_over_clip: float, *, batch_known: bool) -> set[str]:
    """What the printed tree says to do: all of its branches that apply."""
    if not (size_nats > 0.15 and num_steps > 50):
        return set()
    said = {"lower rate by 20 %, continue" if grad_norm_over_clip < 2 else "check batch data"}
    said.add("roll back, skip" if batch_known else "roll back, lower rate by 30 %")
    if size_nats < 0.3 and num_steps < 200:
        said.add("continue")
    if size_nats > 0.5:
        said.add("roll back")
    return said


def severity(size_nats: float, num_steps: int) -> set[str]:
    return printed(size_nats, num_steps, 1.0, batch_known=True) & {"continue", "roll back"}


@pytest.mark.parametrize(("size_nats", "num_steps"), [(0.3, 100), (0.4, 100), (0.5, 100), (0.2, 200), (0.29, 5_000)])
def test_it_leaves_severities_undefined(size_nats: float, num_steps: int) -> None:
    """From .3 to .5 nats, and mild but long."""
    assert severity(size_nats, num_steps) == set()


@pytest.mark.parametrize(("size_nats", "num_steps"), [(1.5, 1), (3.0, 50), (0.06, 10_000)])
def test_it_says_nothing_of_hard_batches_and_of_a_fatal_spike_that_was_small(size_nats: float, num_steps: int) -> None:
    assert printed(size_nats, num_steps, 20.0, batch_known=True) == set()


def test_its_branches_overlap() -> None:
    """To continue and to roll back, for one and the same spike."""
    mild = printed(0.2, 100, 1.0, batch_known=True)
    assert {"continue", "roll back, skip", "lower rate by 20 %, continue"} <= mild


def test_it_contradicts_the_checklist() -> None:
    """The checklist's second step: gradient norm normal and loss spiked is the data; the tree: it is the rate."""
    assert "lower rate by 20 %, continue" in printed(0.4, 100, 1.0, batch_known=True)
    normal_norm = Evidence(event=EventClass.TRANSIENT_SPIKE, replay=Replay.BATCH)
    assert verdict_of(normal_norm) is Verdict.BAD_DATA


def test_ours_answers_each_of_them_once_whatever_size_and_length() -> None:
    """Size and length are no facts of ours: an event's class is, with its aftermath, and each class has an answer."""
    for event, data, replay in product(EventClass, Told, Replay):
        assert verdict_of(Evidence(event=event, data=data, replay=replay)) in set(Verdict)
    mild_but_long = Evidence(event=EventClass.ABSORBING_SHIFT, optimizer=Told.YES)
    assert verdict_of(mild_but_long) is Verdict.OPTIMIZER_OR_NUMERICS


def test_ours_has_the_branches_that_it_lacks() -> None:
    """NaN, hardware, and ranks."""
    fault = EventClass.HARD_FAULT
    assert verdict_of(Evidence(event=fault, number_type=Told.YES)) is Verdict.OPTIMIZER_OR_NUMERICS
    assert verdict_of(Evidence(event=fault, finite=Finite.ONE_RANK, replay=Replay.NODE)) is Verdict.HARDWARE
    assert verdict_of(Evidence(event=None, ranks=RankPattern.PERSISTENT)) is Verdict.HARDWARE
