"""Small values for the tests of this room: manifests without files, attempts without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dataguard.core.address import Geometry
from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.plan.attempts import AttemptPlan, Skip
from dataguard.plan.document import BatchSize, Mixture

Blocks = Sequence[int]
"""Stored rows (or tokens) of each block of a shard."""


def small_manifest(
    sources: Mapping[str, Mapping[str, Blocks]],
    *,
    rejected: Mapping[str, Sequence[int]] | None = None,
    kinds: Mapping[str, str] | None = None,
    salt: str = "",
) -> Manifest:
    """Sources by name, their shards by path, the stored rows of each block; rejected rows by ``SOURCE/path``."""
    shards, blocks, bad = [], [], []
    names = sorted(sources, key=str.encode)
    for number, name in enumerate(names):
        for path in sorted(sources[name], key=str.encode):
            first = 0
            for num_rows in sources[name][path] or [0]:
                mine = [r for r in (rejected or {}).get(f"{name}/{path}", ()) if first <= r < first + num_rows]
                bad += [(len(blocks), row, 0) for row in sorted(mine)]
                blocks.append((len(shards), first, num_rows, len(mine), -1, -1, -1, num_rows, b"0" * 16))
                first += num_rows
            shards.append(
                Shard(
                    source=number,
                    path=path,
                    format="jsonl",
                    compression="none",
                    item_type="",
                    size_bytes=first,
                    digest=f"{name}/{path}/{sources[name][path]}{salt}".encode().hex(),
                    num_rows=first,
                    effect="clean",
                )
            )
    return Manifest(
        sources=tuple(
            Source(name=name, kind=(kinds or {}).get(name, "text"), text_field="text")  # type: ignore[arg-type]
            for name in names
        ),
        shards=tuple(shards),
        blocks=np.array(blocks, dtype=BLOCK_DTYPE),
        rejected=np.array(bad, dtype=REJECTED_DTYPE),
        codes=("not-an-object",) if bad else (),
    )


ONE = Geometry(world_size=1, microbatch_size=1)
MIXTURES = (Mixture(start=0, manifest="m", weights={"web": 1}),)


def first_attempt(*sizes: tuple[int, int], skips: Sequence[Skip] = (), geometry: Geometry = ONE) -> AttemptPlan:
    """A root attempt of batch sizes (start, size)."""
    return AttemptPlan(
        number=1,
        geometry=geometry,
        mixtures=MIXTURES,
        batch_sizes=tuple(BatchSize(start=start, size=size) for start, size in sizes),
        skips=tuple(skips),
    )


def skip(start: int, stop: int, *, event: int = 1, reason: str = "spike") -> Skip:
    return Skip(start=start, stop=stop, event=event, reason=reason)
