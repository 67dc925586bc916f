"""How do the parts become an answer? The second half of an audit, over signals and no longer over text.

1. Over all parts in order: what is usual in each source (the profile), and what every sample's digest is.
2. Over all parts in order once more: judge each sample by the policy and the profile (the one that was given, or this
   audit's own), write it down with its verdict, and count.
3. Merge the digests: duplicates, and what is in evaluation data too (`against`).
4. Shard rules over the counts, mixture, drift, account; the page, where one is asked for; the summary is written last.

Everything is a function of the parts and of the header, in bounded memory: interrupted, it is simply done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import numpy as np

from dataguard.audit.against import Against, find_overlap
from dataguard.audit.documents import AuditSummary
from dataguard.audit.duplicates import DuplicateFinder, Piece
from dataguard.audit.duplicates_account import DuplicatesTally
from dataguard.audit.folder import AuditFolder, AuditHeader
from dataguard.audit.job import Job
from dataguard.audit.outputs import Names, SignalTables, WithholdWriter, write_duplicates, write_tables
from dataguard.audit.parts import Part, PartDocument, Problem, read_part
from dataguard.audit.reading import Run, Runs
from dataguard.audit.shards_file import write_shards
from dataguard.audit.summarise import Facts, summarise
from dataguard.audit.tally import Tally
from dataguard.audit.tasks import Task
from dataguard.audit.worst import Worst
from dataguard.core.manifest import SourceKind
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.manifest_read import ManifestFile, read_findings
from dataguard.gate.gate import Gate
from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy
from dataguard.gate.shards import ShardCounts
from dataguard.score.profile import Profile, ProfileBuilder, encode_profile

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Finishing", "Render", "finish"]

Render = Callable[[AuditFolder, AuditHeader, AuditSummary, Corpus], bytes]
"""Makes ``report.html`` of an audit whose other files are written: of its folder, what was asked, the answer, and the
corpus. Given by whoever stands above this room."""

_FILE_ROWS = 1 << 20
"""Rows after which another file of signals is begun."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finishing:
    """What the second half of an audit is made of."""

    folder: AuditFolder
    header: AuditHeader
    manifest_file: ManifestFile
    job: Job
    tasks: tuple[Task, ...]
    policy: Policy
    profile: Profile | None
    """None to judge by the audit's own."""
    baseline: Profile | None
    unreachable: tuple[tuple[str, str], ...]
    """Paths that the scan could not look into, and why."""
    progress: Callable[[int, int], None]
    """Told how many of how many samples are done, counting both passes."""
    render: Render | None = None
    """None to write no page."""
    against: tuple[Against, ...] = ()
    """Evaluation data that it is held against."""


@dataclass(slots=True, kw_only=True, eq=False)
class _First:
    """What the first pass finds."""

    profile: Profile
    num_samples: np.ndarray
    num_rejected: np.ndarray
    num_unreadable: np.ndarray
    """By shard."""
    problems: list[Problem] = field(default_factory=list)
    num_rows: int = 0


def finish(finishing: Finishing) -> AuditSummary:
    """Make all files of the audit, and its answer.

    Raises
    ------
    RunDamaged
        A part was changed after it was written.
    WriteFailed
        A file cannot be written; what was done so far is kept.
    """
    folder, manifest, policy = finishing.folder, finishing.job.corpus.manifest, finishing.policy
    names = Names(manifest, policy)
    with DuplicateFinder(folder.tmp) as finder:
        first = _first_pass(finishing, finder)
        folder.publish(folder.profile, encode_profile(first.profile))
        reference = first.profile if finishing.profile is None else finishing.profile
        gate = Gate(
            policy,
            source_names=names.sources,
            source_kinds=[source.kind for source in manifest.sources],
            profile=reference,
            vocab_size=finishing.job.vocab_size,
        )
        judging = _Judging(finishing, gate, names, num_rows=first.num_rows)
        folder.publish(folder.withhold, judging.run)
        duplicates = DuplicatesTally(manifest)
        folder.publish(folder.duplicates, lambda sink: write_duplicates(sink, _counted(finder, duplicates), names))
        overlap, may_be_mended = None, any(problem.may_be_mended for problem in first.problems)
        if finishing.against:
            overlap, theirs = find_overlap(folder, finder, finishing.job, names, finishing.against)
            may_be_mended = may_be_mended or theirs
    tally = judging.tally
    folder.publish(
        folder.shards,
        lambda sink: write_shards(
            sink, manifest, names, tally, first.num_samples, first.num_rejected, first.num_unreadable
        ),
    )
    summary = summarise(
        Facts(
            header=finishing.header,
            manifest=manifest,
            manifest_header=finishing.manifest_file.header,
            job=finishing.job,
            policy=policy,
            names=names,
            gate=gate,
            tally=tally,
            worst=judging.worst,
            shard_verdicts=judging.shard_verdicts,
            duplicates=duplicates,
            profile=first.profile,
            reference=reference,
            profile_given=finishing.profile is not None,
            baseline=finishing.baseline,
            num_samples=first.num_samples,
            num_rejected=first.num_rejected,
            num_unreadable=first.num_unreadable,
            problems=first.problems,
            findings=tuple(read_findings(folder.manifest, rejected=False)),
            unreachable=finishing.unreachable,
            num_withheld=judging.num_withheld,
            num_withheld_shards=judging.num_withheld_shards,
            overlap=overlap,
        )
    )
    if finishing.render is not None:
        folder.publish(folder.report, finishing.render(folder, finishing.header, summary, finishing.job.corpus))
    else:
        folder.report.unlink(missing_ok=True)  # one of an answer that this one replaces
    content = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
    folder.publish(folder.summary, content)
    if not may_be_mended:
        folder.tidy()  # else whoever goes on, once the storage is mended, has only that to do
    return summary


