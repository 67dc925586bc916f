"""What stands in these rows?

`RowReader` reads rows by (block, row), or windows of token shards, in whatever order they are asked for:

1. Rows are grouped by block; a block is decoded once (a bounded cache, one load for all threads that want it).
2. Every block is compared with its manifest's digest before a row of it is handed out.
3. A row that cannot be had is answered with a `RowProblem`, in its place: a reader of a training run raises nothing
   that one bad disk on one machine could cause. What raises is a question about rows that the manifest does not have.

Blocks and shards are numbered through all manifests of a run (core.manifest.ManifestSet), in the order of `corpora`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataguard.core.manifest import ManifestSet
from dataguard.corpus.block_cache import BlockCache
from dataguard.corpus.blocks import DecodedBlock
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.environment import cache_dir, cache_limit_bytes
from dataguard.corpus.formats.tokens import Boundaries
from dataguard.corpus.problems import Retry, RowProblem
from dataguard.corpus.shard_cache import ShardCache
from dataguard.corpus.shard_file import ByteCounter
from dataguard.corpus.shards import BlockProblem, Shards
from dataguard.errors import NotInRun, UsageError

__all__ = ["ReadCounts", "RowReader", "Verify"]

Verify = Literal["raise", "tell"]
"""What becomes of a changed block: ``raise`` withholds its content, ``tell`` hands it out inside the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCounts:
    """What a reader has done so far."""

    storage_bytes: int
    """Bytes that left the storage of the shards, compressed as they lie there."""
    num_blocks: int
    """Blocks that were decoded (or taken from the cache of decoded shards)."""
    content_bytes: int
    """Content of those blocks, by the manifest: over an epoch read once, the size of the corpus."""


