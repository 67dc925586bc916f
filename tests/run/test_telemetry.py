"""What is logged is kept, value for value: one writer ever, fences, forks, full disks, torn tails, damage."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import GeometryError, NotInRun, RunDamaged, SpanError, UsageError, WriteFailed, WriterConflict
from dataguard.run import frames, telemetry_reading
from dataguard.run.frames import HEADER_BYTES, FramesHeader, scan_frames
from dataguard.run.layout import Layout
from dataguard.run.records import TELEMETRY_RECORD
from dataguard.run.telemetry import TelemetryWriter, open_telemetry, telemetry_records
from dataguard.run.telemetry_reading import (
    TELEMETRY_ROW,
    check_telemetry,
    names_in,
    read_telemetry,
    telemetry_of_lineage,
    telemetry_ranks,
)
from tests.run.dying import in_a_child
from tests.run.recording import DIGESTS, HEAD, RUN_ID, open_telemetry_writer
from tests.run.small import begin, make_run

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

GOLDEN = Path(__file__).parents[1] / "golden" / "telemetry-v1"
FRAME_BYTES = 4 * TELEMETRY_RECORD.itemsize + 8


def log(writer: TelemetryWriter, step: int, **values: float) -> None:
    writer.append(telemetry_records(step, list(values), list(values.values()), time_ns=1000 + step))


def logged(root: Path, attempt: int = 1, **asked) -> list[tuple]:
    rows = read_telemetry(Layout(root), attempt, **asked)
    return rows[["rank", "step", "name", "slot", "value"]].tolist()


def test_what_is_logged_is_read_back(tmp_path: Path) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        log(writer, 0, loss=2.5, lr=0.1)
        log(writer, 1, loss=2.25)
        writer.append(telemetry_records(1, "loss", [1.0, 2.0], time_ns=5, slots=[4, 5]))
    rows = read_telemetry(Layout(tmp_path), 1)
    assert rows.dtype == TELEMETRY_ROW
    assert rows.tolist() == [
        (1, 0, 0, 1000, b"loss", -1, 2.5),
        (1, 0, 0, 1000, b"lr", -1, 0.1),
        (1, 0, 1, 1001, b"loss", -1, 2.25),
        (1, 0, 1, 5, b"loss", 4, 1.0),
        (1, 0, 1, 5, b"loss", 5, 2.0),
    ]
    assert names_in(rows) == ("loss", "lr")


def test_a_batch_is_one_frame_or_as_many_as_it_takes(tmp_path: Path) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        for count, frames_so_far in ((1, 1), (4, 2), (5, 4), (9, 7)):
            writer.append(telemetry_records(3, "loss", np.arange(count), time_ns=1, slots=np.arange(count)))
            assert writer.num_frames == frames_so_far
            assert scan_frames(Layout(tmp_path).telemetry(1, 0), "telemetry").num_frames == frames_so_far
        writer.append(telemetry_records(4, [], [], time_ns=1))
        assert writer.num_frames == 7
    assert len(logged(tmp_path)) == 19
    scan = scan_frames(Layout(tmp_path).telemetry(1, 0), "telemetry")
    assert scan.header is not None
    assert (scan.header.records_per_frame, scan.header.record_version) == (4, 1)
    assert (scan.header.digests, scan.header.journal_head, scan.header.run_id) == (DIGESTS, HEAD, RUN_ID)


@settings(max_examples=25)
@given(st.lists(st.floats(width=64), min_size=1, max_size=12))
def test_every_float_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    root = tmp_path_factory.mktemp("run")
    with open_telemetry_writer(root) as writer:
        writer.append(telemetry_records(0, "x", values, time_ns=1))
    assert read_telemetry(Layout(root), 1)["value"].tobytes() == np.array(values).tobytes()


def test_ranks_names_and_steps_are_chosen(tmp_path: Path) -> None:
    for rank in (2, 0, 7):
        with open_telemetry_writer(tmp_path, rank=rank) as writer:
            for step in range(5):
                log(writer, step, loss=step + rank / 10, lr=0.5)
    assert telemetry_ranks(Layout(tmp_path), 1) == [0, 2, 7]
    assert telemetry_ranks(Layout(tmp_path), 2) == []
    assert [row[:2] for row in logged(tmp_path, names=["lr"])] == [(r, s) for s in range(5) for r in (0, 2, 7)]
    assert logged(tmp_path, ranks=[7, 1], names=["loss"], steps=(2, 4)) == [
        (7, 2, b"loss", -1, 2.7),
        (7, 3, b"loss", -1, 3.7),
    ]
    assert logged(tmp_path, names=[]) == []
    assert logged(tmp_path, attempt=4) == []
    with pytest.raises(SpanError, match="runs backwards"):
        logged(tmp_path, steps=(4, 2))


def test_large_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        for step in range(50):
            log(writer, step, loss=step, lr=-step)
    whole = logged(tmp_path)
    monkeypatch.setattr(telemetry_reading, "_CHUNK_BYTES", 3 * FRAME_BYTES)
    assert logged(tmp_path) == whole
    assert len(whole) == 100
    assert logged(tmp_path, names=["lr"], steps=(20, 22)) == [(0, 20, b"lr", -1, -20.0), (0, 21, b"lr", -1, -21.0)]


@pytest.mark.parametrize("name", ["", "n" * 65, "ä" * 33, "a\nb", "a\0b", "step", "rank", "attempt", "slot", "time", 7])
def test_names_that_cannot_be_kept_are_refused(tmp_path: Path, name) -> None:
    with pytest.raises(UsageError, match=r"name|called"):
        telemetry_records(0, [name], [1.0], time_ns=1)


def test_names_of_64_bytes_are_kept_whole(tmp_path: Path) -> None:
    names = ["n" * 64, "ä" * 32]
    with open_telemetry_writer(tmp_path) as writer:
        writer.append(telemetry_records(0, names, [1, 2], time_ns=1))
    assert sorted(names_in(read_telemetry(Layout(tmp_path), 1))) == sorted(names)
    with pytest.raises(UsageError) as refused:
        telemetry_records(0, "ä" * 33, [1.0], time_ns=1)
    assert "66 bytes of UTF-8" in str(refused.value)
    assert "at most 64" in str(refused.value)


def test_steps_below_0_are_refused() -> None:
    with pytest.raises(UsageError, match="step -1 cannot be"):
        telemetry_records([3, -1], "loss", [1.0, 2.0], time_ns=1)


def test_a_rank_of_an_attempt_has_one_writer_ever(tmp_path: Path) -> None:
    open_telemetry_writer(tmp_path).close()
    with pytest.raises(WriterConflict, match="the telemetry of rank 0 of attempt 1 has had its writer"):
        open_telemetry_writer(tmp_path)
    open_telemetry_writer(tmp_path, rank=1).close()
    open_telemetry_writer(tmp_path, attempt=2).close()


def test_a_fence_stops_the_next_batch_but_not_what_was_taken_before(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    with open_telemetry(run, 1, 0) as writer:
        log(writer, 0, loss=1)
        begin(run, fork_step=1)
        with pytest.raises(WriterConflict, match="attempt 1 is over: fenced by attempt 2"):
            log(writer, 1, loss=2)
        with pytest.raises(WriterConflict, match="fenced by attempt 2"):
            writer.check()
        writer.append(telemetry_records(1, "loss", [3.0], time_ns=1), fenced=False)
    assert [row[-1] for row in logged(run.path)] == [1.0, 3.0]


def test_without_a_fence_an_attempt_that_is_over_is_written(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begin(run)
    begin(run, fork_step=1)
    with open_telemetry(run, 1, 0, fenced=False) as writer:
        writer.append(telemetry_records(np.arange(1000), "loss", np.arange(1000), time_ns=1))
        assert writer.num_frames == 250
    assert [row[1] for row in logged(run.path)] == list(range(1000))


def test_only_ranks_and_attempts_of_the_run_are_opened(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(NotInRun, match="attempt 1 is not in this run"):
        open_telemetry(run, 1, 0)
    begin(run, world_size=2)
    with pytest.raises(GeometryError, match="rank 2 is not one of 2 ranks"):
        open_telemetry(run, 1, 2)
    with open_telemetry(run, 1, 1) as writer:
        assert writer.attempt == 1
    header = scan_frames(run.layout.telemetry(1, 1), "telemetry").header
    assert header is not None
    begun = run.begun(1)
    assert header.digests == {"plan": begun.plan, "attempt": begun.attempt_digest}
    assert header.journal_head == (run.head().number, run.head().sha256)


def test_forked_children_never_write(tmp_path: Path) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        log(writer, 0, loss=1)

        def child() -> None:
            with pytest.raises(WriterConflict, match="forked child"):
                log(writer, 1, loss=2)
            writer.close()

        assert in_a_child(child) == 0
        log(writer, 1, loss=3)
    assert [row[-1] for row in logged(tmp_path)] == [1.0, 3.0]


def test_a_full_disk_is_an_error_and_loses_nothing_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(descriptor: int, buffer: bytes, offset: int) -> int:
        return real(descriptor, bytes(buffer)[:100], offset)

    real = os.pwrite
    with open_telemetry_writer(tmp_path) as writer:
        log(writer, 0, loss=1)
        with monkeypatch.context() as patch:
            patch.setattr(frames.os, "pwrite", short)
            with pytest.raises(WriteFailed, match="No space left") as failed:
                log(writer, 1, loss=2)
            assert (failed.value.exit_code, failed.value.errno) == (4, errno.ENOSPC)
        assert Layout(tmp_path).telemetry(1, 0).stat().st_size == HEADER_BYTES + FRAME_BYTES
        log(writer, 2, loss=3)
    assert [row[-1] for row in logged(tmp_path)] == [1.0, 3.0]


def test_a_torn_tail_is_dropped_and_told(tmp_path: Path) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        log(writer, 0, loss=1)
        log(writer, 1, loss=2)
    path = Layout(tmp_path).telemetry(1, 0)
    for tail in (b"\1" * 99, bytes(99), bytes(3 * FRAME_BYTES)):
        with path.open("r+b") as file:
            file.truncate(HEADER_BYTES + 2 * FRAME_BYTES)
            file.seek(0, os.SEEK_END)
            file.write(tail)
        torn: list[str] = []
        assert [row[-1] for row in logged(tmp_path, torn=torn)] == [1.0, 2.0]
        assert torn == [f"{path}: {len(tail):,} bytes dropped"]
        checked = check_telemetry(Layout(tmp_path), 1)
        assert (checked.num_values, checked.damage, checked.torn) == (2, (), tuple(torn))


def test_every_flipped_bit_shows_and_the_rest_is_read(tmp_path: Path) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        for step in range(4):
            log(writer, step, loss=step, lr=10 + step)
    path, whole = Layout(tmp_path).telemetry(1, 0), logged(tmp_path)
    content = path.read_bytes()
    for bit in range(HEADER_BYTES * 8, len(content) * 8, 101):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        step = (bit // 8 - HEADER_BYTES) // FRAME_BYTES
        with pytest.raises(RunDamaged, match="the telemetry of attempt 1, rank 0 is damaged"):
            logged(tmp_path)
        damage: list[str] = []
        assert logged(tmp_path, damage=damage) == [row for row in whole if row[1] != step]
        assert len(damage) == 1
        assert f"frame {step} at byte" in damage[0]
        assert check_telemetry(Layout(tmp_path), 1).damage == tuple(damage)


@pytest.mark.parametrize("at", [5, 700, HEADER_BYTES - 3])
def test_values_behind_a_damaged_header_are_read(tmp_path: Path, at: int) -> None:
    with open_telemetry_writer(tmp_path) as writer:
        for step in range(4):
            log(writer, step, loss=step)
    path, whole = Layout(tmp_path).telemetry(1, 0), logged(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    damage: list[str] = []
    assert logged(tmp_path, damage=damage) == whole
    assert len(damage) == 1
    assert "header" in damage[0]


def test_a_file_in_anothers_place_is_refused(tmp_path: Path) -> None:
    with open_telemetry_writer(tmp_path, rank=1) as writer:
        log(writer, 0, loss=1)
    layout = Layout(tmp_path)
    layout.telemetry(1, 0).write_bytes(layout.telemetry(1, 1).read_bytes())
    with pytest.raises(RunDamaged, match="another file in this one's place"):
        logged(tmp_path)
    damage: list[str] = []
    assert [row[0] for row in logged(tmp_path, damage=damage)] == [1]
    with pytest.raises(RunDamaged, match=f"run {RUN_ID}"):
        read_telemetry(layout, 1, [1], run_id="another run")


def test_a_lineage_holds_what_each_attempt_logged_for_its_own_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for number, fork, stop in ((1, None, 10), (2, 6, 9), (3, 6, 12), (4, 8, 10)):
        parent = {4: 3, 3: 1, 2: 1}.get(number)
        begin(run, fork_step=fork, parent=parent)
        with open_telemetry(run, number, 0) as writer:
            for step in range(fork or 0, stop):
                log(writer, step, loss=100 * number + step)
            # What lies before its own steps is no attempt's to tell, however it came there.
            log(writer, 2, early=number)

    def live(leaf: int | None = None, **asked) -> list[float]:
        return telemetry_of_lineage(run, leaf, **{"names": ["loss"], **asked})["value"].tolist()

    assert live() == [100, 101, 102, 103, 104, 105, 306, 307, 408, 409]
    assert live(3) == [100, 101, 102, 103, 104, 105, *range(306, 312)]
    assert live(2) == [100, 101, 102, 103, 104, 105, 206, 207, 208]
    assert live(1) == list(range(100, 110))
    assert live(steps=(5, 9)) == [105, 306, 307, 408]
    assert live(steps=(8, 9), names=["loss"], ranks=[0]) == [408]
    assert live(names=["lr"]) == []
    assert live(names=["early"]) == live(3, names=["early"]) == [1]
    assert telemetry_of_lineage(run, names=["loss"])["attempt"].tolist() == [1] * 6 + [3] * 2 + [4] * 2


def test_a_lineage_of_no_attempt_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotInRun, match="no attempt"):
        telemetry_of_lineage(make_run(tmp_path))


def test_version_1_stays_readable() -> None:
    scan = scan_frames(GOLDEN / "telemetry.frames", "telemetry")
    assert (scan.torn_bytes, scan.damage) == (0, ())
    found = [
        [step, time_ns, name.decode(), slot, value.hex()] for step, time_ns, name, slot, value in scan.records.tolist()
    ]
    assert found == json.loads((GOLDEN / "expected.json").read_text())
    assert len(found) == 28
    assert sum(math.isnan(value) for value in scan.records["value"].tolist()) == 1


def test_the_record_of_this_version_is_that_of_the_golden() -> None:
    """Whoever changes the record gives it a new version and a new golden."""
    raw = (GOLDEN / "telemetry.frames").read_bytes()[:HEADER_BYTES]
    written = json.loads(raw[: HEADER_BYTES - 17])
    assert np.dtype([tuple(field) for field in written["dtype"]]) == TELEMETRY_RECORD
    again = FramesHeader.of(
        "telemetry",
        records_per_frame=written["records_per_frame"],
        run_id=RUN_ID,
        attempt=2,
        rank=3,
        first_step=40,
        digests=DIGESTS,
        journal_head=HEAD,
        created=written["created"],
    )
    assert again.encode() == raw
