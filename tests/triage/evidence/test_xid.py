"""Row A18: NVIDIA's table decides, and lines of a code are read wherever they stand."""

from __future__ import annotations

import pytest

from dataguard.triage.evidence.lines import Meaning
from dataguard.triage.evidence.patterns import meaning_of
from dataguard.triage.evidence.xid import XIDS, xid_meaning, xid_text


@pytest.mark.parametrize("code", [48, 63, 64, 74, 79, 94, 95])
def test_codes_of_hardware(code: int) -> None:
    assert xid_meaning(code) is Meaning.HARDWARE


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_codes_that_are_usually_the_application(code: int) -> None:
    assert xid_meaning(code) is Meaning.APPLICATION


@pytest.mark.parametrize("code", [8, 32, 68, 109, 119, 120, 999])
def test_codes_that_may_be_either(code: int) -> None:
    assert xid_meaning(code) is Meaning.AMBIGUOUS


def test_a_code_that_only_sums_up_others_is_a_consequence() -> None:
    assert xid_meaning(154) is Meaning.CONSEQUENCE


def test_each_code_says_what_it_is() -> None:
    assert list(XIDS) == sorted(XIDS)
    assert all(xid_text(code).startswith(f"XID {code}, ") for code in XIDS)


@pytest.mark.parametrize(
    ("line", "meaning", "what"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.", Meaning.HARDWARE, "XID 79"),
        ("NVRM: Xid (0000:03:00): 13, Graphics Exception", Meaning.APPLICATION, "XID 13"),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28 LTSSM Fault Up",
            Meaning.HARDWARE,
            "SXid 20034",
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 24007, Non-fatal, Link 44", Meaning.AMBIGUOUS, "SXid 24007"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", Meaning.HARDWARE, "uncorrected memory"),
        ("EDAC MC0: 1 CE memory scrubbing error on CPU_SrcID#0", Meaning.AMBIGUOUS, "corrected memory"),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", Meaning.HARDWARE, "machine check"),
        ("mce: CPU44: Package temperature above threshold, cpu clock throttled", Meaning.HARDWARE, "too hot"),
        ("pcieport 0000:17:00.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0", Meaning.HARDWARE, "PCIe"),
        ("pcieport 0000:17:00.0: AER: Corrected error received: 0000:18:00.0", Meaning.AMBIGUOUS, "PCIe"),
        ("mlx5_core 0000:18:00.0 ib3: Link down", Meaning.HARDWARE, "link down"),
        ("blk_update_request: I/O error, dev nvme0n1, sector 12", Meaning.HARDWARE, "disk"),
        ("Out of memory: Killed process 4711 (python) total-vm:1kB", Meaning.APPLICATION, "out of memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", Meaning.APPLICATION, "out of memory"),
        ("python[12]: segfault at 0 ip 00007f sp 00007f error 4", Meaning.APPLICATION, "segmentation"),
        ("INFO: task python:4711 blocked for more than 120 seconds.", Meaning.CONSEQUENCE, "waits"),
        ("slurmctld: error: Nodes node07 not responding, setting DOWN", Meaning.AMBIGUOUS, "Slurm"),
        (
            "error: *** JOB 12 ON node01 CANCELLED AT 2026-11-30T01:02:03 DUE TO TIME LIMIT ***",
            Meaning.APPLICATION,
            "limit",
        ),
        ("node01:12:34 [3] NCCL WARN NET/IB : Got completion from peer with status=12", Meaning.CONSEQUENCE, "peer"),
        ("NCCL WARN Cuda failure 'uncorrectable ECC error encountered'", Meaning.HARDWARE, "uncorrectable"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", Meaning.APPLICATION, "illegal"),
        ("torch.distributed.DistBackendError: NCCL error: unhandled system error", Meaning.CONSEQUENCE, "NCCL failed"),
        (
            "[rank0]:[E1130 01:12:08.4 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout",
            Meaning.CONSEQUENCE,
            "timed out",
        ),
    ],
)
def test_lines_and_what_they_mean(line: str, meaning: Meaning, what: str) -> None:
    said = meaning_of(line)
    assert said is not None
    assert said.meaning is meaning
    assert what in said.what


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new high-speed USB device number 2",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86",
        "node01:12:34 [3] NCCL INFO Bootstrap : Using eth0",
        "mlx5_core 0000:18:00.0 ib3: Link up",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "step 17 loss 2.31 grad_norm 0.9",
    ],
)
def test_lines_that_say_nothing(line: str) -> None:
    assert meaning_of(line) is None
