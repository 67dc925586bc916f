"""How do shards become a manifest?

1. `discovery.discover` finds shards, their order and formats, before anything is scanned: what was asked for wrongly is
   refused at once.
2. Every shard is scanned (`scan_pool`), several at a time; finished scans are kept where an interrupted build finds
   them again (`partial`).
3. The scans are put together in the order of sources and paths, whatever order they finished in. The account is taken
   from the result and must balance.

Damage is data: a shard that cannot be trusted is in the manifest, marked and counted, and delivers nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.corpus.account import Account, take_account
from dataguard.corpus.discovery import Discovery, FoundSource, IgnoredFile, discover
from dataguard.corpus.formats.protocol import Finding, ScanOptions
from dataguard.corpus.hints import fields_instead
from dataguard.corpus.manifest_format import ManifestDetails, ManifestHeader
from dataguard.corpus.manifest_write import write_manifest
from dataguard.corpus.partial import scan_or_reuse
from dataguard.corpus.scan import ScanJob, ShardScan
from dataguard.corpus.scan_pool import scan_all
from dataguard.corpus.shard_file import ByteCounter
from dataguard.corpus.storage import Root, is_url
from dataguard.errors import UsageError, WriteFailed, WriterConflict

__all__ = ["BuildProgress", "BuildResult", "build_manifest", "build_manifest_file"]

_SMALL_BYTES = 128 << 20
"""Below this a second process takes longer to start than the scan takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProgress:
    """How far a build is, told after each shard."""

    num_shards: int
    num_done: int
    total_bytes: int
    done_bytes: int
    shard: str
    """The shard that was finished last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """A manifest and all that is to be told about it."""

    manifest: Manifest
    details: ManifestDetails
    account: Account
    roots: Mapping[str, str]
    """Absolute folder or URL of every source."""
    options: ScanOptions
    ignored: tuple[IgnoredFile, ...]
    """Files that are no shards, in byte order of source and path."""
    hints: Mapping[str, str]
    """For sources without the text field: which fields there are instead; where some shards lack it: which do."""

    @property
    def num_damaged(self) -> int:
        """Shards that are flagged or excluded."""
        return self.account.total("num_flagged") + self.account.total("num_excluded")

    @property
    def unreachable(self) -> tuple[IgnoredFile, ...]:
        """What may hide data: unreadable folders, broken links, names that are no UTF-8."""
        return tuple(item for item in self.ignored if item.is_serious)

    @property
    def ignored_files(self) -> dict[str, int]:
        """How many files were ignored, by reason."""
        return dict(sorted(Counter(item.reason for item in self.ignored).items()))


def build_manifest(
    sources: Sequence[str],
    *,
    options: ScanOptions | None = None,
    format_name: str = "",
    num_workers: int | None = None,
    timeout_seconds: float | None = None,
    progress: Callable[[BuildProgress], None] | None = None,
    partial_dir: str | os.PathLike[str] | None = None,
    leave_out: Callable[[Root, str], bool] | None = None,
) -> BuildResult:
    r"""Scan the shards of every source into a manifest.

    Parameters
    ----------
    sources
        ``PATH`` or ``NAME=PATH``: folders, files, patterns, URLs.
    options
        Text field and limits.
    format_name
        Every shard is of this format, and what is not is no shard; empty for whatever each file is.
    num_workers
        Processes; None for one a core, or one in all where the shards are small.
    timeout_seconds
        Every shard is scanned in a process that may take so long, and may die; None trusts the readers.
    progress
        Called after each shard, in this thread.
    partial_dir
        An existing folder for finished scans, from which a later call with the same folder goes on.
    leave_out
        Says of (root, relative path) whether a file is output of this very command.

    Raises
    ------
    UsageError
        What was asked for cannot be: see `discover`.
    EnvironmentFailed
        A worker died, or a finished scan could not be kept.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "web"); folder.mkdir()
    >>> _ = (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": null}\n')
    >>> result = build_manifest([str(folder)])
    >>> result.account.total("num_rows"), result.account.total("num_delivered"), result.manifest.codes
    (2, 1, ('null-text',))
    """
    options = options or ScanOptions()
    if num_workers is not None and num_workers < 1:
        raise UsageError(f"{num_workers} workers cannot scan", allowed="at least 1")
    found = discover(sources, options=options, format_name=format_name, leave_out=leave_out, counter=ByteCounter())
    jobs = [job for source in found.sources for job in _jobs(source, options)]
    total_bytes = sum(job.size_bytes for job in jobs)
    if num_workers is None:
        num_workers = 1 if total_bytes < _SMALL_BYTES else len(os.sched_getaffinity(0))
    if any(job.root.startswith("memory:") for job in jobs):
        if timeout_seconds is not None:
            raise UsageError("shards in this process's memory cannot be scanned in another process")
        num_workers = 1  # this process alone holds those bytes
    scans: dict[int, ShardScan] = {}
    done_bytes = 0
    finished = scan_all(
        jobs,
        num_workers=num_workers,
        scan=scan_or_reuse,
        partial_dir=os.fspath(partial_dir) if partial_dir else "",
        timeout_seconds=timeout_seconds,
    )
    with closing(finished):  # whatever ends the loop ends the workers, and now
        for index, scan in finished:
            scans[index] = scan
            done_bytes += jobs[index].size_bytes
            if progress:
                progress(
                    BuildProgress(
                        num_shards=len(jobs),
                        num_done=len(scans),
                        total_bytes=total_bytes,
                        done_bytes=done_bytes,
                        shard=jobs[index].name,
                    )
                )
    manifest, details = _assemble(found, options, [scans[i] for i in range(len(jobs))])
    account = take_account(manifest)
    hints = {}
    for number, source in enumerate(account.sources):
        shards = manifest.shards_of(number)
        span = slice(shards.start, shards.stop)
        hint = fields_instead(source, jobs[span], [scans[i] for i in shards])
        if hint:
            hints[source.name] = hint
    return BuildResult(
        manifest=manifest,
        details=details,
        account=account,
        hints=hints,
        roots={source.name: source.root for source in found.sources},
        options=options,
        ignored=found.ignored,
    )


def build_manifest_file(
    sources: Sequence[str],
    output: str | os.PathLike[str],
    *,
    options: ScanOptions | None = None,
    format_name: str = "",
    num_workers: int | None = None,
    timeout_seconds: float | None = None,
    progress: Callable[[BuildProgress], None] | None = None,
) -> tuple[BuildResult, ManifestHeader]:
    """Scan and write ``output``; an interrupted call goes on where it stopped when it is repeated.

    Raises
    ------
    WriterConflict
        Another process is building the same output.
    """
    target = Path(output).absolute()
    partial_dir = target.with_name(target.name + ".building")
    with _building(target, partial_dir):
        result = build_manifest(
            sources,
            options=options,
            format_name=format_name,
            num_workers=num_workers,
            timeout_seconds=timeout_seconds,
            progress=progress,
            partial_dir=partial_dir,
            leave_out=_own_output(target, partial_dir),
        )
        header = write_manifest(
            target,
            result.manifest,
            result.details,
            roots=result.roots,
            options=result.options,
            ignored_files=result.ignored_files,
        )
        shutil.rmtree(partial_dir)
    return result, header


@contextmanager
def _building(target: Path, partial_dir: Path) -> Iterator[None]:
    """Hold the folder of kept scans for this process alone, and take it away where nothing is in it."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder", allowed="a file to write the manifest to, e.g. -o M.parquet")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no file", allowed="a file to write the manifest to, e.g. -o M.parquet")
    try:
        descriptor = _hold(target, partial_dir)
    except OSError as error:
        if isinstance(error, WriterConflict):
            raise
        raise WriteFailed(f"{target} cannot be written", found=error.strerror or str(error)) from error
    try:
        yield
    finally:
        with suppress(OSError):
            partial_dir.rmdir()
        os.close(descriptor)


