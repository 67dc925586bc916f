"""How do the sealed files of all ranks become files in which one step lies together?

Only for an attempt that is over. The order, each step durable before the next:

1. every rank's leftovers are sealed (`seal.seal_rank`), each under the rank's lock; damage anywhere stops it here,
2. stretch of steps by stretch, the ranks' records are merged in the order (step, rank, microbatch, slot), written in
   ``tmp/``, read back, renamed, and listed in the attempt's compacted seals,
3. when all that the ranks' files hold is listed, they are removed.

Killed anywhere, the record is either the old files or the new ones for every step, since what the compacted seals
list counts and nothing else does; running it again goes on behind the last listed file. Running it on an attempt that
is compacted does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dataguard.errors import NotInRun, RunDamaged
from dataguard.run.atomic import remove_durably
from dataguard.run.columns import read_records
from dataguard.run.frames import FramesFile, FramesHeader
from dataguard.run.index import merge
from dataguard.run.layout import Layout, parse_span
from dataguard.run.locks import hold
from dataguard.run.records import notable
from dataguard.run.seal import Seal, file_sha256, identity_of, publish_records, ranks_of, read_seals, seal_attempt
from dataguard.run.sources import Source, Sources, covered_steps

__all__ = ["Compacted", "compact"]

FILE_RECORDS = 1 << 19
"""Records a compacted file: what is held in memory while merging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What compacting one attempt did."""

    attempt: int
    files: tuple[Path, ...]
    """New compacted files, in order of steps."""
    num_records: int
    """In those files."""
    removed: int
    """Rank files they replaced."""
    torn: tuple[tuple[Path, int], ...]
    """Frames files with a torn tail, and the bytes dropped."""


def compact(
    layout: Layout, attempt: int, *, file_records: int = FILE_RECORDS, leave: Callable[[], bool] = lambda: False
) -> Compacted:
    """Merge the ranks of an attempt that is over; see above.

    Parameters
    ----------
    layout
        Names of the run.
    attempt
        Its number.
    file_records
        About how many records a file holds; whole steps always.
    leave
        Asked before the ranks are sealed and before each file is merged: once it is true, what is done stays, and the
        rest is left to the next call.

    Raises
    ------
    NotInRun
        No rank of the attempt has ever written.
    WriterConflict
        A rank's writer lives, or another command is at work.
    RunDamaged
        A file cannot be trusted; nothing was removed.
    WriteFailed
        The operating system failed; the record is whole.
    """
    ranks = ranks_of(layout, attempt)
    if not ranks:
        raise NotInRun(f"attempt {attempt} has no record to compact")
    if leave():
        return Compacted(attempt=attempt, files=(), num_records=0, removed=0, torn=())
    sealed = seal_attempt(layout, attempt)
    if sealed.problems:
        raise RunDamaged(
            f"attempt {attempt} cannot be compacted: its record is damaged",
            found="; ".join(sealed.problems[:3]),
            todo="`dataguard verify` lists everything; what is good is still read",
        )
    with hold(layout.seals(attempt, ranks[0]), what=f"attempt {attempt}"):
        files = Sources(layout)
        done = covered_steps(files.compacted(attempt))
        sources = [source for rank in ranks for source in files.of_rank(attempt, rank)]
        left = [source for source in sources if (source.stop or 0) > done]
        for source in left:
            _check(source)
        new, whole = _merge_all(layout, attempt, ranks, left, done, file_records, leave) if left else ([], True)
        # Whatever was listed before or is now holds every step of every rank's files, unless it was left early.
        removed = sum(_remove(layout, source) for source in sources) if whole else 0
        _remove_folders(layout, attempt, ranks)
    return Compacted(
        attempt=attempt,
        files=tuple(layout.compacted(attempt, seal.first, seal.stop) for seal in new),
        num_records=sum(seal.num_records for seal in new),
        removed=removed,
        torn=sealed.torn,
    )


def _check(source: Source) -> None:
    """A file that will be removed must be the one that was sealed."""
    if source.seal is None:
        raise RunDamaged(f"{source.path} has no seal, so it cannot be compacted")
    try:
        found = file_sha256(source.path)
    except FileNotFoundError:
        raise RunDamaged(f"{source.path} is missing, so its attempt cannot be compacted") from None
    if found != (source.seal.sha256, source.seal.size_bytes):
        raise RunDamaged(
            f"{source.path} is not the file that was sealed",
            found=f"{found[1]:,} bytes, SHA-256 {found[0]}",
            allowed=f"{source.seal.size_bytes:,} bytes, SHA-256 {source.seal.sha256}",
        )


def _merge_all(
    layout: Layout,
    attempt: int,
    ranks: list[int],
    sources: list[Source],
    done: int,
    file_records: int,
    leave: Callable[[], bool],
) -> tuple[list[Seal], bool]:
    """Write and list the compacted files of the steps from ``done`` on; whether all of them."""
    first = max(done, min(source.first for source in sources))
    stop = max(source.stop or 0 for source in sources)
    num_records = sum(source.seal.num_records for source in sources if source.seal is not None)
    length = max(1, file_records * (stop - min(source.first for source in sources)) // max(1, num_records))
    _remove_strays(layout, attempt)
    new = []
    with _open_seals(layout, attempt, ranks[0], first) as seals:
        while first < stop and not leave():
            last = min(first + length, stop)
            wanted = [source for source in sources if source.holds(first, last)]
            records = merge([read_records(source.path, source.name, steps=(first, last)) for source in wanted])
            if len(records):
                header = seals.header
                special = records[notable(records)]
                if len(special):
                    path = layout.notable(attempt, first, last)
                    publish_records(layout, path, special, identity_of(header, "notable", first, last))
                path = layout.compacted(attempt, first, last)
                seal = publish_records(layout, path, records, identity_of(header, "compacted", first, last))
                seals.append(seal.record())
                new.append(seal)
            first = last
    return new, first >= stop


@contextlib.contextmanager
def _open_seals(layout: Layout, attempt: int, rank: int, first: int) -> Iterator[FramesFile]:
    """The attempt's compacted seals, gone on with or made; each seal is durable when it is appended."""
    path = layout.compacted_seals(attempt)
    try:
        seals = FramesFile.reopen(path, "seals", fsync_each=True)
    except FileNotFoundError:
        scan, _ = read_seals(layout.seals(attempt, rank))
        if scan.header is None:
            raise RunDamaged(f"{scan.path} does not say whose it is", found=str(scan.damage[0])) from None
        header = FramesHeader.of(
            "seals",
            records_per_frame=1,
            run_id=scan.header.run_id,
            attempt=attempt,
            rank=None,
            first_step=first,
            digests=scan.header.digests,
            journal_head=scan.header.journal_head,
            created=scan.header.created,
        )
        seals = FramesFile.create(path, header, tmp=layout.tmp, fsync_each=True)
    with seals:
        yield seals


def _remove_strays(layout: Layout, attempt: int) -> None:
    """Compacted files that a kill left before they were listed."""
    listed = {source.path for source in Sources(layout).compacted(attempt)}
    folder = layout.index_attempt(attempt)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if parse_span(path.name) is not None and path not in listed:
            remove_durably(path)


def _remove(layout: Layout, source: Source) -> bool:
    assert source.stop is not None
    # The record goes first: where it stands, a reader takes a missing notable file for nothing notable.
    removed = remove_durably(source.path)
    remove_durably(layout.notable(source.attempt, source.first, source.stop, rank=source.rank))
    return removed


def _remove_folders(layout: Layout, attempt: int, ranks: list[int]) -> None:
    """Empty folders of ranks; one that is not empty stays."""
    for rank in ranks:
        for folder in (
            layout.index_rank(attempt, rank),
            layout.notable_rank(attempt, rank),
            layout.hot_rank(attempt, rank),
        ):
            with contextlib.suppress(OSError):
                folder.rmdir()
