"""What are the facts of a manifest, as documents for scripts?

Each command of ``dataguard manifest`` answers with one of these; people get the same facts as text (manifest.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dataguard.core.manifest import Manifest
    from dataguard.corpus.account import Account
    from dataguard.corpus.build import BuildResult
    from dataguard.corpus.discovery import IgnoredFile
    from dataguard.corpus.formats.protocol import Finding
    from dataguard.corpus.manifest_format import ManifestHeader
    from dataguard.corpus.manifest_read import NamedFinding
    from dataguard.corpus.verify import ShardCheck

__all__ = [
    "FindingShown",
    "IgnoredShown",
    "ManifestBuilt",
    "ManifestFacts",
    "ManifestShown",
    "ManifestVerified",
    "ShardShown",
    "ShardVerified",
    "SourceShown",
    "built",
    "findings_shown",
    "shards_shown",
    "shown",
    "verified",
]


class SourceShown(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one source. ``num_rows = num_delivered + num_rejected``."""

    name: str
    kind: str
    """``text`` (rows are records) or ``tokens`` (rows are tokens)."""
    text_field: str
    root: str
    num_shards: int
    num_clean: int
    num_flagged: int
    num_excluded: int
    num_blocks: int
    num_rows: int
    num_delivered: int
    num_rejected: int
    rejected_by_code: dict[str, int]
    content_bytes: int
    num_documents: int | None
    """Documents of token shards that know them, empty ones too; null where none does."""
    num_sequences: int | None
    """Sequences that those documents are made of."""


class FindingShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a shard (``row`` is null) or with one of its records."""

    shard: str
    row: int | None
    line: int | None
    offset_bytes: int | None
    code: str
    effect: str
    """``rejected`` (the record), ``flagged`` or ``excluded`` (the shard)."""
    detail: str


class IgnoredShown(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was met and is no shard."""

    source: str
    path: str
    reason: str


class ManifestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a manifest whenever it is spoken of."""

    path: str
    digest: str
    num_rows: int
    num_delivered: int
    num_rejected: int
    num_shards: int
    num_clean: int
    num_flagged: int
    num_excluded: int
    num_blocks: int
    ignored_lines: int
    """Blank lines and the like, which are no records."""
    ignored_files: dict[str, int]
    """Files that are no shards, counted by reason."""
    sources: tuple[SourceShown, ...]
    damaged: tuple[FindingShown, ...]
    """Findings of whole shards."""
    empty_shards: tuple[str, ...]
    """Shards without a deliverable row, excluded ones apart."""


class ManifestBuilt(ManifestFacts, frozen=True, kw_only=True):
    """The answer of ``manifest build``."""

    unreachable: tuple[IgnoredShown, ...]
    """What may hide data: unreadable folders, broken links, names that are no UTF-8."""
    ignored: tuple[IgnoredShown, ...] | None
    """Every ignored file; null unless asked for."""
    hints: dict[str, str]
    """By source: which fields its records have, where none has the text field; which shards lack it, where some do."""
    seconds: float


class ManifestShown(ManifestFacts, frozen=True, kw_only=True):
    """The answer of ``manifest show``."""

    version: int
    scan: dict[str, int | str]


class ShardShown(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``manifest show --shards``."""

    shard: str
    format: str
    compression: str
    item_type: str
    effect: str
    size_bytes: int
    digest: str
    num_blocks: int
    num_rows: int
    num_delivered: int
    num_rejected: int


