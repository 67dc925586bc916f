"""What will a rank read at once, and what does its geometry cost in bytes read?

A rank that reads whole lanes has, for each lane and source, one window of blocks in use. Its cache of decoded blocks
must hold them, or every block is decoded again and again. Where more ranks than lanes share the stream, several ranks
read the same blocks, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataguard.core.address import Geometry
from dataguard.plan.lanes import lanes_of_source
from dataguard.plan.plan import Plan
from dataguard.plan.stream import Stream

__all__ = ["CACHE_LIMIT_BYTES", "Demand", "demand_of", "shared_cache_bytes"]

CACHE_LIMIT_BYTES = 2 << 30
_CACHE_LEAST_BYTES = 64 << 20
_SLACK = 1.5  # windows do not end where blocks do, so blocks of two windows are in use at their border


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one rank's reading needs."""

    cache_bytes: int
    notes: tuple[str, ...]


def demand_of(plan: Plan, stream: Stream, geometry: Geometry) -> Demand:
    """The cache one rank needs, and what an engineer should know of this geometry."""
    root = plan.root
    own_lanes = max(1, root.lanes // geometry.world_size)
    need = 0.0
    for manifest in stream.manifest_set.manifests:
        for ordinal in range(len(manifest.sources)):
            blocks = manifest.blocks_of(ordinal)
            live = manifest.num_deliverable[blocks.start : blocks.stop] > 0
            num_blocks = int(live.sum())
            if not num_blocks:
                continue
            content = int(manifest.blocks["content_bytes"][blocks.start : blocks.stop].sum())
            source_lanes = lanes_of_source(num_blocks, root.lanes)
            window = num_blocks if root.shuffle == "all" else max(2, root.window_blocks // source_lanes)
            in_use = min(num_blocks, min(own_lanes, source_lanes) * window)
            need += in_use * (content / num_blocks + 64)
    notes = []
    wanted = int(need * _SLACK)
    if wanted > CACHE_LIMIT_BYTES:
        notes.append(
            f"the windows of one rank hold about {need / 1e9:,.1f} GB decoded, the cache "
            f"{CACHE_LIMIT_BYTES / 1e9:,.1f} GB: blocks will be read more than once; give cache_bytes, or plan the "
            f"next run with fewer window blocks than {root.window_blocks}"
        )
    if geometry.world_size > root.lanes:
        share = geometry.world_size / root.lanes
        notes.append(
            f"{geometry.world_size:,} ranks share {root.lanes:,} lane{'s' * (root.lanes != 1)}: "
            f"about {share:,.1f} ranks read each block, so an epoch costs that many times "
            f"the corpus in bytes read; the next run can be planned with --lanes "
            f"{1 << (geometry.world_size - 1).bit_length():,}"
        )
    return Demand(cache_bytes=max(_CACHE_LEAST_BYTES, min(wanted, CACHE_LIMIT_BYTES)), notes=tuple(notes))


def shared_cache_bytes(plan: Plan, stream: Stream, geometry: Geometry) -> int:
    """The cache of each rank where all of them live in one process: what one needs, and at most its part of a budget.

    The budget is twice what a rank alone may have, so that hundreds of ranks do not take the machine's memory.
    """
    return min(demand_of(plan, stream, geometry).cache_bytes, 2 * CACHE_LIMIT_BYTES // geometry.world_size)
