"""Is any of the evaluation data in the corpus that is audited, and how is that found out?

Each ``--against`` names a corpus of its own, by a manifest or by paths. It is read by the same engine, in tasks, like
the audited corpus, and each of its samples gets the same digest: of a whole text, or of a window of `seq_len` tokens
(the windows of both sides begin where their shards begin, so equal texts that lie elsewhere in a shard of tokens are
not found). Only digests are kept. `overlap` finds those that are on both sides.

::

    AUDIT/against/000.parquet        the manifest of the first --against, built here or copied
    AUDIT/work/against/000/000/      parts of its tasks, until the audit is complete
    AUDIT/overlap.parquet            every record that is on both sides
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.damage import damaged_shards
from dataguard.audit.duplicates import MERGE_BYTES, DuplicateFinder
from dataguard.audit.folder import AuditFolder
from dataguard.audit.job import Job
from dataguard.audit.outputs import Names
from dataguard.audit.overlap import Counts, Side, write_overlap
from dataguard.audit.overlap_documents import EvaluationSource, Overlap, OverlapOf, UnreadEvaluation
from dataguard.audit.parts import Part, Problem, read_part
from dataguard.audit.reading import Runs
from dataguard.audit.tasks import Task
from dataguard.core.manifest import Manifest
from dataguard.corpus.manifest_read import read_findings
from dataguard.run.atomic import Content

__all__ = ["Against", "AgainstParts", "OverlapReasons", "find_overlap", "overlap_reasons", "unread_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One corpus that the audited one is held against."""

    asked: str
    """As it was named."""
    job: Job
    """Of its digests alone."""
    tasks: tuple[Task, ...]
    parts: AgainstParts
    unreachable: tuple[tuple[str, str], ...]
    """Paths that its scan could not look into, and why."""

    @property
    def manifest(self) -> Manifest:
        """What data there is."""
        return self.job.corpus.manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstParts:
    """Where manifest and parts of the n-th ``--against`` lie."""

    folder: AuditFolder
    number: int

    @property
    def manifest(self) -> Path:
        """Its manifest."""
        return self.folder.against / f"{self.number:03d}.parquet"

    @property
    def _parts(self) -> Path:
        return self.folder.work / "against" / f"{self.number:03d}"

    def part(self, number: int) -> Path:
        """The part of a task."""
        return self._parts / f"{number // 1000:03d}" / f"{number:06d}.parquet"

    def parts_done(self) -> set[int]:
        """Numbers of the tasks whose parts are there."""
        return {int(path.stem) for path in self._parts.glob("*/*.parquet")}

    def publish(self, path: Path, content: Content) -> None:
        """Write a file, whole or not at all."""
        self.folder.publish(path, content)


@dataclass(slots=True, kw_only=True, eq=False)
class _Read:
    """What became of the evaluation data: counts by source, through all corpora."""

    blank: NDArray[np.int64]
    samples: NDArray[np.int64]
    rejected: NDArray[np.int64]
    unreadable: NDArray[np.int64]
    problems: list[list[Problem]] = field(default_factory=list)


def unread_parts(against: Against) -> list[Path]:
    """The parts of blocks that could not be read and may be another time."""
    parts = [against.parts.part(number) for number in sorted(against.parts.parts_done())]
    return [path for path in parts if any(problem.may_be_mended for problem in read_part(path).document.problems)]


