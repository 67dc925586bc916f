"""The stream where one can follow it by hand: the page's examples, substitutes, windows, errors, and size."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dataguard.errors import NotInRun, PlanError, SpanError
from dataguard.plan.stream import Stream
from tests.plan.stream_cases import OLD, ShardSpec, make_manifest, make_root, mix, pairs, stream_of, wide_manifest

# The examples of the page.


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("seed", range(8))
def test_weights_2_to_1_with_b_2_and_a_mixture_that_ends_at_position_1(lanes: int, seed: int) -> None:
    manifest = make_manifest({"a": [ShardSpec("p", ("." * 9,))], "b": [ShardSpec("p", ("." * 9,))]})
    stream = stream_of(
        mix(manifest, a=2, b=1), mix(manifest, 1, a=2, b=1), manifests=[manifest], lanes=lanes, seed=seed, block=2
    )
    samples = stream.samples(np.arange(40))
    once = samples.epoch == 0
    assert len(set(zip(samples.source[once], samples.row[once], strict=True))) == np.count_nonzero(once)
    ends = {name: stream.end_of_epoch(name, 0) for name in "ab"}
    assert all(np.count_nonzero((samples.source == i) & once) == 9 for i, name in enumerate("ab") if ends[name] <= 40)


def test_a_source_of_one_row_among_16_blocks() -> None:
    blocks = ("x",) * 7 + (".",) + ("x",) * 8
    manifest = make_manifest({"one": [ShardSpec("p", blocks)]})
    stream = stream_of(mix(manifest, one=1), manifests=[manifest], lanes=2)
    samples = stream.samples(np.arange(6))
    assert samples.row.tolist() == [7] * 6
    assert samples.epoch.tolist() == [0, 1, 2, 3, 4, 5]
    assert samples.lane.tolist() == [0, 1, 0, 1, 0, 1]
    assert [f.position for f in stream.find(0, 7, stop=6)] == [0, 1, 2, 3, 4, 5]
    assert stream.end_of_epoch("one", 4) == 5


def test_shuffle_none_interleaves_the_lanes_and_is_file_order_at_one_lane() -> None:
    manifest = make_manifest({"a": [ShardSpec("p", ("..",) * 32)]})
    interleaved = stream_of(mix(manifest, a=1), manifests=[manifest], lanes=4, shuffle="none")
    assert interleaved.samples(np.arange(9)).row.tolist() == [0, 16, 32, 48, 1, 17, 33, 49, 2]
    in_order = stream_of(mix(manifest, a=1), manifests=[manifest], lanes=1, shuffle="none")
    assert in_order.samples(np.arange(70)).row.tolist() == [*range(64), *range(6)]


def test_lanes_hold_disjoint_rows_of_an_epoch() -> None:
    manifest = wide_manifest({"a": (4, 32, 10)})
    stream = stream_of(mix(manifest, a=1), manifests=[manifest], lanes=8)
    samples = stream.samples(np.arange(1280))
    assert set(samples.epoch.tolist()) == {0}
    assert sorted(pairs(samples)) == [(s, r) for s in range(4) for r in range(320)]
    for lane in range(8):
        # 16 blocks a lane, and at its borders a block shared with a neighbour.
        assert len(np.unique(samples.block[samples.lane == lane])) <= 17


# Substitutes.


def test_substitutes_are_rows_of_the_same_source_and_generation() -> None:
    specs = [ShardSpec("p", ("x..", "xx.")), ShardSpec("q", ("...",), excluded=True)]
    old = make_manifest({"a": specs, "b": OLD})
    new = make_manifest({"a": [*specs, ShardSpec("r", ("....",))], "b": OLD})
    stream = stream_of(mix(old, a=1, b=1), mix(new, 4, a=1, b=1), manifests=[old, new], lanes=1)
    first = {stream.substitute(position, 0, 0, draw) for position in range(40) for draw in range(8)}
    assert first == {(0, 0, 1), (0, 0, 2), (1, 0, 5)}
    second = {stream.substitute(position, 0, 1, draw)[1:] for position in range(4, 60) for draw in range(8)}
    shard = int(stream.manifest_set.shard_starts[1])
    assert second == {(shard, 1), (shard, 2), (shard, 5), *((shard + 2, row) for row in range(4))}
    assert stream.substitute(7, 1, 0, 0) == stream.substitute(7, 1, 0, 0)
    assert len({stream.substitute(7, 1, 0, draw) for draw in range(8)}) > 4


# Windows of tokens.


def test_windows_of_tokens() -> None:
    manifest = make_manifest({"t": [ShardSpec("p", ("." * 100,) * 16), ShardSpec("q", ("." * 7,))]}, kind="tokens")
    stream = stream_of(mix(manifest, t=1), manifests=[manifest], form="window", seq_len=64, lanes=2)
    samples = stream.samples(np.arange(26))
    # Source lanes of 12 and 13 windows: the first begins epoch 1 while the second ends epoch 0.
    assert sorted(samples.row[samples.epoch == 0].tolist()) == list(range(1600 // 64))
    assert samples.epoch.sum() == 1
    assert set(samples.shard.tolist()) == {0}
    assert samples.block.tolist() == (samples.row * 64 // 100).tolist()
    with pytest.raises(NotInRun):
        stream.find(1, 0, stop=10)


# Errors.


def test_what_cannot_be_planned_is_refused() -> None:
    manifest = make_manifest({"a": OLD, "empty": [ShardSpec("p", ("x",))]})
    root = make_root(manifest)
    manifests = {manifest.digest: manifest}
    with pytest.raises(PlanError, match="'empty' has no deliverable row"):
        Stream(root, [mix(manifest, a=1, empty=1)], manifests)
    with pytest.raises(PlanError, match="'c' is not in the manifest"):
        Stream(root, [mix(manifest, c=1)], manifests)
    with pytest.raises(PlanError, match="0 first"):
        Stream(root, [mix(manifest, 5, a=1)], manifests)
    with pytest.raises(PlanError, match="0 first"):
        Stream(root, [], manifests)
    with pytest.raises(PlanError, match="give the manifest"):
        Stream(root, [mix(manifest, a=1)], {})
    with pytest.raises(PlanError, match="other versions"):
        Stream(make_root(manifest, algorithms={"keys": 0}), [mix(manifest, a=1)], manifests)


def test_positions_rows_and_epochs_outside_are_refused() -> None:
    manifest = make_manifest({"a": OLD})
    stream = stream_of(mix(manifest, a=1), manifests=[manifest])
    for bad in (-1, 2**60):
        with pytest.raises(NotInRun, match="0:2\\^60"):
            stream.samples(np.array([3, bad]))
    with pytest.raises(PlanError, match="one dimension"):
        stream.samples(np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(PlanError, match="float64"):
        stream.samples(np.array([1.5]))
    with pytest.raises(NotInRun, match="row 24"):
        stream.find(0, 24, stop=10)
    with pytest.raises(NotInRun, match="shard number 2"):
        stream.find(2, 0, stop=10)
    with pytest.raises(SpanError):
        stream.find(0, 0, start=5, stop=4)
    with pytest.raises(SpanError):
        stream.find(0, 0, start=-5, stop=4)
    for epoch in (-1, 2**58):
        with pytest.raises(NotInRun):
            stream.end_of_epoch("a", epoch)
    with pytest.raises(PlanError):
        stream.end_of_epochs(0)
    with pytest.raises(NotInRun, match="'z'"):
        stream.end_of_epoch("z", 0)
    with pytest.raises(NotInRun):
        stream.epochs_begun("a", -1)
    assert len(stream.samples(np.zeros(0, dtype=np.int64)).row) == 0
    assert stream.find(0, 0, stop=0) == []


# Size.


BIG = wide_manifest({"a": (100, 1000, 1000), "b": (10, 100, 500)})


def test_a_plan_of_100_million_samples_stays_below_50_mb() -> None:
    root = make_root(BIG, lanes=512)
    tracemalloc.start()
    stream = Stream(root, [mix(BIG, a=3, b=1)], {BIG.digest: BIG})
    for step in (0, 1, 10**6):
        stream.samples(np.arange(step * 512, (step + 1) * 512))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_far_positions_go_there_and_back() -> None:
    stream = stream_of(mix(BIG, a=3, b=1), mix(BIG, 12_345, a=1, b=1), manifests=[BIG], lanes=64)
    for position in (0, 12_344, 12_345, 10**9 + 7, 2**34 + 1):
        samples = stream.samples(np.array([position]))
        found = stream.find(int(samples.shard[0]), int(samples.row[0]), start=position, stop=position + 1)
        assert [(f.position, f.epoch) for f in found] == [(position, samples.epoch[0])]
        begun = stream.epochs_begun(stream.source_names[samples.source[0]], position + 1)
        assert begun is not None
        assert begun[0] <= samples.epoch[0] <= begun[1]


def test_more_positions_than_one_piece_in_any_order() -> None:
    stream = stream_of(mix(BIG, a=3, b=1), manifests=[BIG], lanes=8, bulk=True)
    positions = (np.arange(70_000) * 7_919) % 100_003
    samples = stream.samples(positions)
    assert np.array_equal(samples.position, positions)
    some = np.array([0, 65_535, 65_536, 69_999])
    assert pairs(stream.samples(positions[some])) == [pairs(samples)[i] for i in some]


def test_threads_share_a_stream() -> None:
    old, new = wide_manifest({"a": (4, 40, 5), "b": (1, 20, 3)}), wide_manifest({"a": (6, 40, 5), "b": (1, 20, 3)})
    mixtures = [mix(old, a=3, b=1), mix(new, 333, a=1, b=1), mix(old, 900, a=1)]
    alone = stream_of(*mixtures, manifests=[old, new], lanes=8).samples(np.arange(2000))
    for _ in range(5):
        shared = stream_of(*mixtures, manifests=[old, new], lanes=8)
        spans = [np.arange(i * 50, (i + 1) * 50) for i in reversed(range(40))]
        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(shared.samples, spans))
        assert [pair for part in reversed(parts) for pair in pairs(part)] == pairs(alone)


def test_one_look_up_imports_no_numba() -> None:
    code = (
        "import sys, numpy as np\n"
        "from tests.plan.test_stream import *\n"
        "m = make_manifest({'a': OLD})\n"
        "s = stream_of(mix(m, a=1), manifests=[m])\n"
        "s.samples(np.arange(3)); s.find(0, 1, stop=50)\n"
        "sys.exit('numba' in sys.modules or 'polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_seeds_give_streams_of_their_own() -> None:
    manifest = make_manifest({"a": OLD})
    streams = {
        tuple(pairs(stream_of(mix(manifest, a=1), manifests=[manifest], seed=seed).samples(np.arange(40))))
        for seed in (0, 1, 2, 2**32, 2**32 + 1, 2**64)
    }
    assert len(streams) == 6
    assert all(sorted(rows) == sorted(next(iter(streams))) for rows in streams)
