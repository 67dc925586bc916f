"""What does one shard hold?

`scan_shard` reads a shard twice: once for the digest of its bytes, once through its format for blocks and findings.
A file that is written to meanwhile is told as such, and so is whatever a reader library raises over it (foreign.py).
The answer, a `ShardScan`, crosses processes and is kept on disk between interrupted builds, so it is a msgspec document
of plain values and packed arrays.

A shard whose findings exclude it keeps one block of no rows: it stays in the account, and nothing of it is delivered.
"""

from __future__ import annotations

import msgspec
import numpy as np

from dataguard.core.digests import block_digest
from dataguard.core.manifest import BLOCK_DTYPE, Effect
from dataguard.corpus.foreign import is_foreign, words_of
from dataguard.corpus.formats.findings import shard_effect
from dataguard.corpus.formats.protocol import Declared, Finding, ScanEnd, ScannedBlock, ScanOptions
from dataguard.corpus.recognition import format_named
from dataguard.corpus.shard_file import ByteCounter, StoredShard, shard_digest
from dataguard.corpus.storage import Compression, open_root

__all__ = ["FindingRecord", "ScanJob", "ShardScan", "given_up", "scan_shard", "stored_digest"]

_PACKED = (".zst", ".gz", ".zstd", ".gzip")


class ScanJob(msgspec.Struct, frozen=True, kw_only=True):
    """One shard to scan."""

    source: str
    root: str
    """Absolute folder or URL."""
    path: str
    size_bytes: int
    format: str
    """Empty where the file could not be opened."""
    compression: Compression
    trouble: str
    """Why it could not be opened."""
    options: ScanOptions
    declared: Declared | None = None
    """What an index says of it."""

    @property
    def name(self) -> str:
        """``SOURCE/path``."""
        return f"{self.source}/{self.path}"


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A `Finding` as it crosses processes."""

    code: str
    detail: str
    row: int | None
    line: int | None
    offset_bytes: int | None

    @classmethod
    def of(cls, finding: Finding) -> FindingRecord:
        """The same finding."""
        return cls(
            code=finding.code,
            detail=finding.detail,
            row=finding.row,
            line=finding.line,
            offset_bytes=finding.offset_bytes,
        )

    def finding(self) -> Finding:
        """The same finding, as the rest of the corpus knows it."""
        return Finding(code=self.code, detail=self.detail, row=self.row, line=self.line, offset_bytes=self.offset_bytes)


class ShardScan(msgspec.Struct, frozen=True, kw_only=True):
    """What one shard holds."""

    size_bytes: int
    digest: str
    """xxh3-128 of the file's bytes, hexadecimal; empty where they could not be read."""
    item_type: str
    effect: Effect
    num_rows: int
    blocks: bytes
    """BLOCK_DTYPE, field ``shard`` 0."""
    rejected: list[FindingRecord]
    """In row order."""
    findings: list[FindingRecord]
    """Of the shard as a whole."""
    ignored_lines: int
    bytes_read: int
    num_documents: int | None = None
    """Of a token shard, where it knows its documents."""
    num_sequences: int | None = None


def scan_shard(job: ScanJob) -> ShardScan:
    """Scan one shard; what is wrong with it is in the answer and never an exception."""
    counter = ByteCounter()
    if job.trouble:
        return _unreadable(job, job.trouble, counter)
    root = open_root(job.root)
    shard = StoredShard(
        root,
        name=job.name,
        path=job.path,
        size_bytes=job.size_bytes,
        compression=job.compression,
        counter=counter,
        format_name=job.format,
        declared=job.declared,
    )
    try:
        if shard.companions and (gone := shard.missing()):
            return _without_half(job, shard, gone, counter)
        stamp = shard.stamp()
        shard.size_bytes = shard.size_now()
        digest, size_bytes = shard_digest(shard)
        scan = _scan(job, shard, digest, size_bytes, counter)
        if shard.stamp() != stamp or size_bytes != shard.size_bytes:
            return _excluded(
                job,
                "changed-while-scanned",
                f"{size_bytes:,} bytes when scanned, {shard.size_now():,} now",
                digest,
                counter,
            )
    except OSError as error:
        return _unreadable(job, error.strerror or str(error) or type(error).__name__, counter)
    return scan