def find_overlap(
    folder: AuditFolder, finder: DuplicateFinder, job: Job, names: Names, against: Sequence[Against]
) -> tuple[Overlap, bool]:
    """Write ``overlap.parquet``, and count.

    Parameters
    ----------
    finder
        That was told the samples of the audited corpus.
    job, names
        Of the audited corpus.
    against
        What it is held against; all their parts are there.

    Returns
    -------
    tuple
        The answer, and whether something could not be read that may be another time.

    Raises
    ------
    RunDamaged
        A part was changed after it was written.
    WriteFailed
        The file cannot be written.
    """
    first_shards = [0, *accumulate(len(each.manifest.shards) for each in against)]
    first_sources = [0, *accumulate(len(each.manifest.sources) for each in against)]
    with ExitStack() as stack:
        # Pieces of both sides are in memory at once; those of this side are the smaller ones.
        theirs = stack.enter_context(DuplicateFinder(folder.tmp, merge_bytes=MERGE_BYTES // 4))
        read = _tell(theirs, against, first_shards, first_sources)
        audited = Side(
            name="audited",
            finder=finder,
            source_of=_sources_of(job.corpus.manifest),
            sources=names.sources,
            against=[None] * len(names.sources),
            shards=names.shards,
        )
        evaluation = Side(
            name="evaluation",
            finder=theirs,
            source_of=np.concatenate(
                [_sources_of(each.manifest) + first for each, first in zip(against, first_sources, strict=False)]
            ),
            sources=[source.name for each in against for source in each.manifest.sources],
            against=[each.asked for each in against for _ in each.manifest.sources],
            shards=[each.manifest.shard_name(i) for each in against for i in range(len(each.manifest.shards))],
        )
        counted: list[tuple[Counts, Counts]] = []

        def write(sink: BinaryIO) -> None:
            counted[:] = [write_overlap(sink, audited, evaluation)]

        folder.publish(folder.overlap, write)
    overlap = _overlap(job, against, audited, evaluation, read, *counted[0])
    return overlap, any(problem.may_be_mended for problems in read.problems for problem in problems)


def _tell(
    finder: DuplicateFinder, against: Sequence[Against], first_shards: Sequence[int], first_sources: Sequence[int]
) -> _Read:
    """Tell all samples of the evaluation data, in the order in which they were named."""
    num = first_sources[-1]
    blank, samples, rejected, unreadable = np.zeros((4, num), np.int64)
    read = _Read(blank=blank, samples=samples, rejected=rejected, unreadable=unreadable)
    for which, each in enumerate(against):
        source_of = _sources_of(each.manifest) + first_sources[which]
        runs = Runs(each.manifest, {kind: each.job.signals(kind) for kind in each.job.kinds})
        problems: list[Problem] = []
        for part in _parts(each):
            problems += part.document.problems
            for counts in part.document.shards:
                source = source_of[counts.shard]
                read.samples[source] += counts.num_samples
                read.rejected[source] += counts.num_rejected
                read.unreadable[source] += counts.num_unreadable
            for table in part.tables():
                for run in runs.of(table):
                    kept = ~run.is_blank
                    read.blank += np.bincount(source_of[run.shard[~kept]], minlength=num)
                    finder.add(
                        run.digests[kept],
                        run.shard[kept] + first_shards[which],
                        run.row[kept],
                        run.content_bytes[kept],
                        kind=int(run.kind == "tokens"),
                    )
        read.problems.append(problems)
    return read


def _sources_of(manifest: Manifest) -> NDArray[np.int64]:
    """The source of each shard."""
    return np.array([shard.source for shard in manifest.shards], np.int64)


def _parts(against: Against) -> Iterator[Part]:
    for task in against.tasks:
        yield read_part(against.parts.part(task.number))


def _overlap(
    job: Job,
    against: Sequence[Against],
    audited: Side,
    evaluation: Side,
    read: _Read,
    ours: Counts,
    theirs: Counts,
) -> Overlap:
    kinds = set(job.kinds)
    sources = [source for each in against for source in each.manifest.sources]
    told = []
    for i, source in enumerate(sources):
        comparable = source.kind in kinds
        told.append(
            EvaluationSource(
                against=str(evaluation.against[i]),
                source=source.name,
                kind=source.kind,
                records=int(read.samples[i]),
                compared=int(theirs.all_records[i]) if comparable else 0,
                blank=int(read.blank[i]),
                rejected=int(read.rejected[i]),
                unreadable=int(read.unreadable[i]),
                overlapping=int(theirs.records[i]),
                share_of_records=_share(theirs.records[i], theirs.all_records[i]),
                share_of_bytes=_share(theirs.content_bytes[i], theirs.all_bytes[i]),
            )
        )
    pairs = [
        OverlapOf(
            source=audited.sources[a],
            against=str(evaluation.against[e]),
            evaluation_source=evaluation.sources[e],
            records=int(ours.pairs[a, e]),
            evaluation_records=int(theirs.pairs[e, a]),
        )
        for a, e in np.argwhere(ours.pairs > 0).tolist()
    ]
    both = kinds & {source.kind for source in sources}
    words = {"text": "whole texts", "tokens": f"windows of {job.seq_len:,} tokens from the beginning of each shard"}
    return Overlap(
        compared=(" and ".join(words[kind] for kind in ("text", "tokens") if kind in both) or "nothing")
        + ("" if job.sample.is_all else f", of a sample of {job.sample.fraction} of the corpus"),
        contents=theirs.contents,
        records=int(ours.records.sum()),
        share_of_records=_share(ours.records.sum(), ours.all_records.sum()),
        share_of_bytes=_share(ours.content_bytes.sum(), ours.all_bytes.sum()),
        evaluation_records=int(theirs.records.sum()),
        evaluation=tuple(told),
        by_source=tuple(pairs),
        unread=tuple(_unread(against, read)),
    )


def _unread(against: Sequence[Against], read: _Read) -> Iterator[UnreadEvaluation]:
    for each, problems in zip(against, read.problems, strict=True):
        findings = tuple(read_findings(each.parts.manifest, rejected=False))
        for shard in damaged_shards(each.manifest, findings, problems):
            yield UnreadEvaluation(against=each.asked, shard=shard.shard, reason=shard.reason, effect=shard.effect)
        for path, reason in each.unreachable:
            yield UnreadEvaluation(against=each.asked, shard=path, reason=reason, effect="excluded")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapReasons:
    """What an overlap means for the answer, in words."""

    broken: tuple[str, ...] = ()
    """Input that could not be read, or that nothing could be compared with."""
    failed: tuple[str, ...] = ()
    """What fails, since that was asked for."""
    remarks: tuple[str, ...] = ()


def overlap_reasons(overlap: Overlap | None, *, fail: bool) -> OverlapReasons:
    """What an overlap means; with `fail` it fails an audit."""
    if overlap is None:
        return OverlapReasons()
    broken, remarks = [], []
    if overlap.unread:
        broken.append(f"{len(overlap.unread):,} shards of the evaluation data are damaged or were not reached")
    if not any(source.compared for source in overlap.evaluation):
        broken.append("nothing of the evaluation data could be compared")
    for source in overlap.evaluation:
        if source.records and not source.compared:
            nothing = source.blank + source.rejected + source.unreadable == source.records
            why = "it holds nothing that can be" if nothing else f"it is {source.kind}, of which the corpus has none"
            remarks.append(f"evaluation source {source.source} of {source.against} was not compared: {why}")
    told = (f"{overlap.records:,} records are in the evaluation data, byte for byte",) if overlap.records else ()
    return OverlapReasons(
        broken=tuple(broken), failed=told if fail else (), remarks=(*remarks, *(() if fail else told))
    )


def _share(part: np.int64, whole: np.int64) -> float:
    return int(part) / int(whole) if whole else 0.0
