"""The stream against its naive twin: any sources, lanes, mixtures at any position, grown and shrunk sources."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import NotInRun
from dataguard.plan.stream import Samples, Stream
from tests.plan.stream_cases import Case, cases
from tests.twins.stream import Row, SlowStream, sample_rows

NUM_POSITIONS = 200


def rows_of(stream: Stream, samples: Samples) -> list[Row]:
    found = []
    for i in range(len(samples.position)):
        ordinal, shard = stream.manifest_set.split_shard(int(samples.shard[i]))
        found.append(
            Row(
                source=stream.source_names[samples.source[i]],
                generation=int(samples.generation[i]),
                epoch=int(samples.epoch[i]),
                lane=int(samples.lane[i]),
                place=int(samples.place[i]),
                manifest=ordinal,
                shard=shard,
                row=int(samples.row[i]),
                removed=bool(samples.removed[i]),
            )
        )
    return found


def check_blocks(stream: Stream, samples: Samples) -> None:
    for i in range(len(samples.position)):
        (ordinal, shard), row = stream.manifest_set.split_shard(int(samples.shard[i])), int(samples.row[i])
        stored = row if stream.root.seq_len is None else row * stream.root.seq_len
        expected = stream.manifest_set.manifests[ordinal].block_of(shard, stored)
        assert stream.manifest_set.split_block(int(samples.block[i])) == (ordinal, expected)


def ends_by(stream: Stream, name: str, epoch: int, position: int) -> bool:
    try:
        return stream.end_of_epoch(name, epoch) <= position
    except NotInRun:  # its weight is so small that it ends behind all positions
        return False


@settings(max_examples=80)
@given(cases(), st.randoms(use_true_random=False))
def test_samples_are_those_of_the_walk(case: Case, random) -> None:
    stream = Stream(*case.arguments, mixture_block=case.block)
    samples = stream.samples(np.arange(NUM_POSITIONS))
    walked = SlowStream(*case.arguments, mixture_block=case.block).walk(NUM_POSITIONS)
    assert rows_of(stream, samples) == walked
    check_blocks(stream, samples)
    # Any order of asking, a fresh stream, later mixtures first: the same samples.
    some = [random.randrange(NUM_POSITIONS) for _ in range(20)]
    again = Stream(*case.arguments, mixture_block=case.block).samples(np.array(some))
    assert rows_of(stream, again) == [walked[p] for p in some]


@settings(max_examples=40)
@given(cases(), st.randoms(use_true_random=False))
def test_find_is_the_exact_inverse(case: Case, random) -> None:
    samples = Stream(*case.arguments, mixture_block=case.block).samples(np.arange(NUM_POSITIONS))
    stream = Stream(*case.arguments, mixture_block=case.block)
    held = sorted(set(zip(samples.shard.tolist(), samples.row.tolist(), strict=True)))
    everything = [
        (int(stream.manifest_set.shard_starts[m]) + shard, row)
        for m, manifest in enumerate(stream.manifest_set.manifests)
        for shard, entry in enumerate(manifest.shards)
        for row in range(entry.num_rows if stream.root.seq_len is None else entry.num_rows // stream.root.seq_len)
    ]
    for shard, row in random.sample(everything, min(len(everything), 8)) + random.sample(held, min(len(held), 8)):
        start, stop = sorted(random.choices(range(NUM_POSITIONS + 1), k=2))
        for lo, hi in ((0, NUM_POSITIONS), (start, stop)):
            expected = [
                (p, int(samples.epoch[p])) for p in range(lo, hi) if samples.shard[p] == shard and samples.row[p] == row
            ]
            assert [(f.position, f.epoch) for f in stream.find(shard, row, start=lo, stop=hi)] == expected


@settings(max_examples=40)
@given(cases())
def test_every_row_comes_exactly_once_an_epoch(case: Case) -> None:
    stream = Stream(*case.arguments, mixture_block=case.block)
    num_positions = 500
    samples = stream.samples(np.arange(num_positions))
    passes: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for source, generation, epoch, shard, row in zip(
        samples.source.tolist(),
        samples.generation.tolist(),
        samples.epoch.tolist(),
        samples.shard.tolist(),
        samples.row.tolist(),
        strict=True,
    ):
        passes.setdefault((source, generation, epoch), []).append((shard, row))
    generations_by_epoch: dict[tuple[int, int], set[int]] = {}
    for (source, generation, epoch), rows in passes.items():
        generations_by_epoch.setdefault((source, epoch), set()).add(generation)
        assert len(set(rows)) == len(rows), "a row came twice in one epoch"
        name = stream.source_names[source]
        if epoch < 4 and name in case.mixtures[-1].weights and ends_by(stream, name, epoch, num_positions):
            ordinal, _ = stream.manifest_set.split_shard(rows[0][0])
            first = int(stream.manifest_set.shard_starts[ordinal])
            manifest = stream.manifest_set.manifests[ordinal]
            wanted = {(first + s, r) for block in sample_rows(manifest, name, case.root) for s, r in block}
            assert set(rows) == wanted, "a row was lost from an epoch that ended"
    assert all(len(found) == 1 for found in generations_by_epoch.values()), "an epoch mixes two states of a source"


@settings(max_examples=40)
@given(cases(), st.integers(0, NUM_POSITIONS))
def test_epochs_begin_and_end_where_the_walk_says(case: Case, position: int) -> None:
    stream = Stream(*case.arguments, mixture_block=case.block)
    walked = SlowStream(*case.arguments, mixture_block=case.block).walk(NUM_POSITIONS)
    for name in stream.source_names:
        last: dict[int, int] = {}
        for row in walked[:position]:
            if row.source == name:
                last[row.lane] = row.epoch
        expected = (min(last.values()), max(last.values())) if last else None
        assert stream.epochs_begun(name, position) == expected
        for epoch in range(3):
            at = [p for p, row in enumerate(walked) if row.source == name and row.epoch == epoch]
            try:
                end = stream.end_of_epoch(name, epoch)
            except NotInRun:
                # Left the mixture before it, or weighs so little that it ends behind all positions.
                left = name not in case.mixtures[-1].weights
                assert not at if left else max(case.mixtures[-1].weights.values()) == 2**70
                continue
            assert end > max(at, default=-1)
            if end <= NUM_POSITIONS:
                assert end == at[-1] + 1
    first = [p for p, row in enumerate(walked) if row.epoch < 1]
    try:
        end = stream.end_of_epochs(1)
    except NotInRun:  # a weight so small that the epoch ends behind all positions
        assert any(max(mixture.weights.values()) == 2**70 for mixture in case.mixtures)
        return
    assert end == first[-1] + 1 if end <= NUM_POSITIONS else end > first[-1] + 1


@settings(max_examples=40)
@given(case=cases())
def test_bulk_gives_the_same_samples(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataguard.plan.stream._LARGE", 1)
    slow = Stream(*case.arguments, mixture_block=case.block).samples(np.arange(NUM_POSITIONS))
    fast = Stream(*case.arguments, mixture_block=case.block, bulk=True).samples(np.arange(NUM_POSITIONS))
    for name in ("source", "generation", "epoch", "lane", "place", "block", "shard", "row", "removed"):
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name), err_msg=name)


@settings(max_examples=40)
@given(cases())
def test_a_mixture_added_later_changes_nothing_before_it(case: Case) -> None:
    until = case.mixtures[-1].start
    if until == 0:
        return
    shorter = Stream(case.root, case.mixtures[:-1], case.manifests, mixture_block=case.block)
    longer = Stream(*case.arguments, mixture_block=case.block)
    longer.samples(np.array([until]))  # enters the last mixture first
    assert rows_of(shorter, shorter.samples(np.arange(until))) == rows_of(longer, longer.samples(np.arange(until)))
