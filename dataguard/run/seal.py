"""How does a rank's write-ahead record become Parquet without ever being in doubt?

The order of sealing one segment, each step durable before the next:

1. the next segment is open (a writer's matter; a later command has none),
2. the notable samples of the segment, if any, get a small file of their own,
3. the sealed file is written in ``tmp/``, read back and compared with the frames, and renamed,
4. its digest, size, and the bytes of the frames it covers are appended to the seals,
5. the frames are removed.

Killed after 2 or 3, everything is done again and ends in the same bytes; killed after 4, the sealed file wins and only
the removal is left. A segment with damage in it is never sealed: its frames are the only evidence.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.run.atomic import publish, remove_durably
from dataguard.run.columns import FileIdentity, FileKind, FileName, footer_digest, read_records, write_records
from dataguard.run.frames import FramesFile, FramesHeader, FramesScan, scan_frames
from dataguard.run.layout import Layout, parse_rank
from dataguard.run.locks import hold
from dataguard.run.records import SEAL_RECORD, notable, with_rank

__all__ = [
    "Seal",
    "SealedAttempt",
    "file_sha256",
    "identity_of",
    "publish_records",
    "ranks_of",
    "read_seals",
    "seal_attempt",
    "seal_rank",
    "seal_segment",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """One finished file, as its seal says."""

    first: int
    stop: int
    """Steps ``first:stop``."""
    hot_bytes: int
    """Of the frames file, header included, that the sealed file covers; 0 for a compacted file."""
    size_bytes: int
    num_records: int
    footer_digest: int
    """See `columns.footer_digest`."""
    sha256: str

    @classmethod
    def all_of(cls, records: NDArray[np.void]) -> list[Seal]:
        """From SEAL_RECORDs; a long run has thousands, so they are taken column by column."""
        names = ("first_step", "stop_step", "hot_bytes", "size_bytes", "num_records", "footer_digest", "sha256")
        return [
            cls(
                first=first,
                stop=stop,
                hot_bytes=hot,
                size_bytes=size,
                num_records=count,
                footer_digest=footer,
                sha256=sha256.hex(),
            )
            for first, stop, hot, size, count, footer, sha256 in zip(
                *(records[name].tolist() for name in names), strict=True
            )
        ]

    def record(self) -> NDArray[np.void]:
        """As one SEAL_RECORD, shape (1,)."""
        record: NDArray[np.void] = np.zeros(1, SEAL_RECORD)
        record["first_step"], record["stop_step"], record["hot_bytes"] = self.first, self.stop, self.hot_bytes
        record["size_bytes"], record["num_records"] = self.size_bytes, self.num_records
        record["footer_digest"] = self.footer_digest
        record["sha256"] = np.void(bytes.fromhex(self.sha256))
        return record


def read_seals(path: Path) -> tuple[FramesScan, list[Seal]]:
    """The seals of one file in order of steps; of two for the same steps the later one counts.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    scan = scan_frames(path, "seals")
    latest = {seal.first: seal for seal in Seal.all_of(scan.records)}
    return scan, sorted(latest.values(), key=lambda seal: seal.first)


