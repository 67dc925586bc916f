"""On which machine did each rank of an attempt run?

Every rank writes the name of its machine into the header of its seals file, which nothing replaces and no compaction
removes. Hardware speaks of machines and the run of ranks; this is where the two meet.
"""

from __future__ import annotations

import platform

import msgspec

from dataguard.run.frames import FramesReader
from dataguard.run.layout import Layout
from dataguard.run.seal import ranks_of

__all__ = ["hosts_of", "this_host"]


def this_host() -> str:
    """The name of this machine, as its kernel gives it."""
    return platform.node()


def hosts_of(layout: Layout, attempt: int) -> dict[int, str]:
    """Rank -> machine, of the ranks of an attempt that said it; what was recorded before they did is not known."""
    hosts = {}
    for rank in ranks_of(layout, attempt):
        with FramesReader(layout.seals(attempt, rank), "seals") as reader:
            header = reader.header
        if header is not None and header.host is not msgspec.UNSET:
            hosts[rank] = header.host
    return hosts
