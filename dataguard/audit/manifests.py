"""Of what data is an audit? Of a manifest that is given, or of paths, which are scanned into its folder first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataguard.audit.folder import AuditFolder
from dataguard.corpus.build import BuildProgress, build_manifest_file
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.manifest_format import KEY
from dataguard.corpus.manifest_read import ManifestFile, read_manifest
from dataguard.corpus.storage import is_url
from dataguard.errors import UsageError

__all__ = ["Scanning", "Unreachable", "is_manifest", "kept_manifest"]

Unreachable = tuple[tuple[str, str], ...]
"""Paths that a scan could not look into, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanning:
    """How paths are scanned."""

    options: ScanOptions
    format_name: str
    num_workers: int | None
    timeout_seconds: float | None
    tell: Callable[[int, int], None]
    """Told bytes done, and bytes in all."""


def kept_manifest(
    folder: AuditFolder, target: Path, paths: Sequence[str], scanning: Scanning, *, before: Unreachable | None
) -> tuple[ManifestFile, Unreachable]:
    """The manifest of some data, which lies under `target` afterwards.

    Parameters
    ----------
    paths
        One manifest, which is copied, or paths, which are scanned.
    before
        What a scan could not look into whose manifest is there already; None where the audit was not begun.

    Raises
    ------
    UsageError, InputError
        As a scan does.
    """
    if len(paths) == 1 and is_manifest(paths[0]):
        read = read_manifest(paths[0])
        if not target.exists():
            folder.publish(target, _content_of(paths[0]))
        return read, ()
    if before is not None and target.exists():
        return read_manifest(target), before

    def tell(done: BuildProgress) -> None:
        scanning.tell(done.done_bytes, done.total_bytes)

    result, _ = build_manifest_file(
        paths,
        target,
        options=scanning.options,
        format_name=scanning.format_name,
        num_workers=scanning.num_workers,
        timeout_seconds=scanning.timeout_seconds,
        progress=tell,
    )
    return read_manifest(target), tuple((f"{item.source}/{item.path}", item.reason) for item in result.unreachable)


def is_manifest(path: str) -> bool:
    """Whether a file is a manifest: Parquet that says so in its schema. What cannot be opened is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dataguard.corpus.storage import open_root

    try:
        if is_url(path):
            where, _, name = path.rpartition("/")
            if not name.endswith(".parquet"):
                return False
            with open_root(where).open(name) as file:
                metadata = pq.read_schema(file).metadata
        elif Path(path).is_file():
            metadata = pq.read_schema(path).metadata
        else:
            return False
    except (OSError, ValueError, UsageError, pa.ArrowException):
        return False
    return KEY in (metadata or {})


def _content_of(path: str) -> bytes:
    from dataguard.corpus.storage import open_root

    if is_url(path):
        where, _, name = path.rpartition("/")
        with open_root(where).open(name) as file:
            return file.read()
    return Path(path).read_bytes()
