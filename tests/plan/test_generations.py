"""Sources that grow, shrink, leave and come back, where one can follow it by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dataguard.errors import NotInRun
from tests.plan.stream_cases import NEW, OLD, make_manifest, mix, pairs, stream_of


def test_a_grown_source_finishes_its_old_epoch_first() -> None:
    old, new = make_manifest({"a": OLD}), make_manifest({"a": NEW})
    stream = stream_of(mix(old, a=1), mix(new, 10, a=1), manifests=[old, new], lanes=4)
    alone = stream_of(mix(old, a=1), manifests=[old], lanes=4)
    samples = stream.samples(np.arange(300))
    end = stream.end_of_epoch("a", 0)
    assert end == alone.end_of_epoch("a", 0) == 40
    assert pairs(alone.samples(np.arange(40))) == pairs(stream.samples(np.arange(40)))
    assert samples.generation.tolist() == [0] * 40 + [1] * 260
    assert samples.epoch[40] == 1
    second = [pair for pair, epoch in zip(pairs(samples), samples.epoch, strict=True) if epoch == 1]
    first_shard = int(stream.manifest_set.shard_starts[1])
    assert sorted(second) == [(first_shard + s, r) for s in range(2) for r in range(24)]
    # Rows of q, which the new manifest lacks, are withheld from position 10 on and nowhere before.
    gone = (samples.generation == 0) & (samples.shard == 1)
    assert samples.removed.tolist() == (gone & (samples.position >= 10)).tolist()
    assert np.count_nonzero(samples.removed) > 0
    assert stream.is_removed(20, 0, 0, 1)
    assert not stream.is_removed(5, 0, 0, 1)
    assert not stream.is_removed(20, 0, 0, 0)
    assert not stream.is_removed(20, 0, 1, 2)


def test_a_source_that_changes_twice_in_one_epoch_leaves_an_empty_generation() -> None:
    old, new = make_manifest({"a": OLD}), make_manifest({"a": NEW})
    third = make_manifest({"a": [*NEW, *OLD[1:]]})
    stream = stream_of(mix(old, a=1), mix(new, 10, a=1), mix(third, 20, a=1), manifests=[old, new, third], lanes=2)
    samples = stream.samples(np.arange(200))
    assert set(samples.generation.tolist()) == {0, 2}
    # From 20 on q is back, so its rows in the epoch still running are delivered again.
    gone = (samples.shard == 1) & (samples.position >= 10) & (samples.position < 20)
    assert samples.removed.tolist() == gone.tolist()
    assert np.count_nonzero(gone) > 0
    second = [pair for pair, epoch in zip(pairs(samples), samples.epoch, strict=True) if epoch == 1]
    assert len(second) == len(set(second)) == 64
    assert stream.find(int(stream.manifest_set.shard_starts[1]), 0, stop=200) == []


def test_a_source_changed_before_it_was_ever_drawn_starts_anew() -> None:
    old, new = make_manifest({"a": OLD, "b": OLD}), make_manifest({"a": OLD, "b": NEW})
    stream = stream_of(mix(old, a=2**40, b=1), mix(new, 5, b=1), manifests=[old, new], lanes=2, seed=3)
    samples = stream.samples(np.arange(5, 60))
    assert set(samples.generation.tolist()) == {1}
    assert samples.epoch[0] == 0
    assert stream.epochs_begun("b", 5) is None


def test_a_source_left_as_it_was_keeps_its_numbers() -> None:
    old, new = make_manifest({"a": OLD, "b": OLD}), make_manifest({"a": OLD, "b": NEW})
    stream = stream_of(mix(old, a=1, b=1), mix(new, 30, a=1, b=1), manifests=[old, new])
    samples = stream.samples(np.arange(400))
    assert set(samples.generation[samples.source == 0].tolist()) == {0}
    assert set(samples.shard[samples.source == 0].tolist()) == {0, 1}
    assert set(samples.generation[samples.source == 1].tolist()) == {0, 1}


def test_another_text_field_is_another_generation() -> None:
    old, new = make_manifest({"a": OLD}), make_manifest({"a": OLD}, text_field="content")
    stream = stream_of(mix(old, a=1), mix(new, 10, a=1), manifests=[old, new])
    samples = stream.samples(np.arange(100))
    assert set(samples.generation.tolist()) == {0, 1}
    assert not samples.removed.any()


def test_a_source_that_leaves_and_comes_back_goes_on() -> None:
    manifest = make_manifest({"a": OLD, "b": OLD})
    stream = stream_of(
        mix(manifest, a=1, b=1), mix(manifest, 21, a=1), mix(manifest, 50, b=1), manifests=[manifest], lanes=2
    )
    samples = stream.samples(np.arange(95))
    b = (samples.source == 1) & (samples.epoch == 0)
    first = [pair for pair, mine in zip(pairs(samples), b, strict=True) if mine]
    assert len(first) == len(set(first)) == 40
    assert not (samples.source[21:50] == 1).any()
    with pytest.raises(NotInRun, match="epoch 7 of source 'a'"):
        stream.end_of_epoch("a", 7)
    assert stream.end_of_epochs(1) == stream.end_of_epoch("b", 0)


def test_a_changed_source_that_was_dropped_meanwhile_is_compared_with_its_last_state() -> None:
    old, new = make_manifest({"a": OLD, "b": OLD}), make_manifest({"a": NEW, "b": OLD})
    stream = stream_of(
        mix(old, a=1),
        mix(old, 10, b=1),
        mix(new, 20, a=1),
        mix(old, 70, b=1),
        mix(new, 71, a=1),
        manifests=[old, new],
        lanes=1,
    )
    samples = stream.samples(np.arange(200))
    assert samples.generation[:10].tolist() == [0] * 10
    assert samples.epoch[20:50].tolist() == [0] * 30  # the 30 rows that were left of 40
    assert samples.generation[50] == 1
    assert set(samples.generation[71:].tolist()) == {1}
