"""What can stand where somebody pressed Tab?

Each function here is a ``shell_complete`` of an option or an argument. What a run holds is read from its small JSON
files, as they lie, for a shell waits for the answer; shard names come from its manifests. What cannot be read offers
nothing: the command itself will say why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from dataguard.errors import DataguardError

__all__ = ["attempts", "events", "files", "folders", "names_or_files", "records", "sources", "streams"]

Items = list[CompletionItem]
Completes = Callable[[click.Context, click.Parameter, str], Items]

_REVOCABLE = {"skip-added", "quarantined", "released", "revoked"}
_MOST_SHARDS = 2000


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Files and folders, which the shell itself lists."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Folders."""
    return [CompletionItem(incomplete, type="dir")]


def names_or_files(*names: str) -> Completes:
    """One of some names; a file where none of them begins like that."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        return _plain(names, incomplete) or files(ctx, param, incomplete)

    return complete


def attempts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Numbers of the attempts of the run that was named before."""
    found = [event for _, event in _events(ctx) if event.get("kind") == "attempt-begun"]
    return [
        CompletionItem(str(event["attempt"]), help=f"from step {event['fork_step']} of the stream")
        for event in found
        if str(event["attempt"]).startswith(incomplete)
    ]


def events(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Numbers of the events that can be revoked."""
    return [
        CompletionItem(str(number), help=" ".join([event["kind"], str(event.get("reason") or "")]).strip())
        for number, event in _events(ctx)
        if event.get("kind") in _REVOCABLE and str(number).startswith(incomplete)
    ]


def streams(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Named streams of the run."""
    run = _run(ctx)
    return [] if run is None else _plain(sorted(each.name for each in _entries(run / "streams")), incomplete)


def sources(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """``NAME=`` of every source of the run or the manifest that was named; behind it files."""
    if "=" in incomplete:
        return files(ctx, param, incomplete)
    run = _run(ctx)
    found: set[str] = set()
    for plan in () if run is None else _documents(run / "plan"):
        found |= {name for mixture in plan.get("mixtures", ()) for name in mixture.get("weights", {})}
    if not found:
        found = {source.name for manifest in _manifests(ctx) for source in manifest.sources}
    return _plain([f"{name}=" for name in sorted(found)], incomplete)


def records(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of shards, by folder where there are many; with a ``:`` where a row has to follow, which is typed."""
    sign = ":" if param.make_metavar(ctx) == "SHARD:ROW" else ""
    names = {manifest.shard_name(shard) + sign for manifest in _manifests(ctx) for shard in range(len(manifest.shards))}
    fitting = sorted(name for name in names if name.startswith(incomplete))
    if len(fitting) > _MOST_SHARDS:
        fitting = sorted({f"{incomplete}{name[len(incomplete) :].partition('/')[0]}/" for name in fitting})
    return _plain(fitting[:_MOST_SHARDS], incomplete)


def _plain(values: Iterable[str], incomplete: str) -> Items:
    return [CompletionItem(value) for value in values if value.startswith(incomplete) and "\n" not in value]


# ---- what lies in the folder that was named ----


def _run(ctx: click.Context) -> Path | None:
    named = _given(ctx, "run") or _given(ctx, "run_path")
    return Path(named) if named else None


def _given(ctx: click.Context, name: str) -> Any:
    """What was typed for a parameter; click leaves arguments unread behind an option that still lacks its value."""
    if ctx.params.get(name):
        return ctx.params[name]
    arguments = [each.name for each in ctx.command.params if isinstance(each, click.Argument)]
    place = arguments.index(name) if name in arguments else len(ctx.args)
    return ctx.args[place] if place < len(ctx.args) else None


def _events(ctx: click.Context) -> Sequence[tuple[int, dict[str, Any]]]:
    run = _run(ctx)
    if run is None:
        return []
    if ctx.params.get("stream"):
        run = run / "streams" / str(ctx.params["stream"])
    return [(file["number"], file["event"]) for file in _documents(run / "journal") if "event" in file]


def _documents(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(_entries(folder)):
        if path.suffix == ".json":
            try:
                document = json.loads(path.read_bytes())
            except (OSError, ValueError):
                continue
            if isinstance(document, dict):
                yield document


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _manifests(ctx: click.Context) -> Iterator[Any]:
    from dataguard.corpus.manifest_read import read_manifest

    run, named = _run(ctx), _given(ctx, "manifest")
    paths = [path for path in _entries(run / "manifest") if path.suffix == ".parquet"] if run is not None else []
    for path in [*sorted(paths), *([named] if named else [])]:
        try:
            yield read_manifest(path).manifest
        except (DataguardError, OSError):
            continue