def _hold(target: Path, partial_dir: Path) -> int:
    while True:
        partial_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), partial_dir.stat()):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise WriterConflict(
                f"another process is building {target}", todo="wait for it, or write to another file"
            ) from error
        except FileNotFoundError:
            pass  # its last holder has just finished and taken it away: begin again
        os.close(descriptor)


def _own_output(target: Path, partial_dir: Path) -> Callable[[Root, str], bool]:
    """Whether a file below a root is this build's own manifest or one of its kept scans."""

    def leave_out(root: Root, path: str) -> bool:
        if is_url(root.url):
            return False
        full = Path(root.local_path(path) or "")
        return full == target or partial_dir in full.parents

    return leave_out


def _jobs(source: FoundSource, options: ScanOptions) -> Iterator[ScanJob]:
    mine = options if source.kind == "text" else replace(options, text_field="")
    for shard in source.shards:
        yield ScanJob(
            source=source.name,
            root=source.root,
            path=shard.path,
            size_bytes=shard.size_bytes,
            format=shard.format,
            compression=shard.compression,
            trouble=shard.trouble,
            declared=shard.declared,
            options=mine,
        )


def _assemble(found: Discovery, options: ScanOptions, scans: Sequence[ShardScan]) -> tuple[Manifest, ManifestDetails]:
    """One manifest of all scans, which come in the order of sources and paths."""
    sources = tuple(
        Source(name=source.name, kind=source.kind, text_field=options.text_field if source.kind == "text" else "")
        for source in found.sources
    )
    shards: list[Shard] = []
    parts = []
    for number, source in enumerate(found.sources):
        for entry in source.shards:
            scan = scans[len(shards)]
            part = np.frombuffer(scan.blocks, BLOCK_DTYPE).copy()
            part["shard"] = len(shards)
            parts.append(part)
            shards.append(
                Shard(
                    source=number,
                    path=entry.path,
                    format=entry.format,
                    compression=entry.compression,
                    item_type=scan.item_type,
                    size_bytes=scan.size_bytes,
                    digest=scan.digest,
                    num_rows=scan.num_rows,
                    effect=scan.effect,
                )
            )
    blocks = np.concatenate(parts) if parts else np.zeros(0, BLOCK_DTYPE)
    records = [record for scan in scans for record in scan.rejected]
    codes = tuple(sorted({record.code for record in records}))
    ordinals = {code: i for i, code in enumerate(codes)}
    rejected = np.zeros(len(records), REJECTED_DTYPE)
    rejected["block"] = np.repeat(np.arange(len(blocks)), blocks["num_rejected"])
    rejected["row"] = [record.row for record in records]
    rejected["code"] = [ordinals[record.code] for record in records]
    details = ManifestDetails(
        lines=np.array([-1 if record.line is None else record.line for record in records], np.int64),
        offsets_bytes=np.array([-1 if r.offset_bytes is None else r.offset_bytes for r in records], np.int64),
        details=tuple(record.detail for record in records),
        shard_findings={
            i: tuple[Finding, ...](record.finding() for record in scan.findings)
            for i, scan in enumerate(scans)
            if scan.findings
        },
        ignored_lines=np.array([scan.ignored_lines for scan in scans], np.int64),
        documents={
            i: (scan.num_documents, scan.num_sequences or 0)
            for i, scan in enumerate(scans)
            if scan.num_documents is not None
        },
    )
    manifest = Manifest(sources=sources, shards=tuple(shards), blocks=blocks, rejected=rejected, codes=codes)
    return manifest, details
