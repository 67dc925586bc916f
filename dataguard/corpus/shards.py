"""Which shard is this number, and how is one of its blocks decoded and verified?

The lower half of the row reader: no cache of blocks, no rows, no order. `Shards` numbers shards and blocks through the
manifests of a run, opens shards at their roots, and turns a block into a `DecodedBlock` whose digest is the manifest's,
or into a `BlockProblem`. Storage that fails is asked again with growing pauses; damage and change are not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar, cast

from dataguard.core.manifest import Manifest, ManifestSet, Shard
from dataguard.corpus.blocks import DecodedBlock, of_read_block
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.foreign import is_foreign, words_of
from dataguard.corpus.formats.protocol import BlockPlace, Format, ReadBlock, ScanOptions
from dataguard.corpus.formats.tokens import Boundaries, KnowsDocuments
from dataguard.corpus.formats.zstd_frames import distrust, frames_of
from dataguard.corpus.problems import ProblemKind, Retry, RowProblem
from dataguard.corpus.recognition import format_named
from dataguard.corpus.shard_cache import CachedShard, ShardCache
from dataguard.corpus.shard_file import ByteCounter, StoredShard, shard_digest
from dataguard.corpus.storage import Compression, open_root
from dataguard.errors import InputError, ShardDamaged

__all__ = ["BlockProblem", "Shards"]

T = TypeVar("T")

_MOST_TIMES = 8
"""A zstd frame that decodes to more than so many times the largest block of its shard is not worth a read of its own:
the whole shard is decoded into the cache, once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockProblem:
    """Why a block cannot be delivered as the manifest has it."""

    kind: ProblemKind
    shard: str
    detail: str
    expected_digest: str | None = None
    found_digest: str | None = None
    expected_shard_digest: str | None = None
    found_shard_digest: str | None = None
    block: DecodedBlock | None = None
    """What a changed shard holds there now, where it can be decoded."""

    @property
    def num_bytes(self) -> int:
        """Bytes of memory it holds."""
        return self.block.num_bytes if self.block else 256

    def of_row(self, row: int, content: bytes | None) -> RowProblem:
        """The same problem, of one row; `content` as in `RowProblem`."""
        return RowProblem(
            kind=self.kind,
            shard=self.shard,
            row=row,
            detail=self.detail,
            expected_digest=self.expected_digest,
            found_digest=self.found_digest,
            expected_shard_digest=self.expected_shard_digest,
            found_shard_digest=self.found_shard_digest,
            content=content,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Opened:
    """One shard, ready to be read."""

    entry: Shard
    stored: StoredShard
    format: Format
    options: ScanOptions


def _check_frames(name: str, found: DecodedBlock, digest: bytes) -> None:
    if found.digest != digest:
        raise ShardDamaged(f"the zstd frames of shard {name} are not as they were said to be")


def _by_frames(opened: _Opened, read: Callable[[], T], *, most_bytes: int | None = None) -> T | None:
    """What a read of a shard of many zstd frames gives.

    None where its frames are not known, or one decodes to more than `most_bytes`, or what was known proved wrong.
    """
    frames = frames_of(opened.stored)
    if frames is None or (most_bytes is not None and frames.largest_bytes > most_bytes):
        return None
    try:
        return read()
    except BaseException as error:
        if not isinstance(error, InputError) and not is_foreign(error):
            raise
        distrust(opened.stored)  # whatever is wrong is told by whoever reads from the beginning
        return None


class Shards:
    """Shards and blocks of several corpora, numbered through. Safe for several threads and across forks."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        *,
        cache: ShardCache | None,
        retry: Retry,
        counter: ByteCounter,
        sleep: Callable[[float], None],
    ) -> None:
        self.corpora = tuple(corpora)
        self.manifests = ManifestSet([corpus.manifest for corpus in corpora])
        self.counter = counter
        self._cache = cache
        self._retry = retry
        self._sleep = sleep
        self._roots = {root: open_root(root) for corpus in corpora for root in corpus.roots.values()}
        self._opened: dict[int, _Opened] = {}
        self._digests: dict[int, str] = {}
        self._failed_until: dict[int, float] = {}
        self._hashing = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_hashing"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._hashing = threading.Lock()

    def shard_of_block(self, block: int) -> int:
        """The shard, numbered through, that holds a block, numbered through."""
        which, local = self.manifests.split_block(block)
        shard = int(self.manifests.manifests[which].blocks["shard"][local])
        return int(self.manifests.shard_starts[which]) + shard

    def blocks_of_shard(self, shard: int) -> range:
        """The blocks (half-open), numbered through, of a shard."""
        which, local = self.manifests.split_shard(shard)
        manifest = self.manifests.manifests[which]
        start = int(self.manifests.block_starts[which])
        return range(start + int(manifest.block_starts[local]), start + int(manifest.block_starts[local + 1]))

    def opened(self, shard: int) -> _Opened:
        """A shard by its number, with its file, format and options."""
        found = self._opened.get(shard)
        if found is None:
            which, local = self.manifests.split_shard(shard)
            corpus = self.corpora[which]
            entry = corpus.manifest.shards[local]
            source = corpus.manifest.sources[entry.source].name
            stored = StoredShard(
                self._roots[corpus.roots[source]],
                name=corpus.manifest.shard_name(local),
                path=entry.path,
                size_bytes=entry.size_bytes,
                compression=cast("Compression", entry.compression),
                counter=self.counter,
                format_name=entry.format,
            )
            found = _Opened(
                entry=entry, stored=stored, format=format_named(entry.format), options=corpus.options[source]
            )
            self._opened[shard] = found
        return found

    def place(self, block: int) -> BlockPlace:
        """Where a block lies in its shard."""
        manifest, row = self._row(block)
        entry = manifest.blocks[row]
        return BlockPlace(
            first_row=int(entry["first_row"]),
            num_rows=int(entry["num_rows"]),
            offset_bytes=int(entry["offset_bytes"]),
            size_bytes=int(entry["size_bytes"]),
            group=int(entry["group"]),
        )

    def digest(self, block: int) -> bytes:
        """The digest of a block by its manifest."""
        manifest, row = self._row(block)
        return bytes(manifest.blocks["digest"][row])

    def _row(self, block: int) -> tuple[Manifest, int]:
        which, local = self.manifests.split_block(block)
        return self.manifests.manifests[which], local

    def load(self, block: int) -> DecodedBlock | BlockProblem:
        """Decode one block and compare it with the manifest."""
        shard = self.shard_of_block(block)
        return self._tried(shard, lambda: self._verified(shard, block, self._decode(shard, block)))

    def walk(self, blocks: Sequence[int]) -> Iterator[DecodedBlock | BlockProblem]:
        """Blocks of one shard, given in row order, each verified; a shard without random access is decoded once.

        Storage that fails is asked again from the block that failed on; what cannot be had after that, or lies behind
        a place where a stream cannot be decoded, is answered with its problem without being tried again.

        Parameters
        ----------
        blocks
            Numbered through, ascending, all of one shard; some may be left out.
        """
        shard = self.shard_of_block(blocks[0])
        opened = self.opened(shard)
        is_near = opened.entry.compression == "none" and opened.format.random_access
        name, item_type = opened.stored.name, opened.entry.item_type
        done, pauses = 0, self._retry.pauses()
        while done < len(blocks):
            places = [self.place(block) for block in blocks[done:]]
            is_framed = False
            try:
                is_framed = frames_of(opened.stored) is not None
                every = opened.format.read_all(opened.stored, places, opened.options)
                with closing(cast("Generator[ReadBlock]", every)):
                    for place, read in zip(places, every, strict=True):
                        found = of_read_block(read, first_row=place.first_row, item_type=item_type, name=name)
                        if is_framed:
                            _check_frames(name, found, self.digest(blocks[done]))
                        yield self._verified(shard, blocks[done], found)
                        done, pauses = done + 1, self._retry.pauses()
                continue
            except InputError as error:
                if is_framed:  # whatever is wrong is told from the beginning
                    distrust(opened.stored)
                    continue
                problem, is_last = self._damaged(shard, " ".join(str(error).split())), not is_near
            except BaseException as error:
                if is_framed and is_foreign(error):
                    distrust(opened.stored)
                    continue
                if is_foreign(error):
                    problem, is_last = self._damaged(shard, f"its reader failed: {words_of(error)}"), not is_near
                elif not isinstance(error, OSError):
                    raise
                elif pauses:
                    self._sleep(pauses.pop(0))
                    continue
                else:
                    problem, is_last = self._unreadable(shard, error), True
            for _ in blocks[done:] if is_last else blocks[done : done + 1]:
                yield problem
                done += 1

    def read_fields(self, block: int) -> ReadBlock | BlockProblem:
        """A block with all other fields of its records."""
        shard = self.shard_of_block(block)
        opened = self.opened(shard)

        def read() -> ReadBlock:
            return opened.format.read(opened.stored, self.place(block), opened.options, fields=True)

        return self._tried(shard, lambda: _by_frames(opened, read) or read())

    def boundaries(self, block: int, first_row: int, stop_row: int) -> Boundaries | BlockProblem | None:
        """Which documents some tokens of a block's shard hold; None where the shard does not know its documents."""
        shard = self.shard_of_block(block)
        opened = self.opened(shard)
        known = opened.format
        if not isinstance(known, KnowsDocuments):
            return None

        def read() -> Boundaries:
            return known.boundaries(opened.stored, first_row, stop_row, opened.options)

        return self._tried(shard, lambda: _by_frames(opened, read) or read())

    def digest_now(self, shard: int) -> str | None:
        """xxh3-128 of a shard's bytes as they are now, taken once; None where they cannot be read."""
        with self._hashing:
            if shard not in self._digests:
                try:
                    self._digests[shard] = shard_digest(self.opened(shard).stored)[0]
                except OSError:
                    return None
            return self._digests[shard]

    def _decode(self, shard: int, block: int) -> DecodedBlock:
        opened, place = self.opened(shard), self.place(block)

        def read() -> DecodedBlock:
            found = opened.format.read(opened.stored, place, opened.options)
            return of_read_block(
                found, first_row=place.first_row, item_type=opened.entry.item_type, name=opened.stored.name
            )

        blocks = self.blocks_of_shard(shard)
        is_near = opened.entry.compression == "none" and opened.format.random_access
        if opened.entry.compression == "zstd":
            worth = None if self._cache is None else _MOST_TIMES * self._largest_block(shard, blocks)
            near = _by_frames(opened, read, most_bytes=worth)
            if near is not None and near.digest == self.digest(block):
                return near
            if near is not None:
                distrust(opened.stored)
        if self._cache is not None and not is_near and len(blocks) > 1:
            kept = self._cache.read(self._cached(shard, blocks), block - blocks.start, first_row=place.first_row)
            if kept is not None:
                return kept
        return read()

    def _largest_block(self, shard: int, blocks: range) -> int:
        which, _ = self.manifests.split_shard(shard)
        start = int(self.manifests.block_starts[which])
        entries = self.manifests.manifests[which].blocks[blocks.start - start : blocks.stop - start]
        return int(entries["size_bytes"].max())

    def _cached(self, shard: int, blocks: range) -> CachedShard:
        opened = self.opened(shard)
        return CachedShard(
            stored=opened.stored,
            shard_digest=opened.entry.digest,
            format=opened.entry.format,
            item_type=opened.entry.item_type,
            block_digests=[self.digest(block) for block in blocks],
            decode=lambda: opened.format.read_all(
                opened.stored, [self.place(block) for block in blocks], opened.options
            ),
        )

    def _verified(self, shard: int, block: int, found: DecodedBlock) -> DecodedBlock | BlockProblem:
        expected = self.digest(block)
        if found.digest == expected or self.place(block).num_rows == 0:
            return found
        opened = self.opened(shard)
        now = self.digest_now(shard)
        return BlockProblem(
            kind="changed",
            shard=opened.stored.name,
            detail=f"its block {block - self.blocks_of_shard(shard).start} holds {found.digest.hex()}, "
            f"expected {expected.hex()}; the shard's digest is {now}, expected {opened.entry.digest}",
            expected_digest=expected.hex(),
            found_digest=found.digest.hex(),
            expected_shard_digest=opened.entry.digest,
            found_shard_digest=now,
            block=found,
        )

    def _tried(self, shard: int, read: Callable[[], T]) -> T | BlockProblem:
        failing = time.monotonic() < self._failed_until.get(shard, 0.0)
        pauses = [] if failing else self._retry.pauses()
        while True:
            try:
                result = read()
            except InputError as error:
                return self._damaged(shard, " ".join(str(error).split()))
            except BaseException as error:
                if is_foreign(error):
                    return self._damaged(shard, f"its reader failed: {words_of(error)}")
                if not isinstance(error, OSError):
                    raise
                if pauses:
                    self._sleep(pauses.pop(0))
                    continue
                self._failed_until[shard] = time.monotonic() + self._retry.pause_seconds
                return self._unreadable(shard, error)
            self._failed_until.pop(shard, None)
            return result

    def _unreadable(self, shard: int, error: OSError) -> BlockProblem:
        opened = self.opened(shard)
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        return BlockProblem(
            kind="missing" if is_missing else "unreadable",
            shard=opened.stored.name,
            detail=f"{error.strerror or str(error) or type(error).__name__} ({error.filename or opened.stored.where})",
            expected_shard_digest=opened.entry.digest,
        )

    def _damaged(self, shard: int, why: str) -> BlockProblem:
        """Other bytes than the manifest's are a changed shard; the same bytes that cannot be decoded, a damaged one."""
        opened = self.opened(shard)
        now = self.digest_now(shard)
        if now == opened.entry.digest:
            return BlockProblem(
                kind="damaged", shard=opened.stored.name, detail=why, expected_shard_digest=now, found_shard_digest=now
            )
        return BlockProblem(
            kind="changed",
            shard=opened.stored.name,
            detail=f"{why}; the shard's digest is {now}, expected {opened.entry.digest}",
            expected_shard_digest=opened.entry.digest,
            found_shard_digest=now,
        )
