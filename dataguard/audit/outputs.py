"""What are the files of an audit made of, and how are they written while the records go by?

Each is Parquet, zstd, with page checksums, written through the writer it is given: whoever opens the file gives it its
name once it is whole (run/atomic.py). Bytes depend on the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dataguard.audit.duplicates import Piece
from dataguard.audit.parquet import parquet_writer
from dataguard.audit.parts import columns_of
from dataguard.audit.reading import Run
from dataguard.core.manifest import Manifest, SourceKind
from dataguard.gate.judged import Judged
from dataguard.gate.rules import Policy
from dataguard.gate.verdict import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WITHHOLD_KEY", "Names", "SignalTables", "WithholdWriter", "write_duplicates", "write_tables"]

WITHHOLD_KEY = b"dataguard.withhold"
"""The schema's metadata of a list that an audit wrote: its version."""

GroupOf = Callable[[int], str]


class Names:
    """What numbers are called: sources, shards, verdicts, rules."""

    def __init__(self, manifest: Manifest, policy: Policy) -> None:
        self.sources = [source.name for source in manifest.sources]
        self.shards = [manifest.shard_name(i) for i in range(len(manifest.shards))]
        self.verdicts = [verdict.name.lower() for verdict in Verdict]
        self.rules = [rule.name for rule in policy.rules]
        self._sets: dict[int, tuple[str, ...]] = {}

    def fired(self, rules: int) -> tuple[str, ...]:
        """The rules of rule bits."""
        known = self._sets.get(rules)
        if known is None:
            known = tuple(name for bit, name in enumerate(self.rules) if rules >> bit & 1)
            if len(self._sets) < 1 << 16:
                self._sets[rules] = known
        return known


class SignalTables:
    """Makes the rows of ``signals/*.parquet``: a row a scored sample, with all its signals, verdict and rules."""

    def __init__(self, names: Names, signals: Mapping[SourceKind, Sequence[str]]) -> None:
        import pyarrow as pa

        word = pa.dictionary(pa.int32(), pa.string())
        fixed = [
            ("source", word),
            ("shard", word),
            ("row", pa.int64()),
            ("digest", pa.binary(16)),
            ("content_bytes", pa.int64()),
            ("verdict", word),
            ("rules", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ]
        every = [name for kind in signals for name in signals[kind]]
        self.schema = pa.schema([*fixed, *columns_of(every)])
        self._names = names
        self._num_fixed = len(fixed)

    def of(self, run: Run, judged: Judged) -> pa.Table:
        """The rows of some judged samples."""
        import pyarrow as pa

        names = self._names
        columns: list[Any] = [
            _words(run.source, names.sources),
            _words(run.shard, names.shards),
            pa.array(run.row),
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(run), [None, pa.py_buffer(run.digests.tobytes())]),
            pa.array(run.content_bytes),
            _words(judged.verdict, names.verdicts),
            pa.array([names.fired(bits) for bits in judged.rules.tolist()], self.schema.field("rules").type),
        ]
        for field in list(self.schema)[self._num_fixed :]:
            values = judged.signals.get(field.name, run.signals.get(field.name))
            columns.append(pa.nulls(len(run), field.type) if values is None else pa.array(values, field.type))
        return pa.Table.from_arrays(columns, schema=self.schema)


