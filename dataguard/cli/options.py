"""Which spellings do all commands share?

Types that turn what was typed into values (ranges through ``dataguard.core.parse``), and decorators for the options
that several commands take, so that one idea has one spelling, one help text and one parameter name. Options that
describe a plan default to None: a command can tell what was given from what was left out, and the plan's own defaults
stand in one place only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dataguard.cli import completing
from dataguard.core.parse import parse_shard_row, parse_span, parse_step_or_span
from dataguard.errors import UsageError

__all__ = [
    "NAMED_PATH",
    "NAMED_WEIGHT",
    "PATH",
    "POLICY_NAMES",
    "SHARD_ROW",
    "SPAN",
    "STEPS",
    "PositiveNumber",
    "attempt_option",
    "batch_option",
    "cache_dir_option",
    "dry_run_option",
    "geometry_options",
    "json_option",
    "manifest_argument",
    "out_option",
    "plan_options",
    "rank_option",
    "reason_option",
    "root_option",
    "run_argument",
    "step_option",
    "weight_option",
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Decorated], Decorated]

PATH = click.Path(path_type=Path)
"""A path as it was typed; whether it can be read is found out, and told, by what reads it."""


class _Parsed(click.ParamType[Any]):
    """A type that a function of ``core.parse`` (or one like them) reads; its errors are the house's own."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parse(value) if isinstance(value, str) else value


class PositiveNumber(click.FloatRange):
    """A number above 0; NaN and infinity, which click's own range lets through, are refused."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for anything else."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number that bounds anything.", param, ctx)
        return number


def _named(text: str, *, what: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise UsageError(f"{text!r} is no NAME={what}", allowed=f"NAME={what}, with neither side empty")
    if "/" in name:
        raise UsageError(f"{name!r} cannot name a source", found="a '/' in it", allowed=f"NAME={what}")
    return name, value


POLICY_NAMES = ("default", "gopher", "olmo", "seed-batch")
"""Of the policies that ship; a test holds them to what ships, which help and completion are not to load."""

SPAN = _Parsed("START:STOP", parse_span)
"""A half-open range; its value is (start, stop)."""

STEPS = _Parsed("STEP|START:STOP", parse_step_or_span)
"""One number or a half-open range; its value is (start, stop)."""

SHARD_ROW = _Parsed("SHARD[:ROW]", parse_shard_row)
"""A shard or a record of it; its value is (shard name, row or None)."""

NAMED_PATH = _Parsed("NAME=PATH", lambda text: _named(text, what="PATH"))
"""Where a source lies; its value is (name, folder or URL as typed)."""

NAMED_WEIGHT = _Parsed("NAME=W", lambda text: _named(text, what="W"))
"""How strongly a source is mixed; its value is (name, weight as typed), which the plan reads exactly."""


def _as_dict(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError(f"{param.opts[0]} is given twice for source {', '.join(map(repr, doubled))}")
    return dict(pairs)


json_option = click.option("--json", "as_json", is_flag=True, help="Answer with JSON on standard output.")
"""``as_json: bool``."""

run_argument = click.argument("run", type=PATH, shell_complete=completing.folders)
"""``run: Path``, the run directory."""

manifest_argument = click.argument("manifest", shell_complete=completing.files)
"""``manifest: str``, a manifest file or its URL."""

step_option = click.option("--step", type=STEPS, help="Which step, or steps, in the trainer's labels.")
"""``step: tuple[int, int] | None``."""

batch_option = click.option("--batch", type=STEPS, help="Ask by batch instead of by step.")
"""``batch: tuple[int, int] | None``."""

rank_option = click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
"""``rank: int | None``."""

attempt_option = click.option(
    "--attempt",
    type=click.IntRange(min=1),
    shell_complete=completing.attempts,
    help="The lineage of this attempt; without it, the newest leaf's.",
)
"""``attempt: int | None``."""

root_option = click.option(
    "--root",
    "roots",
    type=NAMED_PATH,
    multiple=True,
    callback=_as_dict,
    shell_complete=completing.sources,
    help="Where a source lies now. Repeatable.",
)
"""``roots: dict[str, str]``, folders or URLs."""

weight_option = click.option(
    "--weight",
    "weights",
    type=NAMED_WEIGHT,
    multiple=True,
    callback=_as_dict,
    shell_complete=completing.sources,
    help="The mixture that is asked for, for every source or none; it is held against what is there.  Repeatable.",
)
"""``weights: dict[str, str]``, as typed."""


def _move_cache(ctx: click.Context, param: click.Parameter, folder: Path | None) -> None:
    if folder is not None and not ctx.resilient_parsing:
        from dataguard.corpus.environment import move_cache

        ctx.call_on_close(move_cache(str(folder.absolute())))


cache_dir_option = click.option(
    "--cache-dir",
    type=PATH,
    expose_value=False,
    callback=_move_cache,
    help="A folder on a local disk for shards that must be kept decoded.  [default: DATAGUARD_CACHE_DIR]",
)
"""No value: it moves the cache for as long as the command runs."""

reason_option = click.option("--reason", required=True, metavar="TEXT", help="Why; it stands in the journal.")
"""``reason: str``."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
"""``dry_run: bool``."""


