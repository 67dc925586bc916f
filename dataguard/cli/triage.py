"""``dataguard triage``: parse, read machine logs, triage, answer; with ``--apply`` write skips and quarantines."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import output
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import (
    attempt_option,
    dry_run_option,
    json_option,
    root_option,
    run_argument,
)
from dataguard.errors import AnswerNo, RunDamaged, UsageError, WriteFailed

__all__ = ["triage"]


def _checkpoints(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> list[tuple[int, str]] | None:
    given = []
    for text in texts:
        step, sign, path = text.partition("=")
        if not sign or not path or not step.isdecimal():
            raise UsageError(
                f"{text!r} is no STEP=PATH",
                allowed="--checkpoint 9000=ckpt/9000.pt: the first step that its model was not trained on",
            )
        given.append((int(step), path))
    return sorted(given) or None


@click.command()
@run_argument
@click.option("--step", type=click.IntRange(min=0), help="The step in question.  [default: the most serious event]")
@attempt_option
@click.option(
    "--evidence",
    multiple=True,
    metavar="[HOST=]FILE,...",
    help="What machines say: dmesg or journal text, DCGM or nvidia-smi tables, NCCL logs.  Repeatable.",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="STEP=PATH",
    callback=_checkpoints,
    help="A checkpoint that is there.  Repeatable.  [default: those that the run noted]",
)
@click.option(
    "--experiment",
    metavar="MODULE",
    help="Run the replay experiment first, with its load(checkpoint) and loss(model, microbatch).",
)
@root_option
@click.option(
    "--apply", "apply_", is_flag=True, help="Write the skip and the quarantines into the journal, and nothing else."
)
@dry_run_option
@click.option("--note/--no-note", default=True, show_default=True, help="Write what was decided into the journal.")
@click.option("--fail", is_flag=True, help="End with 1 where the verdict is neither no_incident nor planned_change.")
@json_option
def triage(
    run: Path,
    step: int | None,
    attempt: int | None,
    evidence: tuple[str, ...],
    checkpoints: list[tuple[int, str]] | None,
    experiment: str | None,
    roots: dict[str, Path],
    apply_: bool,
    dry_run: bool,
    note: bool,
    fail: bool,
    as_json: bool,
) -> int:
    """From a spike to a verdict to the commands that mend it.

    Prints the six steps of the checklist, the verdict with what speaks for and against it, and the response: checkpoint
    to resume from, what to skip, what to quarantine, what to change; each as the command to type.

    Ends with 1 where nothing could be looked at (nothing was logged, or not of that step, or no event could have
    shown), with 3 where journal or telemetry is damaged (the answer is drawn from what is whole), with 4 where the
    journal could not take what was decided, and with --fail as said there.

    Examples: dataguard triage RUN --step 9000 --evidence node7=dmesg.txt
    dataguard triage RUN --step 9000 --experiment train
    dataguard triage RUN --apply --dry-run
    """
    import msgspec

    from dataguard.core.evidence import Verdict
    from dataguard.report.triage import render_triage
    from dataguard.run.run import Run
    from dataguard.triage.evidence.machine_logs import read_machine_logs
    from dataguard.triage.preflight import preflight
    from dataguard.triage.respond import apply_response
    from dataguard.triage.triage import NOTHING_CHECKED, event_in_question
    from dataguard.triage.triage import triage as answered

    if dry_run and not apply_:
        raise UsageError("--dry-run alone changes nothing", todo="say --apply --dry-run, or leave both out")
    opened = Run.open(run)
    specs = [part for text in evidence for part in text.split(",") if part]
    machine_logs = read_machine_logs(specs) if specs else None
    places = {name: str(path) for name, path in roots.items()} or None
    points = preflight(opened)
    failing = [f"{point.name}: {point.reason}" for point in points.points if point.state == "fail"]

    if experiment is not None:
        from dataguard.torch.experiment import run_experiment

        event = event_in_question(opened, step=step, attempt=attempt)
        asked = step if event is None else event.peak
        if asked is None:
            raise UsageError("there is no event to experiment on", todo="name a step: --step N")
        given = dict(checkpoints or ()) or None
        with going_on("the same command begins again: an experiment is noted once it is whole"):
            run_experiment(opened, asked, experiment, attempt=attempt, event=event, checkpoints=given, roots=places)
    answer = answered(
        opened,
        step=step,
        attempt=attempt,
        machine_logs=machine_logs,
        roots=places,
        checkpoints=checkpoints,
        failing_points=failing,
        num_points_not_known=points.num_not_known,
        note=note and not dry_run,
    )
    try:
        if apply_:
            answer = msgspec.structs.replace(answer, applied=apply_response(opened, answer.response, dry_run=dry_run))
    finally:
        # Whatever cannot be written: what was found is said.
        output.answer(answer, render_triage, json=as_json)
    opened.read().require_sound("a note of the verdict")
    if answer.damage:
        raise RunDamaged(
            "telemetry is damaged: the answer is drawn from what can be read",
            found="; ".join(answer.damage[:3]),
            todo="dataguard verify lists what is damaged in a run",
        )
    if answer.not_noted is not None:
        raise WriteFailed(f"what was decided is not in the journal: {answer.not_noted}")
    if answer.diagnosis.rule == NOTHING_CHECKED:
        return AnswerNo.exit_code
    harmless = answer.diagnosis.verdict in (Verdict.NO_INCIDENT, Verdict.PLANNED_CHANGE)
    return AnswerNo.exit_code if fail and not harmless else 0
