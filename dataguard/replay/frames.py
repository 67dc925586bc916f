"""How does one look at the record and the telemetry of a run as polars frames?

`index_frame` has a row a slot that was handed over, with everything that the index keeps of it in words and numbers a
person reads: steps in the trainer's labels, names for numbers, signals decoded. `telemetry_frame` has a row a step and
rank. Both go by a lineage: of each attempt what it delivered of its own steps.

The record is read file by file, every checksum verified, and of each file only what was asked for is kept: a frame
takes about 150 bytes a slot and 4 more a signal (five columns of numbers and names take 30), and as much again while it
is put in order. ``steps=`` and ``columns=`` bound it. polars hangs in a process that was forked after it had run a
query: look at runs in a process of your own, not in a trainer.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataguard.core.spans import check_span
from dataguard.errors import UsageError
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.run.columns import to_table
from dataguard.run.headline import decode
from dataguard.run.index import Index
from dataguard.run.policies import policy_of
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX, headline_fields, signal_fields
from dataguard.run.telemetry_reading import owned_steps, read_telemetry
from dataguard.run.telemetry_table import telemetry_table

if TYPE_CHECKING:
    import polars as pl

    from dataguard.plan.attempts import AttemptPlan
    from dataguard.run.run import Run

__all__ = ["INDEX_COLUMNS", "index_frame", "telemetry_frame"]

INDEX_COLUMNS = (
    "step",
    "attempt",
    "live",
    "rank",
    "microbatch",
    "slot",
    "batch",
    "position",
    "source",
    "shard",
    "row",
    "status",
    "delivered_shard",
    "delivered_row",
    "length",
    "verdict",
    "rules",
    "event",
    "digest",
    "microbatch_digest",
)
"""Columns of every index frame; behind them come one a headline signal and one a signal of the policies."""

_NO_END = 1 << 62
_ORDER = ["step", "attempt", "rank", "microbatch", "slot"]
_WIDE = ("step", "batch", "position", "row", "delivered_row", "length")
_NARROW = ("rank", "microbatch", "slot", "event")
_DIGESTS = ("digest", "microbatch_digest")


def index_frame(
    run: Run,
    *,
    attempt: int | None = None,
    live: bool = True,
    steps: tuple[int, int] | None = None,
    columns: Sequence[str] | None = None,
    damage: list[str] | None = None,
) -> pl.DataFrame:
    """What was handed over, a row a slot, in the order of step, attempt, rank, microbatch and slot.

    Parameters
    ----------
    run
        The run, or the run of a named stream, whose attempts are its evaluations.
    attempt
        The lineage of this attempt. Default: the newest; of a stream every evaluation.
    live
        Only what counts on that lineage. False for everything that any attempt delivered, also what a later one
        delivered again; the column ``live`` tells them apart.
    steps
        Only steps ``start:stop``, in the trainer's labels.
    columns
        Only these, in this order. Default: `INDEX_COLUMNS`, ``headline_<signal>`` and ``signal_<signal>``.
    damage
        What cannot be trusted is added here and left out of the frame. Without it, damage raises.

    Returns
    -------
    polars.DataFrame
        ``step``, ``batch`` (Int64, the trainer's labels); ``attempt``, ``rank``, ``microbatch``, ``slot`` (Int32);
        ``live`` (Boolean); ``position``, ``row``, ``length`` (Int64; bytes, or tokens of a window); ``source``,
        ``shard`` (Categorical, SOURCE/path): of the planned sample; ``delivered_shard``, ``delivered_row``: of what was
        delivered in its place, null unless substituted; ``status`` (Enum of `SlotStatus`, in small letters);
        ``verdict`` (Enum of `Verdict`) and ``rules`` (List of names), null where nothing was judged; ``event`` of the
        journal that withheld it, null for none; ``digest``, ``microbatch_digest`` (String, hexadecimal; the first null
        where nothing was delivered, the second on the first slot of each microbatch); ``headline_<signal>`` (Float64,
        to the resolution of one byte) of every judged sample; ``signal_<signal>`` (Float32, 10 mantissa bits) where the
        index keeps it: of whatever is no plain pass, and of one sample in a hundred.

    Raises
    ------
    NotInRun
        The run has no such attempt, or none at all.
    RunDamaged
        Something cannot be trusted, and no list for damage was given.
    UsageError
        There is no such column.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dataguard import Corpus, Geometry, Loader, Plan, Run
    >>> from dataguard.corpus import build_manifest_file
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (here / "a.jsonl").write_text("".join(f'{{"text": "record {row}"}}' + chr(10) for row in range(10)))
    >>> _ = build_manifest_file([f"web={here / 'a.jsonl'}"], here / "M.parquet")
    >>> run = Run.create(here / "run", Plan(Corpus.open(here / "M.parquet"), seed=17, global_batch=4))
    >>> with Loader(run, geometry=Geometry(world_size=1, microbatch_size=4), steps=3) as loader:
    ...     _ = list(loader)
    >>> frame = run.index_frame(steps=(1, 3), columns=["step", "shard", "row", "status", "length"])
    >>> frame.height, frame.row(0)[0], frame["shard"].unique().to_list(), frame["status"].unique().to_list()
    (8, 1, ['web/a.jsonl'], ['live'])
    >>> int(run.index_frame(columns=["length"])["length"].sum()) == 12 * len("record 0")
    True
    """
    import polars as pl

    _require_known(columns)
    kept = None if columns is None else [*dict.fromkeys([*columns, *_ORDER])]
    parts = [_empty() if kept is None else _empty().select([name for name in kept if name in INDEX_COLUMNS])]
    for number, span, owned in _asked(run, attempt, steps, live=live):
        names = _Names(run, number)
        num_ranks = run.attempts().attempt(number).geometry.world_size
        found = Index(run.layout).records(number, steps=span, num_ranks=num_ranks, damage=damage)
        parts += [names.frame(records, owned, kept) for records in found]
    whole = pl.concat(parts, how="diagonal_relaxed").sort(_ORDER)
    if columns is None:
        signals = [name for name in whole.columns if name not in INDEX_COLUMNS]
        return whole.select([*INDEX_COLUMNS, *sorted(signals, key=lambda name: name.partition("_")[0])])
    lacking = {name: pl.Float64() if name.startswith(HEADLINE_PREFIX) else pl.Float32() for name in columns}
    return whole.with_columns(
        [pl.lit(None, dtype).alias(name) for name, dtype in lacking.items() if name not in whole.columns]
    ).select(columns)


def telemetry_frame(
    run: Run,
    *,
    attempt: int | None = None,
    live: bool = True,
    steps: tuple[int, int] | None = None,
    names: Collection[str] | None = None,
    samples: bool = False,
    damage: list[str] | None = None,
) -> pl.DataFrame:
    """What the trainer logged, a row a step, rank and attempt, a column a name.

    Parameters
    ----------
    run, attempt, live, steps, damage
        As for `index_frame`.
    names
        Only these, in this order. Default: all that was logged.
    samples
        The values of samples instead, in long form, a row each: ``step``, ``rank``, ``attempt``, ``slot``, ``name``
        (Categorical), ``value``. ``step`` and ``slot`` are those of `index_frame`, to join by.

    Returns
    -------
    polars.DataFrame
        ``step`` (Int64, the trainer's labels), ``rank``, ``attempt`` (Int32), then a Float64 column a name: null where
        nothing was logged, NaN where NaN was.

    Raises
    ------
    NotInRun, RunDamaged
        As for `index_frame`.
    """
    import polars as pl

    parts = [
        read_telemetry(run.layout, number, names=names, steps=span, run_id=run.run_id, damage=damage)
        for number, span, _ in _asked(run, attempt, steps, live=live)
    ]
    rows = np.concatenate(parts) if parts else read_telemetry(run.layout, 0, ranks=())
    if not samples:
        table = telemetry_table(rows, names=None if names is None else list(names), first_label=run.first_label)
        return pl.DataFrame(pl.from_arrow(table))
    rows = rows[rows["slot"] >= 0]
    words, places = np.unique(rows["name"], return_inverse=True)
    columns: dict[str, Any] = {
        "step": pl.Series(rows["step"].astype(np.int64) + run.first_label),
        "rank": pl.Series(rows["rank"].astype(np.int32)),
        "attempt": pl.Series(rows["attempt"].astype(np.int32)),
        "slot": pl.Series(rows["slot"].astype(np.int32)),
        "name": _picked([word.decode("utf-8", "replace") for word in words.tolist()], places, pl.Categorical()),
        "value": pl.Series(rows["value"].astype(np.float64)),
    }
    return pl.DataFrame(columns).sort("step", "rank", "slot", "name", "attempt", maintain_order=True)


# ---------------------------------------------------------------------------------------------------------------------
# Which attempts, and which of their steps
# ---------------------------------------------------------------------------------------------------------------------

Span = tuple[int, int]


def _asked(
    run: Run, attempt: int | None, steps: tuple[int, int] | None, *, live: bool
) -> Iterator[tuple[int, Span, Span]]:
    """Attempts to be read, the steps to be read of each, and the steps it owns on the lineage; steps from 0."""
    tree = run.attempts()
    if run.stream_identity is not None and attempt is None:
        chain: Sequence[AttemptPlan] = [tree.attempt(number) for number in tree.numbers]  # none forks from another
        owned = {each.number: (0, _NO_END) for each in chain}
    else:
        owned = {
            each.number: (first, _NO_END if stop is None else stop)
            for each, first, stop in owned_steps(tree.lineage(attempt))
        }
    first, stop = (0, _NO_END) if steps is None else check_span(run.step(steps[0]), run.step(steps[1]), what="steps")
    for number in tree.numbers:
        own = owned.get(number, (0, 0))
        low, high = (max(first, own[0]), min(stop, own[1])) if live else (first, stop)
        if low < high:
            yield number, (low, high), own


# ---------------------------------------------------------------------------------------------------------------------
# Records as a frame
# ---------------------------------------------------------------------------------------------------------------------


class _Names:
    """What the numbers in an attempt's records are called."""

    def __init__(self, run: Run, attempt: int) -> None:
        self.attempt = attempt
        self.first_label = run.first_label
        stream = run.stream_of(attempt)
        self.sources = stream.source_names
        self.manifests = stream.manifest_set
        policy = policy_of(run, attempt)
        self.rules = {} if policy is None else {rule.bit: rule.name for rule in policy.rules}

    def frame(self, records: NDArray[np.void], owned: Span, columns: Sequence[str] | None) -> pl.DataFrame:
        """Some records, with only the columns asked for."""
        import polars as pl

        def asked(*names: str) -> bool:
            return columns is None or any(name in columns for name in names)

        signals = [SIGNAL_PREFIX + name for name in signal_fields(records.dtype)]
        fields = [name for name in (*_WIDE, *_NARROW, *_DIGESTS, *signals) if asked(name)]
        frame = pl.DataFrame(pl.from_arrow(to_table(records[fields]))).with_columns(
            *(pl.col(name).cast(pl.Int64) for name in _WIDE if name in fields),
            *(pl.col(name).cast(pl.Int32) for name in _NARROW if name in fields),
            *(pl.col(name).bin.encode("hex") for name in _DIGESTS if name in fields),
        )
        frame = frame.with_columns([pl.col(name) + self.first_label for name in ("step", "batch") if name in fields])
        columns_made: dict[str, Any] = {"attempt": pl.Series(np.full(len(records), self.attempt, np.int32))}
        if asked("live"):
            step = records["step"]
            columns_made["live"] = pl.Series((step >= owned[0]) & (step < owned[1]))
        if asked("source"):
            columns_made["source"] = _picked(self.sources, records["source"], pl.Categorical())
        for name in ("shard", "delivered_shard"):
            if asked(name):
                columns_made[name] = self._shards(records[name])
        if asked("status"):
            columns_made["status"] = _picked(_words(SlotStatus), records["status"], pl.Enum(_words(SlotStatus)))
        headline = headline_fields(records.dtype)
        if asked("verdict", "rules"):
            judged = np.zeros(len(records), np.bool_)
            for name in headline:
                judged |= records[HEADLINE_PREFIX + name] != 0
            verdicts = np.where(judged, records["verdict"].astype(np.int64), -1)
            columns_made["verdict"] = _picked(_words(Verdict), verdicts, pl.Enum(_words(Verdict)))
            columns_made["rules"] = self._rules(records["rules"], judged)
        for name in headline:
            if asked(HEADLINE_PREFIX + name):
                values = decode(name, records[HEADLINE_PREFIX + name])
                columns_made[HEADLINE_PREFIX + name] = pl.Series(values).fill_nan(None)
        frame = frame.with_columns([series.alias(name) for name, series in columns_made.items()])
        return frame if columns is None else frame.select([name for name in columns if name in frame.columns])

    def _shards(self, numbers: NDArray[Any]) -> pl.Series:
        import polars as pl

        present, places = np.unique(numbers.astype(np.int64), return_inverse=True)
        num_unset = int((present < 0).sum())  # -1 is the least
        words = [self.manifests.shard_name(number) for number in present[num_unset:].tolist()]
        return _picked(words, places - num_unset, pl.Categorical())

    def _rules(self, bits: NDArray[Any], judged: NDArray[np.bool_]) -> pl.Series:
        import polars as pl

        present, places = np.unique(bits, return_inverse=True)
        fired = [
            [self.rules.get(bit, f"rule {bit}") for bit in range(64) if int(each) >> bit & 1]
            for each in present.tolist()
        ]
        return _picked(fired, np.where(judged, places, -1), pl.List(pl.String()))


def _words(enum: type[SlotStatus | Verdict]) -> list[str]:
    return [each.name.lower() for each in enum]


def _picked(words: Sequence[Any], places: NDArray[Any], dtype: Any) -> pl.Series:
    """The word at each place, null where that lies below 0."""
    import polars as pl

    at = places.astype(np.int64)
    chosen = pl.Series(at).set(pl.Series(at < 0), None)
    return pl.Series(list(words), dtype=dtype).gather(chosen)


def _empty() -> pl.DataFrame:
    """A frame of no rows with the columns that every frame has."""
    import polars as pl

    kinds: dict[str, Any] = dict.fromkeys(INDEX_COLUMNS, pl.Int64())
    kinds |= dict.fromkeys(("attempt", "rank", "microbatch", "slot", "event"), pl.Int32())
    kinds |= dict.fromkeys(("source", "shard", "delivered_shard"), pl.Categorical())
    kinds |= {
        "live": pl.Boolean(),
        "rules": pl.List(pl.String()),
        "digest": pl.String(),
        "microbatch_digest": pl.String(),
    }
    kinds |= {"status": pl.Enum(_words(SlotStatus)), "verdict": pl.Enum(_words(Verdict))}
    return pl.DataFrame(schema=kinds)


def _require_known(columns: Sequence[str] | None) -> None:
    """UsageError where a column is neither one of every frame nor one of a signal."""
    from dataguard.score.registry import SIGNALS

    signals = [prefix + name for name in SIGNALS for prefix in (HEADLINE_PREFIX, SIGNAL_PREFIX)]
    for name in columns or ():
        if name not in INDEX_COLUMNS and name not in signals:
            near = difflib.get_close_matches(name, [*INDEX_COLUMNS, *signals], n=1)
            raise UsageError(
                f"there is no column {name!r} in the index",
                allowed=f"{', '.join(INDEX_COLUMNS)}, headline_<signal>, signal_<signal>",
                todo=f"did you mean {near[0]}?" if near else None,
            )
