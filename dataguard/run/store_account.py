"""What stands in the batch store of a run, and is anything missing that should stand there?

The rule of each rank's store is written down, and what it wants follows from the index: every delivered step (``all``),
the last N of them (``last:N``), or those with a microbatch that a verdict or a rule gave reason to keep (``flagged``).
What is wanted, does not stand, and is not in the rank's ledger was lost with its process: killed while it waited in
memory. While a rank's writer lives it may still be coming, so there it is `pending`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataguard.errors import NotInRun, RunDamaged, WriterConflict
from dataguard.run.index import Index
from dataguard.run.layout import Layout
from dataguard.run.locks import hold
from dataguard.run.reached import reached
from dataguard.run.run import Run
from dataguard.run.store_ledger import LetGo, StoreSettings, read_let_go, read_settings
from dataguard.run.store_rule import StoreRule

__all__ = ["StoreList", "StoreOfRank", "account_problems", "list_store", "standing", "stored_ranks"]

_STEP = re.compile(r"step-(\d{9,})")
_FILE = re.compile(r"rank=(\d{5,})\.safetensors\.zst")
_RANK = re.compile(r"rank=(\d{5,})\.(?:json|frames)")


class StoreOfRank(msgspec.Struct, frozen=True, kw_only=True):
    """The store of one rank of one attempt. Steps are in the trainer's labels."""

    attempt: int
    rank: int
    keep: str
    """none where files stand that no settings speak of."""
    budget_bytes: int | None
    num_steps: int
    """That stand, a file each."""
    size_bytes: int
    """Of those files."""
    steps: tuple[tuple[int, int], ...]
    """Stretches of steps that stand, half-open."""
    let_go: dict[str, int]
    """Microbatches that were wanted and not kept, by reason: queue, budget, disk, too large."""
    num_pruned: int
    """Steps removed by hand."""
    num_lost: int
    """Microbatches that were wanted, stand nowhere, and were not let go of: lost with their process."""
    lost_steps: tuple[int, ...]
    """Of those, the first hundred steps."""
    live: bool
    """Its writer lives; what counts as lost may still be on its way."""
    problems: tuple[str, ...] = ()
    """What cannot be trusted, so that counts may be wrong."""


