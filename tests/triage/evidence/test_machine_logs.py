"""Logs of machines: times and hosts as they are written, counters that rise, and what cannot be read, counted."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dataguard.core.evidence import HardwareLog
from dataguard.errors import InputError, UsageError
from dataguard.triage.evidence import MachineLogs, Meaning, match, read_machine_logs
from dataguard.triage.evidence.times import TimeReader

AT = datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC).timestamp()
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus."


def written(folder: Path, name: str, *lines: str, now: float = AT + 3_600) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (now, now))
    return path


@pytest.mark.parametrize(
    ("prefix", "host", "is_zone_known"),
    [
        ("[Mon Nov 30 01:02:03 2026] ", None, False),
        ("2026-11-30T01:02:03,000000+00:00 ", None, True),
        ("2026-11-30T02:02:03+01:00 node03 kernel: ", "node03", True),
        ("2026-11-30T02:02:03+0100 node03 kernel: ", "node03", True),
        ("2026-11-30 01:02:03 ", None, False),
        ("Nov 30 01:02:03 node03 kernel: ", "node03", False),
        ("[2026-11-30T01:02:03.000] ", None, False),
        ("2026-11-30T01:02:03Z ", None, True),
        ("1796000523.0 ", None, True),
        ("1796000523000 ", None, True),
    ],
)
def test_times_as_they_are_written(tmp_path: Path, prefix: str, host: str | None, is_zone_known: bool) -> None:
    logs = read_machine_logs([written(tmp_path, "a.txt", prefix + XID)])
    (line,) = logs.lines
    assert line.time == AT
    assert line.host == host
    assert line.what == "XID 79, GPU fell off the bus"
    assert line.device == "0000:3b:00"
    assert logs.sources[0].is_zone_known == is_zone_known
    assert any("taken as UTC" in note for note in logs.notes) != is_zone_known


def test_an_offset_that_was_given_counts_where_no_zone_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", f"[Mon Nov 30 03:02:03 2026] {XID}", f"2026-11-30T01:02:03Z {XID}")
    logs = read_machine_logs([path], utc_offset_seconds=7_200)
    assert [line.time for line in logs.lines] == [AT, AT]
    assert logs.notes == ()


def test_a_year_that_is_not_written_is_the_newest_that_fits_the_file(tmp_path: Path) -> None:
    january = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    path = written(tmp_path, "a.txt", f"Dec 31 23:59:59 node03 kernel: {XID}", now=january)
    (line,) = read_machine_logs([path]).lines
    assert line.time == datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    leap = TimeReader(newest=datetime(2027, 3, 1, tzinfo=UTC).timestamp()).read("Feb 29 00:00:00 a b: c")
    assert leap.time == datetime(2024, 2, 29, tzinfo=UTC).timestamp()


def test_seconds_since_the_boot_are_no_date_and_match_nothing(tmp_path: Path) -> None:
    logs = read_machine_logs([written(tmp_path, "node03.dmesg", f"[12345.678901] {XID}")])
    assert logs.lines[0].time is None
    assert any("count from the boot" in note for note in logs.notes)
    answer, texts = match(logs, start_time=AT, stop_time=AT, hosts=["node03"])
    assert answer is HardwareLog.ELSEWHERE
    assert any("no date" in text for text in texts)


def test_hosts_of_lines_of_names_and_as_given(tmp_path: Path) -> None:
    dated = f"[Mon Nov 30 01:02:03 2026] {XID}"
    by_name = written(tmp_path, "node03.dmesg", dated)
    nameless = written(tmp_path, "dmesg.txt", dated)
    syslog = written(tmp_path, "messages", f"Nov 30 01:02:03 node05 kernel: {XID}")
    nccl = written(tmp_path, "nccl.log", "node06:12:34 [3] NCCL WARN Call to connect failed")
    logs = read_machine_logs([f"{by_name},node04={nameless}", f"node99={syslog}", nccl])
    assert {line.host for line in logs.lines} == {"node03", "node04", "node05", "node06"}
    assert read_machine_logs([nameless]).lines[0].host is None


def test_names_that_hold_no_host_are_none(tmp_path: Path) -> None:
    """What the kernel says behind an ISO time begins with a driver, not with a host."""
    lines = [f"2026-11-30T01:02:03,000000+00:00 {said}" for said in ("EDAC MC0: 1 UE memory error", XID)]
    assert {line.host for line in read_machine_logs([written(tmp_path, "a.txt", *lines)]).lines} == {None}


def test_counters_that_rise_and_codes_that_change(tmp_path: Path) -> None:
    table = written(
        tmp_path,
        "dcgm.csv",
        "Timestamp,Hostname,gpu,DCGM_FI_DEV_XID_ERRORS,DCGM_FI_DEV_ECC_DBE_VOL_TOTAL,DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "2026-11-30T01:00:00Z,node04,0,43,0,7",
        "2026-11-30T01:01:00Z,node04,0,43,0,7",
        "2026-11-30T01:02:00Z,node04,0,95,2,9",
        "2026-11-30T01:02:00Z,node04,1,N/A,0,0",
        "2026-11-30T01:02:00Z,node04",
    )
    logs = read_machine_logs([table])
    said = [(line.what, line.time, line.device) for line in logs.lines]
    assert said == [
        ("XID 95, uncontained memory error", AT - 3, "GPU 0"),
        ("uncorrectable ECC errors: 0 to 2", AT - 3, "GPU 0"),
        ("corrected ECC errors: 7 to 9", AT - 3, "GPU 0"),
        ("XID 43, stopped by a fault of the application, before the table begins", None, "GPU 0"),
        ("corrected ECC errors: 0 to 7, before the table begins", None, "GPU 0"),
    ]
    assert {line.host for line in logs.lines} == {"node04"}
    assert logs.sources[0].num_unparsed == 1
    assert any("a line cannot be read: 2026-11-30T01:02:00Z,node04" in note for note in logs.notes)


def test_counters_of_the_exporter_and_of_dmon_and_of_nvidia_smi(tmp_path: Path) -> None:
    exporter = written(
        tmp_path,
        "metrics.txt",
        "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.",
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="3",Hostname="node07"}} 0 {int(AT * 1_000) - 1_000}',
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="3",Hostname="node07"}} 48 {int(AT * 1_000)}',
    )
    dmon = written(
        tmp_path,
        "node08.dcgm.txt",
        "#Entity   DCGM_FI_DEV_ROW_REMAP_FAILURE   SMACT",
        "ID",
        "GPU 0     0    0.9",
        "GPU 0     1    0.9",
    )
    smi = written(
        tmp_path,
        "node09.ecc.csv",
        "timestamp, index, ecc.errors.uncorrected.volatile.total, temperature.gpu",
        "2026/11/30 01:01:03.000, 0, 0, 60",
        "2026/11/30 01:02:03.000, 0, 1, 61",
    )
    logs = read_machine_logs([exporter, dmon, smi])
    assert {(line.host, line.meaning, line.time) for line in logs.lines} == {
        ("node07", Meaning.HARDWARE, AT),
        ("node08", Meaning.HARDWARE, None),
        ("node09", Meaning.HARDWARE, AT),
    }


def test_files_that_are_packed_missing_or_not_named(tmp_path: Path) -> None:
    packed = tmp_path / "node03.dmesg.gz"
    packed.write_bytes(gzip.compress(f"[Mon Nov 30 01:02:03 2026] {XID}\n".encode()))
    assert read_machine_logs([packed]).lines[0].host == "node03"
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        read_machine_logs([packed])
    with pytest.raises(InputError, match="cannot be read"):
        read_machine_logs(["node03=nowhere.dmesg"])
    with pytest.raises(UsageError, match="names no file"):
        read_machine_logs(["node03="])


def kernel_log(folder: Path, *, host: str, at: float, said: str = XID) -> Path:
    """A day of one host, with one line at a time."""

    def stamp(time: float) -> str:
        return datetime.fromtimestamp(time, UTC).isoformat()

    around = [f"{stamp(AT + hours * 3_600)} {host} kernel: eth0: all is well" for hours in (-12, 12)]
    return written(folder, f"{host}.log", around[0], f"{stamp(at)} {host} kernel: {said}", around[1], now=AT + 90_000)


def answer_of(logs: MachineLogs, *hosts: str, start: float = AT, devices: int | None = 8) -> HardwareLog:
    return match(logs, start_time=start, stop_time=start + 10, hosts=hosts, devices_per_host=devices)[0]


def test_a_line_matches_by_node_and_time(tmp_path: Path) -> None:
    logs = read_machine_logs([kernel_log(tmp_path, host="node03", at=AT - 5)])
    assert answer_of(logs, "node03") is HardwareLog.HARDWARE
    assert answer_of(logs, "NODE03.cluster.local") is HardwareLog.HARDWARE
    assert answer_of(logs, "node04") is HardwareLog.ELSEWHERE
    assert answer_of(logs, "node03", start=AT + 7_200) is HardwareLog.ELSEWHERE
    assert answer_of(logs, "node03", start=AT - 7_200) is HardwareLog.ELSEWHERE
    assert answer_of(logs) is HardwareLog.ELSEWHERE  # nobody knows the host
    assert match(logs, start_time=None, stop_time=None, hosts=["node03"])[0] is HardwareLog.ELSEWHERE


def test_among_so_many_devices_a_match_tells_nothing(tmp_path: Path) -> None:
    """The chance of an unrelated event is said, and above one in twenty the line convicts nobody."""
    logs = read_machine_logs([kernel_log(tmp_path, host="node03", at=AT - 5)])
    few, texts = match(logs, start_time=AT, stop_time=AT + 10, hosts=["node03"], devices_per_host=8)
    assert few is HardwareLog.HARDWARE
    assert any("chance that an unrelated event falls there: 2.3e-05" in text for text in texts)
    many = [f"node{number:04}" for number in range(2_048)] + ["node03"]
    assert answer_of(logs, *many) is HardwareLog.HARDWARE  # 11 minutes: p = .05 is not reached
    assert match(logs, start_time=AT, stop_time=AT + 3_600, hosts=many, devices_per_host=8)[0] is HardwareLog.ELSEWHERE


def test_logs_that_cover_node_and_time_and_say_nothing_are_clean(tmp_path: Path) -> None:
    logs = read_machine_logs([kernel_log(tmp_path, host="node03", at=AT - 5, said="eth0: still well")])
    assert answer_of(logs, "node03") is HardwareLog.CLEAN
    assert answer_of(logs, "node04") is HardwareLog.NOT_GIVEN
    assert answer_of(logs, "node03", "node04") is HardwareLog.NOT_GIVEN
    assert answer_of(logs, "node03", start=AT + 86_400) is HardwareLog.NOT_GIVEN
    assert answer_of(read_machine_logs([]), "node03") is HardwareLog.NOT_GIVEN


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, MMU Fault", HardwareLog.APPLICATION),
        ("Out of memory: Killed process 4711 (python)", HardwareLog.APPLICATION),
        ("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout waiting for RPC from GSP", HardwareLog.AMBIGUOUS),
    ],
)
def test_what_matches_is_said_as_what_it_means(tmp_path: Path, said: str, answer: HardwareLog) -> None:
    logs = read_machine_logs([kernel_log(tmp_path, host="node03", at=AT - 5, said=said)])
    assert answer_of(logs, "node03") is answer


def test_hardware_goes_before_the_application_that_it_ended(tmp_path: Path) -> None:
    later = tmp_path / "later"
    later.mkdir()
    kernel = kernel_log(tmp_path, host="node03", at=AT - 5)
    ended = kernel_log(later, host="node03", at=AT - 4, said="NVRM: Xid (PCI:0000:3b:00): 45, pid=1, Ch 8")
    assert answer_of(read_machine_logs([ended]), "node03") is HardwareLog.APPLICATION
    assert answer_of(read_machine_logs([kernel, ended]), "node03") is HardwareLog.HARDWARE


def test_collective_libraries_complain_of_something_earlier(tmp_path: Path) -> None:
    """The watchdog of a healthy node speaks ten minutes later; the root is looked for before it, on any host."""
    late = datetime.fromtimestamp(AT + 605, UTC).strftime("%m%d %H:%M:%S")
    watchdog = f"[rank0]:[E{late}.408271257 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout"
    nccl = written(tmp_path, "node01.nccl.log", watchdog, now=AT + 90_000)
    alone, texts = match(read_machine_logs([nccl]), start_time=AT, stop_time=AT, hosts=["node01"])
    assert alone is HardwareLog.CONSEQUENCE
    assert any("look in logs of other hosts" in text for text in texts)
    sick = kernel_log(tmp_path, host="node03", at=AT - 5)
    both, texts = match(read_machine_logs([nccl, sick]), start_time=AT, stop_time=AT, hosts=["node01"])
    assert both is HardwareLog.CONSEQUENCE
    assert any(text.startswith("610 s before it, node03: XID 79") for text in texts)
    assert (
        match(read_machine_logs([nccl, sick]), start_time=AT, stop_time=AT, hosts=["node03"])[0] is HardwareLog.HARDWARE
    )