class RowReader:
    r"""Reads rows of several corpora as one. Safe for several threads, across forks, and to be pickled.

    Parameters
    ----------
    corpora
        In the order in which the run numbers its manifests.
    cache_bytes
        Memory for decoded blocks.
    threads
        Blocks that are read at once by one call, and by `prefetch`; 0 reads in the calling thread only.
    verify
        See `Verify`.
    retry
        How storage that fails is asked again.
    cache_folder
        Where shards without random access are kept decoded; None for the user's cache folder
        (``DATAGUARD_CACHE_DIR``), an empty string for nowhere.
    cache_folder_bytes
        What that folder may hold; None for ``DATAGUARD_CACHE_BYTES`` or 32 GiB.
    sleep
        Sleeps between attempts; tests give their own.

    Examples
    --------
    >>> import pathlib, tempfile; from dataguard.corpus import Corpus, build_manifest_file
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "web"); folder.mkdir()
    >>> _ = (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    >>> _ = build_manifest_file([str(folder)], folder.parent / "M.parquet")
    >>> with Corpus.open(folder.parent / "M.parquet").reader() as reader:
    ...     reader.read([0, 0], [1, 0])
    [b'two', b'one']
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        *,
        cache_bytes: int = 256 << 20,
        threads: int = 0,
        verify: Verify = "raise",
        retry: Retry | None = None,
        cache_folder: str | None = None,
        cache_folder_bytes: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if verify not in {"raise", "tell"}:
            raise UsageError(f"verify={verify!r} cannot be", allowed="'raise' or 'tell'")
        folder = cache_dir() if cache_folder is None else cache_folder
        limit = cache_limit_bytes() if cache_folder_bytes is None else cache_folder_bytes
        self.verify: Verify = verify
        self.threads = threads
        self._counter = ByteCounter()
        self._decoded = ByteCounter()
        self._num_blocks = ByteCounter()
        self._shards = Shards(
            corpora,
            cache=ShardCache(folder, limit_bytes=limit) if folder else None,
            retry=retry or Retry(),
            counter=self._counter,
            sleep=sleep,
        )
        self._cache: BlockCache[DecodedBlock | BlockProblem] = BlockCache(cache_bytes)
        self._pool: ThreadPoolExecutor | None = None
        self._pool_pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the reader's threads; a later read starts them again."""
        if self._pool is not None and self._pool_pid == os.getpid():
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None

    @property
    def manifests(self) -> ManifestSet:
        """How blocks and shards are numbered."""
        return self._shards.manifests

    @property
    def counts(self) -> ReadCounts:
        """What was read so far, by all threads of this process."""
        return ReadCounts(
            storage_bytes=self._counter.total, num_blocks=self._num_blocks.total, content_bytes=self._decoded.total
        )

    @cached_property
    def token_dtype(self) -> np.dtype[Any]:
        """The dtype of windows: int32, or int64 where a token shard stores ids wider than int32."""
        types = {shard.item_type for manifest in self.manifests.manifests for shard in manifest.shards} - {""}
        return np.dtype(np.int32 if all(np.can_cast(np.dtype(kind), np.int32) for kind in types) else np.int64)

    def read(self, blocks: ArrayLike, rows: ArrayLike) -> list[bytes | RowProblem]:
        """The records' bytes, in the order asked for.

        Parameters
        ----------
        blocks, rows
            int64, shape (n,): blocks numbered through, and stored row numbers of their shards.

        Raises
        ------
        NotInRun
            A block that no manifest has, or a row that is not in its block.
        """
        asked_blocks, asked_rows = self._asked(blocks, rows)
        answers: list[bytes | RowProblem] = [b""] * len(asked_blocks)
        wanted: dict[int, list[int]] = {}  # block -> places in the answer
        for index, block in enumerate(asked_blocks.tolist()):
            wanted.setdefault(block, []).append(index)
        asked = asked_rows.tolist()
        blocks_in_order = sorted(wanted)
        for block, loaded in zip(blocks_in_order, self._loaded(blocks_in_order), strict=True):
            places = wanted[block]
            if isinstance(loaded, BlockProblem):
                for index in places:
                    content = loaded.block.text(asked[index]) if self.verify == "tell" and loaded.block else None
                    answers[index] = loaded.of_row(asked[index], content)
                continue
            for index, text in zip(places, loaded.texts([asked[index] for index in places]), strict=True):
                answers[index] = self._rejected(block, asked[index]) if text is None else text
        return answers

    def read_windows(
        self, blocks: ArrayLike, rows: ArrayLike, seq_len: int
    ) -> tuple[NDArray[np.int32 | np.int64], dict[int, RowProblem]]:
        """Windows of token shards, in the order asked for.

        Parameters
        ----------
        blocks
            int64, shape (n,): any block of the shard meant.
        rows
            int64, shape (n,): window w of a shard is its tokens ``w * seq_len : (w + 1) * seq_len``.
        seq_len
            Tokens of a window.

        Returns
        -------
        ids
            Shape (n, seq_len), `token_dtype`; zeros where a window cannot be had.
        problems
            By index into the windows asked for. With ``verify="tell"`` a changed window's ids are in `ids` too.

        Raises
        ------
        NotInRun
            A block that no manifest has, or a window that is not in its shard.
        """
        if seq_len < 1:
            raise UsageError(f"windows of {seq_len} tokens cannot be", allowed="at least 1")
        asked_blocks, windows = _arrays(blocks, rows)
        self._check_blocks(asked_blocks)
        ids = np.zeros((len(windows), seq_len), self.token_dtype)
        problems: dict[int, RowProblem] = {}
        wanted: dict[int, list[tuple[int, int]]] = {}  # block -> (window asked for, its first token)
        for index, (block, window) in enumerate(zip(asked_blocks.tolist(), windows.tolist(), strict=True)):
            first = window * seq_len
            for needed in self._blocks_of_window(block, first, seq_len):
                wanted.setdefault(needed, []).append((index, first))
        needed_blocks = sorted(wanted)
        for block, loaded in zip(needed_blocks, self._loaded(needed_blocks), strict=True):
            content = loaded
            if isinstance(loaded, BlockProblem):
                for index, first in wanted[block]:
                    problems.setdefault(index, loaded.of_row(first, None))
                if self.verify != "tell" or loaded.block is None:
                    continue
                content = loaded.block
            assert isinstance(content, DecodedBlock)
            assert content.tokens is not None, "windows are read from token shards"
            stop_row = content.first_row + len(content.tokens)
            for index, first in wanted[block]:
                start, stop = max(first, content.first_row), min(first + seq_len, stop_row)
                if start < stop:
                    part = content.tokens[start - content.first_row : stop - content.first_row]
                    ids[index, start - first : stop - first] = part
        if self.verify != "tell":
            for index in problems:
                ids[index] = 0
        return ids, problems

    def read_fields(self, block: int, row: int) -> dict[str, Any] | RowProblem:
        """All other fields of one record, for previews and transforms; uncached.

        Raises
        ------
        NotInRun
            As `read`.
        """
        self._asked([block], [row])
        read = self._shards.read_fields(block)
        if isinstance(read, BlockProblem):
            return read.of_row(row, None)
        place = row - self._shards.place(block).first_row
        if read.fields is None or not 0 <= place < read.fields.num_rows:
            return {}
        fields: dict[str, Any] = read.fields.slice(place, 1).to_pylist()[0]
        return fields

    def boundaries(self, block: int, first_row: int, stop_row: int) -> Boundaries | RowProblem | None:
        """The documents of the tokens ``first_row:stop_row`` of a block's shard; None where it knows none; uncached.

        Raises
        ------
        NotInRun
            A block that no manifest has, or tokens that are not in its shard.
        """
        self._check_blocks(np.array([block], np.int64))
        shard = self._shards.opened(self._shards.shard_of_block(block))
        if not 0 <= first_row < stop_row <= shard.entry.num_rows:
            raise NotInRun(
                f"tokens {first_row:,}:{stop_row:,} are not in shard {shard.stored.name}",
                allowed=f"within 0:{shard.entry.num_rows:,}",
            )
        found = self._shards.boundaries(block, first_row, stop_row)
        return found.of_row(first_row, None) if isinstance(found, BlockProblem) else found

    def prefetch(self, blocks: ArrayLike) -> None:
        """Begin to read blocks that will be asked for soon; without threads it does nothing."""
        if not self.threads:
            return
        for block in np.unique(np.asarray(blocks, np.int64)).tolist():
            if block not in self._cache:
                self._threads().submit(self._load, block)

    def _asked(self, blocks: ArrayLike, rows: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        asked_blocks, asked_rows = _arrays(blocks, rows)
        self._check_blocks(asked_blocks)
        if len(self.manifests.manifests) == 1:
            self._check_rows(0, asked_blocks, asked_rows)
            return asked_blocks, asked_rows
        owners = np.searchsorted(self.manifests.block_starts, asked_blocks, side="right") - 1
        for which in np.unique(owners).tolist():
            mine = owners == which
            self._check_rows(which, asked_blocks[mine] - self.manifests.block_starts[which], asked_rows[mine])
        return asked_blocks, asked_rows

    def _check_rows(self, which: int, local: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Rows are in their blocks of one manifest."""
        manifest = self.manifests.manifests[which]
        places = rows - manifest.blocks["first_row"][local]
        wrong = np.flatnonzero((places < 0) | (places >= manifest.blocks["num_rows"][local]))
        if len(wrong):
            entry = manifest.blocks[local[wrong[0]]]
            raise NotInRun(
                f"row {int(rows[wrong[0]]):,} is not in its block of shard {manifest.shard_name(int(entry['shard']))}",
                allowed=f"{int(entry['first_row']):,}:{int(entry['first_row'] + entry['num_rows']):,}",
            )

    def _check_blocks(self, blocks: NDArray[np.int64]) -> None:
        num_blocks = int(self.manifests.block_starts[-1])
        if not len(blocks) or (blocks.min() >= 0 and blocks.max() < num_blocks):
            return
        wrong = blocks[(blocks < 0) | (blocks >= num_blocks)]
        raise NotInRun(f"block {int(wrong[0]):,} is in no manifest", allowed=f"0:{num_blocks:,}")

    def _blocks_of_window(self, block: int, first: int, seq_len: int) -> range:
        """The blocks, numbered through, that hold tokens ``first : first + seq_len`` of a block's shard."""
        shard = self._shards.shard_of_block(block)
        which, local = self.manifests.split_shard(shard)
        manifest = self.manifests.manifests[which]
        num_tokens = manifest.shards[local].num_rows
        if not 0 <= first <= num_tokens - seq_len:
            raise NotInRun(
                f"window {first // seq_len:,} of {seq_len:,} tokens is not in shard {manifest.shard_name(local)}",
                allowed=f"0:{num_tokens // seq_len:,}, of {num_tokens:,} tokens",
            )
        span = self._shards.blocks_of_shard(shard)
        base = int(self.manifests.block_starts[which])
        starts = manifest.blocks["first_row"][span.start - base : span.stop - base]
        low = int(np.searchsorted(starts, first, side="right")) - 1
        high = int(np.searchsorted(starts, first + seq_len, side="left"))
        return range(span.start + low, span.start + high)

    def _rejected(self, block: int, row: int) -> RowProblem:
        name = self.manifests.shard_name(self._shards.shard_of_block(block))
        return RowProblem(kind="rejected", shard=name, row=row, detail="the manifest has it as rejected")

    def _loaded(self, blocks: Sequence[int]) -> Iterator[DecodedBlock | BlockProblem]:
        """Blocks in order; with threads a few of them are read ahead, so that memory stays bounded."""
        if not self.threads or len(blocks) == 1:
            yield from (self._load(block) for block in blocks)
            return
        pool = self._threads()
        ahead: deque[Future[DecodedBlock | BlockProblem]] = deque()
        waiting = iter(blocks)
        for block in waiting:
            ahead.append(pool.submit(self._load, block))
            if len(ahead) > 2 * self.threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def _load(self, block: int) -> DecodedBlock | BlockProblem:
        try:
            return self._cache.get(block, lambda: self._load_now(block))
        except _NotKept as error:
            return error.problem

    def _load_now(self, block: int) -> DecodedBlock | BlockProblem:
        loaded = self._shards.load(block)
        self._num_blocks.add(1)
        which, local = self.manifests.split_block(block)
        self._decoded.add(int(self.manifests.manifests[which].blocks["content_bytes"][local]))
        if isinstance(loaded, BlockProblem) and loaded.kind in {"missing", "unreadable"}:
            raise _NotKept(loaded)  # the storage may come back
        return loaded

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pool_pid != os.getpid():
            self._pool = ThreadPoolExecutor(max_workers=self.threads, thread_name_prefix="dataguard-read")
            self._pool_pid = os.getpid()
        return self._pool

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        state.update(_pool=None, _pool_pid=0, _cache=self._cache.limit_bytes)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cache = BlockCache(state["_cache"])


class _NotKept(Exception):  # noqa: N818 - no error of the caller's
    """Carries a problem past the cache."""

    def __init__(self, problem: BlockProblem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def _arrays(blocks: ArrayLike, rows: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    left, right = np.asarray(blocks, np.int64).reshape(-1), np.asarray(rows, np.int64).reshape(-1)
    if len(left) != len(right):
        raise UsageError(
            f"{len(left):,} blocks and {len(right):,} rows were asked for", allowed="as many of one as of the other"
        )
    return left, right
