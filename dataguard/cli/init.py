"""``dataguard init``: parse, write a policy and a training script, answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dataguard.cli import output
from dataguard.cli.frameworks import FRAMEWORKS
from dataguard.cli.options import json_option

if TYPE_CHECKING:
    from dataguard.cli.starting import InitAnswer

__all__ = ["init"]


@click.command()
@click.argument("folder", metavar="[DIR]", default=".")
@click.argument("paths", nargs=-1)
@click.option(
    "--framework",
    type=click.Choice(FRAMEWORKS),
    help="What trains.  [default: what scripts there use, or is installed]",
)
@click.option("--manifest", metavar="M", help="The manifest to train on, a file or its URL.")
@json_option
def init(folder: str, paths: tuple[str, ...], framework: str | None, manifest: str | None, as_json: bool) -> None:
    """Write a commented policy.toml and a ready training script.

    Into DIR, which is here where none is given. PATHS are what to train on, NAME=PATH each: their manifest is built as
    DIR/M.parquet, as by `dataguard manifest build`. The script runs as it is, and goes on from its checkpoints; what to
    fill in is marked in it. Nothing that stands is overwritten.

    Examples: dataguard init; dataguard init mine web=data/web code=data/code;
    dataguard init mine --framework hf --manifest M.parquet
    """
    from dataguard.cli.starting import start

    if "/" not in folder.partition("=")[0] and "=" in folder and not Path(folder).exists():
        folder, paths = ".", (folder, *paths)  # NAME=PATH, without a DIR before it
    answer = start(Path(folder), framework=framework, manifest=manifest, paths=paths, build=_build)
    output.answer(answer, _rendered, json=as_json)


def _rendered(answer: InitAnswer) -> Iterator[str]:
    """What a person is told."""
    from dataguard.cli.frameworks import TITLES

    yield f"framework: {TITLES[answer.framework]}, since {answer.why}"
    there = ", ".join(f"{name} {version}" for name, version in sorted(answer.installed.items()))
    yield f"installed: {there or 'no framework that dataguard knows'}"
    if answer.lacking:
        yield f"not installed here, and the script imports it: {', '.join(answer.lacking)}"
    yield f"wrote {', '.join(answer.wrote)}"
    yield from answer.remarks
    yield ""
    yield "next, after what is marked FILL IN:"
    yield from (f"  {command}" for command in answer.next)


def _build(paths: Sequence[str], out: Path) -> list[str]:
    """Build a manifest; what is to be said of it."""
    from dataguard.corpus.build import BuildProgress, build_manifest_file

    with output.progress("scanning", unit="bytes") as shown:

        def tell(progress: BuildProgress) -> None:
            shown(progress.done_bytes, progress.total_bytes)

        result, _ = build_manifest_file(paths, out, progress=tell)
    num_shards, num_rows = len(result.manifest.shards), int(result.manifest.num_deliverable.sum())
    said = [f"{out}: {num_shards:,} shard{'' if num_shards == 1 else 's'}, {num_rows:,} rows or tokens to deliver"]
    if result.num_damaged or result.unreachable:
        said.append(
            f"{result.num_damaged:,} shards are damaged, {len(result.unreachable):,} paths were not reached: "
            f"see `dataguard manifest show {out}`"
        )
    said += [
        f"source {name}: {hint}; name the field with `manifest build --text-field`"
        for name, hint in result.hints.items()
    ]
    return said
