"""What else stands in a record, beside its text?

A reader decodes the text alone. The other fields are read a block at a time, when somebody asks for those of one of its
records, and blocks are kept within a bound, since whoever asks once will ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataguard.corpus.block_cache import BlockCache
from dataguard.corpus.problems import RowProblem
from dataguard.corpus.reader import RowReader
from dataguard.corpus.shards import BlockProblem

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FieldReader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """The other fields of the records of a block."""

    first_row: int
    table: pa.Table | None

    @property
    def num_bytes(self) -> int:
        """Bytes of memory it holds."""
        return 64 if self.table is None else int(self.table.nbytes)


class FieldReader:
    """Reads other fields of records; safe for several threads, and across forks.

    Parameters
    ----------
    reader
        Of the same rows.
    cache_bytes
        Memory for blocks of fields.
    """

    def __init__(self, reader: RowReader, *, cache_bytes: int = 128 << 20) -> None:
        self._shards = reader._shards
        self._cache: BlockCache[_Block | BlockProblem] = BlockCache(cache_bytes)

    def read(self, block: int, row: int) -> Mapping[str, Any] | RowProblem:
        """The other fields of one record, by name; none where its shard has none.

        Parameters
        ----------
        block, row
            As `RowReader.read` takes them, of a row that it has read.
        """
        found = self._cache.get(block, lambda: self._read(block))
        if isinstance(found, BlockProblem):
            return found.of_row(row, None)
        if found.table is None or not 0 <= row - found.first_row < found.table.num_rows:
            return {}
        fields: Mapping[str, Any] = found.table.slice(row - found.first_row, 1).to_pylist()[0]
        return fields

    def _read(self, block: int) -> _Block | BlockProblem:
        read = self._shards.read_fields(block)
        if isinstance(read, BlockProblem):
            return read
        return _Block(first_row=self._shards.place(block).first_row, table=read.fields)
