"""``dataguard telemetry import | show``: parse, read logs or telemetry, answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dataguard.cli import output
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import (
    PATH,
    STEPS,
    attempt_option,
    dry_run_option,
    json_option,
    rank_option,
    run_argument,
)
from dataguard.errors import AnswerNo, InputError, NotInRun, UsageError

if TYPE_CHECKING:
    from dataguard.run.logs import TrainingLog
    from dataguard.run.telemetry_import import TelemetryImported

__all__ = ["telemetry"]


@click.group()
def telemetry() -> None:
    """Bring in what other tools logged, and look at what was logged.

    Examples: dataguard telemetry import RUN tb_logs/
    dataguard telemetry show RUN --name loss --step 9000:9050
    """


def _mapped(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in texts:
        name, sign, kept = text.rpartition("=")  # names of columns may hold the sign; names of telemetry should not
        if not sign or not name or not kept:
            raise UsageError(f"{text!r} is no NAME=KEPT", allowed="--map 'train loss=loss', with neither side empty")
        if names.setdefault(name, kept) != kept:
            raise UsageError(f"--map names {name!r} twice", found=f"{names[name]!r} and {kept!r}")
    return names


@telemetry.command(name="import", short_help="Bring what other tools logged into a run.")
@run_argument
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@attempt_option
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Whose telemetry it becomes.")
@click.option(
    "--map",
    "names",
    multiple=True,
    metavar="NAME=KEPT",
    callback=_mapped,
    help="Keep NAME of the log as KEPT; usual spellings of loss, val_loss, grad_norm and lr are known.  Repeatable.",
)
@click.option("--step-column", metavar="NAME", help="The column that counts steps.  [default: by its name]")
@click.option(
    "--first-label", type=click.IntRange(0, 1), help="What the log calls the first step.  [default: as the run does]"
)
@dry_run_option
@json_option
def import_(
    run: Path,
    files: tuple[Path, ...],
    attempt: int | None,
    rank: int,
    names: dict[str, str],
    step_column: str | None,
    first_label: Literal[0, 1] | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Write what other tools logged into the telemetry of a run: one answer a log.

    A log is CSV, TSV or JSON lines with a column of steps (exports of Weights & Biases too), a TensorBoard event file
    or a folder of them, golden values of Megatron, trainer_state.json, or what Megatron-LM, llm.c, nanoGPT,
    modded-nanogpt or torchtitan print; plain, gzip or zstd. Content decides. Each step goes to the attempt that
    delivered it; what is there already is not written again, so a log may be imported as often as it grows.

    Ends with 1 where a log brought nothing that is there now.

    Examples: dataguard telemetry import RUN tb_logs/ --first-label 1
    dataguard telemetry import RUN wandb.csv --map "train/loss_step=loss" --dry-run
    """
    from dataguard.report.telemetry import render_imported
    from dataguard.run.logs.sniff import read_log
    from dataguard.run.run import Run
    from dataguard.run.telemetry_import import import_log

    opened = Run.open(run)
    codes, num_done = {0}, 0
    logs: Iterable[TrainingLog] = (read_log(file, step_column=step_column) for file in files)
    if len(files) > 1 and names:
        # A name that none of them has is refused before anything of any is written.
        logs = list(logs)
        unknown = sorted(names.keys() - {name for log in logs for name in log.names})
        if unknown:
            raise NotInRun(f"none of the logs has {', '.join(map(repr, unknown))}", todo="check --map as it was typed")

    def answers() -> Iterator[TelemetryImported]:
        nonlocal num_done
        for log in logs:
            given = names if len(files) == 1 else {name: kept for name, kept in names.items() if name in log.names}
            answer = import_log(
                opened, log, attempt=attempt, rank=rank, names=given, first_label=first_label, dry_run=dry_run
            )
            if not answer.num_new + answer.num_present + answer.num_overruled:
                codes.add(AnswerNo.exit_code)
            num_done += 1
            yield answer

    with going_on(
        "the same command goes on: what was written already is not written again",
        found=lambda: f"{num_done:,} of {len(files):,} logs are imported",
    ):
        output.answer_lines(answers(), render_imported, json=as_json)
    return max(codes)


@telemetry.command(short_help="List what was logged, or its values.")
@run_argument
@click.option("--name", "names", multiple=True, metavar="NAME", help="Only values of this name.  Repeatable.")
@click.option("--step", type=STEPS, help="Which step, or steps, in the trainer's labels.")
@rank_option
@attempt_option
@json_option
def show(
    run: Path,
    names: tuple[str, ...],
    step: tuple[int, int] | None,
    rank: int | None,
    attempt: int | None,
    as_json: bool,
) -> int:
    """List what was logged: names and how much of each; with --name or --step the values.

    Ends with 1 where nothing was logged, and with 3 where telemetry is damaged, so that something may be missing.

    Examples: dataguard telemetry show RUN
    dataguard telemetry show RUN --name loss --step 9000:9050
    """
    from dataguard.report.telemetry import render_telemetry
    from dataguard.run.run import Run
    from dataguard.run.telemetry_show import show_telemetry

    answer = show_telemetry(Run.open(run), attempt=attempt, names=names, steps=step, rank=rank)
    output.answer(answer, render_telemetry, json=as_json)
    for torn in answer.torn:
        output.say(f"torn: {torn}")
    for damage in answer.damage:
        output.say(f"damaged: {damage}")
    if answer.damage:
        return InputError.exit_code
    return 0 if answer.num_values else AnswerNo.exit_code
