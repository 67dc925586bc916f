"""The files of all ranks become files of whole steps; killed anywhere, the record is the old files or the new ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataguard.errors import NotInRun, RunDamaged, WriterConflict
from dataguard.run.check import check_record
from dataguard.run.compact import compact
from dataguard.run.index import Index, merge
from dataguard.run.layout import Layout
from dataguard.run.records import notable
from tests.run.dying import deaths, memory_folder
from tests.run.recording import microbatch, open_writer, record_run

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def everything(root: Path) -> np.ndarray:
    return merge(list(Index(Layout(root)).records(1)))


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_ranks_are_merged_and_their_files_gone(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=3, steps=range(5, 45), num_microbatches=2, segment_steps=20)
    done = compact(Layout(tmp_path), 1, file_records=300)
    assert done.num_records == len(expected)
    assert done.removed == 9
    assert len(done.files) > 3
    assert np.concatenate(list(Index(Layout(tmp_path)).records(1))).tobytes() == expected.tobytes()
    special = expected[notable(expected)]
    assert np.concatenate(list(Index(Layout(tmp_path)).notable(1))).tobytes() == special.tobytes()
    assert not [name for name in files(tmp_path) if "rank=" in name and not name.startswith("seals/")]
    assert not [name for name in files(tmp_path) if name.startswith("tmp/")]
    for step in (5, 19, 20, 44):
        found = Index(Layout(tmp_path)).step(1, step)
        assert found.records.tobytes() == expected[expected["step"] == step].tobytes()
        assert (found.absent_ranks, found.torn, found.damage) == ((), (), ())
    one = Index(Layout(tmp_path)).step(1, 20, rank=2).records
    assert one.tobytes() == expected[(expected["step"] == 20) & (expected["rank"] == 2)].tobytes()


def test_a_second_time_does_nothing(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(20))
    first = compact(Layout(tmp_path), 1)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    again = compact(Layout(tmp_path), 1)
    assert (len(first.files), again.files, again.removed) == (1, (), 0)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_row_groups_are_bounded(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(100), size=256)
    done = compact(Layout(tmp_path), 1)
    with pq.ParquetFile(done.files[0]) as file:
        rows = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert rows == [32_768, 51_200 - 32_768]


def test_ranks_that_ended_at_different_steps(tmp_path: Path) -> None:
    parts = []
    for rank, stop in enumerate((9, 3, 6)):
        with open_writer(tmp_path, rank=rank, segment_steps=4) as writer:
            for step in range(stop):
                writer.append(microbatch(step, rank=rank, num_ranks=3))
                parts.append((step, rank))
    compact(Layout(tmp_path), 1, file_records=10)
    got = everything(tmp_path)
    assert list(zip(got["step"][::4].tolist(), got["rank"][::4].tolist(), strict=True)) == sorted(parts)
    assert Index(Layout(tmp_path)).next_steps(1, 3, 1) == [9, 3, 6]
    assert check_record(Layout(tmp_path), 1).problems == ()


def test_a_killed_attempt_is_sealed_on_the_way(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=2, steps=range(7), close={"seal": False})
    hot = Layout(tmp_path).hot_segment(1, 1, 0)
    with hot.open("ab") as file:
        file.write(b"torn")
    done = compact(Layout(tmp_path), 1)
    assert done.torn == ((hot, 4),)
    assert everything(tmp_path).tobytes() == expected.tobytes()


def test_a_living_writer_stops_it(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(7))
    with open_writer(tmp_path, rank=1), pytest.raises(WriterConflict, match="rank 1 of attempt 1"):
        compact(Layout(tmp_path), 1)


def test_nothing_to_compact(tmp_path: Path) -> None:
    with pytest.raises(NotInRun, match="attempt 1 has no record"):
        compact(Layout(tmp_path), 1)
    open_writer(tmp_path).close()
    assert compact(Layout(tmp_path), 1).files == ()


@pytest.mark.parametrize("way", ["changed", "missing", "frames"])
def test_damage_stops_it_before_anything_is_removed(tmp_path: Path, way: str) -> None:
    record_run(tmp_path, num_ranks=2, steps=range(7), close={"seal": way != "frames"})
    path = Layout(tmp_path).hot_segment(1, 1, 0) if way == "frames" else Layout(tmp_path).sealed(1, 1, 0, 7)
    if way == "missing":
        path.unlink()
    else:
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), b"\xff\x00\xff", 4096 + 3 if way == "frames" else 40)
    before = [name for name in files(tmp_path) if name.endswith(".parquet")]
    with pytest.raises(RunDamaged):
        compact(Layout(tmp_path), 1)
    assert set(before) <= set(files(tmp_path))
    assert not [source for source in files(tmp_path) if source.startswith("index/attempt=0001/0")]


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_death_at_any_call_leaves_the_old_or_the_new_files(in_memory: Path, after: bool) -> None:
    """Recorded once, compacted by a process that dies at every single change of the disk."""
    num_deaths = 0

    def work(root: Path) -> None:
        compact(Layout(root), 1, file_records=20)

    def fresh(root: Path) -> np.ndarray:
        return record_run(root, num_ranks=2, steps=range(4), segment_steps=3)

    expected = fresh(in_memory / "like")
    for root in deaths(work, in_memory, after=after, prepare=fresh):
        num_deaths += 1
        index = Index(Layout(root))
        assert everything(root).tobytes() == expected.tobytes()
        assert merge(list(index.notable(1))).tobytes() == expected[notable(expected)].tobytes()
        for step in range(4):
            assert index.step(1, step).records.tobytes() == expected[expected["step"] == step].tobytes()
        checked = check_record(Layout(root), 1)
        assert (checked.problems, checked.num_records) == ((), len(expected))
        compact(Layout(root), 1, file_records=20)
        assert everything(root).tobytes() == expected.tobytes()
        assert not list(Layout(root).index_attempt(1).glob("rank=*"))
    assert num_deaths > 30


@pytest.mark.parametrize("num_files", [0, 1, 3])
def test_what_is_left_early_is_whole_and_finished_by_the_next_call(tmp_path: Path, num_files: int) -> None:
    expected = record_run(tmp_path, num_ranks=3, steps=range(5, 45), num_microbatches=2, segment_steps=20)
    asked = iter([False] * (1 + num_files))
    early = compact(Layout(tmp_path), 1, file_records=300, leave=lambda: next(asked, True))
    assert (len(early.files), early.removed) == (num_files, 0)
    assert merge(list(Index(Layout(tmp_path)).records(1))).tobytes() == expected.tobytes()
    done = compact(Layout(tmp_path), 1, file_records=300)
    assert done.removed == 9
    assert early.num_records + done.num_records == len(expected)
    assert merge(list(Index(Layout(tmp_path)).records(1))).tobytes() == expected.tobytes()