def _without_half(job: ScanJob, shard: StoredShard, gone: list[str], counter: ByteCounter) -> ShardScan:
    """A shard of which a file is missing, or lies there compressed, which is another thing to mend."""
    packed = [path + ending for path in gone for ending in _PACKED if shard.has(path + ending)]
    if packed:
        detail = f"there is {', '.join(packed)} instead of {', '.join(gone)}: decompress it, a pair is read at random"
        return _excluded(job, "compressed-container", detail, "", counter)
    there = ", ".join(file.path for file in shard.files if file.path not in gone)
    return _excluded(job, "missing-half", f"{', '.join(gone)} is missing, there is only {there}", "", counter)


def given_up(job: ScanJob, code: str, detail: str, stored: tuple[str, int] | None) -> ShardScan:
    """The scan of a shard that nobody could finish: it is excluded, with that finding.

    Parameters
    ----------
    stored
        Digest and size of its bytes, where those could be read.
    """
    digest, size_bytes = stored or ("", None)
    return _excluded(job, code, detail, digest, ByteCounter(), size_bytes=size_bytes)


def stored_digest(job: ScanJob) -> tuple[str, int] | None:
    """Digest and size of a shard's bytes as they are now, None where they cannot be read."""
    if job.trouble:
        return None
    shard = StoredShard(
        open_root(job.root),
        name=job.name,
        path=job.path,
        size_bytes=job.size_bytes,
        compression=job.compression,
        counter=ByteCounter(),
        format_name=job.format,
    )
    try:
        return shard_digest(shard)
    except OSError:
        return None


def _scan(job: ScanJob, shard: StoredShard, digest: str, size_bytes: int, counter: ByteCounter) -> ShardScan:
    try:
        return _scan_format(job, shard, digest, size_bytes, counter)
    except BaseException as error:
        if not is_foreign(error):
            raise
        return _excluded(job, "reader-failed", words_of(error), digest, counter, size_bytes=size_bytes)


def _scan_format(job: ScanJob, shard: StoredShard, digest: str, size_bytes: int, counter: ByteCounter) -> ShardScan:
    entry = format_named(job.format)
    places: list[tuple[int, int, int, int, int, int, int, int, bytes]] = []
    rejected: list[FindingRecord] = []
    end = ScanEnd()
    for item in entry.scan(shard, job.options):
        if isinstance(item, ScannedBlock):
            place = item.place
            places.append(
                (
                    0,
                    place.first_row,
                    place.num_rows,
                    len(item.rejected),
                    place.offset_bytes,
                    place.size_bytes,
                    place.group,
                    item.content_bytes,
                    item.digest,
                )
            )
            rejected.extend(FindingRecord.of(finding) for finding in item.rejected)
        else:
            end = item
    findings = [FindingRecord.of(finding) for finding in end.findings]
    effect = shard_effect(end.findings, num_deliverable=sum(place[2] - place[3] for place in places))
    if effect == "excluded":
        places, rejected = [], []
    blocks = np.array(places or [_empty_block()], BLOCK_DTYPE)
    return ShardScan(
        size_bytes=size_bytes,
        digest=digest,
        item_type=end.item_type,
        effect=effect,
        num_rows=int(blocks["num_rows"].sum()),
        blocks=blocks.tobytes(),
        rejected=rejected,
        findings=findings,
        ignored_lines=end.ignored_lines,
        bytes_read=counter.total,
        num_documents=None if effect == "excluded" else end.num_documents,
        num_sequences=None if effect == "excluded" else end.num_sequences,
    )


def _unreadable(job: ScanJob, why: str, counter: ByteCounter) -> ShardScan:
    return _excluded(job, "unreadable", f"the file cannot be read: {why}", "", counter)


def _excluded(
    job: ScanJob, code: str, detail: str, digest: str, counter: ByteCounter, *, size_bytes: int | None = None
) -> ShardScan:
    finding = FindingRecord(code=code, detail=detail, row=None, line=None, offset_bytes=None)
    return ShardScan(
        size_bytes=job.size_bytes if size_bytes is None else size_bytes,
        digest=digest,
        item_type="",
        effect="excluded",
        num_rows=0,
        blocks=np.array([_empty_block()], BLOCK_DTYPE).tobytes(),
        rejected=[],
        findings=[finding],
        ignored_lines=0,
        bytes_read=counter.total,
    )


def _empty_block() -> tuple[int, int, int, int, int, int, int, int, bytes]:
    return (0, 0, 0, 0, -1, -1, -1, 0, block_digest(np.zeros(0, np.int64), b""))
