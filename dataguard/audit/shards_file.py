"""What does ``shards.parquet`` say? The account of every shard: its records, its verdicts, and each rule that fired."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dataguard.audit.outputs import Names
from dataguard.audit.parquet import parquet_writer
from dataguard.audit.tally import Tally
from dataguard.core.manifest import Manifest

__all__ = ["write_shards"]


def write_shards(
    sink: BinaryIO,
    manifest: Manifest,
    names: Names,
    tally: Tally,
    num_samples: NDArray[np.int64],
    num_rejected: NDArray[np.int64],
    num_unreadable: NDArray[np.int64],
) -> None:
    """Write it, a row a shard in the order of the manifest; ``records = scored + rejected + unreadable``.

    Parameters
    ----------
    sink
        An open file.
    manifest, names, tally
        The shards, what they are called, and what was counted of them.
    num_samples, num_rejected, num_unreadable
        By shard.
    """
    import pyarrow as pa

    rule = pa.struct([("rule", pa.string()), ("evaluated", pa.int64()), ("fired", pa.int64())])
    fields: list[tuple[str, Any]] = [
        ("source", pa.string()),
        ("shard", pa.string()),
        ("effect", pa.string()),
        *((name, pa.int64()) for name in ("records", "scored", "rejected", "unreadable", *names.verdicts)),
        ("rules", pa.list_(rule)),
    ]
    schema = pa.schema(fields)
    with parquet_writer(sink, schema) as writer:
        for start in range(0, len(manifest.shards), 1 << 12):
            span = range(start, min(start + (1 << 12), len(manifest.shards)))
            some = slice(span.start, span.stop)
            rules = [
                [
                    {
                        "rule": names.rules[bit],
                        "evaluated": int(tally.evaluated[i, bit]),
                        "fired": int(tally.fired[i, bit]),
                    }
                    for bit in np.flatnonzero(tally.fired[i]).tolist()
                ]
                for i in span
            ]
            columns = [
                pa.array([manifest.sources[manifest.shards[i].source].name for i in span], pa.string()),
                pa.array([names.shards[i] for i in span], pa.string()),
                pa.array([manifest.shards[i].effect for i in span], pa.string()),
                *(pa.array(counts[some]) for counts in (num_samples, tally.scored, num_rejected, num_unreadable)),
                *(pa.array(np.ascontiguousarray(tally.verdicts[some, v])) for v in range(len(names.verdicts))),
                pa.array(rules, schema.field("rules").type),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
