"""How is a shard of MosaicML Streaming (MDS) read, as records of text or as a run of ids?

One kind of file, two formats: `MdsText` (``mds``) takes a column of strings, bytes or JSON strings, a record a sample;
`MdsTokens` (``mds-tokens``) the ids of a column of arrays, samples one after the other as one run, each of them a
document (`MdsTokens.boundaries`). Which of them a file is, its columns decide: it is text where the text field is one
of them, else ids where a column holds some (mds_samples.py).

A shard says everything about itself (mds_layout.py). What the ``index.json`` of its dataset says of it is compared with
that: where they differ the shard is flagged, for one of them is stale; where a hash differs it is excluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataguard.corpus.formats.content import text_digest
from dataguard.corpus.formats.lines import ByteRanges
from dataguard.corpus.formats.mds_declared import check_declared
from dataguard.corpus.formats.mds_documents import boundaries_among, sample_starts
from dataguard.corpus.formats.mds_layout import Column, Layout, begins_as_mds, read_layout
from dataguard.corpus.formats.mds_samples import (
    id_column,
    ids_of,
    others_of,
    texts_of,
    token_column,
    wrong_text_column,
)
from dataguard.corpus.formats.protocol import (
    BlockPlace,
    Finding,
    ReadBlock,
    ScanEnd,
    ScannedBlock,
    ScanOptions,
    ShardFile,
)
from dataguard.corpus.formats.streams import DecodedStream
from dataguard.corpus.formats.tokens import Boundaries, FileRanges, Ranges, token_digest
from dataguard.corpus.formats.zstd_file import ranges_of
from dataguard.errors import ShardDamaged

__all__ = ["MdsText", "MdsTokens"]


class _Mds:
    """What both formats share."""

    random_access: bool = True

    def recognise(self, head: bytes, path: str) -> int:
        """3 where the head is an MDS shard's, 1 where only the name says so, else 0."""
        name = path.lower()
        for ending in (".gz", ".zst", ".zstd"):
            name = name.removesuffix(ending)
        return begins_as_mds(head) or int(name.endswith(".mds"))

    def variant(self, shard: ShardFile, options: ScanOptions) -> str:
        """Which of the two formats a file is, by its columns."""
        with _opened(shard, options) as (ranges, _):
            layout = read_layout(ranges, _known_size(shard))
        if isinstance(layout, Finding):
            return "mds"
        place = layout.place_of(options.text_field)
        is_text = place is not None and layout.columns[place].holds_text and not options.token_field
        return "mds" if is_text or token_column(layout, options) is None else "mds-tokens"

    def read(self, shard: ShardFile, place: BlockPlace, options: ScanOptions, *, fields: bool = False) -> ReadBlock:
        """The rows of one block. ShardDamaged where they cannot be read any more."""
        return next(self.read_all(shard, [place], options, fields=fields))

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """These blocks, given in row order, decoding the shard once at most."""
        raise NotImplementedError


class MdsText(_Mds):
    """MDS shards with a column of text: `Format` of text, some samples a block."""

    name: str = "mds"
    kind: Literal["text", "tokens"] = "text"

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        with _opened(shard, options) as (ranges, stream):
            layout = read_layout(ranges, _known_size(shard))
            wrong = layout if isinstance(layout, Finding) else wrong_text_column(layout, options)
            if isinstance(layout, Finding) or wrong is not None:
                assert wrong is not None
                yield ScanEnd(findings=(*stream.findings, wrong))
                return
            for first, stop in _cuts(layout.offsets, options.block_bytes):
                start, size = int(layout.offsets[first]), int(layout.offsets[stop] - layout.offsets[first])
                held = _take(ranges, layout, first, stop, options)
                if held is None and size <= options.max_record_bytes:
                    yield ScanEnd(findings=(*stream.findings, _too_short(shard, layout, ranges)))
                    return
                text, rejected = texts_of(held, layout, first, stop, options)
                content_bytes, digest = text_digest(text)
                yield ScannedBlock(
                    place=BlockPlace(first_row=first, num_rows=stop - first, offset_bytes=start, size_bytes=size),
                    content_bytes=content_bytes,
                    digest=digest,
                    rejected=rejected,
                )
            yield _end(shard, layout, ranges, stream, options)

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """See `Format`."""
        with _opened(shard, options, at_random=True) as (ranges, _):
            layout = read_layout(ranges, _known_size(shard))
            wrong = layout if isinstance(layout, Finding) else wrong_text_column(layout, options)
            if isinstance(layout, Finding) or wrong is not None:
                assert wrong is not None
                raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=wrong.detail)
            for place in places:
                if not place.num_rows:
                    yield ReadBlock(text=pa.array([], pa.large_binary()), fields=pa.table({}) if fields else None)
                    continue
                first, stop = _samples_of(shard, layout, place, num_samples=place.num_rows)
                held = _take(ranges, layout, first, stop, options)
                if held is None and place.size_bytes <= options.max_record_bytes:
                    raise _ends_early(shard, place)
                text, _ = texts_of(held, layout, first, stop, options)
                others = others_of(held, layout, first, stop, options.text_field) if fields else None
                yield ReadBlock(text=text, fields=others)


