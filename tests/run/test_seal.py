"""Frames become Parquet without ever being in doubt, wherever a kill comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataguard.errors import NotInRun, RunDamaged, WriterConflict
from dataguard.run import seal as seal_module
from dataguard.run.check import check_record
from dataguard.run.columns import FileName, read_identity, read_records
from dataguard.run.frames import scan_frames
from dataguard.run.index import Index, merge
from dataguard.run.layout import Layout
from dataguard.run.locks import hold
from dataguard.run.records import RANKED_RECORD, notable
from dataguard.run.seal import file_sha256, ranks_of, read_seals, seal_attempt
from tests.run.dying import deaths, in_a_child, memory_folder
from tests.run.recording import DIGESTS, HEAD, RUN_ID, microbatch, open_writer, record_run

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def everything(root: Path) -> np.ndarray:
    return merge(list(Index(Layout(root)).records(1)))


def name(**changes: object) -> FileName:
    facts = {"kind": "sealed", "run_id": RUN_ID, "attempt": 1, "rank": 0, "first": 0, "stop": 20}
    return FileName(**{**facts, **changes})


def test_a_sealed_file_reads_back_as_it_was_recorded(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=1, steps=range(20))
    path = Layout(tmp_path).sealed(1, 0, 0, 20)
    assert read_records(path, name()).tobytes() == expected.tobytes()
    identity = read_identity(path)
    assert (identity.run_id, identity.attempt, identity.rank) == (RUN_ID, 1, 0)
    assert (identity.digests, identity.journal_head) == (DIGESTS, HEAD)
    assert (identity.first_step, identity.stop_step) == (0, 20)


def test_its_seal_tells_its_bytes(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(20))
    (seal,) = read_seals(Layout(tmp_path).seals(1, 0))[1]
    assert (seal.sha256, seal.size_bytes) == file_sha256(Layout(tmp_path).sealed(1, 0, 0, 20))
    assert (seal.first, seal.stop, seal.num_records) == (0, 20, 80)
    assert seal.hot_bytes == 4096 + 20 * (4 * 108 + 8)


def test_extreme_values_survive(tmp_path: Path) -> None:
    records = microbatch(0)
    for field in records.dtype.names:
        if records.dtype[field].kind in "ui" and field not in {"step", "microbatch"}:
            records[field] = np.iinfo(records.dtype[field]).max
    records["delivered_row"][1] = 0
    records["event"][2] = 0
    records["length"][3] = 0
    records["microbatch_digest"] = np.void(b"\0" * 15 + b"\1")
    with open_writer(tmp_path) as writer:
        writer.append(records)
    got = everything(tmp_path)
    for field in records.dtype.names:
        assert got[field].tolist() == records[field].tolist(), field


def test_encodings_and_checksums_are_as_the_page_says(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(3000), size=4)
    with pq.ParquetFile(Layout(tmp_path).sealed(1, 0, 0, 3000)) as file:
        assert file.metadata.num_row_groups == 2
        assert [field.name for field in file.schema_arrow] == list(RANKED_RECORD.names)
        group = file.metadata.row_group(0)
        columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for column in ("step", "batch", "microbatch", "slot", "position"):
        assert "DELTA_BINARY_PACKED" in columns[column].encodings
    dictionaries = {column for column, facts in columns.items() if facts.has_dictionary_page}
    assert dictionaries == {"source", "status", "verdict", "rules", "event"}
    assert {facts.compression for facts in columns.values()} == {"ZSTD"}
    assert (columns["step"].statistics.min, columns["step"].statistics.max) == (0, 2047)
    null_counts = {column: facts.statistics.null_count for column, facts in columns.items() if facts.statistics}
    assert set(null_counts) == {"step", "rank", "position"}


def test_every_flip_in_a_sealed_file_is_noticed(in_memory: Path) -> None:
    """Page checksums, or the file's own structure, or the seal: a flip never reads as other data unseen."""
    expected = record_run(in_memory, num_ranks=1, steps=range(20))
    path = Layout(in_memory).sealed(1, 0, 0, 20)
    content = path.read_bytes()
    (seal,) = read_seals(Layout(in_memory).seals(1, 0))[1]
    told, silent = 0, []
    with path.open("r+b", buffering=0) as file:
        for at in range(0, len(content), 3):
            os.pwrite(file.fileno(), bytes([content[at] ^ 1 << at % 8]), at)
            try:
                if read_records(path, name(footer=seal.footer_digest)).tobytes() != expected.tobytes():
                    silent.append(at)
            except RunDamaged:
                told += 1
            assert file_sha256(path)[0] != seal.sha256
            os.pwrite(file.fileno(), content[at : at + 1], at)
    assert told > len(content) // 4
    assert silent == []


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"rank": 1}, {"first": 10}, {"stop": 30}, {"run_id": "b"}])
def test_a_file_in_anothers_place_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(20))
    with pytest.raises(RunDamaged, match="another file in this one's place"):
        read_records(Layout(tmp_path).sealed(1, 0, 0, 20), name(**changes))


