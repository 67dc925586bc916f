"""How do all ranks stop at one step when the gate says halt on one of them?

A rank that is handed a sample on which a rule says halt gets an empty slot, and publishes a small file first: *stop
before step s*, two delivered steps on. Every rank looks before it begins a step; at s, each of them ends with the same
answer. Of several, the lowest s counts. When rank 0 ends, or the next attempt begins, the journal is told (`Halted`).

What this holds without a process group: the ranks share the run directory and nothing else. A rank can begin step s
only when every other has been handed all of step s - 1, wherever they meet once a step, as data-parallel training does
when it adds gradients up; the file was published in step s - 2, so it is there to be seen as soon as the file system
shows a new name to a reader that opens its folder (NFS promises that). Then no rank delivers anything of s. Ranks that
never meet, as in a loop without a trainer, may have begun s already when it is published: such a rank stops before the
next step it asks for, and its record shows how far it went.

The file is there whether or not the journal can be written, which only rank 0 and the command line do.
"""

from __future__ import annotations

import os
import re
from math import isnan
from typing import Literal

import msgspec

from dataguard.core.digests import canonical_json
from dataguard.errors import AnswerNo, RunDamaged
from dataguard.run.atomic import make_folders, publish_new
from dataguard.run.events import AttemptBegun, Event, Halted
from dataguard.run.journal import JournalRead
from dataguard.run.layout import Layout
from dataguard.run.run import Run

__all__ = ["Halt", "HaltWatch", "answer_of", "publish_halt", "read_halts", "record_halts"]

_NAME = re.compile(r"(\d{9,})\.rank=(\d{5,})\.json")


class Halt(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="dataguard-halt"):
    """Stop before a step: what one rank publishes. Steps count from 0."""

    version: Literal[1] = 1
    run: str
    attempt: int
    stop_step: int
    """No rank delivers anything of this step."""
    step: int
    """Where the sample stood."""
    rank: int
    microbatch: int
    slot: int
    position: int
    shard: str
    """``SOURCE/path`` of the row that halts; of a substitute where that was judged."""
    row: int
    rules: tuple[str, ...]
    """Names of the rules that say halt."""
    signals: dict[str, float] = {}
    """What the policy asks for, in full precision."""


class HaltWatch:
    """Looks for what was published in an attempt: one listing of a small folder each time."""

    def __init__(self, layout: Layout, attempt: int) -> None:
        self._layout = layout
        self._attempt = attempt
        make_folders(layout.halts_attempt(attempt))

    def lowest(self) -> Halt | None:
        """The halt with the lowest step; None where nothing was published."""
        found = _names(self._layout, self._attempt)
        return _read(self._layout, self._attempt, found[0]) if found else None


def publish_halt(layout: Layout, halt: Halt) -> bool:
    """Publish, durable when this returns; False where this rank has published the same step already.

    Raises
    ------
    WriteFailed
        The operating system failed: nothing may be handed over.
    """
    path = layout.halt(halt.attempt, halt.stop_step, halt.rank)
    return publish_new(path, canonical_json(halt) + b"\n", tmp=layout.tmp)


def read_halts(layout: Layout, attempt: int) -> list[Halt]:
    """All that ranks published in an attempt, by step and rank.

    Raises
    ------
    RunDamaged
        A file cannot be read.
    """
    return [_read(layout, attempt, name) for name in _names(layout, attempt)]


def _names(layout: Layout, attempt: int) -> list[str]:
    try:
        with os.scandir(layout.halts_attempt(attempt)) as listing:
            matches = [match for entry in listing if (match := _NAME.fullmatch(entry.name))]
    except FileNotFoundError:
        return []
    return [match[0] for match in sorted(matches, key=lambda match: (int(match[1]), int(match[2])))]


def _read(layout: Layout, attempt: int, name: str) -> Halt:
    path = layout.halts_attempt(attempt) / name
    try:
        halt = msgspec.json.decode(path.read_bytes(), type=Halt)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDamaged(f"{path} cannot be read", found=str(error)) from error
    if path != layout.halt(halt.attempt, halt.stop_step, halt.rank):
        raise RunDamaged(f"{path} is another file in this one's place", found=f"it says attempt {halt.attempt}")
    return halt


def answer_of(run: Run, halt: Halt, *, begun_beyond: int | None = None) -> AnswerNo:
    """What every rank ends with.

    Parameters
    ----------
    begun_beyond
        A step from the stop on that this rank was handed before it could know.
    """
    signals = ", ".join(f"{name} {value:g}" for name, value in halt.signals.items() if not isnan(value))
    withholds = f"dataguard quarantine {run.path} {halt.shard}:{halt.row} --reason TEXT withholds it"
    if run.plan_document().root.form == "given":
        withholds = "leave that row out of what the trainer's own loader gives"
    beyond = "" if begun_beyond is None else f"; this rank had begun step {run.label(begun_beyond):,} already"
    return AnswerNo(
        f"attempt {halt.attempt} stops before step {run.label(halt.stop_step):,}: the gate says halt{beyond}",
        found=f"step {run.label(halt.step):,}, rank {halt.rank}, microbatch {halt.microbatch}, slot {halt.slot}: "
        f"{halt.shard} row {halt.row:,}, by {', '.join(halt.rules)} ({signals})",
        todo=f"dataguard inspect {run.path} --step {run.label(halt.step)} shows it, {withholds}; "
        f"then resume from the state of step {run.label(halt.stop_step):,}, or from an earlier one",
    )


def record_halts(run: Run) -> int:
    """Tell the journal of every attempt that was halted, each once; how many were new. For rank 0 and commands."""
    if run.stream_identity is not None:
        return 0  # nothing judges what is evaluated
    read = run.read()
    known = {entry.event.attempt for entry in read.entries if isinstance(entry.event, Halted)}
    begun = [entry.event.attempt for entry in read.entries if isinstance(entry.event, AttemptBegun)]
    num_new = 0
    for attempt in begun:
        halts = [] if attempt in known else read_halts(run.layout, attempt)
        if not halts:
            continue
        event = _event(halts[0])

        def make(read: JournalRead, event: Halted = event) -> Event:
            if any(isinstance(e.event, Halted) and e.event.attempt == event.attempt for e in read.entries):
                raise _StandsError
            return event

        try:
            run.journal.append(make)
            num_new += 1
        except _StandsError:
            continue
    return num_new


class _StandsError(Exception):
    """It stands already; never seen outside."""


def _event(halt: Halt) -> Halted:
    return Halted(
        attempt=halt.attempt,
        stop_step=halt.stop_step,
        step=halt.step,
        rank=halt.rank,
        microbatch=halt.microbatch,
        slot=halt.slot,
        position=halt.position,
        shard=halt.shard,
        row=halt.row,
        rules=halt.rules,
    )