class MdsTokens(_Mds):
    """MDS shards with a column of ids: `Format` of tokens whose documents are known, some samples a block."""

    name: str = "mds-tokens"
    kind: Literal["text", "tokens"] = "tokens"

    def scan(self, shard: ShardFile, options: ScanOptions) -> Iterator[ScannedBlock | ScanEnd]:
        """Blocks in row order, then exactly one ScanEnd."""
        with _opened(shard, options) as (ranges, stream):
            layout = read_layout(ranges, _known_size(shard))
            column = layout if isinstance(layout, Finding) else id_column(layout, options)
            if isinstance(layout, Finding) or isinstance(column, Finding):
                assert isinstance(column, Finding)
                yield ScanEnd(findings=(*stream.findings, column))
                return
            dtype = column.id_type(options.dtype)
            assert dtype is not None
            row = num_waiting = 0
            for first, stop in _cuts(layout.offsets, options.block_tokens * dtype.itemsize):
                held = _take(ranges, layout, first, stop, None)
                if held is None:
                    yield ScanEnd(findings=(*stream.findings, _too_short(shard, layout, ranges)), item_type=dtype.str)
                    return
                ids = ids_of(held, layout, first, stop, column, dtype)
                if isinstance(ids, Finding):
                    yield ScanEnd(findings=(*stream.findings, ids), item_type=dtype.str)
                    return
                num_waiting += stop - first
                tokens = ids[0]
                if not len(tokens):
                    continue  # samples without an id: they count with the next block
                start = int(layout.offsets[first])
                yield ScannedBlock(
                    place=BlockPlace(
                        first_row=row,
                        num_rows=len(tokens),
                        offset_bytes=start,
                        size_bytes=int(layout.offsets[stop]) - start,
                        group=num_waiting,
                    ),
                    content_bytes=tokens.nbytes,
                    digest=token_digest(tokens),
                )
                row, num_waiting = row + len(tokens), 0
            yield _end(shard, layout, ranges, stream, options, item_type=dtype.str)

    def read_all(
        self, shard: ShardFile, places: Sequence[BlockPlace], options: ScanOptions, *, fields: bool = False
    ) -> Iterator[ReadBlock]:
        """See `Format`."""
        with _opened(shard, options, at_random=True) as (ranges, _):
            layout, column, dtype = _readable(shard, ranges, options)
            for place in places:
                tokens = np.zeros(0, dtype)
                if place.num_rows:
                    tokens, _ = _ids_of_place(shard, ranges, layout, place, column, dtype)
                yield ReadBlock(
                    tokens=tokens.astype(dtype.newbyteorder("="), copy=False), fields=pa.table({}) if fields else None
                )

    def boundaries(self, shard: ShardFile, first_row: int, stop_row: int, options: ScanOptions) -> Boundaries:
        """The samples of the tokens ``first_row:stop_row``. Goes through the shard the first time, and keeps that."""

        def count() -> NDArray[np.int64]:
            with _opened(shard, options, at_random=True) as (ranges, _):
                layout, column, dtype = _readable(shard, ranges, options)
                counts = [np.zeros(0, np.int64)]
                for first, stop in _cuts(layout.offsets, options.block_tokens * dtype.itemsize):
                    held = _take(ranges, layout, first, stop, None)
                    ids = (
                        Finding(code="bad-mds", detail="it ends early")
                        if held is None
                        else ids_of(held, layout, first, stop, column, dtype)
                    )
                    if isinstance(ids, Finding):
                        raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=ids.detail)
                    counts.append(ids[1])
            return np.concatenate(counts)

        return boundaries_among(sample_starts(shard, (options.token_field, options.dtype), count), first_row, stop_row)


@contextmanager
def _opened(
    shard: ShardFile, options: ScanOptions, *, at_random: bool = False
) -> Iterator[tuple[ByteRanges | FileRanges, DecodedStream]]:
    """The decoded bytes of a shard, as ranges and as the stream that knows how it ended."""
    with shard.open() as file:
        stream = DecodedStream.of(shard, file, options)
        yield (ranges_of(shard, file, options) if at_random else ByteRanges(stream)), stream


