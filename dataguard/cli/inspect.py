"""``dataguard inspect``: parse, look steps up in the index, answer; what the samples hold is read from the shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import output
from dataguard.cli.lean import without_pandas
from dataguard.cli.looks import Looks, opened_tokenizer, tokenizer_option
from dataguard.cli.options import (
    attempt_option,
    batch_option,
    cache_dir_option,
    json_option,
    rank_option,
    root_option,
    run_argument,
    step_option,
)
from dataguard.cli.streams import opened, stream_option
from dataguard.errors import InputError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dataguard.replay.answers import InspectAnswer, SkippedBatch
    from dataguard.replay.inspect import Order
    from dataguard.replay.lookup import Lookup

__all__ = ["asked_steps", "inspect"]


@click.command()
@run_argument
@step_option
@batch_option
@stream_option
@rank_option
@attempt_option
@click.option(
    "--order",
    type=click.Choice(["worst", "slot"]),
    default="worst",
    show_default=True,
    help="Worst first, or by rank, microbatch and slot.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="How many samples.  [default: all, the first 64 with what they hold]"
)
@click.option(
    "--preview/--no-preview",
    default=None,
    help="Read the shards to show what the samples hold, with what made the rules fire marked.  "
    "[default: as far as they can be read; with --json none]",
)
@tokenizer_option
@root_option
@cache_dir_option
@json_option
def inspect(
    run: Path,
    step: tuple[int, int] | None,
    batch: tuple[int, int] | None,
    stream: str | None,
    rank: int | None,
    attempt: int | None,
    order: Order,
    limit: int | None,
    preview: bool | None,
    tokenizer: Path | None,
    roots: dict[str, Path],
    as_json: bool,
) -> int:
    """Show what every rank was fed at a step, worst first: one answer a step.

    Verdicts and signals are those that were recorded; the corpus may be gone, then samples are shown without what they
    hold. Ends with 3 where the record is damaged, so that something may be missing, and where a preview that was asked
    for (--preview, --tokenizer) cannot be had.

    Examples: dataguard inspect RUN --step 17
    dataguard inspect RUN --step 40:45 --rank 1 --limit 8
    dataguard inspect RUN --batch 42 --tokenizer tokenizer.json
    """
    import msgspec

    from dataguard.replay.answers import SkippedBatch
    from dataguard.replay.inspect import inspect_step
    from dataguard.replay.lookup import Lookup
    from dataguard.report.replay import render_inspect
    from dataguard.report.samples import MOST_SHOWN, Shown, render_samples, sample_preview, shown_samples

    without_pandas("inspect")
    if tokenizer is not None and preview is False:
        raise UsageError("a tokenizer shows what samples hold, and --no-preview shows nothing of it")
    lookup = Lookup(opened(run, stream))
    asked_for = bool(preview) or tokenizer is not None
    is_wanted = asked_for or (preview is None and not as_json)
    looks = Looks(lookup.run, roots=roots, tokenizer=opened_tokenizer(lookup.run, tokenizer), asked=asked_for)
    codes, shown = {0}, list[tuple[Shown, ...]]()

    def answers() -> Iterator[InspectAnswer | SkippedBatch]:
        for asked in asked_steps(lookup, step, batch, attempt):
            if not isinstance(asked, int):
                yield asked
                continue
            answer = inspect_step(lookup, asked, attempt=attempt, rank=rank, order=order, limit=limit)
            if isinstance(answer, SkippedBatch):
                yield answer
                continue
            if answer.damage:
                codes.add(InputError.exit_code)
            first = answer.samples if as_json or limit is not None else answer.samples[:MOST_SHOWN]
            found = looks.at(answer.attempt, first) if is_wanted else shown_samples(first, [None] * len(first), None)
            shown[:] = [found]
            if is_wanted and as_json:
                seen = [msgspec.structs.replace(each.sample, preview=sample_preview(each)) for each in found]
                answer = msgspec.structs.replace(answer, samples=tuple(seen))
            yield answer

    def render(answer: InspectAnswer | SkippedBatch) -> Iterator[str | RenderableType]:
        yield from render_inspect(answer)
        if isinstance(answer, SkippedBatch):
            return
        problem = looks.problem(answer.attempt) if is_wanted else None
        if problem is not None:
            yield f"no previews: {problem}"
        if answer.policy is not None or (is_wanted and problem is None):
            yield ""
            yield from render_samples(shown[0])
            if limit is None and len(shown[0]) < len(answer.samples):
                yield f"... and {len(answer.samples) - len(shown[0]):,} more (--limit N shows what N of them hold)"

    try:
        output.answer_lines(answers(), render, json=as_json)
    finally:
        looks.close()
    if asked_for and looks.failed:
        codes.add(InputError.exit_code)
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