class StoreList(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the batch store of a run."""

    run: str
    num_steps: int
    """Files, over attempts and ranks."""
    size_bytes: int
    num_let_go: int
    num_lost: int
    ranks: tuple[StoreOfRank, ...]


def list_store(run: Run, *, attempt: int | None = None, rank: int | None = None) -> StoreList:
    """What stands, and what does not though it was wanted.

    Parameters
    ----------
    attempt, rank
        Only these.
    """
    numbers = run.attempts().numbers if attempt is None else (run.attempts().attempt(attempt).number,)
    found = [each for number in numbers for each in _of_attempt(run, number) if rank is None or each.rank == rank]
    return StoreList(
        run=str(run.path),
        num_steps=sum(each.num_steps for each in found),
        size_bytes=sum(each.size_bytes for each in found),
        num_let_go=sum(sum(each.let_go.values()) for each in found),
        num_lost=sum(each.num_lost for each in found),
        ranks=tuple(found),
    )


def standing(layout: Layout, attempt: int) -> dict[int, dict[int, int]]:
    """Sizes in bytes of the files of an attempt, by rank and step (lists its folders)."""
    found: dict[int, dict[int, int]] = {}
    for folder, step in _steps(layout.store_attempt(attempt)):
        # A writer that lives may remove what it no longer keeps.
        with contextlib.suppress(FileNotFoundError):
            for path, rank in _ranks(folder, _FILE):
                found.setdefault(rank, {})[step] = path.stat().st_size
    return {rank: dict(sorted(steps.items())) for rank, steps in sorted(found.items())}


def stored_ranks(layout: Layout, attempt: int) -> list[int]:
    """Ranks of an attempt that have a store, or files in it."""
    folder = layout.store_attempt(attempt)
    told = {rank for _, rank in _ranks(folder, _RANK)} if folder.is_dir() else set()
    return sorted(told | set(standing(layout, attempt)))


def account_problems(run: Run, attempt: int) -> list[str]:
    """What is wrong with the settings and ledgers of an attempt's stores: without them nobody knows what is missing."""
    return [
        f"rank {rank} of attempt {attempt}: {each}"
        for rank in stored_ranks(run.layout, attempt)
        for each in _told(run, attempt, rank).problems
    ]


def is_live(layout: Layout, attempt: int, rank: int) -> bool:
    """Whether the writer of a rank lives."""
    try:
        with hold(layout.seals(attempt, rank), what=f"rank {rank} of attempt {attempt}"):
            return False
    except WriterConflict:
        return True
    except NotInRun:
        return False


def _steps(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _STEP.fullmatch(path.name)
        if match and path.is_dir():
            yield path, int(match[1])


def _ranks(folder: Path, named: re.Pattern[str]) -> Iterator[tuple[Path, int]]:
    for path in folder.iterdir():
        match = named.fullmatch(path.name)
        if match:
            yield path, int(match[1])


def _of_attempt(run: Run, attempt: int) -> Iterator[StoreOfRank]:
    layout = run.layout
    stands = standing(layout, attempt)
    delivered = _Delivered(run, attempt)
    for rank in stored_ranks(layout, attempt):
        live = is_live(layout, attempt, rank)
        files = stands.get(rank, {})
        told = _told(run, attempt, rank)
        settings, records = told.settings, told.records
        let_go = {
            reason.text: int((records["reason"] == reason).sum())
            for reason in LetGo
            if reason != LetGo.PRUNED and (records["reason"] == reason).any()
        }
        by_step = dict(zip(*np.unique(records["step"], return_counts=True), strict=True))
        pruned = set(records["step"][records["reason"] == LetGo.PRUNED].tolist())
        problems, wanted = list(told.problems), dict[int, int]()
        try:
            wanted = {} if settings is None else delivered.wanted(settings)
        except RunDamaged as error:
            problems.append(str(error).splitlines()[0])
        lost = {
            step: count - int(by_step.get(step, 0))
            for step, count in wanted.items()
            if step not in files and step not in pruned and count > by_step.get(step, 0)
        }
        yield StoreOfRank(
            attempt=attempt,
            rank=rank,
            keep="none" if settings is None else settings.keep,
            budget_bytes=None if settings is None else settings.budget_bytes,
            num_steps=len(files),
            size_bytes=sum(files.values()),
            steps=tuple((run.label(first), run.label(stop)) for first, stop in _stretches(sorted(files))),
            let_go=let_go,
            num_pruned=len(pruned),
            num_lost=sum(lost.values()),
            lost_steps=tuple(run.label(step) for step in sorted(lost)[:100]),
            live=live,
            problems=tuple(problems),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Told:
    """What is written down of the store of one rank."""

    settings: StoreSettings | None
    """None where they cannot be relied on, or the attempt has no such rank."""
    records: NDArray[np.void]
    """STORE_RECORD: what was let go of."""
    problems: tuple[str, ...]


def _told(run: Run, attempt: int, rank: int) -> _Told:
    records, problems = read_let_go(run.layout, attempt, rank, run_id=run.run_id)
    settings, num_ranks = None, run.attempts().attempt(attempt).geometry.world_size
    if rank >= num_ranks:
        return _Told(
            settings=None, records=records, problems=(*problems, f"no such rank: the attempt has {num_ranks:,}")
        )
    try:
        settings = read_settings(run.layout, attempt, rank, run_id=run.run_id)
        if settings is None:
            problems += (f"what it was told is gone: there is no {run.layout.store_settings(attempt, rank)}",)
    except RunDamaged as error:
        problems += (f"{error.asked}: {error.found}",)
    return _Told(settings=settings, records=records, problems=problems)


class _Delivered:
    """What the ranks of one attempt delivered, as far as rules for stores need it."""

    def __init__(self, run: Run, attempt: int) -> None:
        self._run = run
        self._attempt = attempt
        self._geometry = run.attempts().attempt(attempt).geometry
        self._steps = run.steps_of(attempt)
        self._index = Index(run.layout)
        self._reached: list[int | None] | None = None

    def wanted(self, settings: StoreSettings) -> dict[int, int]:
        """Microbatches that a rank's rule wants, by step."""
        rule = StoreRule.parse(settings.keep)
        if rule.kind == "flagged":
            return self._flagged(rule, settings)
        counts = self._all(settings.rank)
        if rule.kind == "last":
            return {step: counts[step] for step in sorted(counts)[-rule.num_steps :]}
        return counts

    def _all(self, rank: int) -> dict[int, int]:
        if self._reached is None:
            self._reached = reached(self._run, self._attempt)
        stop, counts = self._reached[rank], {}
        if stop is None:
            return {}
        step = self._steps.next_delivered(self._run.attempts().attempt(self._attempt).fork_step)
        while step < stop:
            counts[step] = self._geometry.num_microbatches(self._steps.size_of(step))
            step = self._steps.next_delivered(step + 1)
        in_hand = self._index.step(self._attempt, step, rank=rank, num_ranks=self._geometry.world_size).records
        if len(in_hand):
            counts[step] = len(np.unique(in_hand["microbatch"]))
        return counts

    def _flagged(self, rule: StoreRule, settings: StoreSettings) -> dict[int, int]:
        found: set[tuple[int, int]] = set()
        for records in self._index.notable(self._attempt, num_ranks=self._geometry.world_size):
            mine = records[(records["rank"] == settings.rank) & rule.wants(records, settings.rule_bits)]
            found.update(zip(mine["step"].tolist(), mine["microbatch"].tolist(), strict=True))
        counts: dict[int, int] = {}
        for step, _ in found:
            counts[step] = counts.get(step, 0) + 1
        return counts


def _stretches(steps: list[int]) -> Iterator[tuple[int, int]]:
    begin = 0
    for i, step in enumerate(steps):
        if i + 1 == len(steps) or steps[i + 1] != step + 1:
            yield steps[begin], step + 1
            begin = i + 1
