"""The order of shards in a manifest: grouped by source, each name once, as they were found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.errors import ManifestDamaged


def manifest(shards: Sequence[tuple[int, str]]) -> Manifest:
    """Empty shards, by source and path."""
    blocks = np.zeros(len(shards), BLOCK_DTYPE)
    blocks["shard"] = np.arange(len(shards))
    return Manifest(
        sources=tuple(Source(name=name, kind="text", text_field="text") for name in ("a", "b")),
        shards=tuple(
            Shard(
                source=source,
                path=path,
                format="arrow",
                compression="none",
                item_type="",
                size_bytes=0,
                digest="",
                num_rows=0,
                effect="clean",
            )
            for source, path in shards
        ),
        blocks=blocks,
        rejected=np.zeros(0, REJECTED_DTYPE),
        codes=(),
    )


def test_shards_keep_the_order_they_are_given_in() -> None:
    made = manifest([(0, "z"), (0, "y"), (0, "x/1"), (1, "y")])
    assert [made.shard_name(i) for i in range(4)] == ["a/z", "a/y", "a/x/1", "b/y"]
    assert [made.find_shard(name) for name in ("a/z", "a/y", "x/1", "b/y")] == [0, 1, 2, 3]
    assert (made.shards_of(0), made.shards_of(1)) == (range(3), range(3, 4))
    assert made.digest != manifest([(0, "y"), (0, "z"), (0, "x/1"), (1, "y")]).digest


@pytest.mark.parametrize("shards", [[(1, "x"), (0, "x")], [(0, "x"), (1, "x"), (0, "y")]])
def test_shards_are_grouped_by_source(shards: list[tuple[int, str]]) -> None:
    with pytest.raises(ManifestDamaged, match="grouped"):
        manifest(shards)


def test_no_name_comes_twice() -> None:
    with pytest.raises(ManifestDamaged, match="one name"):
        manifest([(0, "x"), (0, "y"), (0, "x")])
