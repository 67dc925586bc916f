"""``dataguard manifest build | show | verify``: parse, call one function of the corpus, hand the facts on.

Exit codes of ``build``: 0 where every shard could be read (rejected records do not matter), 3 where a shard is flagged
or excluded or something could not be reached; the manifest is written either way, and ``--allow-damaged`` accepts it.
Exit codes of ``verify``: 1 where a shard is changed or missing, 3 where one could not be read or nothing was checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dataguard.cli import completing, output
from dataguard.cli.interrupts import ONLY_READ, going_on
from dataguard.cli.options import json_option, manifest_argument, out_option, root_option
from dataguard.cli.scanning import isolation_options, limit_options, timeout_of
from dataguard.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["manifest"]

Document = TypeVar("Document")


@click.group()
def manifest() -> None:
    """Build, show or verify the list of sources, shards and blocks.

    Examples: dataguard manifest build web=data/web code=data/code -o M.parquet
    dataguard manifest show M.parquet
    """


@manifest.command()
@click.argument("paths", nargs=-1, required=True, shell_complete=completing.files)
@out_option("The manifest file to write.")
@click.option("--text-field", default="text", show_default=True, help="The field or column that holds the text.")
@click.option(
    "--dtype", default="", metavar="TYPE", help="Type of the ids in .bin, .raw, .tokens files without header."
)
@click.option("--token-field", default="", metavar="NAME", help="The column of ids, where files have columns.")
@click.option("--format", "format_name", default="", metavar="NAME", help="Read every file as this format, e.g. text.")
@limit_options
@isolation_options
@click.option("--workers", "num_workers", type=click.IntRange(min=1), help="Processes that scan.  [default: by size]")
@click.option("--allow-damaged", is_flag=True, help="End with 0 though shards are damaged; they stay marked.")
@click.option("--list-ignored", is_flag=True, help="Name every file that is no shard, with the reason.")
@json_option
def build(
    paths: tuple[str, ...],
    out: Path,
    text_field: str,
    dtype: str,
    token_field: str,
    format_name: str,
    isolate: bool,
    scan_timeout_seconds: float | None,
    num_workers: int | None,
    allow_damaged: bool,
    list_ignored: bool,
    as_json: bool,
    **limits: int | None,
) -> int:
    """Scan shards into a manifest.

    PATHS are folders, files, patterns or URLs, each with or without a name: NAME=PATH. A dataset of the Hugging Face
    hub is hf://datasets/OWNER/NAME[@REVISION][#CONFIG[/SPLIT]]. An interrupted build goes on where it stopped when the
    same command is given again.

    Examples: dataguard manifest build web=data/web code=data/code -o M.parquet
    dataguard manifest build 'data/*.jsonl.zst' --text-field content --isolate -o M.parquet
    dataguard manifest build hf://datasets/OWNER/NAME#CONFIG/train -o M.parquet
    """
    from dataguard.corpus.build import BuildProgress, build_manifest_file
    from dataguard.corpus.formats.protocol import ScanOptions
    from dataguard.report import manifest_documents
    from dataguard.report.manifest import render_built

    began = time.monotonic()
    timeout_seconds = timeout_of(isolate=isolate, scan_timeout_seconds=scan_timeout_seconds)
    given = {name: value for name, value in limits.items() if value is not None}
    scanned = ""

    with (
        output.progress("scanning", unit="bytes") as shown,
        going_on("the same command goes on from there: scans that are done are kept", found=lambda: scanned),
    ):

        def tell(progress: BuildProgress) -> None:
            nonlocal scanned
            scanned = f"{progress.num_done:,} of {progress.num_shards:,} shards are scanned"
            shown(progress.done_bytes, progress.total_bytes)

        result, header = build_manifest_file(
            paths,
            out,
            options=ScanOptions(text_field=text_field, dtype=dtype, token_field=token_field, **given),
            format_name=format_name,
            num_workers=num_workers,
            timeout_seconds=timeout_seconds,
            progress=tell,
        )
    document = manifest_documents.built(
        result, header, path=_shown(out), seconds=time.monotonic() - began, list_ignored=list_ignored
    )
    output.answer(document, _by_line(render_built), json=as_json)
    if allow_damaged or not (result.num_damaged or result.unreachable):
        return 0
    output.say(
        f"{result.num_damaged:,} of {len(result.manifest.shards):,} shards are damaged"
        + (f", {len(result.unreachable):,} paths were not reached" if result.unreachable else "")
        + "; the manifest is written, and what is damaged is marked in it (--allow-damaged accepts that)"
    )
    return InputError.exit_code


@manifest.command()
@manifest_argument
@click.option("--shards", "list_shards", is_flag=True, help="List the shards, one a line.")
@click.option("--rejected", "list_rejected", is_flag=True, help="List every finding, one a line.")
@json_option
def show(manifest: Path, list_shards: bool, list_rejected: bool, as_json: bool) -> None:
    """Show what a manifest holds.

    With --shards or --rejected the answer is that list, one a line (with --json, a JSON document a line).

    Examples: dataguard manifest show M.parquet
    dataguard manifest show M.parquet --rejected --json
    """
    from dataguard.corpus.account import take_account
    from dataguard.corpus.manifest_read import read_findings, read_manifest
    from dataguard.report import manifest_documents
    from dataguard.report.manifest import render_finding, render_shard, render_shown

    read = read_manifest(manifest)
    if list_shards:
        output.answer_lines(manifest_documents.shards_shown(read.manifest), _by_line(render_shard), json=as_json)
    if list_rejected:
        findings = manifest_documents.findings_shown(read_findings(manifest))
        output.answer_lines(findings, _by_line(render_finding), json=as_json)
    if list_shards or list_rejected:
        return
    document = manifest_documents.shown(
        read.manifest,
        take_account(read.manifest),
        read.header,
        path=_shown(manifest),
        damaged=read_findings(manifest, rejected=False),
    )
    output.answer(document, _by_line(render_shown), json=as_json)


@manifest.command()
@manifest_argument
@root_option
@json_option
def verify(manifest: Path, roots: dict[str, Path], as_json: bool) -> int:
    """Hash every shard again and name each that is changed or missing.

    Data files that lie beside the shards and are not in the manifest are named too; they are no failure.

    Examples: dataguard manifest verify M.parquet
    dataguard manifest verify M.parquet --root web=/mnt/copy/web
    """
    from dataguard.corpus.corpus import Corpus
    from dataguard.corpus.newcomers import files_beside
    from dataguard.corpus.verify import verify_shards
    from dataguard.report import manifest_documents
    from dataguard.report.manifest import render_verified

    corpus = Corpus.open(manifest, {name: str(path) for name, path in roots.items()})
    total_bytes = sum(shard.size_bytes for shard in corpus.manifest.shards)
    with (
        output.progress("hashing", unit="bytes", total=total_bytes) as shown,
        going_on(ONLY_READ, found=lambda: shown.told("hashed")),
    ):
        checks = list(verify_shards(corpus, progress=lambda _, done_bytes: shown(done_bytes)))
    beside = files_beside(corpus, manifest_path=manifest)
    document = manifest_documents.verified(_shown(manifest), corpus.manifest, checks, new_files=beside)
    output.answer(document, _by_line(render_verified), json=as_json)
    if document.num_changed or document.num_missing:
        return 1
    if document.num_unreadable or document.num_without_digest or not document.num_same:
        return InputError.exit_code
    return 0


def _shown(path: Path) -> str:
    """A path as it was typed, in text that any document can hold."""
    from dataguard.corpus.storage import canonical, readable

    return readable(canonical(str(path)))


def _by_line(render: Callable[[Document], str | Iterator[str | Table]]) -> Callable[[Document], list[str | Table]]:
    """A renderer whose texts are lines: names may hold line feeds, and still stand on one."""

    def lines(document: Document) -> list[str | Table]:
        rendered = render(document)
        parts = [rendered] if isinstance(rendered, str) else rendered
        return [output.printable(part) if isinstance(part, str) else part for part in parts]

    return lines
