"""Which pages of the documentation are made of the code, and how does each come about?

Commands, signals, policies, exit codes and documents stand in tables of the package; FINDINGS.md, CHANGELOG.md and
CONTRIBUTING.md stand at the top of the tree. `PAGES` names for each page the function that writes it, so that none of
them can say anything else than the code does. Nothing here needs MkDocs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from math import isinf
from pathlib import Path

import click

from dataguard import errors
from dataguard.cli.main import COMMANDS, group
from dataguard.cli.schema import DOCUMENTS
from dataguard.core.signals import SignalSpec
from dataguard.gate.policy import POLICY_NAMES, named_policy, policy_text
from dataguard.score.registry import HEADLINE, TEXT_SIGNALS, TOKEN_SIGNALS
from dataguard.triage.detect.profiles import PROFILES

__all__ = ["PAGES", "TOP"]

TOP = Path(__file__).parents[2]
"""The tree."""
_HELP = {"max_content_width": 82, "terminal_width": 82}
_LINK = re.compile(r"\]\(([^)#]+)\)")
_PAGE_OF_FILE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "FINDINGS.md": "findings.md"}

_COMMANDS = """# Commands

Each command with what its `--help` prints. Whatever answers takes `--json`: JSON on standard output and nothing else
there. The [documents](schemas.md) have schemas; the [exit codes](exit-codes.md) are a closed list.
"""
_SIGNALS = """# Signals

A signal is one number that a scorer gives for a sample. This page is the registry of `dataguard/score/registry.py`, by
which policies are checked and columns are named. The version of a signal changes when its definition does. Of those in
**bold** the index keeps one byte for every sample that was delivered; all others are computed again when they are asked
for.
"""
_POLICIES = """# Policies

A policy is a TOML file: rules over [signals](signals.md), and what becomes of a sample where one fires.
`dataguard policy init -o policy.toml` writes a copy of one that ships, with its comments; `policy check` tells every
problem at once, with its line; `policy explain` says what a policy means.

