"""How much memory did this process ever hold?

Not ``ru_maxrss``: a child inherits its parent's peak there, so under a large test process it hides every growth.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_bytes"]


def peak_bytes() -> int:
    """The largest resident set of this process since it was executed, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
