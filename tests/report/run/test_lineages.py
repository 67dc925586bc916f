"""A run that was rewound, grown and skipped: of each attempt its own steps count, values, sources and marks alike."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dataguard.report.run.facts import Curve, RunFacts
from dataguard.report.run.gathering import gather_run
from dataguard.run import amend
from dataguard.run.note_events import CheckpointSaved
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from tests.support.corpora import make_corpus
from tests.support.runs import deliver, make_run, open_loaders
from tests.twins.run_page import counted

LABEL = 1
FORK = 6
"""The first step of attempt 2, from 0."""


def write_telemetry(run: Run, attempt: int, num_ranks: int, steps: range) -> None:
    """Values that say who logged them: each attempt, step and rank its own."""
    for rank in range(num_ranks):
        with open_telemetry(run, attempt, rank, fenced=False) as writer:
            for step in steps:
                loss, norm, rate = 100.0 * attempt + step + rank, 1.0 + rank, 1e-3 * (1 + rank)
                names = ["loss", "grad_norm", "lr"]
                if step == steps.start:  # logged again: the later value counts
                    writer.append(telemetry_records(step, names, [-1.0, 9.0, 9.0], time_ns=1))
                writer.append(telemetry_records(step, names, [loss, norm, rate], time_ns=1))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Attempt 1 makes ten steps on two ranks; attempt 2 goes on from the seventh on four, with another source."""
    folder = tmp_path_factory.mktemp("grown")
    few: dict[str, dict[str, int]] = {"web": {"w.jsonl": 90}}
    run = make_run(folder / "run", make_corpus(folder, few), global_batch=4, first_label=LABEL)
    deliver(run, world_size=2, microbatch_size=2, steps=10)
    for next_step, path in ((FORK, "ckpt/6"), (FORK + 2, "ckpt/8")):
        run.journal.append(CheckpointSaved(attempt=1, next_step=next_step, path=path))
    for start, stop in ((2, 3), (12, 14), (14, 15)):  # batches, as labels: the first was delivered by attempt 1
        amend.skip(run, start, stop, reason=f"{start}", batches=True)
    grown = make_corpus(folder, few | {"a": {"a.parquet": 60}}, output="grown.parquet")
    weights: dict[str, Any] = {"web": 1, "a": 3}
    deliver(run, world_size=4, microbatch_size=1, from_step=FORK, steps=10, corpus=grown, weights=weights)
    run.journal.append(CheckpointSaved(attempt=2, next_step=FORK + 4, path="ckpt/10"))
    amend.skip(run, 40, 41, reason="taken back", batches=True)
    amend.revoke(run, run.head().number)
    amend.skip(run, 50, 51, reason="for the next attempt", batches=True)
    write_telemetry(run, 1, 2, range(10))
    write_telemetry(run, 2, 4, range(FORK, FORK + 11))
    return run


@pytest.fixture(scope="module")
def facts(run: Run) -> RunFacts:
    return gather_run(run).facts


def curve_of(facts: RunFacts, name: str) -> Curve:
    return next(curve for curve in facts.curves if (curve.name, curve.rank) == (name, None))


def test_each_attempt_s_values_are_drawn_over_its_own_steps(facts: RunFacts) -> None:
    """Also a step that the newest attempt logged and of which the record is lost."""
    own = [100.5 + step for step in range(FORK)] + [201.5 + step for step in range(FORK, FORK + 11)]
    loss, norm, rate = (curve_of(facts, name) for name in ("loss", "grad_norm", "lr"))
    assert loss.steps == tuple(range(LABEL, FORK + 11 + LABEL))
    assert loss.low == loss.high == tuple(own)
    assert norm.low == (2.0,) * FORK + (4.0,) * 11, "the largest of all ranks"
    assert rate.low == (1e-3,) * (FORK + 11), "the lowest rank's"
    assert facts.steps == (LABEL, FORK + 10 + LABEL)


def test_an_abandoned_attempt_is_a_page_of_its_own(run: Run) -> None:
    facts = gather_run(run, attempt=1).facts
    assert curve_of(facts, "loss").low == tuple(100.5 + step for step in range(10))
    assert {each.source for each in facts.mixture} == {"web"}
    assert facts.checkpoints == ((FORK + LABEL, "ckpt/6"), (FORK + 2 + LABEL, "ckpt/8"))


def test_sources_are_counted_by_name_whatever_their_numbers(run: Run, facts: RunFacts) -> None:
    """``a`` comes first in the order of bytes, so web's number is another one in attempt 2."""
    twin = counted(run, range(LABEL, FORK + 10 + LABEL))
    total = sum(twin.delivered.values(), Counter())
    assert set(total) == {"a", "web"}
    assert {each.source: each.num_delivered for each in facts.mixture} == dict(total)
    assert {each.source: each.num_bytes for each in facts.mixture} == dict(twin.lengths)


def test_shares_that_differ_between_stages_are_told_over_time_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataguard.report.run.delivered._LEAST_SAMPLES", 4)
    facts = gather_run(run).facts
    assert facts.mixture_steps == tuple(range(LABEL, FORK + 10 + LABEL))
    asked = {each.source: (each.asked, each.asked_over_time) for each in facts.mixture}
    assert asked == {
        "a": (None, (0.0,) * FORK + (0.75,) * 10),
        "web": (None, (1.0,) * FORK + (0.25,) * 10),
    }


def test_skips_say_where_they_take_effect_and_what_became_of_them(facts: RunFacts) -> None:
    """Two that touch are one gap: the step behind it holds what comes after both."""
    told = [(skip.batches, skip.step, skip.state) for skip in facts.skips]
    assert told == [
        ((2, 3), None, "applied"),
        ((12, 14), 12, "applied"),
        ((14, 15), 12, "applied"),
        ((40, 41), None, "revoked"),
        ((50, 51), None, "pending"),
    ]


def test_checkpoints_are_those_of_the_lineage(facts: RunFacts) -> None:
    assert facts.checkpoints == ((FORK + LABEL, "ckpt/6"), (FORK + 4 + LABEL, "ckpt/10"))


def test_telemetry_in_another_s_place_is_damage_and_a_torn_tail_is_none(run: Run, tmp_path: Path) -> None:
    copy = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    other, lost = copy.layout.telemetry(1, 1), copy.layout.telemetry(2, 3)
    with other.open("ab") as file:
        file.write(b"\1" * 100)
    gathered = gather_run(copy)
    assert gathered.damage == ()
    assert any("unfinished frame" in note and "100 bytes" in note for note in gathered.facts.notes)
    shutil.copyfile(other, lost)
    gathered = gather_run(copy)
    assert any("another file in this one's place" in text for text in gathered.damage)
    left = tuple(201.0 + step for step in range(FORK, FORK + 11))
    assert curve_of(gathered.facts, "loss").low[FORK:] == left, "the other three ranks'"


def test_half_a_step_that_no_rank_completed_is_shown(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"w.jsonl": 40}})
    run = make_run(tmp_path / "run", corpus, global_batch=4, first_label=LABEL)
    loaders = open_loaders(run, world_size=2, microbatch_size=1)
    for loader in loaders:
        loader.take_step()
    next(loaders[0])
    facts = gather_run(run, step=2).facts
    assert facts.steps == (1, 2)
    cells = [(cell.step, cell.rank, cell.num_samples) for cell in facts.heats[0].cells]
    assert cells == [(1, 0, 2), (2, 0, 1), (1, 1, 2)]
    for loader in loaders:
        loader.close()
