"""What is said of a manifest to people? The facts of manifest_documents.py, as text and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dataguard.report.manifest_documents import (
    FindingShown,
    ManifestBuilt,
    ManifestFacts,
    ManifestShown,
    ManifestVerified,
    ShardShown,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "render_built",
    "render_finding",
    "render_shard",
    "render_shown",
    "render_verified",
]

_FEW = 20


def render_built(built: ManifestBuilt) -> Iterator[str | Table]:
    """What ``manifest build`` says."""
    yield (
        f"{built.path}: {_some(len(built.sources), 'source')}, {_some(built.num_shards, 'shard')}, "
        f"{_some(built.num_blocks, 'block')}, {built.seconds:.1f} s"
    )
    yield f"digest {built.digest}"
    yield ""
    yield from _account(built)
    if built.unreachable:
        yield f"not reached, so the corpus may be incomplete: {len(built.unreachable):,}"
        yield from _lines(f"  {item.source}/{item.path}: {item.reason}" for item in built.unreachable)
    for source, hint in built.hints.items():
        yield f"source {source}: {hint}"
        yield "  next: name the field with --text-field"
    if built.ignored_files:
        told = "" if built.ignored is not None else " (--list-ignored names them)"
        yield f"ignored files: {_counts(built.ignored_files)}{told}"
    if built.ignored:
        yield from (f"  {item.source}/{item.path}: {item.reason}" for item in built.ignored)


def render_shown(shown: ManifestShown) -> Iterator[str | Table]:
    """What ``manifest show`` says."""
    yield (
        f"{shown.path}: {_some(len(shown.sources), 'source')}, {_some(shown.num_shards, 'shard')}, "
        f"{_some(shown.num_blocks, 'block')}, format {shown.version}"
    )
    yield f"digest {shown.digest}"
    yield ""
    yield from _account(shown)
    if shown.ignored_files:
        yield f"ignored files: {_counts(shown.ignored_files)}"
    yield ""
    yield from (f"{source.name} lay at {source.root}" for source in shown.sources)


def render_shard(shard: ShardShown) -> str:
    """A line of ``manifest show --shards``."""
    how = shard.format + (f" {shard.compression}" if shard.compression != "none" else "")
    ids = f" {shard.item_type}" if shard.item_type else ""
    rejected = f", {shard.num_rejected:,} rejected" if shard.num_rejected else ""
    effect = f"  {shard.effect}" if shard.effect != "clean" else ""
    return (
        f"{shard.shard}  {how}{ids}  {shard.size_bytes:,} bytes  {_some(shard.num_blocks, 'block')}  "
        f"{shard.num_delivered:,} of {shard.num_rows:,} rows{rejected}  {shard.digest}{effect}"
    )


def render_finding(finding: FindingShown) -> str:
    """A line of ``manifest show --rejected``.

    >>> render_finding(FindingShown(shard="web/a.jsonl", row=3, line=4, offset_bytes=70, code="null-text",
    ...                             effect="rejected", detail="text is null"))
    'web/a.jsonl:3  line 4, byte 70  rejected: null-text: text is null'
    """
    name = finding.shard if finding.row is None else f"{finding.shard}:{finding.row}"
    places = [f"line {finding.line:,}"] if finding.line is not None else []
    places += [f"byte {finding.offset_bytes:,}"] if finding.offset_bytes is not None else []
    place = f"  {', '.join(places)}" if places else ""
    return f"{name}{place}  {finding.effect}: {finding.code}: {finding.detail}"


def render_verified(verified: ManifestVerified) -> Iterator[str]:
    """What ``manifest verify`` says."""
    for entry in verified.findings:
        yield f"{entry.shard} is {entry.state}" + (f": {entry.detail}" if entry.detail else "")
        yield f"  file:     {entry.where}"
        yield f"  expected: {entry.expected_digest or 'no digest'}, {entry.expected_bytes:,} bytes"
        if entry.found_digest is not None:
            yield f"  found:    {entry.found_digest}, {entry.found_bytes:,} bytes"
    others = (
        (verified.num_changed, "changed"), (verified.num_missing, "missing"), (verified.num_unreadable, "unreadable"),
        (verified.num_without_digest, "without a digest"),
    )  # fmt: skip
    told = "".join(f", {number:,} {word}" for number, word in others if number)
    for name in verified.new_files[:_FEW]:
        yield f"{name} is not in the manifest"
    if len(verified.new_files) > _FEW:
        yield f"{len(verified.new_files) - _FEW:,} more files beside the shards are not in the manifest"
    yield (
        f"{verified.path}: {verified.num_same:,} of {_some(verified.num_shards, 'shard')} hold the bytes they held"
        f"{told} ({verified.checked_bytes:,} bytes read)"
    )


def _account(facts: ManifestFacts) -> Iterator[str | Table]:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source", overflow="fold")
    table.add_column("rows of", overflow="fold")
    for name in ("shards", "blocks", "rows", "delivered", "rejected", "content bytes", "flagged", "excluded"):
        table.add_column(name, justify="right")
    for source in facts.sources:
        numbers = (
            source.num_shards, source.num_blocks, source.num_rows, source.num_delivered, source.num_rejected,
            source.content_bytes, source.num_flagged, source.num_excluded,
        )  # fmt: skip
        table.add_row(Text(source.name), source.kind, *(f"{number:,}" for number in numbers))
    yield table
    yield ""
    yield f"rows read {facts.num_rows:,} = delivered {facts.num_delivered:,} + rejected {facts.num_rejected:,}"
    yield (
        f"shards {facts.num_shards:,} = clean {facts.num_clean:,} + flagged {facts.num_flagged:,} "
        f"+ excluded {facts.num_excluded:,}"
    )
    for source in facts.sources:
        if source.rejected_by_code:
            yield f"rejected in {source.name}: {_counts(source.rejected_by_code)}"
    for source in facts.sources:
        if source.num_documents is not None:
            sequences = f" of {_some(source.num_sequences or 0, 'sequence')}"
            yield f"documents in {source.name}: {source.num_documents:,}{sequences}"
    if facts.ignored_lines:
        yield f"blank lines, which are no records: {facts.ignored_lines:,}"
    if facts.damaged:
        yield f"findings of shards: {len(facts.damaged):,}"
        yield from (f"  {render_finding(finding)}" for finding in facts.damaged)
    if facts.empty_shards:
        yield f"shards without a deliverable row: {len(facts.empty_shards):,}"
        yield from _lines(f"  {name}" for name in facts.empty_shards)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    """The first lines, and how many more there are."""
    every: Sequence[str] = list(lines)
    yield from every[:_FEW]
    if len(every) > _FEW:
        yield f"  ... and {len(every) - _FEW:,} more (--json names them all)"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.items()))


def _some(number: int, noun: str) -> str:
    """A number and its noun.

    >>> _some(1, "shard"), _some(2_000, "shard")
    ('1 shard', '2,000 shards')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
