"""Which files hold an attempt's record, and which steps of each count?

A rank's record moves from frames to sealed to compacted files; a reader meets any mixture of them, also one that a
kill left in between. Precedence is compacted > sealed > frames: what the seals list counts, and frames count from the
bytes on that no seal covers. Names are computed, from the seals and from the rule that a segment begins one past the
last step of the one before; no big folder is ever listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from dataguard.errors import RunDamaged
from dataguard.run.columns import FileName
from dataguard.run.frames import HEADER_BYTES, FramesReader, FramesScan, scan_frames
from dataguard.run.layout import Layout, parse_span
from dataguard.run.seal import Seal, ranks_of, read_seals

__all__ = ["Notes", "RankSeals", "Source", "Sources", "covered_steps", "first_frame", "last_address"]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of a record, and which steps of it count."""

    kind: Literal["compacted", "sealed", "hot"]
    path: Path
    attempt: int
    rank: int | None
    """None for a compacted file."""
    first: int
    stop: int | None
    """Steps ``first:stop``; None for the newest frames, which may still grow."""
    seal: Seal | None = None
    run_id: str | None = None
    skip_bytes: int = 0
    """Bytes of a frames file, header included, that a sealed file covers."""
    count_from: int = 0
    """Steps before this one count elsewhere: a kill left the file beside a compacted one."""

    @property
    def name(self) -> FileName:
        """What a Parquet file's metadata must say."""
        assert self.kind != "hot"
        assert self.stop is not None
        return FileName(
            kind=self.kind,
            run_id=self.run_id,
            attempt=self.attempt,
            rank=self.rank,
            first=self.first,
            stop=self.stop,
            footer=None if self.seal is None else self.seal.footer_digest,
        )

    @property
    def whole(self) -> bool:
        """Whether all of the file counts."""
        return self.count_from <= self.first

    def holds(self, first: int, stop: int) -> bool:
        """Whether any of the steps ``first:stop`` may be in it."""
        return max(self.first, self.count_from) < stop and (self.stop is None or self.stop > first)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeals:
    """What one rank's seals say."""

    run_id: str | None
    begin: int
    """First step of the attempt."""
    listed: list[Seal]
    """In order of steps."""
    unlisted: list[tuple[int, int, None]]
    """Sealed files (first, stop, no seal) found in the folder, where the seals are damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What was met on the way."""

    torn: list[str] = field(default_factory=list)
    """Torn tails; no failure."""
    damage: list[str] = field(default_factory=list)
    """Files or frames that cannot be trusted."""

    def add(self, path: Path, scan: FramesScan) -> None:
        """Note what a scan told."""
        self.damage.extend(f"{path}: {entry}" for entry in scan.damage)
        if scan.torn_bytes:
            self.torn.append(f"{path}: {scan.torn_bytes:,} bytes dropped")

    def expect(self, scan: FramesScan, attempt: int, rank: int | None) -> None:
        """Note a frames file that stands in another's place."""
        header = scan.header
        if header is not None and (header.attempt, header.rank) != (attempt, rank):
            self.damage.append(
                f"{scan.path} is another file in this one's place: "
                f"its header says attempt {header.attempt}, rank {header.rank}"
            )

    def refuse(self, attempt: int) -> None:
        """Raise `RunDamaged` where anything was damaged."""
        if self.damage:
            raise RunDamaged(f"the record of attempt {attempt} is damaged", found="; ".join(self.damage[:3]))