class ShardVerified(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that does not hold what it held."""

    shard: str
    state: str
    """``changed``, ``missing``, ``unreadable`` or ``no-digest``."""
    where: str
    expected_digest: str
    found_digest: str | None
    expected_bytes: int
    found_bytes: int | None
    detail: str


class ManifestVerified(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``manifest verify``."""

    path: str
    digest: str
    num_shards: int
    num_same: int
    num_changed: int
    num_missing: int
    num_unreadable: int
    num_without_digest: int
    checked_bytes: int
    findings: tuple[ShardVerified, ...]
    """Every shard that is not the same."""
    new_files: tuple[str, ...]
    """``SOURCE/path`` of data files beside the shards that the manifest does not have; no failure."""


def built(
    result: BuildResult, header: ManifestHeader, *, path: str, seconds: float, list_ignored: bool
) -> ManifestBuilt:
    """The facts of a build."""
    named = [
        _finding(result.manifest.shard_name(shard), finding)
        for shard, findings in sorted(result.details.shard_findings.items())
        for finding in findings
    ]
    return ManifestBuilt(
        path=path,
        digest=header.digest,
        **_totals(result.account),
        num_blocks=len(result.manifest.blocks),
        ignored_lines=int(result.details.ignored_lines.sum()),
        ignored_files=header.ignored_files,
        sources=_sources(result.manifest, result.account, header),
        damaged=tuple(named),
        empty_shards=_empty_shards(result.account),
        unreachable=_ignored(result.unreachable),
        ignored=_ignored(result.ignored) if list_ignored else None,
        hints=dict(result.hints),
        seconds=round(seconds, 3),
    )


def shown(
    manifest: Manifest,
    account: Account,
    header: ManifestHeader,
    *,
    path: str,
    damaged: Iterator[NamedFinding],
) -> ManifestShown:
    """The facts of a manifest that was read."""
    return ManifestShown(
        path=path,
        digest=manifest.digest,
        version=header.version,
        scan=header.scan,
        **_totals(account),
        num_blocks=len(manifest.blocks),
        ignored_lines=header.ignored_lines,
        ignored_files=header.ignored_files,
        sources=_sources(manifest, account, header),
        damaged=tuple(findings_shown(damaged)),
        empty_shards=_empty_shards(account),
    )


def findings_shown(named: Iterator[NamedFinding]) -> Iterator[FindingShown]:
    """Findings as they come."""
    for entry in named:
        yield _finding(entry.shard, entry.finding)


def shards_shown(manifest: Manifest) -> Iterator[ShardShown]:
    """Every shard, in order."""
    import numpy as np

    owners = manifest.blocks["shard"]
    num_delivered = np.bincount(owners, manifest.num_deliverable, len(manifest.shards)).astype(np.int64)
    num_rejected = np.bincount(owners, manifest.blocks["num_rejected"], len(manifest.shards)).astype(np.int64)
    num_blocks = np.diff(manifest.block_starts)
    for i, shard in enumerate(manifest.shards):
        yield ShardShown(
            shard=manifest.shard_name(i),
            format=shard.format,
            compression=shard.compression,
            item_type=shard.item_type,
            effect=shard.effect,
            size_bytes=shard.size_bytes,
            digest=shard.digest,
            num_blocks=int(num_blocks[i]),
            num_rows=shard.num_rows,
            num_delivered=int(num_delivered[i]),
            num_rejected=int(num_rejected[i]),
        )


def verified(
    path: str, manifest: Manifest, checks: Sequence[ShardCheck], *, new_files: Sequence[str]
) -> ManifestVerified:
    """What became of every shard, and what lies beside them now."""

    def number(state: str) -> int:
        return sum(check.state == state for check in checks)

    return ManifestVerified(
        path=path,
        digest=manifest.digest,
        num_shards=len(checks),
        num_same=number("same"),
        num_changed=number("changed"),
        num_missing=number("missing"),
        num_unreadable=number("unreadable"),
        num_without_digest=number("no-digest"),
        checked_bytes=sum(check.found_bytes or 0 for check in checks),
        findings=tuple(
            ShardVerified(
                shard=check.shard,
                state=check.state,
                where=check.where,
                expected_digest=check.expected_digest,
                found_digest=check.found_digest,
                expected_bytes=check.expected_bytes,
                found_bytes=check.found_bytes,
                detail=check.detail,
            )
            for check in checks
            if check.state != "same"
        ),
        new_files=tuple(new_files),
    )


def _totals(account: Account) -> dict[str, int]:
    names = ("num_rows", "num_delivered", "num_rejected", "num_shards", "num_clean", "num_flagged", "num_excluded")
    return {name: account.total(name) for name in names}


def _sources(manifest: Manifest, account: Account, header: ManifestHeader) -> tuple[SourceShown, ...]:
    return tuple(
        SourceShown(
            name=source.name,
            kind=source.kind,
            text_field=entry.text_field,
            root=told.root,
            num_shards=source.num_shards,
            num_clean=source.num_clean,
            num_flagged=source.num_flagged,
            num_excluded=source.num_excluded,
            num_blocks=source.num_blocks,
            num_rows=source.num_rows,
            num_delivered=source.num_delivered,
            num_rejected=source.num_rejected,
            rejected_by_code=dict(source.rejected_by_code),
            content_bytes=source.content_bytes,
            num_documents=told.num_documents,
            num_sequences=told.num_sequences,
        )
        for source, entry, told in zip(account.sources, manifest.sources, header.sources, strict=True)
    )


def _empty_shards(account: Account) -> tuple[str, ...]:
    return tuple(f"{source.name}/{path}" for source in account.sources for path in source.empty_shards)


def _ignored(items: Sequence[IgnoredFile]) -> tuple[IgnoredShown, ...]:
    return tuple(IgnoredShown(source=item.source, path=item.path, reason=item.reason) for item in items)


def _finding(shard: str, finding: Finding) -> FindingShown:
    from dataguard.corpus.formats import effect_of

    return FindingShown(
        shard=shard,
        row=finding.row,
        line=finding.line,
        offset_bytes=finding.offset_bytes,
        code=finding.code,
        effect=effect_of(finding.code),
        detail=finding.detail,
    )
