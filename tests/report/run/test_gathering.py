"""What is gathered for the page of a run, held against slow twins that walk steps and values one by one."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dataguard.core.spikes import EventClass
from dataguard.errors import NotInRun
from dataguard.replay.answers import InspectAnswer
from dataguard.replay.inspect import inspect_step
from dataguard.replay.lookup import Lookup
from dataguard.report.run.facts import HeatCell, Measure, RunFacts
from dataguard.report.run.gathering import GatheredRun, gather_run
from dataguard.report.run.lineage import lineage_of
from dataguard.report.run.logged import read_logged
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.support.story import Story, tell_story
from tests.triage.localise.planted import Planted, ordinary, walk, write
from tests.twins.run_page import Counted, counted, quantiles

NUM_STEPS, ODD_STEP = 130, 110


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Two ranks, a policy, losses of samples; at one step the loss of rank 1 is raised, NaN at another on rank 0."""
    folder = tmp_path_factory.mktemp("planted")
    dice = np.random.default_rng(5)
    texts = {"web/a": ordinary(dice, 500), "web/<b>": ordinary(dice, 300), "code/c": ["buy now " * 30] * 60}
    run = walk(folder / "run", write(folder, texts), num_ranks=2, steps=NUM_STEPS, policy="default")
    at_step = (run.records["step"] >= ODD_STEP) & (run.records["step"] < ODD_STEP + 4)
    run.losses[at_step] += 2.0
    run.losses[at_step & (run.records["slot"] == 6)] += 5.0

    def change(table: np.ndarray) -> None:
        table[20, 0] = math.nan

    run.log(change=change, norms=np.tile([1.0, 2.0], (NUM_STEPS, 1)))
    return run


@pytest.fixture(scope="module")
def gathered(planted: Planted) -> GatheredRun:
    return gather_run(planted.run, step=ODD_STEP)


@pytest.fixture(scope="module")
def facts(gathered: GatheredRun) -> RunFacts:
    return gathered.facts


@pytest.fixture(scope="module")
def twin(planted: Planted) -> Counted:
    return counted(planted.run, range(NUM_STEPS))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"), first_label=1)


