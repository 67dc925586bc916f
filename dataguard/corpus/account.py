"""Does it add up: what was read, what will be delivered, and what will not, for which reason, in which shard?

``records = delivered + rejected`` and ``shards = clean + flagged + excluded`` hold for every source and for the whole.
An account is derived from the manifest alone, by two ways that must meet: the sums over blocks and the counts over
rejected rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dataguard.core.manifest import Manifest, SourceKind
from dataguard.errors import ManifestDamaged

__all__ = ["Account", "SourceAccount", "take_account"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAccount:
    """The account of one source."""

    name: str
    kind: SourceKind
    """Whether a row is a record (``text``) or a token (``tokens``)."""
    num_rows: int
    """Stored rows of all shards that are not excluded."""
    num_delivered: int
    num_rejected: int
    rejected_by_code: Mapping[str, int]
    rejected_by_shard: Mapping[str, int]
    """Shards with at least one rejected row, by path."""
    content_bytes: int
    """Bytes of what will be delivered."""
    num_shards: int
    num_clean: int
    num_flagged: int
    num_excluded: int
    num_blocks: int
    empty_shards: tuple[str, ...]
    """Shards, not excluded, without a deliverable row, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of a manifest."""

    sources: tuple[SourceAccount, ...]

    def total(self, name: str) -> int:
        """The sum of one count over all sources.

        >>> Account(sources=()).total("num_rows")
        0
        """
        return sum(int(getattr(source, name)) for source in self.sources)

    def check(self) -> None:
        """ManifestDamaged where the account does not balance."""
        for source in self.sources:
            sums = (
                (source.num_rows, source.num_delivered + source.num_rejected, "rows read = delivered + rejected"),
                (source.num_rejected, sum(source.rejected_by_code.values()), "rejected = the sum by reason"),
                (source.num_rejected, sum(source.rejected_by_shard.values()), "rejected = the sum by shard"),
                (
                    source.num_shards,
                    source.num_clean + source.num_flagged + source.num_excluded,
                    "shards = clean + flagged + excluded",
                ),
            )
            for left, right, rule in sums:
                if left != right:
                    raise ManifestDamaged(
                        f"the account of source {source.name} does not balance",
                        found=f"{left:,} and {right:,}",
                        allowed=rule,
                    )


def take_account(manifest: Manifest) -> Account:
    """The account of a manifest, checked."""
    blocks = manifest.blocks
    codes_of_rejected = manifest.rejected["code"]
    effects = np.array([shard.effect for shard in manifest.shards], dtype=object)
    delivered_by_shard = np.bincount(blocks["shard"], manifest.num_deliverable, len(manifest.shards)).astype(np.int64)
    sources = []
    for i, source in enumerate(manifest.sources):
        shards, span = manifest.shards_of(i), manifest.blocks_of(i)
        of_source = slice(span.start, span.stop)
        first, last = manifest.rejected_starts[span.start], manifest.rejected_starts[span.stop]
        by_code = np.bincount(codes_of_rejected[first:last], minlength=len(manifest.codes))
        owners = blocks["shard"][manifest.rejected["block"][first:last]]
        where, counts = np.unique(owners, return_counts=True)
        effect = effects[shards.start : shards.stop]
        sources.append(
            SourceAccount(
                name=source.name,
                kind=source.kind,
                num_rows=sum(manifest.shards[s].num_rows for s in shards if manifest.shards[s].effect != "excluded"),
                num_delivered=int(manifest.num_deliverable[of_source].sum()),
                num_rejected=int(blocks["num_rejected"][of_source].sum()),
                rejected_by_code={manifest.codes[c]: int(n) for c, n in enumerate(by_code) if n},
                rejected_by_shard={manifest.shards[int(s)].path: int(n) for s, n in zip(where, counts, strict=True)},
                content_bytes=int(blocks["content_bytes"][of_source].sum()),
                num_shards=len(shards),
                num_clean=int((effect == "clean").sum()),
                num_flagged=int((effect == "flagged").sum()),
                num_excluded=int((effect == "excluded").sum()),
                num_blocks=len(span),
                empty_shards=tuple(
                    manifest.shards[s].path
                    for s in shards
                    if not delivered_by_shard[s] and manifest.shards[s].effect != "excluded"
                ),
            )
        )
    account = Account(sources=tuple(sources))
    account.check()
    return account
