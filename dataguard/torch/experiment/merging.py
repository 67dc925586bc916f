"""What did other nodes measure of the same step, from the same checkpoints, with the same batches?

Results count together where all that went in is equal: attempt, step, the bytes of every checkpoint as loaded, the
digest of the batch and of each placebo batch, the ranks, and what is looked at. Each node keeps its own document; the
newest of each other node is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from dataguard.core.evidence import Replay, Told
from dataguard.errors import InputError, RunDamaged, UsageError
from dataguard.run.events import ExperimentDone
from dataguard.run.notes import noted, read_document
from dataguard.run.run import Run
from dataguard.torch.experiment.answers import CellResult, ExperimentReport, StateResult, decode_report
from dataguard.torch.experiment.judging import Asked, Judged, judge
from dataguard.triage.diagnose.cells import CELLS, Cell, replay_of

__all__ = ["cells_of", "check_given", "others_of", "read_reports"]


def read_reports(paths: Iterable[str | Path]) -> list[ExperimentReport]:
    """Reports of other nodes, from files.

    Raises
    ------
    InputError
        A file that cannot be read, or is no report.
    """
    reports = []
    for path in paths:
        try:
            reports.append(decode_report(Path(path).read_bytes()))
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{path} cannot be read as a report of an experiment", found=str(error)) from error
    return reports


def check_given(mine: ExperimentReport, given: Sequence[ExperimentReport]) -> None:
    """Refuse reports of other nodes that can be seen to be of something else, before anything is measured.

    Raises
    ------
    UsageError
        One is of another step, other batches or checkpoints, or of this very node.
    """
    for report in given:
        if _asked(report) != _asked(mine):
            raise UsageError(
                f"the report of {report.node} is of other inputs",
                found=f"step {report.step:,}, batch {report.batch}",
                allowed=f"step {mine.step:,}, batch {mine.batch}, the same checkpoints and placebo batches",
            )
        if report.node == mine.node:
            raise UsageError(f"the report that is given is of this node, {mine.node}", todo="name nodes: node=")


def others_of(
    run: Run, mine: ExperimentReport, given: Sequence[ExperimentReport], notes: list[str]
) -> list[ExperimentReport]:
    """The newest comparable report of every other node, oldest first: of the journal, then those given.

    What cannot be read, or was measured from other weights, is told in `notes`.
    """
    found: dict[str, ExperimentReport] = {}
    for report in [*_noted(run, mine, notes), *given]:
        if report.node == mine.node or _asked(report) != _asked(mine):
            continue
        if _states(report) != _states(mine):
            notes.append(f"the report of {report.node} is not merged: its checkpoints hold other weights")
            continue
        found.pop(report.node, None)
        found[report.node] = report
    return list(found.values())


def _noted(run: Run, mine: ExperimentReport, notes: list[str]) -> Iterator[ExperimentReport]:
    for entry, note in noted(run.read().entries, ExperimentDone):
        if run.label(note.step) == mine.step:
            try:
                yield decode_report(read_document(run.layout, "experiment", note.results))
            except (RunDamaged, msgspec.MsgspecError) as error:
                notes.append(f"the experiment of event {entry.number} cannot be read: {error}".splitlines()[0])


def _states(report: ExperimentReport) -> tuple[str | None, ...]:
    """What was loaded."""
    return tuple(each.state for each in report.checkpoints)


def _asked(report: ExperimentReport) -> tuple[object, ...]:
    """What is measured, as far as it is known before anything is loaded."""
    return (
        report.run,
        report.step,
        report.batch,
        report.signal,
        report.direction,
        report.sampled_ranks,
        tuple((each.checkpoint, each.next_step, each.trained_steps) for each in report.checkpoints),
        tuple(each.digest for each in report.placebos),
    )


def cells_of(
    mine: Sequence[StateResult],
    node: str,
    other: ExperimentReport | None,
    asked: Asked,
    doubts: Mapping[str, str],
    levels: Mapping[str, float] | None = None,
) -> tuple[tuple[CellResult, ...], Replay]:
    """The eight cells and their outcome; those that were not measured are unknown, with what is missing.

    Where the event shows on one of two nodes alone, that one is called this node.

    Parameters
    ----------
    doubts
        By checkpoint: why nothing that was measured from there counts.
    levels
        As `judge` takes them.
    """
    states = [*mine, *(other.states if other is not None else ())]
    judged = judge(states, asked, levels)
    names = {"this": node, "other": other.node if other is not None else None}
    if other is not None and _shows(judged, other.node) and not _shows(judged, node):
        names = {"this": other.node, "other": node}
    cells, told = [], {}
    for cell in CELLS:
        name = names[cell.node]
        known = None if name is None else judged.get((cell.checkpoint, cell.batch, name))
        result = (
            CellResult(
                checkpoint=cell.checkpoint,
                batch=cell.batch,
                node=cell.node,
                spikes=Told.UNKNOWN,
                excess=None,
                threshold=None,
                spread=None,
                text=_missing(cell, name),
            )
            if known is None
            else known.cell(cell.checkpoint, cell.batch, cell.node, asked.sign)
        )
        if known is not None and cell.checkpoint in doubts:
            result = msgspec.structs.replace(
                result, spikes=Told.UNKNOWN, text=f"{result.text}; {doubts[cell.checkpoint]}"
            )
        cells.append(result)
        told[cell] = result.spikes
    outcome = replay_of(told)
    return tuple(cells), Replay.INCONCLUSIVE if outcome is Replay.NOT_RUN else outcome


def _shows(judged: Mapping[tuple[str, str, str], Judged], node: str) -> bool:
    return any(each.spikes is Told.YES for (_, _, name), each in judged.items() if name == node)


def _missing(cell: Cell, node: str | None) -> str:
    if node is None:
        return "no other node has replayed it: run the same on another host"
    return f"no {cell.checkpoint if cell.checkpoint == 'earlier' else 'usable'} checkpoint was there to replay from"
