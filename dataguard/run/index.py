"""What was recorded of an attempt, wherever it lies by now?

`Sources` says which files count; here they are read. A step costs the row groups (or frames) that hold it and nothing
else, whatever the length of the run. Damage is told beside what could be read; torn tails are told and are no failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dataguard.errors import RunDamaged
from dataguard.run.columns import read_records, read_table, to_table
from dataguard.run.frames import FramesReader, scan_frames
from dataguard.run.layout import Layout
from dataguard.run.records import RANKED_RECORD, conformed, notable, used, with_rank
from dataguard.run.sources import Notes, RankSeals, Source, Sources, covered_steps, first_frame, last_address

if TYPE_CHECKING:
    import pyarrow as pa

    from dataguard.run.check import CheckedRecord

__all__ = ["Index", "StepRecords", "merge"]

_FEW_FRAMES = 512  # a segment of up to so many frames is read whole, a longer one searched
_MANY_RANKS = 32  # from so many ranks on, their files are read side by side
_READERS = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepRecords:
    """What was recorded of one step."""

    attempt: int
    step: int
    records: NDArray[np.void]
    """RANKED_RECORD, in the order (rank, microbatch, slot)."""
    absent_ranks: tuple[int, ...]
    """Ranks asked for that recorded nothing of this step."""
    torn: tuple[str, ...]
    """Torn tails met on the way; no failure."""
    damage: tuple[str, ...]
    """Files or frames that could not be trusted."""


class Index:
    """Lookups in the record of a run directory; nothing is written, nothing is kept between calls.

    Examples
    --------
    >>> import tempfile
    >>> Index(Layout(Path(tempfile.mkdtemp()))).step(1, 17, num_ranks=2).absent_ranks
    (0, 1)
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._files = Sources(layout)

    def ranks(self, attempt: int) -> list[int]:
        """Ranks that have had their writer in an attempt, in order (lists one small folder)."""
        return self._files.ranks(attempt)

    # -- one step

    def step(self, attempt: int, step: int, *, rank: int | None = None, num_ranks: int | None = None) -> StepRecords:
        """Everything recorded of one step, without reading anything else than its row groups or frames.

        Parameters
        ----------
        attempt, step
            Which step of which attempt.
        rank
            One rank only.
        num_ranks
            Ranks of the attempt's geometry; where it is not given, the attempt's folder of seals is listed.
        """
        ranks = [rank] if rank is not None else self._files.ranks(attempt, num_ranks)
        notes = Notes()
        wanted = (step, step + 1)
        compacted = self._files.compacted(attempt, notes=notes, wanted=wanted)
        holding = [source for source in compacted if source.holds(*wanted)]
        if holding:
            parts = [records for source in holding if (records := self.read(source, wanted, notes)) is not None]
        else:
            parts = self._of_ranks(attempt, ranks, wanted, covered_steps(compacted), notes)
        if rank is not None:
            parts = [records[records["rank"] == rank] for records in parts]
        merged = merge(parts)
        present = set(np.unique(merged["rank"]).tolist())
        return StepRecords(
            attempt=attempt,
            step=step,
            records=merged,
            absent_ranks=tuple(one for one in ranks if one not in present),
            torn=tuple(notes.torn),
            damage=tuple(notes.damage),
        )

    def _of_ranks(
        self, attempt: int, ranks: Sequence[int], wanted: tuple[int, int], covered: int, notes: Notes
    ) -> list[NDArray[np.void]]:
        """The records of one step, from a file of each rank; many ranks are read side by side."""

        def of_rank(rank: int) -> tuple[list[NDArray[np.void]], Notes]:
            told = Notes()
            seals = self._files.seals(attempt, rank, told)
            sealed = self._files.sealed(attempt, rank, seals, covered, wanted=wanted)
            holding = [source for source in sealed if source.holds(*wanted)]
            if not holding and seals is not None:
                # Frames are looked at only where no seal speaks of the step.
                told = Notes()
                files = self._files.of_rank(attempt, rank, covered=covered, notes=told)
                holding = [source for source in files if source.holds(*wanted)]
            return [records for one in holding if (records := self.read(one, wanted, told)) is not None], told

        if len(ranks) < _MANY_RANKS:
            answers = [of_rank(rank) for rank in ranks]
        else:
            with ThreadPoolExecutor(_READERS, "index") as pool:
                answers = list(pool.map(of_rank, ranks))
        for _, told in answers:
            notes.torn.extend(told.torn)
            notes.damage.extend(told.damage)
        return [records for parts, _ in answers for records in parts]

    # -- many steps

    def records(
        self,
        attempt: int,
        *,
        steps: tuple[int, int] | None = None,
        num_ranks: int | None = None,
        torn: list[str] | None = None,
        damage: list[str] | None = None,
    ) -> Iterator[NDArray[np.void]]:
        """All records of an attempt (or of steps ``first:stop``), file by file; each array is in order in itself.

        Torn tails and damage are added to the lists given; without a list for it, damage raises `RunDamaged`.
        """
        notes = Notes(torn=[] if torn is None else torn, damage=[] if damage is None else damage)
        for source in self._files.of_attempt(attempt, num_ranks=num_ranks, notes=notes):
            if steps is None or source.holds(*steps):
                records = self.read(source, steps, notes)
                if records is not None and len(records):
                    yield records
            if damage is None:
                notes.refuse(attempt)

    def notable(self, attempt: int, *, num_ranks: int | None = None) -> Iterator[NDArray[np.void]]:
        """Withheld, substituted and flagged samples of an attempt, from the small files beside the sealed ones.

        Raises
        ------
        RunDamaged
            A file or frame cannot be trusted.
        """
        notes = Notes()
        for source in self._files.of_attempt(attempt, num_ranks=num_ranks, notes=notes):
            if source.kind == "hot":
                records = self.read(source, None, notes)
                records = None if records is None else records[notable(records)]
            else:
                assert source.stop is not None
                path = self.layout.notable(attempt, source.first, source.stop, rank=source.rank)
                try:
                    records = read_records(path, replace(source.name, kind="notable", footer=None))
                except FileNotFoundError:
                    if source.path.exists():
                        continue  # nothing in it was notable
                    # Compacted since its name was computed: the record is removed before what is notable in it.
                    moved = self.read(source, None, notes)
                    records = None if moved is None else moved[notable(moved)]
                else:
                    records = records[records["step"] >= source.count_from]
            notes.refuse(attempt)
            if records is not None and len(records):
                yield records

    def tables(self, attempt: int, *, columns: Sequence[str], num_ranks: int | None = None) -> Iterator[pa.Table]:
        """Some columns of all records of an attempt as Arrow, for queries; every page's checksum is verified.

        Raises
        ------
        RunDamaged
            A file or frame cannot be trusted.
        """
        notes = Notes()
        for source in self._files.of_attempt(attempt, num_ranks=num_ranks, notes=notes):
            if source.kind != "hot" and source.whole:
                with contextlib.suppress(FileNotFoundError):
                    yield read_table(source.path, source.name, columns=list(columns))
                    continue
            records = self.read(source, None, notes)
            notes.refuse(attempt)
            if records is not None and len(records):
                yield to_table(records).select(list(columns))

    def scan_paths(self, attempt: int, *, num_ranks: int | None = None) -> list[Path]:
        """The Parquet files that together hold what is sealed of an attempt, each record once; frames are not in it.

        Readers other than pyarrow do not check page checksums; `tables` does.

        Raises
        ------
        RunDamaged
            A kill left rank files that a compacted file covers in part: ``dataguard compact`` ends that.
        """
        sources = [source for source in self._files.of_attempt(attempt, num_ranks=num_ranks) if source.kind != "hot"]
        if not all(source.whole for source in sources):
            raise RunDamaged(
                f"attempt {attempt} is compacted in part", todo="`dataguard compact` on this run ends that"
            )
        return [source.path for source in sources]

    # -- can it be trusted

    def check(
        self,
        attempt: int,
        *,
        num_ranks: int | None = None,
        num_microbatches: Callable[[int], int] | None = None,
        next_delivered: Callable[[int], int] | None = None,
    ) -> CheckedRecord:
        """Damage, gaps and doubles in an attempt's record; see `check.check_record`."""
        from dataguard.run.check import check_record

        return check_record(
            self.layout,
            attempt,
            num_ranks=num_ranks,
            num_microbatches=num_microbatches,
            next_delivered=next_delivered,
        )

    # -- where it ended

    def next_steps(
        self, attempt: int, num_ranks: int, num_microbatches: int | Callable[[int], int]
    ) -> list[int | None]:
        """The first step of each rank that is not complete: what it would deliver next.

        Parameters
        ----------
        attempt
            Its number.
        num_ranks
            Of its geometry.
        num_microbatches
            Microbatches of a rank in a step; a function of the step where batch sizes change.

        Returns
        -------
        list
            One entry a rank; None for a rank that has had no writer. In a hole, the next delivered step at or after
            it is the caller's to find.
        """
        needed = num_microbatches if callable(num_microbatches) else lambda _step: num_microbatches
        steps: list[int | None] = []
        looked_up: dict[int, NDArray[np.void]] = {}
        for rank in range(num_ranks):
            found = self._files.settled(attempt, rank, Notes(), partial(self._last_hot, attempt, rank))
            if found is None:
                steps.append(None)
                continue
            seals, last = found
            if seals.listed and (last is None or last[0] < seals.listed[-1].stop - 1):
                step = seals.listed[-1].stop - 1
                if step not in looked_up:
                    looked_up[step] = self.step(attempt, step, num_ranks=num_ranks).records
                mine = looked_up[step][looked_up[step]["rank"] == rank]
                # A sealed file that cannot be read is for `check` to tell; its seal still says where it ended.
                last = (step, int(mine["microbatch"].max()) if len(mine) else -1)
            steps.append(seals.begin if last is None else last[0] + (last[1] + 1 >= needed(last[0])))
        return steps

    def _last_hot(self, attempt: int, rank: int, seals: RankSeals) -> tuple[RankSeals, tuple[int, int] | None]:
        """The seals of a rank, and the newest address in its frames."""
        last = None
        for source in self._files.hot(attempt, rank, seals, 0):
            last = last_address(source) or last
        return seals, last

    # -- reading

    def read(self, source: Source, steps: tuple[int, int] | None, notes: Notes) -> NDArray[np.void] | None:
        """The records of one source that count (of ``steps``), None where it cannot be read; what is wrong is noted."""
        try:
            if source.kind == "hot":
                records = _read_hot(source, steps, notes)
            else:
                records = read_records(source.path, source.name, steps=steps)
        except FileNotFoundError:
            return self._moved(source, steps, notes)
        except RunDamaged as error:
            notes.damage.append(str(error))
            return None
        return records[records["step"] >= source.count_from] if source.first < source.count_from else records

    def _moved(self, source: Source, steps: tuple[int, int] | None, notes: Notes) -> NDArray[np.void] | None:
        """A file that is gone since its name was computed: sealed or compacted meanwhile, or missing."""
        rank, first = source.rank, max(source.first, source.count_from)
        if rank is not None:
            compacted = self._files.compacted(source.attempt)
            successors = [one for one in compacted if one.holds(first, source.stop or first + 1)]
            if source.kind == "hot":
                seals = self._files.seals(source.attempt, rank, Notes())
                sealed = self._files.sealed(source.attempt, rank, seals, covered_steps(compacted))
                successors += [one for one in sealed if one.first == source.first]
            if successors and (source.stop is None or max(one.stop or 0 for one in successors) >= source.stop):
                parts = [records for one in successors if (records := self.read(one, steps, notes)) is not None]
                records = merge([part[part["rank"] == rank] for part in parts])
                keep = records["step"] >= first
                return records[keep if source.stop is None else keep & (records["step"] < source.stop)]
        notes.damage.append(f"{source.path} is missing")
        return None


