"""``dataguard demo``: what does the whole story look like on this machine?

1. Text that the machine has anyway becomes shards in a folder, one of them not what it should be.
2. Each command of the story runs as a process of its own, as a person would type it, and answers for itself.
3. Exit codes and what was found are compared with what the story promises; where it went otherwise, the demo says what
   was found instead and ends with 1.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import click

from dataguard.cli import output
from dataguard.cli.demo.answers import DemoAnswer
from dataguard.cli.demo.stage import NotAsTold, Stage
from dataguard.cli.demo.trained import PAGE, TRAINER, Told, tell_trained
from dataguard.cli.interrupts import going_on
from dataguard.cli.options import PATH, json_option
from dataguard.errors import UsageError

__all__ = ["demo"]


@click.command()
@click.option("--keep", "kept", type=PATH, help="Do it in this new or empty folder, and leave everything there.")
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True, help="What the order is drawn from.")
@click.option("--fast", is_flag=True, help="Without training, and without torch: a rehearsed run, in seconds.")
@click.option("--clean", is_flag=True, help="Train without the poison: nothing is to be found.")
@json_option
def demo(kept: Path | None, seed: int, fast: bool, clean: bool, as_json: bool) -> None:
    """Show the whole story on this machine, in about a minute.

    Makes a corpus of real text (Python's own library) with a poisoned shard, audits it, trains a small transformer on
    two ranks until the loss spikes, finds rank, shard and records, replays the batch, skips and quarantines, resumes on
    one rank, verifies, and writes a report. Ends with 1 where anything is not as it is told. No network is used.

    Examples: dataguard demo; dataguard demo --keep DEMO; dataguard demo --fast
    """
    began = time.monotonic()
    if fast and clean:
        raise UsageError("--clean trains, and --fast does not", todo="leave one of them out")
    if not fast:
        _require_torch()
    told = Told(seed=seed)
    failure: NotAsTold | None = None
    with _folder(kept) as folder, going_on(_again(kept), found=_left(kept)):
        stage = Stage(folder, to_stderr=as_json, kept=kept is not None)
        try:
            _tell(stage, told, fast=fast, clean=clean)
        except NotAsTold as error:
            failure = error
        page = _kept_page(folder, kept) if told.has_page else None
    document = DemoAnswer(
        story="fast" if fast else "clean" if clean else "poisoned",
        seed=told.seed,
        folder=None if kept is None else str(kept),
        report=None if page is None else str(page),
        commands=tuple(stage.commands),
        checks=tuple(stage.checks),
        shard=told.shard,
        event=told.event,
        verdict=told.verdict,
        losses=told.losses,
        all_as_expected=failure is None,
        seconds=round(time.monotonic() - began, 3),
    )
    output.answer(document, _render, json=as_json)
    if failure is not None:
        raise failure


def _tell(stage: Stage, told: Told, *, fast: bool, clean: bool) -> None:
    """One of the stories."""
    if fast:
        from dataguard.cli.demo.damaged import write_damaged_corpus
        from dataguard.cli.demo.rehearsed import tell_rehearsed

        tell_rehearsed(stage, write_damaged_corpus(stage.folder), told.seed)
        return
    from dataguard.cli.demo.poisoned import write_trained_corpus

    shutil.copyfile(Path(__file__).parent / "files" / TRAINER, stage.folder / TRAINER)
    tell_trained(stage, write_trained_corpus(stage.folder, poisoned=not clean), told)


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "the demo trains, and PyTorch is not installed here",
            todo="pip install 'dataguard[torch]', or see the story without training: dataguard demo --fast",
        )


def _render(document: DemoAnswer) -> list[str]:
    right = sum(each.exit_code == each.expected_exit_code for each in document.commands)
    lines = []
    if document.all_as_expected:
        lines += [*_in_short(document), ""]
    lines.append(f"{right} of {len(document.commands)} commands ended as they should, in {document.seconds:.0f} s.")
    if document.checks:
        held = sum(each.as_expected for each in document.checks)
        lines.append(f"{held} of {len(document.checks)} things that were to come out came out.")
    if document.report is not None:
        lines.append(f"Look at the run in a browser: {document.report}")
    if document.folder is None:
        rest = "Everything else" if document.report is not None else "Everything"
        return [*lines, f"{rest} was removed again (--keep DIR keeps it)."]
    return [*lines, f"Everything was kept in {document.folder}.", *_to_try(document)]


def _in_short(document: DemoAnswer) -> list[str]:
    """The whole story in a few sentences; none where it is one without a run that was trained."""
    shard, event, losses = document.shard, document.event, document.losses
    if shard is None:
        return []
    if event is None or losses is None:
        return [f"In short: nothing was planted, and nothing was found ({document.verdict}). The run verifies clean."]
    size = "" if event.size_nats is None else f" by {event.size_nats:.2f} nats"
    needed = "" if event.needed_nats is None else f" (the detector needs {event.needed_nats:.2f})"
    peak = "not known" if losses.peak is None else f"{losses.peak:.2f}"
    return [
        f"In short: {shard.num_records} records of gibberish were planted in {shard.shard}.",
        f"Rank {shard.rank} read them from step {shard.start} on; at step {event.peak} the loss rose{size}{needed}.",
        f"Triage named rank {event.rank} and {event.shard}; verdict {document.verdict}.",
        "Skipped, quarantined, resumed on one rank from a checkpoint before it; the run verifies clean.",
        f"Loss before {losses.before:.2f}, at the peak {peak}, at the end {losses.end:.2f}.",
    ]


def _to_try(document: DemoAnswer) -> list[str]:
    """What to type next in the folder that was kept."""
    if document.event is None or document.shard is None or document.folder is None:
        return []
    step, rank = document.event.peak, document.shard.rank
    return [
        f"What to try next, after  cd {shlex.quote(document.folder)}",
        f"  dataguard inspect RUN --attempt 1 --step {step} --rank {rank}   # what the rank was fed, with its text",
        f"  dataguard where RUN {_first_of(document.shard.shard)}   # when was this record trained on?",
        "  dataguard log RUN   # what happened to this run, and by whom",
    ]


def _first_of(shard: str) -> str:
    """The address of a shard's first record."""
    return shlex.quote(f"{shard}:0")


def _kept_page(folder: Path, kept: Path | None) -> Path:
    """Where the page can be looked at when the demo is over: it stays where nothing else does."""
    if kept is not None:
        return kept / PAGE
    page = Path(mkdtemp(prefix="dataguard-demo-page-")) / PAGE
    shutil.move(folder / PAGE, page)
    return page


def _left(kept: Path | None) -> str:
    return "nothing is kept" if kept is None else f"what was made until then is kept in {kept}"


def _again(kept: Path | None) -> str:
    return "dataguard demo begins again" + ("" if kept is None else ", in another folder: --keep DIR")


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with TemporaryDirectory(prefix="dataguard-demo-") as made:
            yield Path(made).resolve()
        return
    kept.mkdir(parents=True, exist_ok=True)
    if any(kept.iterdir()):
        raise UsageError(f"{kept} is not empty", allowed="a new or an empty folder", todo="give another one to --keep")
    yield kept.resolve()
