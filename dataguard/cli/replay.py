"""``dataguard replay``: parse, rebuild steps and compare them with their record, answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import output
from dataguard.cli.inspect import asked_steps
from dataguard.cli.interrupts import ONLY_READ, SAME_AGAIN, going_on
from dataguard.cli.looks import Looks, opened_tokenizer, tokenizer_option
from dataguard.cli.options import (
    attempt_option,
    batch_option,
    cache_dir_option,
    json_option,
    out_option,
    rank_option,
    root_option,
    run_argument,
    step_option,
)
from dataguard.cli.streams import opened, stream_option
from dataguard.cli.transforming import remaking_of
from dataguard.errors import AnswerNo, InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dataguard.replay.answers import ReplayAnswer

__all__ = ["replay"]


@click.command()
@run_argument
@step_option
@batch_option
@stream_option
@rank_option
@attempt_option
@out_option(
    "A folder for samples.parquet: address, shard, row, status, digests, verdict, signals, text or ids.", required=False
)
@click.option(
    "--transform",
    metavar="MODULE:NAME",
    help="What made tensors of the samples, to make them again; it is imported. Those of dataguard need not be named.",
)
@click.option("--collate", metavar="MODULE:NAME", help="What put them together, where the attempt had its own.")
@tokenizer_option
@root_option
@cache_dir_option
@json_option
def replay(
    run: Path,
    step: tuple[int, int] | None,
    batch: tuple[int, int] | None,
    stream: str | None,
    rank: int | None,
    attempt: int | None,
    out: Path | None,
    transform: str | None,
    collate: str | None,
    tokenizer: Path | None,
    roots: dict[str, Path],
    as_json: bool,
) -> int:
    """Rebuild a step from plan and shards, and compare every digest and verdict with what was recorded.

    What the batch store has is compared as well, and fetched where shards are gone. Tensors that a transform made are
    made again, and compared bit by bit, where it is known; else their samples are compared alone.

    Samples that differ, or that the gate says anything of, are shown with what they hold.

    Ends with 0 where everything asked for is exact, 1 where something differs or nothing was delivered, 3 where rows
    or their record cannot be read any more.

    Examples: dataguard replay RUN --step 17
    dataguard replay RUN --step 17 --rank 1 -o OUT --transform train:tokenize
    dataguard replay RUN --step 17 --root web=/mnt/copy/web
    """
    from functools import partial

    from dataguard.replay.lookup import Lookup
    from dataguard.replay.replay import replay_step, skipped_answer
    from dataguard.replay.writing import write_samples, write_tensors
    from dataguard.report.replay import render_replay
    from dataguard.report.samples import MOST_SHOWN, notable_samples, render_notable
    from dataguard.report.token_text import token_text

    lookup = Lookup(opened(run, stream))
    where = {name: str(root) for name, root in roots.items()}
    spoken = opened_tokenizer(lookup.run, tokenizer)
    spell = None if spoken is None else partial(token_text, tokenizer=spoken)
    looks = Looks(lookup.run, roots=roots, tokenizer=spoken, verify="tell")

    def render(answer: ReplayAnswer) -> Iterator[str | RenderableType]:
        yield from render_replay(answer)
        if notable := notable_samples(answer):
            yield from render_notable(looks.at(answer.attempt, notable[:MOST_SHOWN]), len(notable))

    remaking = remaking_of(transform, collate)
    asked = list(asked_steps(lookup, step, batch, attempt))
    code = 0
    for number, each in enumerate(asked):
        if isinstance(each, int):
            told = f"{number:,} of {len(asked):,} steps are replayed" if len(asked) > 1 else None
            with going_on(ONLY_READ if out is None else SAME_AGAIN, found=told):
                answer, rebuilt = replay_step(lookup, each, attempt=attempt, rank=rank, roots=where, remaking=remaking)
        else:
            answer, rebuilt = skipped_answer(each), []
        if out is not None and rebuilt:
            folder = out if len(asked) == 1 else out / f"step={answer.step}"
            output.say(f"{write_samples(answer, rebuilt, folder, spell=spell)} written")
            if written := write_tensors(answer, rebuilt, folder):
                output.say(f"{folder}/rank=R/microbatch=M.safetensors written: {len(written):,} files")
        output.answer(answer, render, json=as_json)
        compared = any(microbatch.recorded is not None for microbatch in answer.microbatches)
        least = InputError.exit_code if answer.damage else 0 if compared else AnswerNo.exit_code
        code = max(code, least, _EXIT_CODES[answer.status])
    looks.close()
    return code


_EXIT_CODES = {
    "exact": 0,
    "differs": AnswerNo.exit_code,
    "skipped": AnswerNo.exit_code,
    "withheld": AnswerNo.exit_code,
    "unreadable": InputError.exit_code,
}
"""Where everything was skipped or withheld, or nothing was recorded, nothing was compared, and that is never 0."""