class WithholdWriter:
    """Writes ``withhold.parquet``, in the form that ``--withhold`` reads, with the reasons beside it.

    Rows stand in the order of the corpus, whole shards (whose row is null) behind them. Rows of token shards are
    windows of `seq_len` tokens; the short last one of a shard is in no plan, and so not in here.
    """

    def __init__(self, names: Names, manifest: Manifest, policy: Policy, *, seq_len: int) -> None:
        import pyarrow as pa

        self.num_rows = 0
        self.num_shards = 0
        self._names = names
        self._withheld = np.array([verdict in policy.withhold for verdict in Verdict], dtype=bool)
        self._windows = np.array([shard.num_rows // seq_len for shard in manifest.shards], np.int64)
        has_tokens = any(source.kind == "tokens" for source in manifest.sources)
        schema = pa.schema(
            [
                pa.field("shard", pa.string(), nullable=False),
                pa.field("row", pa.int64()),
                pa.field("verdict", pa.string(), nullable=False),
                pa.field("rules", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
            ],
            metadata={WITHHOLD_KEY: b"1", **({b"seq_len": str(seq_len).encode()} if has_tokens else {})},
        )
        self._schema = schema
        self._writer: Any = None

    @contextmanager
    def into(self, sink: BinaryIO) -> Iterator[None]:
        """Write to an open file while the block goes on."""
        with parquet_writer(sink, self._schema) as self._writer:
            yield

    def add(self, run: Run, judged: Judged) -> None:
        """Those of some judged samples that are withheld."""
        which = self._withheld[judged.verdict]
        if run.kind == "tokens":
            which = which & (run.row < self._windows[run.shard])
        chosen = np.flatnonzero(which)
        if len(chosen):
            names = self._names
            self._write(
                [names.shards[shard] for shard in run.shard[chosen].tolist()],
                run.row[chosen].tolist(),
                [names.verdicts[verdict] for verdict in judged.verdict[chosen].tolist()],
                [names.fired(bits) for bits in judged.rules[chosen].tolist()],
            )
            self.num_rows += len(chosen)

    def finish(self, proposed: Mapping[int, Sequence[str]]) -> None:
        """Whole shards, with the rules that propose to withhold them."""
        if proposed:
            shards = sorted(proposed)
            names = [self._names.shards[shard] for shard in shards]
            none: list[int | None] = [None] * len(shards)
            self._write(names, none, ["quarantine"] * len(shards), [tuple(proposed[shard]) for shard in shards])
        self.num_rows += len(proposed)
        self.num_shards = len(proposed)

    def _write(
        self, shards: list[str], rows: Sequence[int | None], verdicts: list[str], rules: Sequence[Sequence[str]]
    ) -> None:
        import pyarrow as pa

        pairs = zip((shards, rows, verdicts, rules), self._schema, strict=True)
        columns = [pa.array(values, field.type) for values, field in pairs]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))


def write_tables(sink: BinaryIO, schema: pa.Schema, tables: Iterator[pa.Table], *, most_rows: int) -> int:
    """Write tables as row groups, until there are no more or so many rows are written; the number of rows."""
    num_rows = 0
    with parquet_writer(sink, schema) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(len(table), 1))
            num_rows += len(table)
            if num_rows >= most_rows:
                break
    return num_rows


def write_duplicates(sink: BinaryIO, pieces: Iterable[Piece], names: Names) -> None:
    """Write ``duplicates.parquet``: a row for every copy, with the place of the record it is a copy of."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            ("digest", pa.binary(16)),
            ("shard", word),
            ("row", pa.int64()),
            ("first_shard", word),
            ("first_row", pa.int64()),
            ("content_bytes", pa.int64()),
        ]
    )
    with parquet_writer(sink, schema) as writer:
        for piece in pieces:
            copies = np.flatnonzero(piece.is_copy)
            if not len(copies):
                continue
            entries, first = piece.entries[copies], piece.first[copies]
            digests = np.stack([entries["high"], entries["low"]], axis=1).astype(">u8").tobytes()
            columns = [
                pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(copies), [None, pa.py_buffer(digests)]),
                _words(entries["shard"], names.shards),
                pa.array(np.ascontiguousarray(entries["row"])),
                _words(first["shard"], names.shards),
                pa.array(np.ascontiguousarray(first["row"])),
                pa.array(np.ascontiguousarray(entries["content_bytes"])),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=1 << 20)


def _words(numbers: Any, words: Sequence[str]) -> pa.DictionaryArray:
    """Names of numbers, with a dictionary of those alone that occur."""
    import pyarrow as pa

    present, places = np.unique(np.asarray(numbers, np.int64), return_inverse=True)
    return pa.DictionaryArray.from_arrays(places.astype(np.int32), pa.array([words[i] for i in present], pa.string()))
