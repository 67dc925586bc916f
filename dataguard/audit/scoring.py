"""How does a task become a part?

1. The blocks of each of its shards come from `Supply`, decoded and verified.
2. Samples that are looked at are scored, a bounded number of rows at a time, by kernels that release the GIL.
3. Each is written down with its digest and its signals; rejected samples and those that could not be read are counted.

Nothing here depends on what other tasks do, on the number of threads, or on the time of day.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataguard.audit.job import Job, Segment
from dataguard.audit.parts import PartDocument, Problem, Rows, ShardCounts, part_writer
from dataguard.audit.supply import Found, Supply
from dataguard.audit.tasks import Task
from dataguard.corpus.blocks import DecodedBlock
from dataguard.corpus.shards import BlockProblem

__all__ = ["Scorer", "score_tasks"]

_MOST_ROWS = 1 << 16
"""Samples that are scored at once: what their signals take is a few tens of megabytes."""
_DIGEST = np.dtype("V16")


def score_tasks(job: Job, tasks: Sequence[Task]) -> Iterator[tuple[Task, bytes]]:
    """The parts of some tasks, one after the other: what a worker in another process does.

    Tasks in the order of their numbers that share a compressed shard should be given together: it is decoded once.
    """
    scorer = Scorer(job, tasks)
    for task in tasks:
        sink = io.BytesIO()
        scorer.score(task, sink)
        yield task, sink.getvalue()


class Scorer:
    """Scores the tasks of one process. Safe for several threads.

    Parameters
    ----------
    job
        What is scored.
    tasks
        All that will be done here, in the order in which they will be begun.
    """

    def __init__(self, job: Job, tasks: Sequence[Task], **supply: Any) -> None:
        self.job = job
        self.supply = Supply(job, tasks, **supply)
        self._signals = {kind: job.signals(kind) for kind in job.kinds}

    def score(self, task: Task, sink: BinaryIO) -> None:
        """Write the part of a task to an open file.

        Raises
        ------
        GivenUp
            The work was given up while this task waited.
        OSError
            As `sink` raises it; nothing that is wrong with a shard raises.
        """
        counts: list[ShardCounts] = []
        problems: list[Problem] = []
        with part_writer(sink, [name for names in self._signals.values() for name in names]) as writer:
            for segment in self.job.segments(task):
                tally = _Tally(segment.shard)
                score = self._texts if segment.kind == "text" else self._tokens
                for rows in score(task, segment, tally):
                    writer.add(rows)
                counts.append(tally.counts())
                problems.extend(tally.problems)
            writer.finish(
                PartDocument(
                    task=task.number,
                    start=task.start,
                    stop=task.stop,
                    num_rows=writer.num_rows,
                    shards=tuple(counts),
                    problems=tuple(problems),
                )
            )

    def _texts(self, task: Task, segment: Segment, tally: _Tally) -> Iterator[Rows]:
        for block, found in self.supply.blocks(task, segment):
            rows = self.job.rows(segment, block)
            tally.num_samples += len(rows)
            if isinstance(found, BlockProblem):
                rejected = np.isin(rows, self.job.rejected(block), assume_unique=True)
                tally.num_rejected += int(rejected.sum())
                self._unreadable(tally, block, found, int((~rejected).sum()))
                continue
            assert found.lengths is not None
            kept = rows[found.lengths[rows - found.first_row] >= 0]
            tally.num_rejected += len(rows) - len(kept)
            tally.num_scored += len(kept)
            for first in range(0, len(kept), _MOST_ROWS):
                some = kept[first : first + _MOST_ROWS]
                with self._named(segment, some):
                    scored = self._score_texts(segment, found, some)
                yield scored

    def _score_texts(self, segment: Segment, block: DecodedBlock, rows: NDArray[np.int64]) -> Rows:
        from dataguard.score.text import score_buffers

        assert block.values is not None
        assert block.starts is not None
        places = rows - block.first_row
        starts, lengths = block.starts[places], block.starts[places + 1] - block.starts[places]
        content = memoryview(block.values)
        views = [content[start : start + size] for start, size in zip(starts.tolist(), lengths.tolist(), strict=True)]
        if len(rows) and (starts[1:] == starts[:-1] + lengths[:-1]).all():
            values = content[int(starts[0]) : int(starts[-1] + lengths[-1])]
        else:
            values = memoryview(b"".join(views))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Rows(
            kind="text",
            shard=np.full(len(rows), segment.shard, np.int64),
            row=rows,
            content_bytes=lengths,
            digests=_digests(views),
            signals=score_buffers(_bytes_of(values), offsets, self._signals["text"]),
        )

    def _tokens(self, task: Task, segment: Segment, tally: _Tally) -> Iterator[Rows]:
        have: dict[int, Found] = {}
        waiting = list(segment.chosen)
        for block, found in self.supply.blocks(task, segment):
            have[block] = found
            while waiting and self.job.blocks_of_windows(waiting[0]).stop <= block + 1:
                yield from self._windows(segment, waiting.pop(0), have, tally)
                if waiting:
                    have = {number: each for number, each in have.items() if number >= waiting[0]}
        assert not waiting, "every window's blocks were needed"

    def _windows(self, segment: Segment, block: int, have: dict[int, Found], tally: _Tally) -> Iterator[Rows]:
        windows, seq_len = self.job.rows(segment, block), self.job.seq_len
        tally.num_samples += len(windows)
        manifest = self.job.corpus.manifest
        first = int(manifest.blocks["first_row"][block])
        num_tokens = manifest.shards[segment.shard].num_rows
        parts: list[NDArray[Any]] = []
        for number in self.job.blocks_of_windows(block):
            found = have[number]
            if isinstance(found, BlockProblem):
                # the windows that end before it can be read all the same
                readable = first + sum(map(len, parts))
                is_whole = np.minimum((windows + 1) * seq_len, num_tokens) <= readable
                self._unreadable(tally, number, found, int((~is_whole).sum()))
                windows = windows[is_whole]
                break
            assert found.tokens is not None
            parts.append(found.tokens)
        tally.num_scored += len(windows)
        ids = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.int64)
        most = max(1, min(_MOST_ROWS, (8 << 20) // seq_len))
        for begin in range(0, len(windows), most):
            some = windows[begin : begin + most]
            with self._named(segment, some):
                scored = self._score_windows(segment, ids, first, some)
            yield scored

    def _score_windows(self, segment: Segment, ids: NDArray[Any], first: int, windows: NDArray[np.int64]) -> Rows:
        from dataguard.score.tokens import score_token_rows

        starts = windows * self.job.seq_len - first
        stops = np.minimum(starts + self.job.seq_len, len(ids))
        samples = [ids[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        touching = (starts[1:] == stops[:-1]).all()
        joined = ids[int(starts[0]) : int(stops[-1])] if touching else np.concatenate(samples)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(stops - starts)])
        return Rows(
            kind="tokens",
            shard=np.full(len(windows), segment.shard, np.int64),
            row=windows,
            content_bytes=(stops - starts) * ids.dtype.itemsize,
            digests=_digests([each.astype("<i8").data for each in samples]),
            signals=score_token_rows(joined, offsets, self._signals["tokens"], vocab_size=self.job.vocab_size),
        )

    @contextmanager
    def _named(self, segment: Segment, rows: NDArray[np.int64]) -> Iterator[None]:
        """Say of a failure at which samples it happened: no shard may raise, so it is a fault of a scorer."""
        try:
            yield
        except MemoryError as error:
            raise MemoryError(self._told(segment, rows)) from error
        except Exception as error:
            raise RuntimeError(f"{self._told(segment, rows)}: {type(error).__name__}: {error}") from error

    def _told(self, segment: Segment, rows: NDArray[np.int64]) -> str:
        what = "rows" if segment.kind == "text" else "windows"
        shard = self.job.corpus.manifest.shard_name(segment.shard)
        return f"scoring {what} {int(rows[0])}:{int(rows[-1]) + 1} of shard {shard} failed"

    def _unreadable(self, tally: _Tally, block: int, found: BlockProblem, num_samples: int) -> None:
        if num_samples:
            tally.num_unreadable += num_samples
            tally.problems.append(
                Problem(
                    shard=tally.shard,
                    first_row=int(self.job.corpus.manifest.blocks["first_row"][block]),
                    num_samples=num_samples,
                    kind=found.kind,
                    detail=found.detail,
                )
            )


class _Tally:
    """What became of the samples of one segment, so far."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.num_samples = self.num_scored = self.num_rejected = self.num_unreadable = 0
        self.problems: list[Problem] = []

    def counts(self) -> ShardCounts:
        return ShardCounts(
            shard=self.shard,
            num_samples=self.num_samples,
            num_scored=self.num_scored,
            num_rejected=self.num_rejected,
            num_unreadable=self.num_unreadable,
        )


def _digests(contents: Sequence[Any]) -> NDArray[np.void]:
    """core.digests.sample_digest of each, V16."""
    digest = xxhash.xxh3_128_digest
    return np.frombuffer(b"".join([digest(content) for content in contents]), _DIGEST)


def _bytes_of(values: memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(values, np.uint8) if len(values) else np.zeros(0, np.uint8)