def out_option(text: str, *, required: bool = True) -> Decorator[Any]:
    """``-o``, where something is written to; ``out: Path``."""
    return click.option("-o", "--out", type=PATH, required=required, help=text)


def geometry_options(command: Decorated) -> Decorated:
    """``world_size: int | None`` and ``microbatch_size: int | None``."""
    return _all(
        command,
        click.option("--world-size", type=click.IntRange(min=1), help="Data-parallel ranks."),
        click.option("--microbatch-size", type=click.IntRange(min=1), help="Samples of one forward pass on one rank."),
    )


def plan_options(command: Decorated) -> Decorated:
    """What a run is made of, given once at its creation; every value is None (or an empty dict) where not given.

    ``seed``, ``global_batch``, ``form``, ``seq_len``, ``lanes``, ``window_blocks``, ``shuffle``, ``weights``, ``fill``,
    ``skip_mode`` and ``first_label``, as `dataguard.Plan` takes them.
    """
    return _all(
        command,
        click.option("--seed", type=click.IntRange(min=0), help="What the order of the stream is drawn from."),
        click.option("--global-batch", type=click.IntRange(min=1), help="Samples of one step, over all ranks."),
        click.option(
            "--form", type=click.Choice(["document", "window"]), help="What a sample is.  [default: document]"
        ),
        click.option("--seq-len", type=click.IntRange(min=1), help="Tokens of a window."),
        click.option("--lanes", type=click.IntRange(min=1), help="Interleaved parts of the stream, a power of two."),
        click.option("--window-blocks", type=click.IntRange(min=1), help="Blocks shuffled together.  [default: 256]"),
        click.option("--shuffle", type=click.Choice(["blocks", "all", "none"]), help="[default: blocks]"),
        click.option(
            "--weight",
            "weights",
            type=NAMED_WEIGHT,
            multiple=True,
            callback=_as_dict,
            shell_complete=completing.sources,
            help="How strongly a source is mixed, for every source or none; 0 leaves it out.  "
            "[default: its number of samples]  Repeatable.",
        ),
        click.option(
            "--fill", type=click.Choice(["mask", "substitute"]), help="What a withheld slot holds.  [default: mask]"
        ),
        click.option(
            "--skip-mode", type=click.Choice(["jump", "hole"]), help="What a skip does to steps.  [default: jump]"
        ),
        click.option(
            "--first-label", type=click.IntRange(0, 1), help="What the trainer calls its first step.  [default: 0]"
        ),
    )


def _all(command: Decorated, *decorators: Callable[[Any], Any]) -> Decorated:
    for decorate in reversed(decorators):
        command = decorate(command)
    return command