def content(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_nothing_is_written_into_the_run_and_nothing_is_damaged(planted: Planted, gathered: GatheredRun) -> None:
    before = content(planted.run.path)
    again = gather_run(Run.open(planted.run.path), step=ODD_STEP)
    assert content(planted.run.path) == before
    assert (again.damage, gathered.damage) == ((), ())
    assert again.facts.curves == gathered.facts.curves
    assert again.facts.heats == gathered.facts.heats
    assert again.facts.previews == gathered.facts.previews


def test_curves_are_the_mean_over_ranks_and_each_rank_s_own(planted: Planted, facts: RunFacts) -> None:
    rows = telemetry_of_lineage(planted.run)
    own = {(int(r["step"]), int(r["rank"])): float(r["value"]) for r in rows if r["name"] == b"loss" and r["slot"] < 0}
    curves = {(curve.name, curve.rank): curve for curve in facts.curves}
    assert facts.curves[0].name == "loss"
    assert {rank for name, rank in curves if name == "loss"} == {None, 0, 1}
    over = curves["loss", None]
    assert over.steps == tuple(range(NUM_STEPS))
    assert (over.low[20], over.high[20], over.num_not_finite) == (None, None, ((20, 1),))
    for step in (0, 19, 21, ODD_STEP):
        assert over.low[step] == over.high[step] == pytest.approx((own[step, 0] + own[step, 1]) / 2, rel=1e-5)
        assert curves["loss", 1].low[step] == pytest.approx(own[step, 1], rel=1e-5)
    assert curves["loss", 0].num_not_finite == ((20, 1),)
    assert curves["loss", 1].num_not_finite == ()


def test_the_loss_is_drawn_however_many_names_were_logged(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that is watched logs a hundred names, most of which come before ``loss`` in the order of bytes."""
    monkeypatch.setattr("dataguard.report.run.logged.MOST_NAMES", 0)
    assert list(read_logged(lineage_of(planted.run)).over) == ["loss"]


def test_what_was_delivered_is_what_inspect_counts(facts: RunFacts, twin: Counted) -> None:
    assert (facts.attempt, facts.steps, facts.policy) == (1, (0, NUM_STEPS), "default")
    assert (facts.num_steps_delivered, facts.num_samples) == (NUM_STEPS, NUM_STEPS * 8)
    assert facts.num_samples == sum(sum(each.values()) for each in twin.delivered.values())
    assert {each.source for each in facts.withheld} == {"code", "web"}
    for each in facts.withheld:
        assert each.num_slots == sum(twin.status[each.source].values())
        assert each.by_status == {k: v for k, v in twin.status[each.source].items() if k != "live"}
        assert each.by_rule == dict(twin.rules[each.source])
        assert each.by_rule, "rules fire on both"


def test_the_mixture_is_what_inspect_counts(facts: RunFacts, twin: Counted, planted: Planted) -> None:
    total = sum(twin.delivered.values(), Counter())
    weights = planted.run.plan_document().mixtures[0].weights
    stops = [*facts.mixture_steps[1:], NUM_STEPS]
    for each in facts.mixture:
        assert each.num_delivered == total[each.source]
        assert each.num_bytes == twin.lengths[each.source]
        assert each.delivered == pytest.approx(total[each.source] / sum(total.values()))
        assert each.asked == pytest.approx(weights[each.source] / sum(weights.values()), rel=1e-5)
        for share, first, stop in zip(each.over_time, facts.mixture_steps, stops, strict=True):
            here = sum((twin.delivered[step] for step in range(first, stop)), Counter())
            assert share == pytest.approx(here[each.source] / sum(here.values()), rel=1e-5)


def test_quantiles_of_signals_are_those_of_the_samples(facts: RunFacts, twin: Counted) -> None:
    assert {curve.name for curve in facts.signals} >= {"length_bytes", "byte_entropy", "byte_periodic_repeats"}
    for curve in facts.signals:
        assert curve.note
        if curve.name == "length_bytes":
            continue
        stops = [*curve.steps[1:], NUM_STEPS]
        for i, (first, stop) in enumerate(zip(curve.steps, stops, strict=True)):
            assert (curve.low[i], curve.median[i], curve.high[i]) == pytest.approx(
                quantiles(twin, curve.name, first, stop), rel=1e-5
            )
    lengths = next(curve for curve in facts.signals if curve.name == "length_bytes")
    exact = [s.length for step in range(lengths.steps[1]) for s in twin.live[step]]
    assert lengths.median[0] == pytest.approx(np.quantile(exact, 0.5, method="inverted_cdf"), rel=0.05)
    assert lengths.num_samples[0] == len(exact)


def inspected_at(run: Run, label: int, attempt: int | None = None) -> InspectAnswer:
    answer = inspect_step(Lookup(run), label, attempt=attempt)
    assert isinstance(answer, InspectAnswer)
    return answer


def measure(facts: RunFacts, name: str) -> Measure:
    return next(each for each in facts.heats[0].measures if each.name == name)


def test_the_heat_map_shows_what_each_rank_logged_and_was_fed(planted: Planted, facts: RunFacts) -> None:
    heat = facts.heats[0]
    assert heat.event is not None
    event = facts.events[heat.event]
    assert event.start == ODD_STEP
    assert event.event_class is EventClass.TRANSIENT_SPIKE
    assert (heat.ranks, heat.num_ranks) == ((0, 1), 2)
    assert heat.steps[0] < event.start - 8
    assert heat.steps[-1] >= event.stop
    own = {
        (int(r["step"]), int(r["rank"])): float(r["value"])
        for r in telemetry_of_lineage(planted.run, names=("loss",))
        if r["slot"] < 0
    }
    for i, rank in enumerate(heat.ranks):
        for k, step in enumerate(heat.steps):
            assert measure(facts, "loss").values[i][k] == pytest.approx(own[step, rank], rel=1e-5)
            assert measure(facts, "local_grad_norm").values[i][k] == pytest.approx([1.0, 2.0][rank])
    for k, step in list(enumerate(heat.steps))[::6]:
        samples = inspected_at(planted.run, step).samples
        for i, rank in enumerate(heat.ranks):
            mine = [sample for sample in samples if sample.rank == rank]
            flagged = sum(sample.verdict != "pass" for sample in mine) / len(mine)
            assert measure(facts, "flagged").values[i][k] == pytest.approx(flagged)
            assert measure(facts, "withheld").values[i][k] == 0
            longest = max(sample.length for sample in mine)
            assert measure(facts, "longest").values[i][k] == pytest.approx(longest, rel=1e-5)


def test_cells_hold_the_samples_of_inspect_worst_first(planted: Planted, facts: RunFacts) -> None:
    heat = facts.heats[0]
    assert len(heat.cells) == len(heat.steps) * 2
    cells: dict[tuple[int, int], HeatCell] = {(cell.step, cell.rank): cell for cell in heat.cells}
    losses = {
        (int(r["step"]), int(r["slot"])): float(r["value"])
        for r in telemetry_of_lineage(planted.run, names=("loss",))
        if r["slot"] >= 0
    }
    assert facts.triage is not None
    assert facts.triage.localised is not None
    named = {(each.step, each.slot): each for each in facts.triage.localised.samples}
    assert named
    for step in [ODD_STEP, *heat.steps[::6]]:
        answer = inspected_at(planted.run, step)
        for rank in heat.ranks:
            cell = cells[answer.step, rank]
            mine = [sample for sample in answer.samples if sample.rank == rank]
            assert (cell.num_samples, cell.attempt) == (len(mine), 1)
            assert cell.command.endswith(f"--step {answer.step} --rank {rank}")
            told = {sample.slot: sample for sample in cell.samples}
            assert set(told) == {sample.slot for sample in mine}
            for sample in mine:
                found = told[sample.slot]
                assert (found.shard, found.row, found.position) == (sample.shard, sample.row, sample.position)
                assert (found.verdict, found.rules, found.digest) == (sample.verdict, sample.rules, sample.digest)
                assert found.loss == pytest.approx(losses[answer.step, sample.slot], rel=1e-5)
                local = named.get((answer.step, sample.slot))
                assert found.outlying == (local is not None and local.outlying)
                if local is not None:
                    assert found.preview is not None, "what the event names can be looked at"
                    assert set(local.why) <= set(found.why)
            plain = [s.slot for s in mine if (answer.step, s.slot) not in named]
            assert [s.slot for s in cell.samples if (answer.step, s.slot) not in named] == plain, "worst first"


def test_previews_are_of_the_records_delivered(planted: Planted, facts: RunFacts) -> None:
    texts = {
        f"{path.parent.name}/{path.name}": path.read_text().splitlines()
        for path in planted.run.path.parent.glob("*/*.jsonl")
    }
    looked = [(s, facts.previews[s.preview]) for c in facts.heats[0].cells for s in c.samples if s.preview is not None]
    assert len(looked) > 50
    for sample, preview in looked:
        record = texts[sample.shard][sample.row][len('{"text": "') : -2]
        shown = "".join(text for kind, _, text in preview.parts if kind == "text")
        assert preview.problem is None
        assert preview.size == len(record)
        assert shown in record
    marked = [preview for sample, preview in looked if sample.shard == "code/c.jsonl"]
    assert marked
    assert all(preview.signal and preview.num_spans for preview in marked)
    assert all(any(part[1] for part in preview.parts) for preview in marked)


def test_a_step_without_an_event_is_shown_where_it_is_asked_for(planted: Planted) -> None:
    facts = gather_run(planted.run, step=40).facts
    assert facts.heats[0].event is None
    assert 40 in facts.heats[0].steps
    assert measure(facts, "loss").not_finite == ((0, facts.heats[0].steps.index(20)),)
    assert facts.heats[1].event is not None
    assert facts.triage is not None
    assert facts.triage.asked_step == 40
    with pytest.raises(NotInRun):
        gather_run(planted.run, step=NUM_STEPS + 5)
    with pytest.raises(NotInRun):
        gather_run(planted.run, attempt=9)


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_each_lineage_counts_its_own_steps(story: Story, attempt: int) -> None:
    facts = gather_run(story.run, attempt=attempt).facts
    assert facts.steps == {1: (1, 61), 2: (1, 71), 3: (1, 34)}[attempt]
    assert facts.attempt == attempt
    first, stop = facts.steps
    twin = counted(story.run, range(first, stop), attempt)
    assert facts.num_steps_delivered == twin.num_steps == stop - first
    assert facts.num_samples == sum(sum(each.values()) for each in twin.delivered.values())
    for each in facts.withheld:
        assert each.num_slots == sum(twin.status[each.source].values())
        assert each.by_status == {k: v for k, v in twin.status[each.source].items() if k != "live"}
    if attempt == 2:
        assert {status for each in facts.withheld for status in each.by_status} == {"quarantined"}
    assert facts.curves == ()
    assert facts.heats == ()
    assert facts.triage is not None
    assert any("nothing was logged" in note for note in facts.triage.notes)


def test_marks_say_where_attempts_and_skips_lie(story: Story) -> None:
    facts = gather_run(story.run, attempt=2).facts
    marks = {mark.number: mark for mark in facts.attempts}
    assert (marks[1].begins, marks[1].ends, marks[1].live_until, marks[1].world_size) == (1, 61, 36, 2)
    assert (marks[2].begins, marks[2].ends, marks[2].live_until, marks[2].parent) == (36, 71, 71, 1)
    assert (marks[3].begins, marks[3].ends, marks[3].live_until) == (31, 34, None)
    assert (marks[2].num_withheld, marks[1].num_withheld) == (1, 0)
    (skip,) = facts.skips
    # Batches 41:46 (labels) are left out: the step that would have held the first of them holds what comes behind.
    assert (skip.step, skip.steps, skip.batches, skip.state, skip.reason) == (41, None, (41, 46), "applied", "spike")
    assert inspected_at(story.run, 41, 2).batch == 46
    assert gather_run(story.run, attempt=1).facts.skips[0].step is None, "attempt 1 delivered those batches"
    assert facts.num_journal == len(facts.journal) == len(story.run.read().entries)


def test_the_step_in_hand_of_a_dead_attempt_is_shown(story: Story) -> None:
    facts = gather_run(story.run, attempt=3, step=34).facts
    cells = {(cell.step, cell.rank): cell for cell in facts.heats[0].cells}
    assert (34, 0) in cells
    assert (34, 1) not in cells
    assert cells[34, 0].attempt == 3
    assert cells[30, 0].attempt == 1
    assert cells[34, 0].command.endswith("--step 34 --rank 0"), "attempt 3 is the newest"


def test_in_holes_a_skip_stands_at_the_step_that_is_missing(tmp_path: Path) -> None:
    story = tell_story(tmp_path, skip_mode="hole")
    facts = gather_run(story.run, attempt=2).facts
    assert facts.steps == (0, 70)
    assert facts.skips[0].step == 40
    twin = counted(story.run, range(70), 2)
    assert facts.num_steps_delivered == twin.num_steps == 65
    assert facts.num_samples == sum(sum(each.values()) for each in twin.delivered.values())
    around = gather_run(story.run, attempt=2, step=39).facts.heats[0]
    assert 39 in around.steps
    assert not set(range(40, 45)) & set(around.steps)
    assert all(cell.command.endswith(" --attempt 2") for cell in around.cells), "attempt 3 is the newest"
    held = [sample for cell in around.cells for sample in cell.samples if sample.status == "quarantined"]
    assert held
    assert {sample.digest for sample in held} == {"none"}, "nothing was delivered"
