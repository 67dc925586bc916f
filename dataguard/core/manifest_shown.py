"""What is said of a manifest in one line, and in a notebook?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dataguard.core.notebook import Listing, card

if TYPE_CHECKING:
    from dataguard.core.manifest import Manifest

__all__ = ["manifest_html", "manifest_text"]

_DIGEST = 16


def manifest_text(manifest: Manifest) -> str:
    """One line, whatever the manifest holds."""
    return (
        f"<Manifest {manifest.digest[:_DIGEST]} sources={len(manifest.sources):,} shards={len(manifest.shards):,} "
        f"blocks={len(manifest.blocks):,} deliverable={int(manifest.num_deliverable.sum()):,}>"
    )


def manifest_html(manifest: Manifest) -> str:
    """Its account by source: what is stored, what is delivered, and what is not."""
    num_sources = len(manifest.sources)
    owner = np.fromiter((shard.source for shard in manifest.shards), np.int64, len(manifest.shards))
    excluded = np.fromiter((shard.effect == "excluded" for shard in manifest.shards), np.bool_, len(manifest.shards))
    flagged = np.fromiter((shard.effect == "flagged" for shard in manifest.shards), np.bool_, len(manifest.shards))
    of_block = owner[manifest.blocks["shard"]]

    def by_source(values: np.ndarray, where: np.ndarray) -> np.ndarray:
        # Weights of bincount are doubles, which lose bytes beyond 2**53.
        sums = np.zeros(num_sources, np.int64)
        np.add.at(sums, where, values)
        return sums

    columns = {
        "shards": by_source(np.ones(len(owner), np.int64), owner),
        "rows": by_source(manifest.blocks["num_rows"], of_block),
        "deliverable": by_source(manifest.num_deliverable, of_block),
        "rejected": by_source(manifest.blocks["num_rejected"], of_block),
        "content bytes": by_source(manifest.blocks["content_bytes"], of_block),
        "flagged": by_source(flagged.astype(np.int64), owner),
        "excluded": by_source(excluded.astype(np.int64), owner),
    }
    rows = (
        (source.name, source.kind, *(int(values[i]) for values in columns.values()))
        for i, source in enumerate(manifest.sources)
    )
    facts = {
        "digest": manifest.digest,
        "sources": num_sources,
        "shards": len(manifest.shards),
        "blocks": len(manifest.blocks),
        "rows or tokens": int(columns["rows"].sum()),
        "to deliver": int(columns["deliverable"].sum()),
    }
    listing = Listing(title="sources", columns=("source", "kind", *columns), rows=rows, num_rows=num_sources)
    return card("Manifest", facts, tables=[listing])
