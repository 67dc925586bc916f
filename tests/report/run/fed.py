"""What ranks were fed, made by hand: curves, samples, heat maps, previews; names and records that mean harm."""

from __future__ import annotations

import math

from dataguard.report.preview import preview
from dataguard.report.run.facts import (
    CellSample,
    Curve,
    Heat,
    HeatCell,
    Measure,
    Preview,
)

SCRIPT = "<script>window.hit = 1</script>"
TERMINAL = "\x1b[31mred\x1b[0m \u202egnp.exe \u2066x"
SHARD = "web/<img src=x onerror=window.hit=2>.jsonl"
SOURCE = "<b>bold</b> & co"
RULE = "byte_periods"
RUN = "runs/a<i>"
RECORDS = (
    SCRIPT * 3,
    TERMINAL,
    "QUJDREVGRw" * 60,
    "A plain sentence about a harbour in the morning.",
    "[bold red]x[/]",
)
START, PEAK, STOP = 1200, 1203, 1212


def loss_at(step: int) -> float:
    """A curve that falls, shakes and spikes."""
    calm = 2.1 + 8.0 * math.exp(-step / 220) + 0.05 * math.sin(step * 1.7) + 0.03 * math.sin(step * 0.31)
    return calm + (5.2 * math.exp(-(step - PEAK) / 4) if PEAK <= step < STOP + 8 else 0.0)


def curve(name: str, rank: int | None, steps: range, *, width: int = 1, shift: float = 0.0) -> Curve:
    """Loss or gradient norm in columns of `width` steps; a NaN at step 1,900."""
    columns = [[loss_at(step) + shift for step in range(start, start + width)] for start in steps[::width]]
    if name == "grad_norm":
        columns = [[0.4 * max(value - 1.7, 0.05) ** 2 for value in column] for column in columns]
    if name == "lr":
        columns = [[3e-4 * min(1, (start + 1) / 200)] * width for start in steps[::width]]
    low: list[float | None] = [round(min(column), 5) for column in columns]
    high: list[float | None] = [round(max(column), 5) for column in columns]
    bad = tuple((start, 1) for start in steps[::width] if start <= 1900 < start + width and name != "lr")
    if bad and width == 1:
        low[steps[::width].index(1900)] = high[steps[::width].index(1900)] = None
    return Curve(
        name=name, rank=rank, steps=tuple(steps[::width]), low=tuple(low), high=tuple(high), num_not_finite=bad
    )


def shown(record: str, *, spans: tuple[tuple[int, int], ...] = (), problem: str | None = None) -> Preview:
    """How a record looks."""
    made = preview(record.encode(), spans, max_chars=240)
    return Preview(
        parts=tuple((piece.kind, piece.marked, piece.text) for piece in made.pieces),
        size=made.size,
        signal="byte_periodic_repeats" if spans else None,
        spans=spans,
        num_spans=len(spans),
        problem=problem,
    )


PREVIEWS = (
    shown(RECORDS[0], spans=((0, 31),)),
    shown(RECORDS[1]),
    shown(RECORDS[2], spans=((0, 600),)),
    shown(RECORDS[3]),
    shown(RECORDS[4]),
    Preview(parts=(), size=0, signal=None, problem="missing: the shard is not where it was"),
)


def sample(rank: int, step: int, slot: int, *, bad: bool = False) -> CellSample:
    """One slot; `bad` ones are of the hostile shard and stand out."""
    number = rank * 31 + step * 7 + slot
    return CellSample(
        microbatch=slot // 2,
        slot=rank * 4 + slot,
        position=step * 32 + rank * 4 + slot,
        source="web" if bad or number % 3 else SOURCE,
        shard=SHARD if bad else f"{'web' if number % 3 else SOURCE}/part-{number % 5:03d}.jsonl",
        row=number % 997,
        status=("substituted", "refused", "quarantined", "unreadable")[number % 4] if number % 11 == 0 else "live",
        delivered=("web/part-001.jsonl", 12) if number % 11 == 0 and number % 4 == 0 else None,
        verdict="flag" if bad else "pass",
        rules=(RULE, "<u>rule</u>") if bad else (),
        why=("beyond the background: byte_periodic_repeats <s>600</s>", TERMINAL) if bad else (),
        loss=(9.4321 if slot % 2 else math.nan) if bad else round(2.2 + number % 10 / 50, 4),
        digest=f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032x}",
        outlying=bad,
        preview=slot % 3 if bad else (3 + number % 3 if number % 5 == 0 else None),
    )


def heat(event: int | None, peak: int, num_ranks: int, num_steps: int, *, num_samples: int = 4) -> Heat:
    """A map around a step; rank 3 is odd at the peak, rank 5 has NaN, one cell was never recorded."""
    steps = tuple(range(peak - num_steps // 2, peak - num_steps // 2 + num_steps))
    ranks = tuple(range(num_ranks))
    loss = [[round(loss_at(step) * 0.9 + rank * 0.013, 4) for step in steps] for rank in ranks]
    loss[3 % num_ranks][num_steps // 2] = 11.25
    holes: list[list[float | None]] = [list(row) for row in loss]
    holes[5 % num_ranks][num_steps // 2] = None
    holes[-1][0] = None
    flagged = [[float(rank == 3 % num_ranks and step == peak) * 3 for step in steps] for rank in ranks]
    norm = [[round(0.3 + value**3 / 40, 4) for value in row] for row in loss]
    cells = tuple(
        HeatCell(
            rank=rank,
            step=step,
            attempt=1 if step >= 1000 else 0,
            samples=tuple(
                sample(rank, step, slot, bad=rank == 3 % num_ranks and step == peak) for slot in range(num_samples)
            ),
            num_samples=num_samples,
            command=f"dataguard inspect '{RUN}' --step {step} --rank {rank}",
        )
        for rank in ranks
        for step in steps
        if (rank, step) != (ranks[-1], steps[0])
    )
    return Heat(
        event=event,
        steps=steps,
        ranks=ranks,
        num_ranks=num_ranks,
        measures=(
            Measure(
                name="loss",
                title="loss, nats",
                values=tuple(map(tuple, holes)),
                not_finite=((5 % num_ranks, num_steps // 2),),
            ),
            Measure(name="grad_norm", title="gradient norm", values=tuple(map(tuple, norm))),
            Measure(name="flagged", title="flagged samples", values=tuple(map(tuple, flagged))),
        ),
        cells=cells,
    )