class Sources:
    """The files of a run's record, by attempt and rank; nothing is kept between calls."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def ranks(self, attempt: int, num_ranks: int | None = None) -> list[int]:
        """``0:num_ranks``, or where that is not known the ranks that have had their writer (lists one folder)."""
        return ranks_of(self.layout, attempt) if num_ranks is None else list(range(num_ranks))

    def of_attempt(self, attempt: int, *, num_ranks: int | None = None, notes: Notes | None = None) -> Iterator[Source]:
        """Every file that counts: the compacted ones, then rank by rank those that none of them covers."""
        notes = Notes() if notes is None else notes
        compacted = self.compacted(attempt, notes=notes)
        yield from compacted
        covered = covered_steps(compacted)
        for rank in self.ranks(attempt, num_ranks):
            yield from self.of_rank(attempt, rank, covered=covered, notes=notes)

    def compacted(
        self, attempt: int, *, notes: Notes | None = None, wanted: tuple[int, int] | None = None
    ) -> list[Source]:
        """The compacted files of an attempt, in order of steps; they cover a stretch from its first step on.

        With `wanted`, those that may hold some of these steps, and the last, which says how far they reach.
        """
        path = self.layout.compacted_seals(attempt)
        try:
            scan, listed = read_seals(path)
        except FileNotFoundError:
            return []
        spans: list[tuple[int, int, Seal | None]] = [(seal.first, seal.stop, seal) for seal in listed]
        if notes is not None:
            notes.add(path, scan)
            notes.expect(scan, attempt, None)
        if scan.damage:
            spans += self._unlisted(self.layout.index_attempt(attempt), listed)
        spans.sort(key=lambda span: span[0])
        if wanted is not None and spans:
            spans = [*_meeting(spans[:-1], wanted), spans[-1]]
        folder = self.layout.index_attempt(attempt)
        return [
            Source(
                kind="compacted",
                path=folder / self.layout.span_name(first, stop),
                attempt=attempt,
                rank=None,
                first=first,
                stop=stop,
                seal=seal,
                run_id=scan.header.run_id if scan.header is not None else None,
            )
            for first, stop, seal in spans
        ]

    def _unlisted(self, folder: Path, listed: Sequence[Seal]) -> list[tuple[int, int, None]]:
        """Finished files that a damaged list of seals does not name; their folder tells which there are."""
        known = {seal.first for seal in listed}
        spans = [parse_span(path.name) for path in folder.iterdir()] if folder.is_dir() else []
        return [(*span, None) for span in spans if span is not None and span[0] not in known]

    def of_rank(self, attempt: int, rank: int, *, covered: int = 0, notes: Notes | None = None) -> list[Source]:
        """Sealed files and frames of one rank, in order of steps, less the steps before ``covered``."""

        def look(seals: RankSeals) -> list[Source]:
            return self.sealed(attempt, rank, seals, covered) + self.hot(attempt, rank, seals, covered)

        sources = self.settled(attempt, rank, Notes() if notes is None else notes, look) or []
        return sorted(sources, key=lambda source: (source.first, source.skip_bytes))

    def settled(self, attempt: int, rank: int, notes: Notes, look: Callable[[RankSeals], _T]) -> _T | None:
        """What `look` finds by the seals of a rank, again where a segment was sealed meanwhile; None without a writer.

        A segment that is sealed between reading the seals and looking for its frames is in neither, and all behind it
        would be missed with it. Each further look needs a further seal, so it ends.
        """
        while True:
            told = Notes()
            seals = self.seals(attempt, rank, told)
            if seals is None:
                return None
            found = look(seals)
            after = self.seals(attempt, rank, Notes())
            if after is not None and len(after.listed) == len(seals.listed):
                notes.torn.extend(told.torn)
                notes.damage.extend(told.damage)
                return found

    def seals(self, attempt: int, rank: int, notes: Notes) -> RankSeals | None:
        """What one rank's seals say; None where it has had no writer."""
        path = self.layout.seals(attempt, rank)
        try:
            scan, listed = read_seals(path)
        except FileNotFoundError:
            return None
        notes.add(path, scan)
        notes.expect(scan, attempt, rank)
        unlisted = self._unlisted(self.layout.index_rank(attempt, rank), listed) if scan.damage else []
        header = scan.header
        begin = header.first_step if header is not None else min([seal.first for seal in listed], default=0)
        run_id = None if header is None else header.run_id
        return RankSeals(run_id=run_id, begin=begin, listed=listed, unlisted=unlisted)

    def sealed(
        self,
        attempt: int,
        rank: int,
        seals: RankSeals | None,
        covered: int,
        *,
        wanted: tuple[int, int] | None = None,
    ) -> list[Source]:
        """Sealed files of one rank that are not wholly compacted; with `wanted`, those that may hold these steps."""
        if seals is None:
            return []
        spans: list[tuple[int, int, Seal | None]] = [(seal.first, seal.stop, seal) for seal in seals.listed]
        spans += seals.unlisted
        if wanted is not None:
            spans = _meeting(spans, wanted)
        folder = self.layout.index_rank(attempt, rank)
        return [
            Source(
                kind="sealed",
                path=folder / self.layout.span_name(first, stop),
                attempt=attempt,
                rank=rank,
                first=first,
                stop=stop,
                seal=seal,
                run_id=seals.run_id,
                count_from=covered,
            )
            for first, stop, seal in sorted(spans, key=lambda span: span[0])
            if stop > covered
        ]

    def hot(self, attempt: int, rank: int, seals: RankSeals, covered: int) -> list[Source]:
        """Frames that no seal covers: in gaps between seals, behind the last, and behind what the last one covers."""
        spans = sorted([(seal.first, seal.stop) for seal in seals.listed] + [span[:2] for span in seals.unlisted])
        starts, at = [(seal.first, seal.hot_bytes) for seal in seals.listed[-1:]], seals.begin
        for first, stop in spans:
            if first > at:
                starts.append((at, 0))
            at = max(at, stop)
        starts.append((at, 0))
        sealed_firsts = {first for first, _ in spans}
        sources = []
        while starts:
            first, skip = starts.pop()
            path = self.layout.hot_segment(attempt, rank, first)
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if skip and size <= skip:
                continue
            source = Source(
                kind="hot",
                path=path,
                attempt=attempt,
                rank=rank,
                first=first,
                stop=None,
                run_id=seals.run_id,
                skip_bytes=skip,
                count_from=covered,
            )
            last = last_address(source)
            behind = None if last is None else last[0] + 1
            if behind is not None and behind in sealed_firsts:
                source = replace(source, stop=behind)
            elif behind is not None and self.layout.hot_segment(attempt, rank, behind).exists():
                source = replace(source, stop=behind)
                starts.append((behind, 0))
            sources.append(source)
        return sorted({source.path: source for source in sources}.values(), key=lambda source: source.first)


