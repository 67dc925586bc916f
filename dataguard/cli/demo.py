"""``dataguard demo``: what does the whole story look like on this machine?

1. Text that the machine has anyway (`demo_corpus`) becomes shards in a temporary folder, one of them cut short.
2. Each command of the story runs as a process of its own, as a person would type it, and answers for itself.
3. Every exit code is compared with the one the story expects; at the end the demo says whether all of them were right,
   and ends with 1 where they were not.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from dataguard.cli import output
from dataguard.cli.demo_corpus import DemoCorpus, write_demo_corpus
from dataguard.cli.options import PATH, json_option
from dataguard.errors import AnswerNo, UsageError

__all__ = ["DemoAnswer", "DemoCommand", "demo"]

_SPIKE_STEP = 42
_LOOKED_AT_STEP = 17


class DemoCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the story, as it went."""

    command: str
    """As a person would type it, in the demo's folder."""
    exit_code: int
    expected_exit_code: int
    seconds: float


class DemoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dataguard demo --json`` answers."""

    folder: str | None
    """Where everything was kept; null where it was removed."""
    commands: tuple[DemoCommand, ...]
    all_as_expected: bool
    seconds: float


class _Story:
    """Runs commands in one folder and keeps how each of them ended."""

    def __init__(self, folder: Path, *, to_stderr: bool) -> None:
        self.folder = folder
        self.to_stderr = to_stderr
        self.commands: list[DemoCommand] = []

    def tell(self, text: str = "") -> None:
        """A sentence between the commands."""
        print(text, file=sys.stderr if self.to_stderr else sys.stdout, flush=True)

    def run(self, *words: str, expected: int = 0, why: str = "") -> None:
        """Show a command, run it, let it answer, and keep its exit code."""
        command = shlex.join(["dataguard", *words])
        if why:
            self.tell(f"# {why}")
        self.tell(f"$ {command}")
        began = time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own program, with words of our own
            [sys.executable, "-P", "-m", "dataguard", *words],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if self.to_stderr else None,
            check=False,
        )
        seconds = round(time.monotonic() - began, 3)
        if done.returncode or expected:
            as_it_should = "as it should" if done.returncode == expected else f"and {expected} was expected"
            self.tell(f"[exit code {done.returncode}, {as_it_should}]")
        self.tell()
        self.commands.append(
            DemoCommand(command=command, exit_code=done.returncode, expected_exit_code=expected, seconds=seconds)
        )

    def ask(self, *words: str) -> bytes:
        """The JSON answer of a command that the story does not show."""
        done = subprocess.run(  # noqa: S603 - as above
            [sys.executable, "-P", "-m", "dataguard", *words, "--json"],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            told = done.stderr.decode("utf-8", "replace")
            raise AnswerNo(f"{shlex.join(['dataguard', *words, '--json'])} ended with {done.returncode}", found=told)
        return done.stdout


@click.command()
@click.option("--keep", "kept", type=PATH, help="Do it in this new or empty folder, and leave everything there.")
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True, help="What the order is drawn from.")
@json_option
def demo(kept: Path | None, seed: int, as_json: bool) -> None:
    """Show the whole story on this machine, in less than a minute.

    Builds a manifest over real text (the sources and documentation strings of Python's own library, one shard damaged
    on purpose), rehearses a run on four ranks, looks at a step and rebuilds it, skips and quarantines, resumes with
    another world size, and verifies.
    """
    began = time.monotonic()
    with _folder(kept) as folder:
        story = _Story(folder, to_stderr=as_json)
        _tell(story, write_demo_corpus(folder), seed)
    wrong = [command for command in story.commands if command.exit_code != command.expected_exit_code]
    document = DemoAnswer(
        folder=None if kept is None else str(kept),
        commands=tuple(story.commands),
        all_as_expected=not wrong,
        seconds=round(time.monotonic() - began, 3),
    )
    output.answer(document, _render, json=as_json)
    if wrong:
        raise AnswerNo(
            f"{len(wrong)} of {len(story.commands)} commands did not end as they should",
            found="; ".join(f"{each.command} ended with {each.exit_code}" for each in wrong),
            allowed="; ".join(str(each.expected_exit_code) for each in wrong),
        )


def _tell(story: _Story, corpus: DemoCorpus, seed: int) -> None:
    before, after = corpus.damaged_bytes
    story.tell(f"In {story.folder} there are now, taken from Python's own library,")
    story.tell(f"  code/  {corpus.num_files:,} source files as JSON lines, compressed with zstd")
    story.tell(f"  docs/  {corpus.num_strings:,} documentation strings as Parquet")
    story.tell(f"and {corpus.damaged} was cut from {before:,} to {after:,} bytes, as a broken copy would be.\n")

    run, step, spike = "RUN", str(_LOOKED_AT_STEP), str(_SPIKE_STEP)
    why = "What data is there? The damaged shard is found and named; the rest goes on."
    story.run("manifest", "build", *corpus.sources, "-o", "M.parquet", expected=3, why=why)
    story.run("manifest", "show", "M.parquet")
    made_of = ["--seed", str(seed), "--global-batch", "16", "--world-size", "4", "--microbatch-size", "2"]
    why = "What will my run be fed? Four ranks walk the loader, without a trainer."
    story.run("rehearse", "M.parquet", "--run", run, *made_of, "--steps", "60", why=why)
    why = f"What was every rank fed at step {step}?"
    story.run("inspect", run, "--step", step, why=why)
    why = "Rebuild it from plan and shards, and compare every digest with what was recorded."
    story.run("replay", run, "--step", step, "-o", "OUT", why=why)

    shard, row = _first_record(story.ask("replay", run, "--step", step))
    story.run("where", run, f"{shard}:{row}", why=f"When was record {row} of {shard} trained on?")
    story.run("seen", run, "--step", step, why=f"What is a checkpoint of step {step} made of?")

    why = f"Suppose the loss rose at step {spike}. Skip the steps around it, and withhold the shard."
    story.run("skip", run, "40:45", "--reason", f"loss spike at step {spike}", why=why)
    story.run("quarantine", run, shard, "--reason", f"odd text at step {spike}")
    why = "Rewind to step 35 and go on with two ranks: the stream stays where it is."
    story.run("rehearse", "--run", run, "--from-step", "35", "--steps", "30", "--world-size", "2", why=why)
    why = f"Step {spike} now holds the batch that comes after the skipped ones ..."
    story.run("inspect", run, "--step", spike, why=why)
    story.run(
        "replay", run, "--step", spike, "-o", "OUT2", why="... and is rebuilt as exactly as the one before the rewind:"
    )
    story.run("replay", run, "--step", spike, "--attempt", "1", "-o", "OUT3")
    story.run("log", run, why="What happened to this run?")
    story.run("verify", run, why="Do journal, index, plan and data agree?")


def _first_record(replayed: bytes) -> tuple[str, int]:
    """Shard and row of the first sample of a replayed step."""
    for microbatch in msgspec.json.decode(replayed)["microbatches"]:
        for sample in microbatch["samples"]:
            if sample["shard"] is not None:
                return sample["shard"], sample["row"]
    raise AnswerNo("the replayed step holds no sample")


def _render(document: DemoAnswer) -> list[str]:
    right = sum(each.exit_code == each.expected_exit_code for each in document.commands)
    place = f"kept in {document.folder}" if document.folder else "removed again (--keep DIR keeps it)"
    return [
        f"{right} of {len(document.commands)} commands ended as they should, in {document.seconds:.0f} s.",
        f"Everything was {place}.",
    ]


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with TemporaryDirectory(prefix="dataguard-demo-") as made:
            yield Path(made)
        return
    kept.mkdir(parents=True, exist_ok=True)
    if any(kept.iterdir()):
        raise UsageError(f"{kept} is not empty", allowed="a new or an empty folder", todo="give another one to --keep")
    yield kept
