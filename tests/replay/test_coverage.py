"""Positions of a stretch, recorded once, twice, never: held against sets and counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.address import Geometry
from dataguard.plan.attempts import AttemptPlan, Skip
from dataguard.plan.document import BatchSize, Mixture
from dataguard.plan.steps import Steps
from dataguard.replay.coverage import Coverage
from tests.twins.steps import walk

skips = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=3)
parts = st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=4)


@given(
    mode=st.sampled_from(["jump", "hole"]), skips=skips, first=st.integers(0, 4), length=st.integers(0, 8), parts=parts
)
def test_against_counting(mode, skips, first, length, parts) -> None:
    attempt = AttemptPlan(
        number=1,
        geometry=Geometry(world_size=1, microbatch_size=1),
        mixtures=(Mixture(start=0, manifest="m", weights={"web": 1}),),
        batch_sizes=(BatchSize(start=0, size=4),),
        skips=tuple(Skip(start=a, stop=a + n, event=1, reason="r") for a, n in skips),
    )
    steps = Steps([attempt], lanes=1, skip_mode=mode)
    walked = walk([attempt], mode, first + length)
    spans = {p for a, n in skips for p in range(a, a + n)}
    wanted = {
        p
        for step in range(first, first + length)
        for p in walked.steps[step]
        if mode == "jump" or not spans.issuperset(walked.steps[step])
    }
    coverage = Coverage(attempt, steps, first, first + length)
    for part in parts:
        coverage.add(np.array(part, dtype=np.int64))
    counts = Counter(p for part in parts for p in part)
    stretch = range(steps.start_of(first), max(steps.start_of(first), steps.start_of(first + length)))
    assert coverage.num_recorded == counts.total()
    assert coverage.doubled == {p for p, n in counts.items() if n > 1 and p in stretch}
    assert coverage.extra == set(counts) - wanted
    assert {p for low, high in coverage.missing() for p in range(low, high)} == wanted - set(counts)
    for low, high in coverage.missing() + coverage.extras():
        assert low < high


def test_only_so_many_faults_are_told() -> None:
    attempt = AttemptPlan(
        number=1,
        geometry=Geometry(world_size=1, microbatch_size=1),
        mixtures=(Mixture(start=0, manifest="m", weights={"web": 1}),),
        batch_sizes=(BatchSize(start=0, size=4),),
    )
    coverage = Coverage(attempt, Steps([attempt], lanes=1), 0, 1000)
    coverage.add(np.arange(0, 4000, 2).repeat(2))
    coverage.add(np.arange(5000, 6000))
    assert len(coverage.doubled) == len(coverage.extra) == 100
    assert coverage.missing()[:2] == [(1, 2), (3, 4)]
    assert len(coverage.missing()) == 100
