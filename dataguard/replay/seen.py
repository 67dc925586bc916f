"""What was a checkpoint of step N trained on: epochs, samples, tokens by source and shard; the rows?

Counted from the index along one lineage, step by step of the attempts that own them, up to step N and without it. What
was withheld is counted apart, padding not at all; a substitute counts as what was delivered, not as what was planned.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dataguard.errors import NotInRun
from dataguard.plan.slots import PADDING, SlotStatus
from dataguard.replay.answers import SeenAnswer, SeenShard, SeenSource
from dataguard.replay.lookup import Lookup
from dataguard.run.atomic import publish

if TYPE_CHECKING:
    import polars as pl

    from dataguard.run.run import Run

__all__ = ["seen_before", "write_rows"]

_COLUMNS = ("step", "position", "source", "shard", "row", "status", "delivered_shard", "delivered_row", "length")


def seen_before(lookup: Lookup, label: int, *, attempt: int | None = None) -> tuple[SeenAnswer, pl.DataFrame]:
    """What steps before `label` (in the trainer's labels) delivered, along a lineage.

    Returns
    -------
    SeenAnswer
        Counts by source and by shard.
    polars.DataFrame
        One row a delivered sample: step (in labels), position, source, shard, row, length. Ordered by step and
        position, so that the same record gives the same file.

    Raises
    ------
    NotInRun
        The lineage has not come that far.
    """
    import polars as pl

    run = lookup.run
    stop = run.step(label)
    chain = lookup.chain(attempt)
    leaf = chain[-1]
    reached = lookup.complete[leaf.number]
    if stop > max(reached, leaf.fork_step):
        raise NotInRun(
            f"no checkpoint of step {label:,} can exist on the lineage of attempt {leaf.number}",
            found=f"it has come to step {run.label(reached):,}",
            todo="ask for a step up to there, or for another lineage with --attempt",
        )
    frames = []
    for i, each in enumerate(chain):
        upper = min(stop, chain[i + 1].fork_step) if i + 1 < len(chain) else stop
        if each.fork_step < upper:
            frames.append(_named(lookup, each.number, each.fork_step, upper))
    everything = pl.concat(frames) if frames else _empty()
    rows = everything.filter(pl.col("delivered"))
    sources = _sources(lookup, everything, leaf.number, stop)
    shards = rows.group_by("shard").agg(
        pl.len().alias("num_samples"), pl.col("length").sum(), pl.col("row").n_unique().alias("num_distinct")
    )
    answer = SeenAnswer(
        step=label,
        attempt=leaf.number,
        lineage=tuple(each.number for each in chain),
        num_samples=rows.height,
        num_withheld=everything.height - rows.height,
        length=int(rows["length"].sum()),
        unit="bytes" if run.plan.root.form == "document" else "tokens",
        sources=sources,
        shards=tuple(SeenShard(**row) for row in shards.sort("shard").iter_rows(named=True)),
        notes=(*run.problems(), *_uncounted(run)),
    )
    ordered = rows.select("step", "position", "source", "shard", "row", "length").sort(
        "step", "position", "shard", "row"
    )
    return answer, ordered.with_columns(pl.col("step") + run.first_label)


def _uncounted(run: Run) -> tuple[str, ...]:
    """What is said where a run knows no epochs."""
    if run.plan_document().root.form != "given":
        return ()
    return ("epochs are not told: the order of this run is given from outside, and whoever gives it counts them",)


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write the rows as Parquet, whole or not at all."""
    import pyarrow.parquet as pq

    table = rows.to_arrow().replace_schema_metadata({"dataguard.seen": "1"})

    def write(stream: object) -> None:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)

    publish(path, write, tmp=path.parent)


def _named(lookup: Lookup, attempt: int, first: int, stop: int) -> pl.DataFrame:
    """The records of some steps, with names, and with what was delivered instead of what was planned."""
    import polars as pl

    run = lookup.run
    stream = run.stream_of(attempt)
    manifests = stream.manifest_set
    num_ranks = lookup.tree.attempt(attempt).geometry.world_size
    tables = lookup.index.tables(attempt, columns=_COLUMNS, num_ranks=num_ranks)
    names = [manifests.shard_name(shard) for shard in range(manifests.num_shards)]
    shard_names = pl.DataFrame(
        {"number": range(len(names)), "shard_name": names}, schema={"number": pl.Int64, "shard_name": pl.String}
    )
    source_names = pl.DataFrame(
        {"source_number": range(len(stream.source_names)), "source_name": stream.source_names},
        schema={"source_number": pl.Int64, "source_name": pl.String},
    )
    delivered = [int(status) for status in (SlotStatus.LIVE, SlotStatus.SUBSTITUTED)]
    padding = [int(status) for status in PADDING]
    parts = []
    for table in tables:
        frame = pl.DataFrame(pl.from_arrow(table))
        parts.append(
            frame.lazy()
            .filter(pl.col("step").is_between(first, stop, closed="left"))
            .filter(~pl.col("status").cast(pl.Int64).is_in(padding))
            .with_columns(
                pl.coalesce(pl.col("delivered_shard").cast(pl.Int64), pl.col("shard").cast(pl.Int64)).alias("number"),
                pl.coalesce(pl.col("delivered_row").cast(pl.Int64), pl.col("row").cast(pl.Int64)).alias("row"),
                pl.col("source").cast(pl.Int64).alias("source_number"),
                pl.col("status").cast(pl.Int64).is_in(delivered).alias("delivered"),
            )
            .join(shard_names.lazy(), on="number", how="left")
            .join(source_names.lazy(), on="source_number", how="left")
            .select(
                pl.col("step").cast(pl.Int64),
                pl.col("position").cast(pl.Int64),
                pl.col("source_name").alias("source"),
                pl.col("shard_name").alias("shard"),
                "row",
                pl.col("length").cast(pl.Int64),
                "delivered",
            )
            .collect()
        )
    return pl.concat(parts) if parts else _empty()


def _empty() -> pl.DataFrame:
    import polars as pl

    integers = dict.fromkeys(("step", "position"), pl.Int64)
    return pl.DataFrame(
        schema={
            **integers,
            "source": pl.String,
            "shard": pl.String,
            "row": pl.Int64,
            "length": pl.Int64,
            "delivered": pl.Boolean,
        }
    )


def _sources(lookup: Lookup, everything: pl.DataFrame, leaf: int, stop: int) -> tuple[SeenSource, ...]:
    import polars as pl

    stream = lookup.run.stream_of(leaf)
    position = lookup.run.steps_of(leaf).start_of(stop)
    counts = everything.group_by("source").agg(
        pl.col("delivered").sum().alias("num_samples"),
        pl.col("length").filter(pl.col("delivered")).sum().alias("length"),
        pl.struct("shard", "row").filter(pl.col("delivered")).n_unique().alias("num_distinct"),
        (~pl.col("delivered")).sum().alias("num_withheld"),
    )
    told = []
    for row in counts.sort("source").iter_rows(named=True):
        begun = stream.epochs_begun(row["source"], position)
        lowest, highest = begun if begun is not None else (None, None)
        told.append(SeenSource(lowest_epoch=lowest, highest_epoch=highest, **row))
    return tuple(told)
