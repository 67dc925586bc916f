"""``dataguard store list | show | prune``: parse, look into the batch store of a run, answer."""

from __future__ import annotations

from pathlib import Path

import click

from dataguard.cli import completing, output
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import (
    attempt_option,
    dry_run_option,
    json_option,
    rank_option,
    run_argument,
    step_option,
)
from dataguard.errors import AnswerNo, InputError, NotInRun, UsageError

__all__ = ["store"]

_only_attempt = click.option(
    "--attempt", type=click.IntRange(min=1), shell_complete=completing.attempts, help="Only this attempt."
)


@click.group()
def store() -> None:
    """List, show or prune what a run keeps of delivered batches.

    Examples: dataguard store list RUN
    dataguard store show RUN --step 17
    """


@store.command("list", short_help="What is kept, was let go of, or was lost.")
@run_argument
@_only_attempt
@rank_option
@json_option
def list_(run: Path, attempt: int | None, rank: int | None, as_json: bool) -> int:
    """What stands in the store, what was let go of, and what was lost with its process.

    Ends with 1 where something was lost, 3 where a count cannot be trusted.

    Examples: dataguard store list RUN
    dataguard store list RUN --attempt 1 --rank 0
    """
    from dataguard.report.store import render_store_list
    from dataguard.run.run import Run
    from dataguard.run.store_account import list_store

    answer = list_store(Run.open(run), attempt=attempt, rank=rank)
    output.answer(answer, render_store_list, json=as_json)
    if any(each.problems for each in answer.ranks):
        return InputError.exit_code
    lost = any(each.num_lost and not each.live for each in answer.ranks)
    return AnswerNo.exit_code if lost else 0


@store.command(short_help="What is kept of a step, and whether it is what was delivered.")
@run_argument
@step_option
@rank_option
@attempt_option
@json_option
def show(run: Path, step: tuple[int, int] | None, rank: int | None, attempt: int | None, as_json: bool) -> int:
    """What is kept of a step: tensors, and whether their digests are those of what was delivered.

    Of several steps those that are kept are shown, and the others named. Ends with 1 where a digest is another one or
    not recorded, 3 where a file is damaged.

    Examples: dataguard store show RUN --step 17
    dataguard store show RUN --step 40:45 --rank 1 --json
    """
    from dataguard.replay.fetch import show_stored
    from dataguard.replay.lookup import Lookup
    from dataguard.report.store import render_store_shown
    from dataguard.run.run import Run

    if step is None:
        raise UsageError("which step?", allowed="--step N or --step START:STOP")
    lookup = Lookup(Run.open(run))
    code, left_out = None, list[NotInRun]()
    for each in range(*step):
        try:
            answer = show_stored(lookup, each, attempt=attempt, rank=rank)
        except NotInRun as error:
            # Of several steps some were skipped, or are not kept; those that are can be shown. What nobody delivered is
            # refused as ever.
            lookup.find(each, attempt=attempt, rank=rank)
            left_out.append(error)
            continue
        output.answer(answer, render_store_shown, json=as_json)
        same = all(microbatch.recorded == microbatch.digest for microbatch in answer.microbatches)
        code = max(code or 0, InputError.exit_code if answer.damage else 0 if same else AnswerNo.exit_code)
    if code is None:
        raise left_out[0]
    for each_error in left_out:
        output.say(each_error.asked)
    return code


@store.command()
@run_argument
@_only_attempt
@rank_option
@step_option
@click.option("--keep-last", type=click.IntRange(min=1), help="Remove all but the last N steps of each rank.")
@dry_run_option
@json_option
def prune(
    run: Path,
    attempt: int | None,
    rank: int | None,
    step: tuple[int, int] | None,
    keep_last: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove files of the store. Ranks whose writers live are left alone.

    Examples: dataguard store prune RUN --attempt 1 --dry-run
    dataguard store prune RUN --keep-last 100
    """
    from dataguard.report.store import render_store_pruned
    from dataguard.run.run import Run
    from dataguard.run.store_prune import prune_store

    with going_on("the same command goes on with what is left"):
        answer = prune_store(
            Run.open(run), attempt=attempt, rank=rank, steps=step, keep_last=keep_last, dry_run=dry_run
        )
    output.answer(answer, render_store_pruned, json=as_json)
