"""``dataguard rehearse``: parse, walk the loader as every rank would, answer."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataguard.cli import output
from dataguard.cli.gating import gate_choice, gate_options, gate_settings
from dataguard.cli.interrupts import going_on
from dataguard.cli.making import given, make_plan
from dataguard.cli.options import (
    PATH,
    PositiveNumber,
    attempt_option,
    cache_dir_option,
    geometry_options,
    json_option,
    plan_options,
    root_option,
)
from dataguard.errors import AnswerNo, InputError, UsageError

if TYPE_CHECKING:
    from dataguard.corpus.corpus import Corpus
    from dataguard.run.run import Run

__all__ = ["rehearse"]

_AMENDABLE = {"global_batch", "weights"}


@click.command()
@click.argument("manifest", type=PATH, required=False)
@click.option("--run", "run_path", type=PATH, required=True, help="The run directory, made where there is none.")
@plan_options
@geometry_options
@click.option("--steps", type=click.IntRange(min=1), help="How many steps to deliver.")
@click.option("--epochs", type=click.IntRange(min=1), help="How many whole epochs of every source to deliver.")
@click.option(
    "--from-step", type=click.IntRange(min=0), help="Where the attempt begins.  [default: where the newest one stopped]"
)
@attempt_option
@gate_options
@click.option("--withhold", type=PATH, help="A file of shards and rows to withhold from the first attempt on.")
@click.option(
    "--on-unreadable",
    type=click.Choice(["withhold", "halt"]),
    help="What a row that cannot be read does.  [default: as the policy says, else withhold]",
)
@click.option(
    "--store",
    default="none",
    metavar="WHAT",
    help="Keep delivered batches: none, flagged, flagged:RULE,RULE, last:N or all.  [default: none]",
)
@click.option(
    "--store-budget-mb",
    type=PositiveNumber(),
    help="What each rank may keep on disk.  [default: 1,074 for flagged, else no bound]",
)
@click.option("--spool", type=PATH, help="A folder on a local disk for hot files, where RUN is far or slow.")
@root_option
@cache_dir_option
@json_option
def rehearse(
    manifest: Path | None,
    run_path: Path,
    world_size: int | None,
    microbatch_size: int | None,
    steps: int | None,
    epochs: int | None,
    from_step: int | None,
    attempt: int | None,
    policy: str | None,
    profile: Path | None,
    vocab_size: int | None,
    withhold: Path | None,
    on_unreadable: str | None,
    store: str,
    store_budget_mb: float | None,
    spool: Path | None,
    roots: dict[str, Path],
    as_json: bool,
    **made_of: Any,
) -> int:
    """Walk the loader as every rank would, without a trainer, and record it as an attempt of a run.

    With a MANIFEST, a seed and a global batch it makes the run; without, it goes on with one that is there. Then
    --global-batch, --weight and another MANIFEST change the run from this attempt's start on, and so do --policy,
    --profile and --vocab-size.

    Ends with 1 where a rule of the policy says halt, and with 3 where rows could not be read: they were withheld, and
    the answer names their shards.

    Examples: dataguard rehearse M.parquet --run RUN --seed 7 --global-batch 16 --world-size 4 --microbatch-size 2
    --steps 60
    dataguard rehearse --run RUN --from-step 35 --steps 30 --world-size 2
    """
    from dataguard.corpus.corpus import Corpus
    from dataguard.loader.rehearse import continued_geometry
    from dataguard.loader.rehearse import rehearse as walk
    from dataguard.report.loader import render_rehearse
    from dataguard.run.run import Run

    if (steps is None) == (epochs is None):
        raise UsageError("a rehearsal needs its length", allowed="--steps N or --epochs N, one of them")
    where = {name: str(root) for name, root in roots.items()}
    options = given(made_of)
    corpus = None if manifest is None else Corpus.open(manifest, where)
    run = Run.open(run_path) if Run.exists(run_path) else None
    making = run is None or "seed" in options
    if making and corpus is None:
        raise UsageError(
            f"no run stands at {run_path}" if run is None else "a seed makes a run, and this one stands already",
            todo="name a MANIFEST to make one" if run is None else "leave --seed out to go on with it",
        )
    gate = gate_settings(gate_choice(policy, profile, vocab_size, fill=options.get("fill")))
    amended = {} if making else _amended(run_path, options, corpus, withhold, spool)
    geometry = continued_geometry(
        run, world_size=world_size, microbatch_size=microbatch_size, global_batch=amended.get("global_batch")
    )
    if making:
        # Made of the same things it is the same run; Run says what differs where it is not.
        assert corpus is not None
        plan = make_plan(corpus, options)
        if run is None:
            plan.check(geometry)
        files = {} if manifest is None else {corpus.manifest.digest: manifest}
        run = Run.create(
            run_path, plan, roots=corpus.roots, manifest_files=files, withhold_file=withhold, spool=spool, **gate
        )
        gate = {}
    assert run is not None
    going = _GoingOn(run, ctx=click.get_current_context())
    with (
        output.progress("rehearsing", unit="steps", total=steps) as shown,
        going_on(going.todo, found=going.found),
    ):
        document = walk(
            run,
            geometry=geometry,
            steps=steps,
            epochs=epochs,
            from_step=None if from_step is None else run.step(from_step),
            parent=attempt,
            on_unreadable=on_unreadable,
            store=store,
            store_budget_bytes=None if store_budget_mb is None else max(1, int(store_budget_mb * 1e6)),
            roots=where,
            progress=shown,
            **amended,
            **gate,
        )
    output.answer(document, render_rehearse, json=as_json)
    if document.gate is not None and document.gate.halted is not None:
        output.say(document.gate.halted)
        return AnswerNo.exit_code
    return InputError.exit_code if document.unreadable_shards else 0


_ALIKE = ("epochs", "store", "store_budget_mb", "on_unreadable")
"""What no attempt takes over from the one before, and is asked for again."""


class _GoingOn:
    """What is typed to go on with a rehearsal that is interrupted."""

    def __init__(self, run: Run, *, ctx: click.Context) -> None:
        self._run = run
        self._ctx = ctx
        self._given = ctx.params
        self._before = run.attempts().numbers

    def found(self) -> str | None:
        """How far the attempt came."""
        stood = self._stood()
        if stood is None:
            return None
        whole = "" if self._given["steps"] is None else f" of {self._given['steps']:,}"
        return f"{stood[1] - stood[0]:,}{whole} steps are delivered to all ranks"

    def todo(self) -> str:
        """The command, and where it goes on."""
        stood, given = self._stood(), self._given
        if stood is None:
            return "no attempt was begun: the same command begins again"
        first, step = stood
        words = ["dataguard", "rehearse", "--run", str(given["run_path"])]
        if given["steps"] is not None:
            words += ["--steps", str(max(1, given["steps"] - (step - first)))]
        words += [word for name in _ALIKE for word in self._flag(name, given[name])]
        words += [word for name, root in given["roots"].items() for word in ("--root", f"{name}={root}")]
        return f"{shlex.join(words)} goes on at step {self._run.label(step)}"

    def _stood(self) -> tuple[int, int] | None:
        """First step of the new attempt, and one past the last that all ranks completed; None where there is none."""
        from dataguard.run.reached import complete_before

        tree = self._run.attempts()
        new = [number for number in tree.numbers if number not in self._before]
        return (tree.attempt(new[-1]).fork_step, complete_before(self._run, new[-1])) if new else None

    def _flag(self, name: str, value: object) -> list[str]:
        is_typed = self._ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        return [f"--{name.replace('_', '-')}", str(value)] if is_typed else []


def _amended(
    path: Path, options: dict[str, Any], corpus: Corpus | None, withhold: Path | None, spool: Path | None
) -> dict[str, Any]:
    """What this attempt changes in a run that stands; what no attempt can change is refused."""
    fixed = ["--" + name.replace("_", "-") for name in sorted(set(options) - _AMENDABLE)]
    fixed += [flag for flag, value in (("--withhold", withhold), ("--spool", spool)) if value is not None]
    if fixed:
        raise UsageError(
            f"{', '.join(fixed)} cannot be changed: the run at {path} was made with its own",
            allowed="--global-batch, --weight, another MANIFEST, --policy, --profile, --vocab-size, --world-size, "
            "--microbatch-size",
            todo="dataguard quarantine RUN --withhold FILE --reason TEXT withholds from the next attempt on"
            if fixed == ["--withhold"]
            else None,
        )
    return options if corpus is None else {**options, "corpus": corpus}
