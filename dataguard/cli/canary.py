"""``dataguard canary``: parse, make a canary record or compare some, answer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataguard.cli import output
from dataguard.cli.options import (
    PATH,
    attempt_option,
    cache_dir_option,
    dry_run_option,
    json_option,
    out_option,
    root_option,
    run_argument,
)
from dataguard.errors import AnswerNo, NotInRun, UsageError

if TYPE_CHECKING:
    from dataguard.run.run import Run
    from dataguard.torch.canary.answers import CanaryRecord

__all__ = ["canary"]


@click.command()
@run_argument
@click.argument("files", nargs=-1, type=PATH)
@click.option("--step", type=click.IntRange(min=0), help="Which step's microbatch.  [default: the first of the run]")
@click.option("--load", metavar="MODULE:NAME", help="load(checkpoint) -> (model, optimizer); it is imported.")
@click.option("--loss", metavar="MODULE:NAME", help="loss(model, microbatch) -> a scalar tensor; it is imported.")
@click.option("--checkpoint", help="What load is given.  [default: the newest that the run noted]")
@click.option(
    "--transform", metavar="MODULE:NAME", help="What made tensors of the samples, where it is not dataguard's."
)
@click.option("--collate", metavar="MODULE:NAME", help="What put them together, where the attempt had its own.")
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="How often; 2 give a baseline."
)
@click.option("--host", metavar="NAME", help="What this host is called.  [default: its name]")
@click.option("--compare", is_flag=True, help="Compare the run's records, and FILES from other hosts, instead.")
@attempt_option
@out_option("A file for the record, to carry to another host.", required=False)
@root_option
@cache_dir_option
@dry_run_option
@json_option
def canary(
    run: Path,
    files: tuple[Path, ...],
    step: int | None,
    load: str | None,
    loss: str | None,
    checkpoint: str | None,
    transform: str | None,
    collate: str | None,
    repeats: int,
    host: str | None,
    compare: bool,
    attempt: int | None,
    out: Path | None,
    roots: dict[str, Path],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run one microbatch of the run on this host, and keep what every tensor came out as, bit by bit.

    With --compare, records of hosts and dates are held against each other. A mismatch counts only beyond what the run
    differs from itself; who is odd is said where most others agree. The comparison is noted in the journal.

    Comparing ends with 0 where all agree, 1 where they differ or nothing could be compared.

    Examples: dataguard canary RUN --load train:load --loss train:loss -o node-7.json
    dataguard canary RUN --compare node-7.json node-8.json
    """
    from dataguard.run.run import Run

    opened = Run.open(run)
    if compare:
        if load or loss or out:
            raise UsageError("--compare takes records that there are", todo="leave --load, --loss and --out out")
        return _compare(opened, step, files, dry_run=dry_run, as_json=as_json)
    if files:
        raise UsageError("FILES are compared, and nothing else is done with them", todo="give --compare as well")
    if load is None or loss is None:
        raise UsageError("a record needs --load and --loss", todo="name them, or compare records with --compare")
    if find_spec("torch") is None:
        raise UsageError("no canary runs without torch", todo="pip install 'dataguard[torch]', into this Python")
    from dataguard.report.canary import render_record
    from dataguard.torch.canary.answers import encode_record
    from dataguard.torch.canary.keeping import keep_record
    from dataguard.torch.canary.taking import take
    from dataguard.torch.replaying import imported

    functions: dict[str, Any] = {
        name: imported(spelled)
        for name, spelled in (("load", load), ("loss", loss), ("transform", transform), ("collate", collate))
        if spelled is not None
    }
    path = checkpoint if checkpoint is not None else _newest_checkpoint(opened)
    where = {name: str(root) for name, root in roots.items()}
    record = take(
        opened, step, checkpoint=path, attempt=attempt, roots=where, num_repeats=repeats, host=host, **functions
    )
    if not dry_run:
        output.say(f"{keep_record(opened, record)} written")
        if out is not None:
            _write(out, encode_record(record))
            output.say(f"{out} written")
    output.answer(record, render_record, json=as_json)
    return 0


def _compare(run: Run, step: int | None, files: tuple[Path, ...], *, dry_run: bool, as_json: bool) -> int:
    from dataguard.core.evidence import Told
    from dataguard.report.canary import render_comparison
    from dataguard.torch.canary.comparing import compare
    from dataguard.torch.canary.keeping import kept_records, note_comparison, read_records

    given = read_records(files)
    kept = kept_records(run)
    wanted = step
    if wanted is None:
        steps = [each.step for each in (*given, *kept[-1:])]
        wanted = steps[0] if steps else None
    records = [each for each in _once([*kept, *given]) if each.step == wanted]
    comparison = compare(records)
    if not dry_run:
        comparison = note_comparison(run, comparison)
    output.answer(comparison, render_comparison, json=as_json)
    return 0 if comparison.differs is Told.NO else AnswerNo.exit_code


def _once(records: list[CanaryRecord]) -> list[CanaryRecord]:
    """Records that are given and lie in the run as well count once."""
    known: list[CanaryRecord] = []
    for record in records:
        if record not in known:
            known.append(record)
    return known


def _newest_checkpoint(run: Run) -> str:
    from dataguard.run.events import CheckpointSaved
    from dataguard.run.notes import noted

    found = noted(run.read().entries, CheckpointSaved)
    if not found:
        raise NotInRun("the run noted no checkpoint", todo="name one: --checkpoint PATH")
    return found[-1][1].path


def _write(path: Path, content: bytes) -> None:
    from dataguard.run.atomic import publish

    publish(path, content, tmp=path.parent)