def merge(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Records of several sources as one array in the order (step, rank, microbatch, slot)."""
    if not parts:
        return np.empty(0, RANKED_RECORD)
    if len({part.dtype for part in parts}) > 1:
        # Frames whose header is lost are read without their signals; all others of the attempt have the same.
        widest = max((part.dtype for part in parts), key=lambda dtype: len(dtype.names or ()))
        parts = [conformed(part, widest) for part in parts]
    records: NDArray[np.void] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    order = np.lexsort((records["slot"], records["microbatch"], records["rank"], records["step"]))
    return records[order]


def _read_hot(source: Source, steps: tuple[int, int] | None, notes: Notes) -> NDArray[np.void]:
    assert source.rank is not None
    with FramesReader(source.path, "index") as reader:
        first = first_frame(source, reader)
        header = reader.header
        if header is not None:
            stands = (header.attempt, header.rank, header.first_step, header.run_id)
            if stands != (source.attempt, source.rank, source.first, source.run_id or header.run_id):
                raise RunDamaged(
                    f"{source.path} is another file in this one's place",
                    found=f"its header says attempt {header.attempt}, rank {header.rank}, "
                    f"first step {header.first_step}, run {header.run_id}",
                )
            if steps is not None and reader.num_whole - first > _FEW_FRAMES:
                found = _search(reader, first, steps)
                if found is not None:
                    return with_rank(found, source.rank)
    scan = scan_frames(source.path, "index", first_frame=first)
    notes.add(source.path, scan)
    records = scan.records
    if steps is not None:
        records = records[(records["step"] >= steps[0]) & (records["step"] < steps[1])]
    return with_rank(records, source.rank)


def _search(reader: FramesReader, first: int, steps: tuple[int, int]) -> NDArray[np.void] | None:
    """Frames of some steps by bisection, since steps only climb; None where a frame met on the way is not good."""
    stop = reader.num_whole

    def lowest(step: int) -> int | None:
        low, high = first, stop
        while low < high:
            middle = (low + high) // 2
            frames, good = reader.read(middle, middle + 1)
            if not good.all() or not len(frames):
                return None
            if frames["records"][0, 0]["step"] < step:
                low = middle + 1
            else:
                high = middle
        return low

    begin, end = lowest(steps[0]), lowest(steps[1])
    if begin is None or end is None:
        return None
    frames, good = reader.read(begin, end)
    return used(frames["records"]) if good.all() and len(frames) == end - begin else None
