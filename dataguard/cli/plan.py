"""``dataguard plan``: parse, plan some steps without any run, answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dataguard.cli import output
from dataguard.cli.gating import gate_choice, gate_options
from dataguard.cli.making import make_plan
from dataguard.cli.options import (
    PATH,
    geometry_options,
    json_option,
    manifest_argument,
    plan_options,
    rank_option,
    step_option,
)
from dataguard.errors import UsageError

__all__ = ["plan"]


@click.command()
@manifest_argument
@plan_options
@geometry_options
@gate_options
@click.option("--withhold", type=PATH, help="A file of shards and rows to withhold from the first attempt on.")
@step_option
@rank_option
@json_option
def plan(
    manifest: Path,
    world_size: int | None,
    microbatch_size: int | None,
    policy: str | None,
    profile: Path | None,
    vocab_size: int | None,
    withhold: Path | None,
    step: tuple[int, int] | None,
    rank: int | None,
    as_json: bool,
    **made_of: Any,
) -> None:
    """Show what steps would deliver, without any run.

    Nothing is read, so nothing is judged: a policy is checked against the sources, and named.

    Examples: dataguard plan M.parquet --seed 7 --global-batch 16 --step 5
    dataguard plan M.parquet --seed 7 --global-batch 16 --world-size 4 --microbatch-size 2 --step 5 --rank 1
    """
    from dataguard.core.address import Geometry
    from dataguard.corpus.corpus import Corpus
    from dataguard.loader.rehearse import planned_steps
    from dataguard.plan.steps import step_of_label
    from dataguard.report.loader import render_plan
    from dataguard.run.creating import withheld_targets

    planned = make_plan(Corpus.open(manifest), made_of)
    gate = gate_choice(policy, profile, vocab_size, fill=made_of.get("fill"))
    targets = () if withhold is None else withheld_targets(planned, withhold)
    first_label = planned.document.first_label
    start, stop = step or (first_label, first_label + 1)
    steps = range(step_of_label(start, first_label), step_of_label(stop, first_label))
    if world_size is None and rank is not None:
        raise UsageError(f"rank {rank} of how many?", todo="give --world-size")
    geometry = Geometry(world_size=world_size or 1, microbatch_size=microbatch_size or 1)
    output.answer(
        planned_steps(planned, geometry, steps, rank=rank, withheld=targets, gate=gate), render_plan, json=as_json
    )
