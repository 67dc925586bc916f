"""``dataguard spikes``: parse, read logs or the telemetry of runs, detect, answer; with --plot a picture beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import output
from dataguard.cli.options import PATH, attempt_option, json_option
from dataguard.errors import AnswerNo, InputError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dataguard.run.logs import TrainingLog
    from dataguard.triage.detect.answers import ComparedLogs
    from dataguard.triage.detect.spikes import Examined

__all__ = ["spikes"]

PROFILE_NAMES = (
    "default",
    "seed-3sigma",
    "seed-window-delta",
    "seed-rise",
    "olmo-6sigma",
    "kill-loss-spike",
    "lightning",
)


@click.command()
@click.argument("logs", type=PATH, nargs=-1, required=True, metavar="LOG [LOG]")
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    default="default",
    show_default=True,
    metavar="NAME",
    help="By which rule; those of others alarm, and tell no classes.  [" + ", ".join(PROFILE_NAMES) + "]",
)
@click.option("--loss", "loss_name", metavar="NAME", help="What the log calls the loss.  [default: by its name]")
@click.option("--step-column", metavar="NAME", help="The column that counts steps.  [default: by its name]")
@click.option("--plot", type=PATH, metavar="FILE", help="Draw it into FILE.html, or FILE.png (needs dataguard[plot]).")
@click.option("--fail", is_flag=True, help="End with 1 where there is any event.")
@attempt_option
@json_option
def spikes(
    logs: tuple[Path, ...],
    profile: str,
    loss_name: str | None,
    step_column: str | None,
    plot: Path | None,
    fail: bool,
    attempt: int | None,
    as_json: bool,
) -> int:
    """Find events in a training log: spikes, shifts, climbs, faults, stalls.

    A log is a run directory (mean loss and largest gradient norm over its ranks), or what `telemetry import` reads:
    TensorBoard, CSV, JSON lines, golden values of Megatron, what Megatron-LM, llm.c, nanoGPT, modded-nanogpt or
    torchtitan print. Of two logs it says as well whether what they share are hard batches of one data order.

    Ends with 3 where there are too few points to judge any, and with --fail with 1 where there is an event.

    Examples: dataguard spikes RUN
    dataguard spikes train.log --fail
    dataguard spikes a.log b.log --plot both.html
    """
    from dataguard.report.spikes.text import render_comparison, render_spikes
    from dataguard.triage.detect.spikes import compare_examined

    if len(logs) > 2:
        raise UsageError(f"{len(logs)} logs were given", allowed="one, or two to compare")
    found = [_examined(path, profile, loss_name, step_column, attempt) for path in logs]
    compared = compare_examined(found[0], found[1]) if len(found) == 2 else None
    if plot is not None:
        _draw(plot, found, compared)

    if compared is None:
        output.answer(found[0].answer, lambda _: render_spikes(found[0]), json=as_json)
    else:
        both = compared

        def render(_: ComparedLogs) -> Iterator[str | RenderableType]:
            for each in found:
                yield from render_spikes(each)
                yield ""
            yield from render_comparison(both)

        output.answer(both, render, json=as_json)
    has_events = any(each.detection.events for each in found)
    if not all(each.detection.num_judged or each.detection.events for each in found):
        output.say("nothing was judged: too few points of the loss")
        return InputError.exit_code
    return AnswerNo.exit_code if fail and has_events else 0


def _examined(
    path: Path, profile: str, loss_name: str | None, step_column: str | None, attempt: int | None
) -> Examined:
    from dataguard.run.logs import read_log
    from dataguard.run.run import Run
    from dataguard.triage.curve import begun_later, curve_of_run
    from dataguard.triage.detect.changes import ChangePoint
    from dataguard.triage.detect.spikes import examine
    from dataguard.triage.evidence.planned import planned_steps

    if path.is_dir() and Run.exists(path):
        run = Run.open(path)
        log = curve_of_run(run, attempt)
        begun = begun_later(run, attempt)
        changes = tuple(ChangePoint(step=step, what=what) for step, what in planned_steps(run, attempt).items())
    else:
        if attempt is not None:
            raise UsageError(f"{path} is no run, and has no attempts", todo="leave --attempt out")
        log, changes, begun = read_log(path, step_column=step_column), (), frozenset()
    return examine(
        log if loss_name is None else _with_loss(log, loss_name), profile=profile, changes=changes, begun=begun
    )


def _with_loss(log: TrainingLog, name: str) -> TrainingLog:
    """The log with `name` as its loss; what was called so before goes."""
    from dataclasses import replace

    log.series(name)  # tells what there is, where it is not there
    if name == "loss":
        return log
    return replace(log, points={key: each for key, each in log.points.items() if key != "loss"}).renamed({name: "loss"})


def _draw(plot: Path, found: list[Examined], compared: ComparedLogs | None) -> None:
    from dataguard.report.spikes.plot import plot_bytes
    from dataguard.run.atomic import publish

    comparison = None if compared is None else compared.comparison
    content = plot_bytes(plot, found, comparison)
    publish(plot, content, tmp=plot.parent)
    output.say(f"wrote {plot}")
