"""What do lines of the kernel, of collective libraries and of Slurm mean?

`meaning_of` gives the first pattern of `PATTERNS` that a line fits. Order counts: what names a root stands before what
only complains. NCCL and the watchdog of PyTorch complain about peers that are gone, so their lines are consequences,
except where they carry the error of a device.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dataguard.triage.evidence.lines import Meaning
from dataguard.triage.evidence.xid import xid_meaning, xid_text

__all__ = ["PATTERNS", "Pattern", "Said", "meaning_of"]

HARDWARE, APPLICATION = Meaning.HARDWARE, Meaning.APPLICATION
CONSEQUENCE, AMBIGUOUS = Meaning.CONSEQUENCE, Meaning.AMBIGUOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a line says."""

    meaning: Meaning
    what: str
    kind: str
    """``kernel`` or ``collective``."""
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One kind of line."""

    kind: str
    pattern: re.Pattern[str]
    said: Callable[[re.Match[str]], Said | None]
    """None where the line says nothing after all."""


def _xid(match: re.Match[str]) -> Said:
    code = int(match["code"])
    return Said(meaning=xid_meaning(code), what=xid_text(code), kind="kernel", device=match["bus"])


def _sxid(match: re.Match[str]) -> Said:
    is_fatal = match["rest"].strip(" ,").lower().startswith("fatal")
    what = f"SXid {match['code']} of an NVSwitch{', fatal' if is_fatal else ''}"
    return Said(meaning=HARDWARE if is_fatal else AMBIGUOUS, what=what, kind="kernel", device=match["bus"])


def _plain(kind: str, pattern: str, meaning: Meaning, what: str, *, flags: re.RegexFlag = re.IGNORECASE) -> Pattern:
    return Pattern(
        kind=kind,
        pattern=re.compile(pattern, flags),
        said=lambda match: Said(meaning=meaning, what=what, kind=kind, device=match.groupdict().get("device") or None),
    )


_DEVICE = r"(?P<device>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)"

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        kind="kernel",
        pattern=re.compile(r"NVRM:\s+Xid\s+\((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\):\s*(?P<code>\d+)"),
        said=_xid,
    ),
    Pattern(
        kind="kernel",
        pattern=re.compile(r"SXid\s+\((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\):\s*(?P<code>\d+)(?P<rest>[^\n]*)"),
        said=_sxid,
    ),
    # Errors of a device, whoever reports them.
    _plain("collective", r"uncorrectable (?:ECC|NVLink) error", HARDWARE, "uncorrectable error of a device"),
    _plain("collective", r"illegal memory access", APPLICATION, "CUDA: illegal memory access"),
    _plain("collective", r"device-side assert", APPLICATION, "CUDA: assertion in a kernel"),
    _plain("collective", r"CUDA out of memory|OutOfMemoryError", APPLICATION, "CUDA: out of memory"),
    _plain("collective", r"unspecified launch failure", AMBIGUOUS, "CUDA: unspecified launch failure"),
    _plain("collective", r"NET/IB\b.*async(?:hronous)? event\b.*(?:port|link|fatal)", HARDWARE, "event of an IB port"),
    # The kernel: memory, buses, links, heat.
    _plain("kernel", r"\bEDAC\b.*\b(?:UE|uncorrect\w*)\b", HARDWARE, "uncorrected memory error (EDAC)"),
    _plain("kernel", r"\bEDAC\b.*\b(?:CE|correct\w*)\b", AMBIGUOUS, "corrected memory error (EDAC)"),
    _plain(
        "kernel", r"\bmce:.*(?:throttl|temperature above)|temperature above threshold", HARDWARE, "too hot: throttled"
    ),
    _plain("kernel", r"\[Hardware Error\].*\bcorrected\b", AMBIGUOUS, "corrected hardware error"),
    _plain("kernel", r"\bmce:.*\[Hardware Error\]|Machine Check (?:Exception|Event)", HARDWARE, "machine check"),
    _plain("kernel", r"\[Hardware Error\].*(?:fatal|uncorrected|recoverable)", HARDWARE, "hardware error"),
    _plain("kernel", rf"{_DEVICE}.*AER:.*Uncorrect\w*", HARDWARE, "uncorrected PCIe error"),
    _plain("kernel", rf"{_DEVICE}.*AER:.*\bCorrected", AMBIGUOUS, "corrected PCIe error"),
    _plain("kernel", rf"mlx5\w*\s+{_DEVICE}.*\blink down|mlx5\w*.*\blink down", HARDWARE, "network link down"),
    _plain(
        "kernel", rf"mlx5\w*\s+{_DEVICE}.*(?:health|fatal|internal) (?:compromised|error)", HARDWARE, "network card"
    ),
    _plain(
        "kernel", r"\b(?:ib|eth|en|bond)\w*: .*link (?:is |becomes )?(?:not ready|down)", HARDWARE, "network link down"
    ),
    _plain("kernel", r"pcieport.*link (?:is )?down|Slot\(\d+\): Link Down", HARDWARE, "PCIe link down"),
    _plain("kernel", r"(?:I/O error|critical medium error),? dev \w+", HARDWARE, "a disk failed to read or write"),
    _plain("kernel", r"nvme\d?.*(?:I/O.*timeout|controller is down)", HARDWARE, "a disk does not answer"),
    _plain("kernel", r"out of memory: kill|oom-kill:|oom_kill event|Killed process \d+", APPLICATION, "out of memory"),
    _plain("kernel", r"\bsegfault at\b|general protection", APPLICATION, "segmentation fault"),
    _plain("kernel", r"task \S+:\d+ blocked for more than", CONSEQUENCE, "a process waits for IO"),
    _plain("kernel", r"soft lockup|hard LOCKUP|rcu_sched.*stall", AMBIGUOUS, "a processor is stuck"),
    _plain("kernel", r"Kernel panic", AMBIGUOUS, "the kernel panicked"),
    # Slurm.
    _plain("kernel", r"DUE TO NODE FAILURE", AMBIGUOUS, "Slurm: the node failed"),
    _plain("kernel", r"not responding|setting (?:DOWN|node .* to DOWN)", AMBIGUOUS, "Slurm: the node does not answer"),
    _plain("kernel", r"DUE TO TIME LIMIT", APPLICATION, "Slurm: the job ran into its time limit"),
    _plain("kernel", r"state set to (?:DRAIN|DOWN)\w*", AMBIGUOUS, "Slurm: the node was drained"),
    # Collective libraries: somebody else was gone first.
    _plain("collective", r"Watchdog caught collective operation timeout", CONSEQUENCE, "a collective timed out"),
    _plain("collective", r"ProcessGroupNCCL.*(?:timeout|timed out|exception|stuck)", CONSEQUENCE, "PyTorch's watchdog"),
    _plain("collective", r"unhandled system error|unhandled cuda error|ncclRemoteError", CONSEQUENCE, "NCCL failed"),
    _plain("collective", r"NET/IB\b.*(?:completion|error)", CONSEQUENCE, "NCCL: the network gave up on a peer"),
    _plain("collective", r"NCCL WARN", CONSEQUENCE, "NCCL complains", flags=re.NOFLAG),
    _plain("collective", r"DistBackendError|Connection (?:reset|closed) by peer", CONSEQUENCE, "a peer is gone"),
    _plain("collective", r"\bgloo\b.*(?:timed out|timeout)|Socket Timeout", CONSEQUENCE, "a collective timed out"),
)
"""Read from the top."""

_MENTIONS = (
    "xid", "nvrm", "error", "fail", "warn", "mem", "edac", "mce", "aer", "link", "temperature", "kill", "fault",
    "lock", "rcu", "panic", "respond", "down", "drain", "limit", "timeout", "timed", "nccl", "net/ib", "peer",
    "assert", "illegal", "stuck", "exception", "protection", "machine", "compromised",
)  # fmt: skip
"""Words of which one stands in every line that a pattern fits; most lines have none, and looking for them is cheap."""


def meaning_of(text: str) -> Said | None:
    """What a line says, or None where it says nothing of this kind.

    >>> said = meaning_of("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.")
    >>> said.meaning.value, said.what, said.device
    ('hardware', 'XID 79, GPU fell off the bus', '0000:3b:00')
    >>> meaning_of("NCCL WARN Call to ibv_modify_qp failed").meaning.value
    'consequence'
    >>> meaning_of("usb 1-1: new high-speed USB device") is None
    True
    """
    plain = text.lower()
    if not any(word in plain for word in _MENTIONS):
        return None
    for pattern in PATTERNS:
        match = pattern.pattern.search(text)
        if match is not None:
            return pattern.said(match)
    return None
