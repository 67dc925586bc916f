"""Lookups meet frames, sealed and compacted files in any mixture, and tell what they could not trust."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dataguard.errors import RunDamaged
from dataguard.run import index as index_module
from dataguard.run.check import check_record
from dataguard.run.compact import compact
from dataguard.run.exceptions import ExceptionReason, exception_record
from dataguard.run.frames import HEADER_BYTES
from dataguard.run.index import Index, merge
from dataguard.run.layout import Layout
from dataguard.run.seal import seal_attempt
from dataguard.run.sources import Source, Sources
from tests.run.recording import microbatch, open_writer, record_run

FRAME_BYTES = 4 * 108 + 8
STEPS = range(3, 43)


@pytest.fixture(params=["hot", "sealed", "mixed", "compacted"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Layout, np.ndarray]:
    """Three ranks over 40 steps, wherever their record may lie."""
    seal = request.param in {"sealed", "compacted"}
    expected = record_run(
        tmp_path,
        num_ranks=3,
        steps=STEPS,
        num_microbatches=2,
        segment_steps=10_000 if request.param == "hot" else 15,
        close={"seal": seal},
    )
    if request.param == "compacted":
        compact(Layout(tmp_path), 1, file_records=400)
    return Layout(tmp_path), expected


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1]), at)


def test_one_step(run: tuple[Layout, np.ndarray]) -> None:
    layout, expected = run
    for step in (3, 14, 15, 29, 30, 42):
        found = Index(layout).step(1, step, num_ranks=3)
        assert found.records.tobytes() == expected[expected["step"] == step].tobytes()
        assert (found.absent_ranks, found.torn, found.damage) == ((), (), ())
        one = Index(layout).step(1, step, rank=1)
        assert one.records.tobytes() == expected[(expected["step"] == step) & (expected["rank"] == 1)].tobytes()


def test_a_step_that_was_not_recorded(run: tuple[Layout, np.ndarray]) -> None:
    for step in (0, 2, 43, 10**9):
        found = Index(run[0]).step(1, step, num_ranks=3)
        assert (len(found.records), found.absent_ranks, found.damage) == (0, (0, 1, 2), ())
    assert Index(run[0]).step(7, 5, num_ranks=2).absent_ranks == (0, 1)


def test_all_steps_and_some(run: tuple[Layout, np.ndarray]) -> None:
    layout, expected = run
    assert merge(list(Index(layout).records(1))).tobytes() == expected.tobytes()
    some = expected[(expected["step"] >= 14) & (expected["step"] < 17)]
    assert merge(list(Index(layout).records(1, steps=(14, 17)))).tobytes() == some.tobytes()


def test_some_columns_for_queries(run: tuple[Layout, np.ndarray]) -> None:
    layout, expected = run
    frame = pl.concat([pl.from_arrow(table) for table in Index(layout).tables(1, columns=["step", "row", "digest"])])
    frame = frame.sort("step", "row")
    wanted = expected[np.lexsort((expected["row"], expected["step"]))]
    assert frame["step"].to_list() == wanted["step"].tolist()
    assert frame["row"].to_list() == wanted["row"].tolist()


def test_sealed_paths_are_read_by_others_without_doubles(run: tuple[Layout, np.ndarray]) -> None:
    layout, expected = run
    seal_attempt(layout, 1)
    frame = pl.read_parquet(Index(layout).scan_paths(1), hive_partitioning=False)
    assert sorted(frame["position"].to_list()) == sorted(expected["position"].tolist())


def test_where_each_rank_ended(run: tuple[Layout, np.ndarray]) -> None:
    assert Index(run[0]).next_steps(1, 4, 2) == [43, 43, 43, None]
    assert Index(run[0]).next_steps(1, 3, lambda step: 3 if step == 42 else 2) == [42, 42, 42]


def test_nothing_is_wrong_with_it(run: tuple[Layout, np.ndarray]) -> None:
    for window_records in (50, 1 << 19):
        checked = check_record(run[0], 1, num_ranks=3, num_microbatches=lambda _: 2, window_records=window_records)
        assert (checked.problems, checked.torn, checked.num_records) == ((), (), len(run[1]))


def test_ranks_that_ended_inside_a_step(tmp_path: Path) -> None:
    for rank, ends in enumerate([(4, 1), (5, 0), (5, 1)]):
        writer = open_writer(tmp_path, rank=rank)
        for step in range(6):
            for number in range(2):
                if (step, number) <= ends:
                    writer.append(microbatch(step, number, rank=rank, num_microbatches=2, num_ranks=3))
        writer.close(seal=rank != 1)
    index = Index(Layout(tmp_path))
    assert index.next_steps(1, 3, 2) == [5, 5, 6]
    assert index.check(1, num_microbatches=lambda _: 2).problems == ()
    assert index.step(1, 5, num_ranks=3).absent_ranks == (0,)


def test_an_attempt_that_recorded_nothing_yet(tmp_path: Path) -> None:
    with open_writer(tmp_path, first_step=30):
        assert Index(Layout(tmp_path)).next_steps(1, 2, 2) == [30, None]
        assert list(Index(Layout(tmp_path)).records(1)) == []
        assert check_record(Layout(tmp_path), 1).problems == ()


def test_a_long_segment_is_searched_and_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = record_run(tmp_path, num_ranks=1, steps=range(2_000), num_microbatches=2, close={"seal": False})

    def whole(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("the whole segment was read")

    monkeypatch.setattr(index_module, "scan_frames", whole)
    for step in (0, 1, 777, 1_999):
        assert Index(Layout(tmp_path)).step(1, step).records.tobytes() == expected[expected["step"] == step].tobytes()
    assert len(Index(Layout(tmp_path)).step(1, 2_000).records) == 0


def test_a_searched_segment_with_damage_is_read_whole(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=1, steps=range(1_000), close={"seal": False})
    hot = Layout(tmp_path).hot_segment(1, 0, 0)
    flip(hot, HEADER_BYTES + 500 * FRAME_BYTES + 3)
    with hot.open("ab") as file:
        file.write(bytes(3 * FRAME_BYTES + 5))
    found = Index(Layout(tmp_path)).step(1, 499)
    assert found.records.tobytes() == expected[expected["step"] == 499].tobytes()
    assert len(found.damage) == 1
    assert "frame 500" in found.damage[0]
    assert "dropped" in found.torn[0]
    assert len(Index(Layout(tmp_path)).step(1, 500).records) == 0
    assert Index(Layout(tmp_path)).next_steps(1, 1, 1) == [1_000]


def test_only_the_row_groups_of_the_step_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    record_run(tmp_path, num_ranks=1, steps=range(6_000))
    groups: list[list[int]] = []
    real = pq.ParquetFile.read_row_groups

    def counted(self: pq.ParquetFile, wanted: list[int], **kwargs: object) -> object:
        groups.append(wanted)
        return real(self, wanted, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", counted)
    assert len(Index(Layout(tmp_path)).step(1, 2_100).records) == 4
    assert groups == [[1]]


def test_a_lookup_lists_no_folder(run: tuple[Layout, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*_args: object) -> None:
        raise AssertionError("a folder was listed")

    for owner, name in ((os, "listdir"), (os, "scandir"), (Path, "iterdir"), (Path, "glob")):
        monkeypatch.setattr(owner, name, listed)
    assert len(Index(run[0]).step(1, 20, num_ranks=3).records) == 24
    assert Index(run[0]).next_steps(1, 3, 2) == [43, 43, 43]


def test_a_file_that_is_sealed_under_the_readers_eyes(tmp_path: Path) -> None:
    """Names were computed, then the writer went on: what moved is found where it lies now."""
    expected = record_run(tmp_path, num_ranks=2, steps=STEPS, segment_steps=15, close={"seal": False})
    layout = Layout(tmp_path)
    reading = Index(layout).records(1)
    parts = [next(reading)]
    seal_attempt(layout, 1)
    assert merge([*parts, *reading]).tobytes() == expected.tobytes()

    reading = Index(layout).records(1)
    parts = [next(reading)]
    compact(layout, 1, file_records=50)
    assert merge([*parts, *reading]).tobytes() == expected.tobytes()


# -- damage


def kinds(layout: Layout, **facts: object) -> list[str]:
    return [problem.kind for problem in check_record(layout, 1, **facts).problems]


def test_a_torn_tail_is_no_problem(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(5), close={"seal": False})
    with Layout(tmp_path).hot_segment(1, 1, 0).open("ab") as file:
        file.write(bytes(100))
    checked = check_record(Layout(tmp_path), 1)
    assert checked.problems == ()
    assert len(checked.torn) == 1


def test_a_damaged_frame_is_damage_and_a_gap(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(5), close={"seal": False})
    flip(Layout(tmp_path).hot_segment(1, 1, 0), HEADER_BYTES + 2 * FRAME_BYTES + 100)
    checked = check_record(Layout(tmp_path), 1)
    assert sorted(problem.kind for problem in checked.problems) == ["damaged", "gap"]
    gap = next(problem for problem in checked.problems if problem.kind == "gap")
    assert (gap.rank, gap.step) == (1, 2)
    assert "recorded step 3 without step 2" in gap.message


@pytest.mark.parametrize("compacted", [False, True])
def test_finished_files_that_were_changed_or_lost(tmp_path: Path, compacted: bool) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(20), segment_steps=10)
    layout = Layout(tmp_path)
    if compacted:
        compact(layout, 1, file_records=80)
    path = layout.compacted(1, 10, 20) if compacted else layout.sealed(1, 1, 10, 20)
    content = path.read_bytes()
    flip(path, 200)
    assert "changed" in kinds(layout)
    path.write_bytes(content[:-1])
    found = check_record(layout, 1).problems
    assert {problem.kind for problem in found} == {"changed", "damaged"}
    assert str(path) in found[0].message
    path.unlink()
    assert "missing" in kinds(layout)
    found_step = Index(layout).step(1, 12, num_ranks=2)
    assert found_step.damage == (f"{path} is missing",)
    with pytest.raises(RunDamaged, match="is missing"):
        list(Index(layout).records(1))
    path.write_bytes(content)
    assert kinds(layout) == []


def test_files_that_changed_places(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(20), segment_steps=10)
    layout = Layout(tmp_path)
    one, other = layout.sealed(1, 0, 0, 10), layout.sealed(1, 0, 10, 20)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert len(Index(layout).step(1, 5).damage) == 1
    assert kinds(layout).count("changed") == 2


def test_frames_of_another_rank_are_refused(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(5), close={"seal": False})
    layout = Layout(tmp_path)
    layout.hot_segment(1, 1, 0).write_bytes(layout.hot_segment(1, 0, 0).read_bytes())
    found = Index(layout).step(1, 3, num_ranks=2)
    assert found.absent_ranks == (1,)
    assert "is another file in this one's place" in found.damage[0]
    layout.seals(1, 1).write_bytes(layout.seals(1, 0).read_bytes())
    assert any("its header says attempt 1, rank 0" in str(problem) for problem in check_record(layout, 1).problems)


@pytest.mark.parametrize("compacted", [False, True])
def test_damaged_seals_lose_no_finished_file(tmp_path: Path, compacted: bool) -> None:
    expected = record_run(tmp_path, num_ranks=2, steps=range(30), segment_steps=10)
    layout = Layout(tmp_path)
    if compacted:
        compact(layout, 1, file_records=80)
    seals = layout.compacted_seals(1) if compacted else layout.seals(1, 0)
    flip(seals, HEADER_BYTES + 80 + 8 + 2)
    damage: list[str] = []
    assert merge(list(Index(layout).records(1, damage=damage))).tobytes() == expected.tobytes()
    assert len(damage) == 1
    assert kinds(layout) == ["damaged"]
    flip(seals, HEADER_BYTES + 80 + 8 + 2)
    flip(seals, 100)
    damage.clear()
    assert merge(list(Index(layout).records(1, damage=damage))).tobytes() == expected.tobytes()
    assert "header" in damage[0]


def test_gaps_and_doubles(tmp_path: Path) -> None:
    def record(name: str, *addresses: tuple[int, int, int], first_step: int = 0) -> Layout:
        for rank in (0, 1):
            with open_writer(tmp_path / name, rank=rank, first_step=first_step) as writer:
                for of, step, number in addresses:
                    if of == rank:
                        writer.append(microbatch(step, number, rank=rank, num_microbatches=2, num_ranks=2))
        return Layout(tmp_path / name)

    def both(*steps: int) -> list[tuple[int, int, int]]:
        return [(rank, step, number) for step in steps for rank in (0, 1) for number in (0, 1)]

    good = record("good", *both(0, 1, 2))
    assert kinds(good) == []
    late = record("late", *both(1, 2))
    assert kinds(late) == ["gap", "gap"]
    hole = record("hole", *both(0, 1, 5, 6))
    assert kinds(hole) == ["gap", "gap"]
    assert "without steps 2:5" in check_record(hole, 1).problems[0].message
    assert kinds(hole, next_delivered=lambda step: 5 if 2 <= step < 5 else step) == []
    lacks = record("lacks", *[entry for entry in both(0, 1, 2) if entry != (1, 1, 0)])
    assert [(p.kind, p.rank, p.step) for p in check_record(lacks, 1).problems] == [("gap", 1, 1)]
    early = record("early", *[entry for entry in both(0, 1, 2) if entry != (1, 1, 1)])
    assert [(p.kind, p.rank, p.step) for p in check_record(early, 1).problems] == [("gap", 1, 1)]
    more = record("more", *both(0, 1), (0, 1, 2))
    problems = check_record(more, 1, num_microbatches=lambda _: 2).problems
    assert any("rank 0 has 3 microbatches of step 1 instead of 2" in str(problem) for problem in problems)


def test_a_position_twice_or_out_of_order(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        for step in range(6):
            records = microbatch(step)
            if step == 3:
                records["position"][2] = 7
            if step == 4:
                records["position"] += 100
            writer.append(records)
    for window_records in (4, 1 << 19):
        problems = check_record(Layout(tmp_path), 1, window_records=window_records).problems
        assert {problem.kind for problem in problems} >= {"disordered"}
        assert any(problem.step in {3, 4, 5} for problem in problems)
    assert "doubled" in kinds(Layout(tmp_path))
    assert "position 7 in step 3" in "".join(map(str, check_record(Layout(tmp_path), 1).problems))


def test_damaged_exceptions_are_told(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.append(microbatch(0))
        writer.append_exception(exception_record(step=0, position=1, reason=ExceptionReason.CHANGED))
    flip(Layout(tmp_path).exceptions(1, 0), HEADER_BYTES + 5)
    assert kinds(Layout(tmp_path)) == ["damaged"]


@pytest.mark.parametrize("sealed_after", [1, 2, 3])
def test_segments_sealed_while_their_names_are_computed_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed_after: int
) -> None:
    """Between the reading of the seals and the look for frames, everything is sealed and the frames are gone."""
    with open_writer(tmp_path, segment_steps=10, background=False) as writer:
        for step in range(35):
            writer.append(microbatch(step))
        writer.close(seal=False)
    layout = Layout(tmp_path)
    looks = 0
    look = Sources.hot

    def late(self: Sources, *args: object) -> list[Source]:
        nonlocal looks
        looks += 1
        if looks == sealed_after:
            assert not seal_attempt(layout, 1).problems
        return look(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Sources, "hot", late)
    index = Index(layout)
    assert index.next_steps(1, 1, 1) == [35]
    assert index.step(1, 34, num_ranks=1).records["step"].tolist() == [34] * 4
    assert merge(list(index.records(1)))["step"][::4].tolist() == list(range(35))
    assert looks >= sealed_after


def test_notable_samples_compacted_while_names_are_computed_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of ranks are named, then compaction takes them away: nothing notable may vanish with them."""
    layout = Layout(tmp_path)
    for rank in range(2):
        with open_writer(tmp_path, rank=rank, segment_steps=10, background=False) as writer:
            for step in range(30):
                writer.append(microbatch(step, rank=rank, num_ranks=2))
    index = Index(layout)
    before = merge(list(index.notable(1)))
    assert len(before) > 4
    named = Sources.of_attempt

    def late(self: Sources, *args: object, **named_args: object) -> list[Source]:
        found = list(named(self, *args, **named_args))  # type: ignore[arg-type]
        assert compact(layout, 1).removed
        return found

    monkeypatch.setattr(Sources, "of_attempt", late)
    assert merge(list(index.notable(1))).tobytes() == before.tobytes()
