"""What does an XID of the NVIDIA driver mean: hardware, or usually the application?

By NVIDIA's own catalogue ("Xid Errors", docs.nvidia.com/deploy/xid-errors, the listing for A100 and newer, and the
older listing of possible causes for what it leaves out). `HARDWARE` is where the catalogue names a fault of memory,
link, bus or board, or answers with a reset, a check of the mechanics or the vendor's support, without software among
the causes. `APPLICATION` is where it says that the application is usually to blame or has to be checked. Everything
else, codes that nobody knows included, may be either: the driver, its firmware, engines that training does not use.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataguard.triage.evidence.lines import Meaning

__all__ = ["XIDS", "xid_meaning", "xid_text"]

_HARDWARE = {
    48: "uncorrectable ECC error of two bits",
    54: "auxiliary power is not connected",
    62: "internal micro-controller halted",
    63: "memory page retired or row remapped after ECC errors",
    64: "recording a retired page or remapped row failed",
    74: "NVLink error",
    79: "GPU fell off the bus",
    92: "high rate of corrected ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault, uncommon without a hardware failure",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU failed to initialise",
    144: "NVLink error (SAW)",
    145: "NVLink error (RLW)",
    146: "NVLink error (TLW)",
    147: "NVLink error (TREX)",
    148: "NVLink error (NVLPW)",
    149: "NVLink error (NETIR)",
    150: "NVLink error (MSE)",
    156: "resource retired",
    157: "retiring a resource failed",
    158: "fatal timeout of the GPU",
    167: "fatal timeout of PCIe",
    171: "uncorrectable error in DRAM",
    172: "uncorrectable error in SRAM",
}
_APPLICATION = {
    13: "exception of the compute engine, such as an access out of bounds",
    25: "illegal push buffer",
    31: "memory page fault",
    43: "stopped by a fault of the application",
    45: "cleaned up after the application ended, or after another error",
    69: "class error of the compute engine",
    137: "illegal access over NVLink",
}
_CONSEQUENCE = {154: "the recovery that another XID asks for has changed"}
_AMBIGUOUS = {
    8: "GPU stopped processing",
    32: "corrupted push buffer",
    46: "GPU stopped processing, and needs a reset",
    61: "internal micro-controller breakpoint",
    68: "exception of the video decoder",
    80: "corrupted data sent to the GPU",
    109: "context switch timed out",
    119: "the GPU's system processor did not answer",
    120: "error of the GPU's system processor",
    121: "corrected errors of the link to the CPU",
}

XIDS: Mapping[int, tuple[Meaning, str]] = dict(
    sorted(
        {
            **{code: (Meaning.HARDWARE, text) for code, text in _HARDWARE.items()},
            **{code: (Meaning.APPLICATION, text) for code, text in _APPLICATION.items()},
            **{code: (Meaning.CONSEQUENCE, text) for code, text in _CONSEQUENCE.items()},
            **{code: (Meaning.AMBIGUOUS, text) for code, text in _AMBIGUOUS.items()},
        }.items()
    )
)
"""Code -> what it means, and in a few words what it is."""


def xid_meaning(code: int) -> Meaning:
    """What a code means.

    >>> xid_meaning(79).value, xid_meaning(31).value, xid_meaning(9_999).value
    ('hardware', 'application', 'ambiguous')
    """
    return XIDS[code][0] if code in XIDS else Meaning.AMBIGUOUS


def xid_text(code: int) -> str:
    """A code in a few words.

    >>> xid_text(79), xid_text(9_999)
    ('XID 79, GPU fell off the bus', 'XID 9999')
    """
    return f"XID {code}, {XIDS[code][1]}" if code in XIDS else f"XID {code}"