def test_a_parquet_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"step": [1]}), tmp_path / "a.parquet")
    with pytest.raises(RunDamaged, match="was not written by dataguard"):
        read_identity(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(RunDamaged, match="is damaged"):
        read_identity(tmp_path / "b.parquet")


def test_what_does_not_read_back_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = seal_module.write_records

    def one_bit_off(file: object, records: np.ndarray, identity: object) -> None:
        wrong = records.copy()
        wrong["row"][3] ^= 1
        real(file, wrong, identity)

    writer = open_writer(tmp_path)
    for step in range(5):
        writer.append(microbatch(step)[:1])
    monkeypatch.setattr(seal_module, "write_records", one_bit_off)
    with pytest.raises(RunDamaged, match="did not read back"):
        writer.close()
    assert not list(tmp_path.rglob("*.parquet"))
    assert len(everything(tmp_path)) == 5


def test_notable_samples_stand_again_in_a_small_file(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=2, steps=range(3, 33), segment_steps=10)
    special = expected[notable(expected)]
    assert 0 < len(special) < len(expected) / 10
    assert merge(list(Index(Layout(tmp_path)).notable(1))).tobytes() == special.tobytes()
    path = Layout(tmp_path).notable(1, 10, 20, rank=1)
    one = read_records(path, name(kind="notable", rank=1, first=10, stop=20))
    assert one.tobytes() == special[(special["rank"] == 1) & (special["step"] // 10 == 1)].tobytes()


def test_an_attempt_that_was_killed_is_sealed_later(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=2, steps=range(25), segment_steps=10, close={"seal": False})
    layout = Layout(tmp_path)
    with layout.hot_segment(1, 1, 20).open("ab") as file:
        file.write(b"torn tail")
    done = seal_attempt(layout, 1)
    assert [(seal.first, seal.stop) for seal in done.seals] == [(20, 25), (20, 25)]
    assert done.torn == ((layout.hot_segment(1, 1, 20), 9),)
    assert done.problems == ()
    assert everything(tmp_path).tobytes() == expected.tobytes()
    assert list(layout.hot.rglob("*.frames")) == []
    assert seal_attempt(layout, 1).seals == ()


def test_a_living_writer_is_not_disturbed(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.append(microbatch(0))
        with pytest.raises(WriterConflict, match="rank 0 of attempt 1 is still being written"):
            seal_attempt(Layout(tmp_path), 1)
        # A fork of the writer that lives on does not keep the lock.
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        os.close(read_end)
    try:
        seal_attempt(Layout(tmp_path), 1)
    finally:
        os.close(write_end)
        os.waitpid(child, 0)


def test_two_commands_do_not_work_beside_each_other(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(3))
    path = Layout(tmp_path).seals(1, 0)
    with hold(path, what="rank 0"), pytest.raises(WriterConflict), hold(path, what="rank 0"):
        pass
    with pytest.raises(NotInRun, match="has never been written"), hold(path.with_name("no"), what="rank 9"):
        pass


def test_damage_stays_and_is_told(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(25), segment_steps=10, close={"seal": False})
    layout = Layout(tmp_path)
    hot = layout.hot_segment(1, 0, 20)
    with hot.open("r+b") as file:
        os.pwrite(file.fileno(), b"\xff", 4096 + 440 + 3)
    done = seal_attempt(layout, 1)
    assert done.seals == ()
    assert "is damaged and stays as it is" in done.problems[0]
    assert hot.exists()


def test_frames_that_go_on_after_they_were_sealed_count(tmp_path: Path) -> None:
    record_run(tmp_path, num_ranks=1, steps=range(10), close={"seal": False})
    layout = Layout(tmp_path)
    kept = layout.hot_segment(1, 0, 0).read_bytes()
    seal_attempt(layout, 1)
    longer = record_run(tmp_path / "longer", num_ranks=1, steps=range(14), close={"seal": False})
    layout.hot_segment(1, 0, 0).write_bytes(Layout(tmp_path / "longer").hot_segment(1, 0, 0).read_bytes())
    assert layout.hot_segment(1, 0, 0).read_bytes()[: len(kept)] == kept
    assert everything(tmp_path).tobytes() == longer.tobytes()
    assert Index(layout).step(1, 12).records.tobytes() == longer[longer["step"] == 12].tobytes()
    assert "goes on after it was sealed" in seal_attempt(layout, 1).problems[0]
    assert everything(tmp_path).tobytes() == longer.tobytes()


def test_frames_left_behind_by_a_kill_are_removed_once_the_sealed_file_is_seen(tmp_path: Path) -> None:
    expected = record_run(tmp_path, num_ranks=1, steps=range(10), close={"seal": False})
    layout = Layout(tmp_path)
    hot = layout.hot_segment(1, 0, 0).read_bytes()
    seal_attempt(layout, 1)
    layout.hot_segment(1, 0, 0).write_bytes(hot)
    assert everything(tmp_path).tobytes() == expected.tobytes()
    sealed = layout.sealed(1, 0, 0, 10)
    content = sealed.read_bytes()
    sealed.write_bytes(content[:-1])
    assert "is not the file that was sealed" in seal_attempt(layout, 1).problems[0]
    assert layout.hot_segment(1, 0, 0).exists()
    sealed.write_bytes(content)
    assert seal_attempt(layout, 1).problems == ()
    assert not layout.hot_segment(1, 0, 0).exists()


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_death_at_any_call_loses_and_doubles_nothing(in_memory: Path, after: bool) -> None:
    """The writer dies at every single change of the disk: what was appended is read, before and after sealing."""
    appended = in_memory / "appended"

    def work(root: Path) -> None:
        appended.write_bytes(b"")
        with appended.open("ab", buffering=0) as log, open_writer(root, segment_steps=2) as writer:
            for step in range(3):
                writer.append(microbatch(step))
                log.write(b".")

    num_deaths = 0
    for root in deaths(work, in_memory, after=after):
        num_deaths += 1
        layout, least = Layout(root), appended.stat().st_size
        for _ in range(2):
            got = everything(root)["step"][::4].tolist()
            assert got == list(range(len(got)))
            assert least <= len(got) <= least + 1
            checked = check_record(layout, 1)
            assert (checked.problems, checked.num_records) == ((), 4 * len(got))
            if ranks_of(layout, 1):
                assert seal_attempt(layout, 1).problems == ()
        assert not list(layout.hot.rglob("*.frames"))
    assert num_deaths > 30


def test_sealing_again_after_a_death_ends_in_the_same_bytes(in_memory: Path) -> None:
    def work(root: Path) -> None:
        record_run(root, num_ranks=1, steps=range(6), close={"seal": False})
        seal_attempt(Layout(root), 1)

    work(in_memory / "whole")
    expected = Layout(in_memory / "whole").sealed(1, 0, 0, 6).read_bytes()
    for root in deaths(work, in_memory, after=True):
        if Layout(root).hot_segment(1, 0, 0).exists() and len(everything(root)) == 24:
            seal_attempt(Layout(root), 1)
            assert Layout(root).sealed(1, 0, 0, 6).read_bytes() == expected
            assert scan_frames(Layout(root).seals(1, 0), "seals").num_frames == 1


def test_a_child_that_works_ends_with_zero() -> None:
    assert in_a_child(lambda: None) == 0
