"""``dataguard inspect``: parse, look steps up in the index, answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import output
from dataguard.cli.options import attempt_option, batch_option, json_option, rank_option, run_argument, step_option
from dataguard.errors import InputError, UsageError

if TYPE_CHECKING:
    from dataguard.replay.answers import InspectAnswer, SkippedBatch
    from dataguard.replay.lookup import Lookup

__all__ = ["asked_steps", "inspect"]


@click.command()
@run_argument
@step_option
@batch_option
@rank_option
@attempt_option
@json_option
def inspect(
    run: Path,
    step: tuple[int, int] | None,
    batch: tuple[int, int] | None,
    rank: int | None,
    attempt: int | None,
    as_json: bool,
) -> int:
    """Show what every rank was fed at a step, worst first: one answer a step.

    Ends with 3 where the record is damaged, so that something may be missing.

    Examples: dataguard inspect RUN --step 17 --rank 1; dataguard inspect RUN --batch 42
    """
    from dataguard.replay.answers import SkippedBatch
    from dataguard.replay.inspect import inspect_step
    from dataguard.replay.lookup import Lookup
    from dataguard.report.replay import render_inspect
    from dataguard.run.run import Run

    lookup = Lookup(Run.open(run))

    codes = {0}

    def answers() -> Iterator[InspectAnswer | SkippedBatch]:
        for asked in asked_steps(lookup, step, batch, attempt):
            if not isinstance(asked, int):
                yield asked
                continue
            answer = inspect_step(lookup, asked, attempt=attempt, rank=rank)
            if not isinstance(answer, SkippedBatch) and answer.damage:
                codes.add(InputError.exit_code)
            yield answer

    output.answer_lines(answers(), render_inspect, json=as_json)
    return max(codes)


def asked_steps(
    lookup: Lookup, step: tuple[int, int] | None, batch: tuple[int, int] | None, attempt: int | None
) -> Iterator[int | SkippedBatch]:
    """The steps (as labels) that were asked for by --step or --batch; skipped batches as their answer."""
    if (step is None) == (batch is None):
        raise UsageError("which step?", allowed="--step N or --batch N (or START:STOP), one of them")
    if step is not None:
        yield from range(*step)
        return
    assert batch is not None
    told = set()
    for each in range(*batch):
        found = lookup.labels_of_batch(each, attempt=attempt)
        if not isinstance(found, range):
            yield found
            continue
        for label in found:
            if label not in told:
                told.add(label)
                yield label
