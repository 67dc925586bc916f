"""How is a small Parquet file (a list, an account) read whole?

In the thread that asks: `pyarrow.parquet.read_table` goes through pools of threads that belong to pyarrow, and a short
command that ends while one of them is still at work has been seen to abort after its answer was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_whole"]


def read_whole(source: Any, *, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a Parquet file, its page checksums verified.

    Parameters
    ----------
    source
        A path or a file object.
    columns
        The columns that are wanted, all of them where None.

    Raises
    ------
    KeyError
        A wanted column is not there.
    OSError, pyarrow.ArrowException
        The file is damaged.

    Examples
    --------
    >>> import io, pyarrow as pa, pyarrow.parquet as pq
    >>> pq.write_table(pa.table({"shard": ["a"], "row": [1]}), file := io.BytesIO())
    >>> read_whole(file, columns=["row"]).to_pylist()
    [{'row': 1}]
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False) as file:
        wanted = None if columns is None else list(columns)
        for name in wanted or ():
            if name not in file.schema_arrow.names:
                raise KeyError(name)
        return file.read(columns=wanted, use_threads=False)
