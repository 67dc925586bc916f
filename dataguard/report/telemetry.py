"""What is said of telemetry to people: what an import brought, and what was logged?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataguard.report.tables import table
from dataguard.run.telemetry_import import TelemetryImported
from dataguard.run.telemetry_show import Number, TelemetryShown, as_float

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render_imported", "render_telemetry"]


def render_imported(answer: TelemetryImported) -> Iterator[str]:
    """What ``telemetry import`` says of one log."""
    yield (
        f"{answer.source}: {answer.format}, {answer.num_points:,} points, its first step is {answer.first_label}, "
        f"rank {answer.rank}"
    )
    renamed = [f"{name} -> {kept}" if name != kept else name for name, kept in answer.names.items()]
    if renamed:
        yield f"  names: {', '.join(renamed)}"
    for each in answer.attempts:
        what = [f"{each.num_new:,} {'would be ' if answer.dry_run else ''}new"]
        if each.num_present:
            what.append(f"{each.num_present:,} there already")
        if each.num_overruled:
            what.append(f"{each.num_overruled:,} of which the rank itself logged another value, which stands")
        steps = f", steps {each.steps[0]:,}:{each.steps[1]:,}" if each.steps else ""
        yield f"  attempt {each.attempt}{steps}: {', '.join(what)}{f' ({each.file})' if each.file else ''}"
    if answer.num_not_delivered and answer.steps_not_delivered:
        start, stop = answer.steps_not_delivered
        yield (
            f"  not delivered on this lineage, and not imported: {answer.num_not_delivered:,} points of steps within "
            f"{start:,}:{stop:,} (of another attempt? counted from another first step: --first-label?)"
        )
    for each_name in answer.left_out:
        yield f"  left out {each_name.name} ({each_name.num_points:,} points): {each_name.reason} (--map renames it)"
    for kept, names in answer.undecided.items():
        yield f"  which one is {kept}? {', '.join(names)} (say it with --map NAME={kept})"
    yield from (f"  {problem}" for problem in answer.problems)
    if not answer.num_new:
        if answer.num_present or answer.num_overruled:
            yield "  nothing new: all of it is there already"
        else:
            yield "  nothing was imported"


def render_telemetry(answer: TelemetryShown) -> Iterator[str | Table]:
    """What ``telemetry show`` says."""
    yield f"telemetry on the lineage of attempt {answer.attempt}: {answer.num_values:,} values"
    if not answer.names:
        return
    yield table(
        ("name", "values", "of samples", "NaN", "Inf", "ranks", "steps", "first", "last", "least", "greatest"),
        (
            (
                *(each.name, each.num_values, each.num_sample_values, each.num_nan, each.num_infinite),
                *(each.num_ranks, f"{each.steps[0]:,}:{each.steps[1]:,}"),
                *map(_shown, (each.first, each.last, each.least, each.greatest)),
            )
            for each in answer.names
        ),
        right=("values", "of samples", "NaN", "Inf", "ranks", "first", "last", "least", "greatest"),
    )
    if answer.values is not None:
        yield ""
        yield _wide(answer)


def _wide(answer: TelemetryShown) -> Table:
    """A row a step and rank, a column a name."""
    names = [each.name for each in answer.names if each.num_values]
    rows: dict[tuple[int, int, int], dict[str, Number]] = {}
    for value in answer.values or ():
        rows.setdefault((value.step, value.rank, value.attempt), {})[value.name] = value.value
    return table(
        ("step", "rank", "attempt", *names),
        ((*key, *(_shown(points.get(name)) for name in names)) for key, points in rows.items()),
        right=("step", "rank", "attempt", *names),
    )


def _shown(number: Number | None) -> str | None:
    return None if number is None else f"{as_float(number):.6g}"