def file_sha256(path: Path) -> tuple[str, int]:
    """SHA-256 (hexadecimal) and size in bytes of a file.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return digest.hexdigest(), file.tell()


def seal_segment(layout: Layout, hot: Path, *, seals: FramesFile, first: int, stop: int | None = None) -> Seal | None:
    """Seal one finished segment (points 2 to 5 above); its writer has written its last frame.

    Parameters
    ----------
    layout
        Names of the run.
    hot
        The segment's frames.
    seals
        The rank's open seals.
    first
        The segment's first step, as its name says.
    stop
        One past its last step; None takes it from the last record.

    Returns
    -------
    Seal | None
        None where the segment held no record: it was removed.

    Raises
    ------
    RunDamaged
        The frames are damaged, or the sealed file did not read back as they are; the frames stay.
    WriteFailed
        The operating system failed; the frames stay.
    """
    scan = scan_frames(hot, "index")
    header = scan.header
    if header is None or scan.damage:
        raise RunDamaged(
            f"{hot} is damaged and stays as it is",
            found="; ".join(map(str, scan.damage[:3])),
            todo="its good records are still read; copy the file away before repairing anything",
        )
    rank = seals.header.rank
    assert rank is not None
    if (header.run_id, header.attempt, header.rank, header.first_step) != (
        seals.header.run_id,
        seals.header.attempt,
        rank,
        first,
    ):
        raise RunDamaged(f"{hot} is another file in this one's place", found=f"its header says {header}")
    if not len(scan.records):
        remove_durably(hot)
        return None
    records = with_rank(scan.records, rank)
    stop = int(records["step"][-1]) + 1 if stop is None else stop
    special = records[notable(records)]
    if len(special):
        path = layout.notable(header.attempt, first, stop, rank=rank)
        publish_records(layout, path, special, identity_of(header, "notable", first, stop))
    path = layout.sealed(header.attempt, rank, first, stop)
    seal = publish_records(layout, path, records, identity_of(header, "sealed", first, stop))
    seal = replace(seal, hot_bytes=scan.end_bytes)
    seals.append(seal.record())
    seals.sync()
    remove_durably(hot)
    return seal


def identity_of(header: FramesHeader, kind: FileKind, first: int, stop: int) -> FileIdentity:
    """What a file made from the records of such a frames file says about itself."""
    return FileIdentity(
        kind=kind,
        run_id=header.run_id,
        attempt=header.attempt,
        rank=header.rank,
        first_step=first,
        stop_step=stop,
        digests=header.digests,
        journal_head=header.journal_head,
    )


def publish_records(layout: Layout, path: Path, records: NDArray[np.void], identity: FileIdentity) -> Seal:
    """Write records under a final name after reading them back; the file's seal."""
    told: list[Seal] = []

    name = FileName(
        kind=identity.kind,
        run_id=identity.run_id,
        attempt=identity.attempt,
        rank=identity.rank,
        first=identity.first_step,
        stop=identity.stop_step,
    )

    def compare(temporary: Path) -> None:
        if read_records(temporary, name).tobytes() != records.tobytes():
            raise RunDamaged(f"{path} did not read back as it was written", todo="check the disk and its memory")
        sha256, size_bytes = file_sha256(temporary)
        seal = Seal(
            first=identity.first_step,
            stop=identity.stop_step,
            hot_bytes=0,
            size_bytes=size_bytes,
            num_records=len(records),
            footer_digest=footer_digest(temporary),
            sha256=sha256,
        )
        told.append(seal)

    publish(path, lambda file: write_records(file, records, identity), tmp=layout.tmp, check=compare)
    return told[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedAttempt:
    """What sealing an attempt that is over did."""

    attempt: int
    seals: tuple[Seal, ...]
    """New ones."""
    torn: tuple[tuple[Path, int], ...]
    """Frames files with a torn tail, and the bytes dropped."""
    problems: tuple[str, ...]
    """Segments that stay as they are, and why."""


def seal_rank(layout: Layout, attempt: int, rank: int) -> SealedAttempt:
    """Seal whatever one rank's writer left behind; the caller holds the rank's lock.

    Raises
    ------
    RunDamaged
        The rank's seals cannot be read.
    WriteFailed
        The operating system failed.
    """
    done: list[Seal] = []
    torn: list[tuple[Path, int]] = []
    problems: list[str] = []
    with FramesFile.reopen(layout.seals(attempt, rank), "seals") as seals:
        scan, listed = read_seals(layout.seals(attempt, rank))
        problems += [f"{scan.path}: {damage}" for damage in scan.damage]
        by_first = {seal.first: seal for seal in listed}
        folder = layout.hot_rank(attempt, rank)
        hot = sorted(folder.glob("*.frames"), key=lambda path: int(path.stem)) if folder.is_dir() else []
        for path in hot:
            first = int(path.stem)
            try:
                tail = scan_frames(path, "index")
                if tail.torn_bytes:
                    torn.append((path, tail.torn_bytes))
                if first in by_first:
                    _finish(layout, path, tail, by_first[first], attempt, rank)
                    continue
                seal = seal_segment(layout, path, seals=seals, first=first)
            except RunDamaged as error:
                problems.append(str(error))
                continue
            if seal is not None:
                done.append(seal)
    return SealedAttempt(attempt=attempt, seals=tuple(done), torn=tuple(torn), problems=tuple(problems))


def _finish(layout: Layout, hot: Path, scan: FramesScan, seal: Seal, attempt: int, rank: int) -> None:
    """A kill came between seal and removal: what is left is to remove the frames, if the sealed file stands."""
    sealed = layout.sealed(attempt, rank, seal.first, seal.stop)
    if scan.end_bytes > seal.hot_bytes:
        raise RunDamaged(
            f"{hot} goes on after it was sealed",
            found=f"{scan.end_bytes:,} bytes, of which {sealed.name} covers {seal.hot_bytes:,}",
            todo="keep both: the frames count from there on",
        )
    try:
        if file_sha256(sealed) != (seal.sha256, seal.size_bytes):
            raise RunDamaged(f"{sealed} is not the file that was sealed; {hot} stays")
    except FileNotFoundError:
        raise RunDamaged(f"{sealed} is missing; {hot} stays") from None
    remove_durably(hot)


def seal_attempt(layout: Layout, attempt: int) -> SealedAttempt:
    """Seal whatever the ranks of an attempt that is over left behind: torn tails are dropped and reported.

    Raises
    ------
    WriterConflict
        A rank's writer lives.
    RunDamaged
        A rank's seals cannot be read.
    WriteFailed
        The operating system failed.
    """
    parts = []
    for rank in ranks_of(layout, attempt):
        with hold(layout.seals(attempt, rank), what=f"rank {rank} of attempt {attempt}"):
            parts.append(seal_rank(layout, attempt, rank))
    return SealedAttempt(
        attempt=attempt,
        seals=tuple(seal for part in parts for seal in part.seals),
        torn=tuple(entry for part in parts for entry in part.torn),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def ranks_of(layout: Layout, attempt: int) -> list[int]:
    """Ranks that have had their writer, in order."""
    folder = layout.seals_attempt(attempt)
    if not folder.is_dir():
        return []
    ranks = (parse_rank(path.name) for path in folder.iterdir())
    return sorted(rank for rank in ranks if rank is not None)