| action | what becomes of the sample |
|---|---|
| `flag` | it is trained on, and on record with the rules that fired |
| `mask` | it keeps its slot and its inputs; labels of the offending span, or of all of it, are ignored |
| `substitute` | another row of the same source takes its slot |
| `halt` | all ranks stop at one step, two steps on; until then its slot is padding |
| `propose_skip`, `propose_quarantine` | of batches and shards: the journal gets a proposal, and nothing moves |
"""


def _table(heads: list[str], rows: Iterator[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in lines) + "\n"


def commands() -> str:
    """Every command with the help it prints."""
    parts = [_COMMANDS]
    with click.Context(group, info_name="dataguard", **{**group.context_settings, **_HELP}) as ctx:
        for section in dict.fromkeys(entry.section for entry in COMMANDS):
            parts.append(f"## {section}\n")
            for entry in COMMANDS:
                if entry.section == section:
                    command = group.get_command(ctx, entry.name)
                    assert command is not None, entry.name
                    parts += _command(command, entry.name, ctx)
    return "\n".join(parts)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    with click.Context(command, info_name=name, parent=parent, color=False, **_HELP) as ctx:  # type: ignore[arg-type]
        path = ctx.command_path
        yield f"### {path} {{ #{path.replace(' ', '-')} }}\n\n```text\n{command.get_help(ctx).strip()}\n```\n"
        if isinstance(command, click.Group):
            for member in command.list_commands(ctx):
                under = command.get_command(ctx, member)
                assert under is not None, member
                yield from _command(under, member, ctx)


def signals() -> str:
    """The registry of signals, as tables."""
    headline = {name for names in HEADLINE.values() for name in names}
    parts = [_SIGNALS]
    for title, said, specs in (
        (
            "Of text",
            (
                "Computed from the bytes of a record as they are stored, before any repair. What the definitions leave "
                "open is said by [`dataguard.score.text`](python/score.md)."
            ),
            TEXT_SIGNALS,
        ),
        (
            "Of tokens",
            "Computed from the ids of a sample, at the positions that count: padding is never scored.",
            TOKEN_SIGNALS,
        ),
    ):
        rows = ([_name(spec, headline), spec.definition, spec.unit, _range(spec), _rest(spec)] for spec in specs)
        parts += [
            f"## {title}\n\n{said}\n",
            _table(["signal", "what it is", "unit", "range", "of nothing; needs"], rows),
        ]
    return "\n".join(parts)


def _name(spec: SignalSpec, headline: set[str]) -> str:
    name = f"`{spec.name}`"
    return (f"**{name}**" if spec.name in headline else name) + (f" v{spec.version}" if spec.version > 1 else "")


def _range(spec: SignalSpec) -> str:
    low = "any" if isinf(spec.low) else f"{spec.low:g}"
    if isinf(spec.high):
        return f"{low} and more" if low != "any" else "any number"
    return f"{low} to {spec.high:g}" + ("" if spec.high_reached else ", which is not reached")


def _rest(spec: SignalSpec) -> str:
    return "; ".join([f"{spec.empty:g}", *(f"needs `{need}`" for need in spec.needs)])


def policies() -> str:
    """The policies that ship, with every rule."""
    parts = [_POLICIES]
    for name in POLICY_NAMES:
        policy = named_policy(name)
        parts.append(f"## {name}\n\n{policy.title[:1].upper()}{policy.title[1:]}.\n")
        if policy.warning:
            parts.append(f"!!! warning\n\n    {policy.warning}\n")
        rows = [
            *([rule.name, rule.text, rule.action, rule.note] for rule in policy.rules),
            *([rule.name, rule.text, rule.action, rule.note] for rule in policy.batch_rules),
            *([rule.name, rule.text, rule.action, rule.note] for rule in policy.shard_rules),
        ]
        cells = ([f"`{rule}`", text, f"`{action}`", note] for rule, text, action, note in rows)
        parts.append(_table(["rule", "fires where", "action", "from"], cells))
        parts.append(f'??? note "{name}.toml"\n\n    ```toml\n{_indented(policy_text(name))}\n    ```\n')
    return "\n".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.strip().splitlines())


def exit_codes() -> str:
    """The closed list, and which error ends with which."""
    told = {
        0: "all is well; never given where nothing was checked",
        1: "the answer is no: verification failed, digests differ, a gate failed, a spike was found with `--fail`",
        2: "usage: what was asked for cannot be asked for",
        3: "input cannot be read, or is damaged; or nothing was checked",
        4: "the environment failed: disk full, no permission, a worker died",
        70: "a fault of dataguard itself; `--debug` shows the traceback",
        130: "interrupted",
        141: "the reader of the output has gone (`| head`)",
    }
    rows = []
    for code, meaning in told.items():
        names = [name for name in errors.__all__ if getattr(errors, name).exit_code == code]
        links = ", ".join(f"[`{name}`][dataguard.errors.{name}]" for name in names)
        rows.append([str(code), meaning, links])
    return (
        "# Exit codes\n\nScripts may rely on them: the list is closed, and a test holds it. A message says up to four "
        "things: what is wrong, what was found, what is allowed, what to do next.\n\n"
        + _table(["code", "meaning", "errors"], iter(rows))
    )


def schemas() -> str:
    """The documents that are read and written, and where each is defined."""
    rows = ([f"`{name}`", _first_line(where), _defined(where)] for name, where in sorted(DOCUMENTS.items()))
    return (
        "# JSON documents\n\nEvery JSON document that dataguard writes, on disk or with `--json`, has a JSON Schema: "
        "`dataguard schema NAME` prints it, and `schemas/NAME.json` of the tree holds it. A test keeps the files equal "
        "to the code.\n\n" + _table(["name", "what it is", "defined by"], rows)
    )


def _defined(where: str) -> str:
    module, _, names = where.partition(":")
    kinds = " or ".join(f"`{name}`" for name in names.split("|"))
    return f"{kinds} of `{module.removeprefix('dataguard.')}`"


def _first_line(where: str) -> str:
    module, _, names = where.partition(":")
    said = [(getattr(import_module(module), name).__doc__ or "").strip().split("\n\n")[0] for name in names.split("|")]
    return " Or: ".join(" ".join(each.split()).replace("``", "`") for each in said)


def detectors() -> str:
    """The profiles that `spikes --profile` knows."""
    rows = []
    for name, rule in PROFILES.items():
        said = "the detector of this package, with classes of events" if rule is None else (rule.__doc__ or "")
        rows.append([f"`{name}`", " ".join(said.strip().split("\n\n")[0].split()).replace("``", "`")])
    return (
        "# Detector profiles\n\n`dataguard spikes LOG --profile NAME` judges a training log by one of these. All but "
        "the default are rules as they stand in their sources, faults included, so that they can be compared on one "
        "log; on how many steps each would have alarmed is told with every answer. The default is "
        "[`dataguard.triage.detect.Detector`][], by the numbers of [`DetectorSettings`]"
        "[dataguard.triage.detect.DetectorSettings].\n\n" + _table(["profile", "alarms where"], iter(rows))
    )


def _file(name: str) -> Callable[[], str]:
    """A file at the top of the tree, with links that hold among the pages; other files are named, not linked."""

    def page() -> str:
        return _LINK.sub(_link, (TOP / name).read_text(encoding="utf-8"))

    return page


def _link(found: re.Match[str]) -> str:
    target = found[1]
    return f"]({_PAGE_OF_FILE.get(target, target.removeprefix('examples/docs/pages/'))})"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "signals.md": signals,
    "policies.md": policies,
    "detectors.md": detectors,
    "exit-codes.md": exit_codes,
    "schemas.md": schemas,
    "findings.md": _file("FINDINGS.md"),
    "changelog.md": _file("CHANGELOG.md"),
    "contributing.md": _file("CONTRIBUTING.md"),
}
"""Page -> what writes it, in Markdown."""