def _parts(finishing: Finishing) -> Iterator[Part]:
    for task in finishing.tasks:
        yield read_part(finishing.folder.part(task.number))


def _first_pass(finishing: Finishing, finder: DuplicateFinder) -> _First:
    manifest = finishing.job.corpus.manifest
    runs = Runs(manifest, _signals(finishing.job))
    builder = ProfileBuilder()
    counts = np.zeros((3, len(manifest.shards)), np.int64)
    found = _First(profile=builder.profile(), num_samples=counts[0], num_rejected=counts[1], num_unreadable=counts[2])
    for part in _parts(finishing):
        _count(part.document, found)
        for table in part.tables():
            for run in runs.of(table):
                for source, span in run.spans(run.source):
                    signals = {name: values[span] for name, values in run.signals.items()}
                    builder.add(manifest.sources[source].name, signals)
                kept = ~run.is_blank
                finder.add(
                    run.digests[kept],
                    run.shard[kept],
                    run.row[kept],
                    run.content_bytes[kept],
                    kind=int(run.kind == "tokens"),
                )
            found.num_rows += len(table)
            finishing.progress(found.num_rows, 0)
    found.profile = builder.profile()
    return found


def _count(document: PartDocument, found: _First) -> None:
    for counts in document.shards:
        found.num_samples[counts.shard] += counts.num_samples
        found.num_rejected[counts.shard] += counts.num_rejected
        found.num_unreadable[counts.shard] += counts.num_unreadable
    found.problems.extend(document.problems)


def _signals(job: Job) -> dict[SourceKind, tuple[str, ...]]:
    return {kind: job.signals(kind) for kind in job.kinds}


class _Judging:
    """The second pass: signals with verdicts and the withheld rows go out, counts stay."""

    def __init__(self, finishing: Finishing, gate: Gate, names: Names, *, num_rows: int) -> None:
        manifest, policy = finishing.job.corpus.manifest, finishing.policy
        self.finishing = finishing
        self.gate = gate
        self.tally = Tally(manifest, policy)
        self.worst = Worst(policy)
        self.num_withheld = self.num_withheld_shards = 0
        self._names = names
        self._tables = SignalTables(names, _signals_with_outlier(finishing.job))
        self._counts: ShardCounts = ShardCounts.total([], num_rules=len(policy.shard_rules))
        self._num_rows = num_rows

    def run(self, sink: BinaryIO) -> None:
        """Judge everything: ``signals/*.parquet`` on the way, ``withhold.parquet`` into `sink`."""
        finishing, folder = self.finishing, self.finishing.folder
        manifest = finishing.job.corpus.manifest
        withhold = WithholdWriter(self._names, manifest, finishing.policy, seq_len=finishing.job.seq_len)
        with withhold.into(sink):
            tables = self._judged(withhold)
            number = 0
            while (table := next(tables, None)) is not None or number == 0:
                rest = tables if table is None else chain([table], tables)
                folder.publish(folder.signals / f"{number:06d}.parquet", self._file_of(rest))
                number += 1
            self.shard_verdicts = self.gate.judge_shards(self._counts)
            proposed: dict[int, list[str]] = {}
            for verdict in self.shard_verdicts:
                if verdict.fired:
                    proposed.setdefault(verdict.shard, []).append(verdict.rule.name)
            withhold.finish(proposed)
        self.num_withheld, self.num_withheld_shards = withhold.num_rows, withhold.num_shards

    def _file_of(self, tables: Iterator[pa.Table]) -> Callable[[BinaryIO], None]:
        """Writes one file of signals, of the next tables."""

        def write(sink: BinaryIO) -> None:
            write_tables(sink, self._tables.schema, tables, most_rows=_FILE_ROWS)

        return write

    def _judged(self, withhold: WithholdWriter) -> Iterator[pa.Table]:
        finishing = self.finishing
        runs = Runs(finishing.job.corpus.manifest, _signals(finishing.job))
        num_rules, done = len(finishing.policy.shard_rules), 0
        for part in _parts(finishing):
            for table in part.tables():
                for run in runs.of(table):
                    judged = self._judge(run)
                    self.tally.count(run, judged)
                    self.worst.see(run, judged)
                    withhold.add(run, judged)
                    counts = self.gate.shard_counters(judged, run.shard, run.source)
                    self._counts = ShardCounts.total([self._counts, counts], num_rules=num_rules)
                    yield self._tables.of(run, judged)
                done += len(table)
                finishing.progress(self._num_rows + done, 2 * self._num_rows)

    def _judge(self, run: Run) -> Judged:
        columns = dict(run.signals)
        if run.kind == "text" and self.gate.profile is not None:
            columns["length_outlier"] = self.gate.length_outlier(columns["length_bytes"], run.source)
        # a text without a word is a sample like any other; a window without a token cannot be
        return self.gate.judge_columns(columns, run.source, run.kind)


def _signals_with_outlier(job: Job) -> dict[SourceKind, list[str]]:
    """The signals of an audit's rows: in the registry's order, with the one that the second half adds."""
    from dataguard.score.registry import TEXT_SIGNALS

    signals = {kind: list(names) for kind, names in _signals(job).items()}
    if "text" in signals:
        have = {*signals["text"], "length_outlier"}
        signals["text"] = [spec.name for spec in TEXT_SIGNALS if spec.name in have]
    return signals


def _counted(finder: DuplicateFinder, tally: DuplicatesTally) -> Iterator[Piece]:
    for piece in finder.pieces():
        tally.count(piece)
        yield piece
