"""How does an interrupted build go on where it stopped?

Every finished scan is kept in ``M.parquet.building/`` until the manifest stands. A kept scan is used again only when
the shard's bytes still have the digest it was made over: sizes and times are never trusted. Kept files carry a check
sum and the version and options of the scan, so a torn or foreign one is scanned anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import xxhash

from dataguard.corpus.scan import ScanJob, ShardScan, scan_shard, stored_digest
from dataguard.errors import WriteFailed
from dataguard.version import __version__

__all__ = ["KeptScan", "scan_or_reuse"]


class KeptScan(msgspec.Struct, frozen=True, kw_only=True):
    """A finished scan as it lies on disk, behind the check sum of its bytes."""

    version: str
    """Of dataguard: another version may scan otherwise."""
    job: ScanJob
    scan: ShardScan


def scan_or_reuse(job: ScanJob, partial_dir: str) -> ShardScan:
    """The scan of a shard: the kept one where the shard still holds the same bytes, else a new one, which is kept.

    Raises
    ------
    WriteFailed
        Where the scan cannot be kept.
    """
    if not partial_dir:
        return scan_shard(job)
    path = Path(partial_dir) / f"{xxhash.xxh3_128_hexdigest(job.name.encode())}.scan"
    kept = _read(path)
    if kept is not None and kept.version == __version__ and kept.job == job and _is_same(job, kept.scan):
        return kept.scan
    scan = scan_shard(job)
    _keep(path, KeptScan(version=__version__, job=job, scan=scan))
    return scan


def _is_same(job: ScanJob, scan: ShardScan) -> bool:
    """Whether a shard still holds the bytes that were scanned."""
    stored = stored_digest(job)
    return stored is not None and stored[0] == scan.digest


def _read(path: Path) -> KeptScan | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        return None  # as good as none: the shard is scanned anew
    if xxhash.xxh3_128_digest(content[16:]) != content[:16]:
        return None
    try:
        return msgspec.msgpack.decode(content[16:], type=KeptScan)
    except msgspec.DecodeError:
        return None


def _keep(path: Path, kept: KeptScan) -> None:
    content = msgspec.msgpack.encode(kept)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(xxhash.xxh3_128_digest(content) + content)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise WriteFailed(
            f"the finished scan of shard {kept.job.name} could not be kept in {path.parent}",
            found=error.strerror or str(error),
            todo="free space and repeat: finished shards are kept",
        ) from error