def _known_size(shard: ShardFile) -> int | None:
    return shard.size_bytes if shard.compression == "none" else None


def _cuts(offsets: NDArray[np.int64], block_bytes: int) -> Iterator[tuple[int, int]]:
    """Samples ``first:stop`` of each block: one that reaches `block_bytes`, or one larger sample by itself."""
    first, num_samples = 0, len(offsets) - 1
    while first < num_samples:
        stop = int(np.searchsorted(offsets, offsets[first] + block_bytes))
        stop = min(max(stop, first + 1), num_samples)
        if stop - first > 1 and offsets[stop] - offsets[stop - 1] > block_bytes:
            stop -= 1
        yield first, stop
        first = stop


def _samples_of(
    shard: ShardFile, layout: Layout, place: BlockPlace, *, num_samples: int | None = None
) -> tuple[int, int]:
    """Which samples a block holds; ShardDamaged where the shard has other samples now."""
    ends = [place.offset_bytes, place.offset_bytes + place.size_bytes]
    if num_samples is None:  # of tokens: by their bytes
        first, stop = np.searchsorted(layout.offsets, ends).tolist()
    else:
        first, stop = place.first_row, place.first_row + num_samples
    if stop > layout.num_samples or layout.offsets[[first, stop]].tolist() != ends:
        raise ShardDamaged(
            f"shard {shard.name} has other samples than when it was scanned",
            allowed=f"samples from byte {ends[0]:,} to {ends[1]:,}",
            todo="see whether the file was changed: dataguard manifest verify",
        )
    return first, stop


def _take(
    ranges: Ranges, layout: Layout, first: int, stop: int, options: ScanOptions | None
) -> bytes | bytearray | None:
    """The bytes of samples; None where they are not all there, or are one record over the limit."""
    start, size = int(layout.offsets[first]), int(layout.offsets[stop] - layout.offsets[first])
    if options is not None and stop - first == 1 and size > options.max_record_bytes:
        return None
    content = ranges.take(start, size) if size else b""
    return content if len(content) == size else None


def _too_short(shard: ShardFile, layout: Layout, ranges: ByteRanges | FileRanges) -> Finding:
    found = shard.size_bytes if shard.compression == "none" else layout.end_bytes - 1
    if isinstance(ranges, ByteRanges) and shard.compression != "none":
        found = ranges.drain(0)
    promised = f"{layout.num_samples:,} samples make {layout.end_bytes:,} bytes"
    return Finding(code="too-short", detail=f"{promised}, found {found:,}", offset_bytes=found)


def _ends_early(shard: ShardFile, place: BlockPlace) -> ShardDamaged:
    return ShardDamaged(
        f"shard {shard.name} ends early", allowed=f"{place.offset_bytes + place.size_bytes:,} decoded bytes"
    )


def _end(
    shard: ShardFile,
    layout: Layout,
    ranges: ByteRanges | FileRanges,
    stream: DecodedStream,
    options: ScanOptions,
    *,
    item_type: str = "",
) -> ScanEnd:
    """What is left to say when every sample was read."""
    assert isinstance(ranges, ByteRanges)
    rest = ranges.drain(layout.end_bytes)
    findings = list(stream.findings)
    if rest:
        detail = f"trailing bytes after the last sample ({rest:,} bytes): {layout.end_bytes:,} bytes are expected"
        findings.append(Finding(code="trailing-bytes", detail=detail, offset_bytes=layout.end_bytes))
    findings += check_declared(shard, layout, layout.end_bytes + rest, options)
    num_documents = layout.num_samples if item_type else None
    return ScanEnd(
        findings=tuple(findings), item_type=item_type, num_documents=num_documents, num_sequences=num_documents
    )


def _readable(shard: ShardFile, ranges: Ranges, options: ScanOptions) -> tuple[Layout, Column, np.dtype[Any]]:
    layout = read_layout(ranges, _known_size(shard))
    column = layout if isinstance(layout, Finding) else id_column(layout, options)
    if isinstance(layout, Finding) or isinstance(column, Finding):
        assert isinstance(column, Finding)
        raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=column.detail)
    dtype = column.id_type(options.dtype)
    assert dtype is not None
    return layout, column, dtype


def _ids_of_place(
    shard: ShardFile, ranges: Ranges, layout: Layout, place: BlockPlace, column: Column, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    first, stop = _samples_of(shard, layout, place)
    held = _take(ranges, layout, first, stop, None)
    if held is None:
        raise _ends_early(shard, place)
    ids = ids_of(held, layout, first, stop, column, dtype)
    if isinstance(ids, Finding):
        raise ShardDamaged(f"shard {shard.name} cannot be read any more", found=ids.detail)
    return ids
