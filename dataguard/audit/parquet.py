"""How is Parquet written to an open file so that a failure is told once, as what it is?

A writer of the library that was not closed closes itself when it is collected, and writes into a file that is full or
gone: a second failure, told at some odd time. Here whatever fails ends the writer at once, and nothing is written after
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["parquet_writer"]


@contextmanager
def parquet_writer(sink: BinaryIO, schema: pa.Schema, **options: Any) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetWriter` with zstd and page checksums, closed when the block ends well.

    Raises
    ------
    OSError
        As `sink` raises it.
    """
    import pyarrow.parquet as pq

    guarded = _Guarded(sink)
    settings: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True, **options}
    writer = pq.ParquetWriter(guarded, schema, **settings)
    try:
        yield writer
        writer.close()
    except BaseException:
        guarded.given_up = True
        with suppress(Exception):
            writer.close()
        raise


class _Guarded:
    """A file that takes no more once it is given up, and says nothing of it."""

    closed = False

    def __init__(self, sink: BinaryIO) -> None:
        self.given_up = False
        self._sink = sink
        self._position = 0

    def write(self, content: Any) -> int:
        size = len(memoryview(content).cast("B"))
        if not self.given_up:
            self._sink.write(content)
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        if not self.given_up:
            self._sink.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The file is its owner's to close."""