def _meeting(spans: list[tuple[int, int, Seal | None]], wanted: tuple[int, int]) -> list[tuple[int, int, Seal | None]]:
    """Spans that meet the wanted steps. A long run has thousands, and a name costs more than all else of a look-up."""
    return [span for span in spans if span[0] < wanted[1] and span[1] > wanted[0]]


def covered_steps(compacted: Sequence[Source]) -> int:
    """Steps before this one are compacted."""
    return max((source.stop or 0 for source in compacted), default=0)


def first_frame(source: Source, reader: FramesReader) -> int:
    """The first frame of a frames file that no sealed file covers."""
    return max(0, source.skip_bytes - HEADER_BYTES) // reader.frame_bytes if reader.records_per_frame else 0


def last_address(source: Source) -> tuple[int, int] | None:
    """Step and microbatch of the newest good frame of a frames file."""
    try:
        with FramesReader(source.path, "index") as reader:
            if reader.num_whole > first_frame(source, reader):
                frames, good = reader.read(reader.num_whole - 1, reader.num_whole)
                if good.all() and len(frames):
                    record = frames["records"][0, 0]
                    return int(record["step"]), int(record["microbatch"])
            first = first_frame(source, reader)
        records = scan_frames(source.path, "index", first_frame=first).records
    except (FileNotFoundError, RunDamaged):
        return None
    return (int(records["step"][-1]), int(records["microbatch"][-1])) if len(records) else None
