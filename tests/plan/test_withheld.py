"""Withheld rows against a look at every entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.manifest import ManifestSet
from dataguard.errors import NotInRun, PlanError
from dataguard.plan.withheld import Withheld, WithheldSet
from tests.plan.small import small_manifest

OLD = small_manifest({"web": {"a": [5, 4], "b": [7], "c": [3]}, "x": {"web/a": [6]}})
NEW = small_manifest({"web": {"a": [5, 4], "d": [8]}})
LOOKALIKE = small_manifest({"x": {"web/a": [6]}})
BOTH = ManifestSet([OLD, NEW])
NAMES = [BOTH.shard_name(shard) for shard in range(BOTH.num_shards)]

entries = st.builds(
    lambda shard, row, event: Withheld(shard=shard, row=row, event=event, reason=f"reason {event}"),
    st.sampled_from(sorted({*NAMES, "web/gone"})),
    st.none() | st.integers(0, 2),
    st.integers(1, 9),
)


@given(st.lists(entries, max_size=8))
def test_every_row_has_the_earliest_event_that_names_it(given_entries) -> None:
    ours = WithheldSet.of(given_entries, BOTH)
    shards, rows = (axis.ravel() for axis in np.meshgrid(np.arange(BOTH.num_shards), np.arange(9), indexing="ij"))
    expected = [
        min(
            (entry.event for entry in given_entries if entry.shard == NAMES[shard] and entry.row in (None, row)),
            default=0,
        )
        for shard, row in zip(shards.tolist(), rows.tolist(), strict=True)
    ]
    assert ours.mask(shards, rows).tolist() == expected
    assert ours.mask(shards.astype(np.int32), rows).dtype == np.int64
    assert [ours.event_of(s, r) for s, r in zip(shards.tolist(), rows.tolist(), strict=True)] == expected
    assert bool(ours) == any(expected)
    assert set(ours.reasons) == {entry.event for entry in given_entries}
    assert ours.unknown == tuple(entry for entry in given_entries if entry.shard == "web/gone")


def test_a_name_is_taken_whole_in_every_manifest_that_holds_it() -> None:
    ours = WithheldSet.of([Withheld(shard="web/a", event=4, reason="damaged")], BOTH)
    held = [NAMES[shard] for shard in range(BOTH.num_shards) if ours.event_of(shard, 0)]
    assert held == ["web/a", "web/a"], "of both manifests, and not x/web/a, which only ends like it"
    other = WithheldSet.of([Withheld(shard="web/a", event=4, reason="damaged")], ManifestSet([LOOKALIKE]))
    assert not other
    assert [entry.shard for entry in other.unknown] == ["web/a"]


def test_no_entries_withhold_nothing() -> None:
    ours = WithheldSet.of([], BOTH)
    assert not ours
    assert ours.mask(np.array([0, 4]), np.array([0, 1])).tolist() == [0, 0]
    assert WithheldSet.of([], ManifestSet([])).mask(np.zeros(0, int), np.zeros(0, int)).shape == (0,)


def test_what_cannot_be_withheld_is_refused() -> None:
    with pytest.raises(NotInRun) as refused:
        WithheldSet.of([Withheld(shard="web/b", row=7, event=2, reason="x")], BOTH)
    assert str(refused.value) == "row 7 of web/b (event 2) is not there\n  allowed: 0:7"
    with pytest.raises(PlanError, match="rows count from 0"):
        Withheld(shard="web/b", row=-1, event=2, reason="x")
    with pytest.raises(PlanError, match="event 0 cannot withhold"):
        Withheld(shard="web/b", event=0, reason="x")
