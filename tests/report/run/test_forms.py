"""Whatever a run is of and whatever is wrong with it: the facts of its page are gathered, and say what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataguard.core.address import Geometry
from dataguard.core.evidence import Verdict
from dataguard.loader.rehearse import rehearse
from dataguard.plan.plan import Plan
from dataguard.report.run.facts import RunFacts
from dataguard.report.run.gathering import gather_run
from dataguard.report.run.heats import MOST_RANKS
from dataguard.run.begin import begin_attempt
from dataguard.run.launch import AttemptRequest
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from tests.corpus.making import flip
from tests.support.corpora import make_corpus
from tests.support.gated import TOKEN_POLICY, VOCABULARY, documents, rule, tokens
from tests.support.long_runs import made_corpus, recorded_run
from tests.support.runs import deliver, make_run, open_loaders
from tests.triage.localise.planted import ordinary, walk, write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 steps on two ranks, with a policy and telemetry, sealed; nobody changes it."""
    folder = tmp_path_factory.mktemp("made")
    corpus = write(folder, {"web/a": ordinary(np.random.default_rng(3), 200)})
    walk(folder / "run", corpus, num_ranks=2, steps=40, policy="default").log()
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The run once more, its data where it lay."""
    return shutil.copytree(made / "run", tmp_path / "run")


def facts_of(path: Path, **asked: int) -> tuple[RunFacts, tuple[str, ...]]:
    gathered = gather_run(Run.open(path), **asked)  # type: ignore[arg-type]
    return gathered.facts, gathered.damage


def test_a_run_in_which_nothing_has_begun(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 8}}))
    facts, damage = facts_of(run.path)
    assert damage == ()
    assert (facts.attempt, facts.steps, facts.num_samples) == (None, None, 0)
    assert (facts.curves, facts.heats, facts.mixture, facts.attempts) == ((), (), (), ())
    assert "no attempt has begun: nothing is delivered yet" in facts.notes
    assert [line.kind for line in facts.journal] == ["run-created"]


def test_an_attempt_that_has_delivered_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 8}}))
    begin_attempt(run, AttemptRequest(launch_id="first", geometry=Geometry(world_size=2, microbatch_size=4)))
    facts, damage = facts_of(run.path)
    assert (damage, facts.attempt, facts.steps) == ((), 1, None)
    assert (facts.mixture, facts.signals, facts.num_samples) == ((), (), 0)
    assert facts.attempts[0].ends is None


def test_a_run_that_goes_on_is_shown_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 80}}))
    loaders = open_loaders(run, world_size=2, microbatch_size=2)
    for _ in range(3):
        for loader in loaders:
            loader.take_step()
    next(loaders[0])
    facts, damage = facts_of(run.path, step=3)
    for loader in loaders:
        loader.close()
    assert damage == ()
    assert (facts.steps, facts.num_steps_delivered, facts.num_samples) == ((0, 3), 3, 24)
    assert facts.heats[0].steps == (0, 1, 2, 3)
    assert {(cell.step, cell.rank): cell.num_samples for cell in facts.heats[0].cells}[3, 0] == 2


def test_without_policy_no_signal_but_the_length_is_known(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 80}}))
    deliver(run, microbatch_size=8, steps=5)
    facts, damage = facts_of(run.path, step=2)
    assert damage == ()
    assert [curve.name for curve in facts.signals] == ["length_bytes"]
    assert facts.policy is None
    assert [measure.name for measure in facts.heats[0].measures] == ["withheld", "longest"]
    assert all(sample.verdict is None for cell in facts.heats[0].cells for sample in cell.samples)


def test_what_the_gate_withholds_is_told_by_source_and_rule(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(rule("substitute"))
    plan = Plan(documents(tmp_path), seed=7, global_batch=8)
    run = Run.create(tmp_path / "run", plan, policy=tmp_path / "p.toml")
    rehearse(run, geometry=Geometry(world_size=2, microbatch_size=4), steps=20)
    facts, _ = facts_of(run.path, step=10)
    (web,) = facts.withheld
    assert web.by_rule["low"] == web.by_status["substituted"] + web.by_status.get("refused", 0)
    assert web.by_rule["low"] > 10
    assert facts.num_samples == web.num_slots - web.by_status.get("refused", 0), "a substitute is delivered"
    held = next(measure for measure in facts.heats[0].measures if measure.name == "withheld")
    refused = [
        (cell.rank, cell.step, sample) for cell in facts.heats[0].cells for sample in cell.samples if sample.delivered
    ]
    assert refused
    for rank, step, sample in refused:
        assert sample.status == "substituted"
        at = (facts.heats[0].ranks.index(rank), facts.heats[0].steps.index(step))
        assert held.values[at[0]][at[1]]
        assert sample.preview is not None
        text = "".join(part for _, _, part in facts.previews[sample.preview].parts)
        assert text.startswith("zzzz"), "the row that was refused, not its substitute"
    entropy = next(curve for curve in facts.signals if curve.name == "byte_entropy")
    assert min(value for value in entropy.low if value is not None) > 2, "of samples delivered as planned"


def test_windows_are_shown_as_ids_with_what_is_odd_marked(tmp_path: Path) -> None:
    corpus = tokens(tmp_path, num_windows=60)
    (tmp_path / "p.toml").write_text(TOKEN_POLICY)
    plan = Plan(corpus, seed=3, global_batch=4, form="window", seq_len=64)
    run = Run.create(tmp_path / "run", plan, policy=tmp_path / "p.toml", vocab_size=VOCABULARY)
    rehearse(run, geometry=Geometry(world_size=2, microbatch_size=2), steps=10)
    facts, damage = facts_of(run.path, step=5)
    assert damage == ()
    assert facts.mixture[0].num_bytes is None
    assert "longest" not in {measure.name for measure in facts.heats[0].measures}
    assert "token_periodic_repeats" in {curve.name for curve in facts.signals}
    periodic = [s for cell in facts.heats[0].cells for s in cell.samples if "periods" in s.rules]
    assert periodic
    for sample in periodic:
        assert sample.row % 5 == 1
        assert sample.preview is not None
        preview = facts.previews[sample.preview]
        assert (preview.signal, preview.size) == ("token_periodic_repeats", 64)
        assert preview.spans == ((10, 50),)


def test_a_run_of_guard_says_why_it_has_no_previews(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from dataguard.torch import guard

    class Windows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 48

        def __getitem__(self, i: int) -> dict[str, object]:
            return {"input_ids": torch.arange(i, i + 32)}

    with guard(torch.utils.data.DataLoader(Windows(), batch_size=8), tmp_path / "run", policy="default") as guarded:
        for _ in guarded:
            pass
    facts, damage = facts_of(tmp_path / "run", step=2)
    assert damage == ()
    assert facts.num_samples == 48
    assert len(facts.heats[0].cells) == 6
    assert any(note.startswith("no previews of attempt 1") for note in facts.notes)
    assert all(sample.preview is None for cell in facts.heats[0].cells for sample in cell.samples)


def test_an_evaluation_of_a_stream_is_a_page_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path / "train", {"web": {"a.jsonl": 40}}))
    deliver(run, microbatch_size=8, steps=2)
    stream = run.stream("valid", make_corpus(tmp_path / "valid", {"math": {"m.parquet": 13}}))
    for _ in range(2):
        with stream.loader(geometry=Geometry(world_size=1, microbatch_size=4), num_threads=0, launch_id=None) as loader:
            for _ in loader:
                pass
    facts, damage = facts_of(stream.run.path, step=1)
    assert damage == ()
    assert (facts.attempt, facts.num_samples) == (2, 13)
    assert (facts.withheld[0].num_slots, facts.withheld[0].by_status) == (13, {}), "padding is no sample"
    (held,) = (measure.values for measure in facts.heats[0].measures if measure.name == "withheld")
    assert held == ((0.0, 0.0),)
    assert len(facts.attempts) == 2
    whole, _ = facts_of(run.path)
    assert whole.num_samples == 16
    assert "stream-added" in {line.kind for line in whole.journal}


def test_a_loss_that_was_reduced_is_called_so(made: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path, {"web/a": ordinary(np.random.default_rng(3), 200)})
    run = walk(tmp_path / "run", corpus, num_ranks=2, steps=10)
    run.log(samples=False, reduced=True)
    facts, _ = facts_of(run.run.path, step=5)
    names = [measure.name for measure in facts.heats[0].measures]
    assert "loss_reduced" in names
    assert "loss" not in names
    assert any("reduced over them" in limit for limit in facts.limits)
    with_samples = walk(tmp_path / "other", corpus, num_ranks=2, steps=10)
    with_samples.log(reduced=True)
    facts, _ = facts_of(with_samples.run.path, step=5)
    measure = next(each for each in facts.heats[0].measures if each.name == "loss")
    assert "mean of its samples" in measure.title
    mine = with_samples.losses[(with_samples.records["step"] == 4) & (with_samples.records["rank"] == 1)]
    assert measure.values[1][4] == pytest.approx(mine.mean(), rel=1e-5)


def test_of_very_many_ranks_those_that_stand_out_are_shown(tmp_path: Path) -> None:
    run = recorded_run(
        tmp_path / "run", made_corpus(tmp_path / "in", num_rows=40), num_ranks=66, steps=4, size=1, policy=None,
        sample_losses=False,
    )  # fmt: skip
    run.layout.telemetry(1, 65).unlink()
    with open_telemetry(run, 1, 65, fenced=False) as writer:
        writer.append(telemetry_records([0, 1, 2, 3], "loss", [6.0, 6.0, 90.0, 6.0], time_ns=1))
    facts, damage = facts_of(run.path, step=2)
    heat = facts.heats[0]
    assert damage == ()
    assert (len(heat.ranks), heat.num_ranks) == (MOST_RANKS, 66)
    assert 65 in heat.ranks
    assert {cell.rank for cell in heat.cells} == set(heat.ranks)
    assert len({curve.rank for curve in facts.curves}) < 10, "of so many ranks not all have a curve"


def test_frames_and_sealed_files_give_the_same_facts(tmp_path: Path) -> None:
    corpus = made_corpus(tmp_path / "in", num_rows=300)
    shown = []
    for name, seal in (("a", True), ("b", False)):
        run = recorded_run(tmp_path / name, corpus, num_ranks=2, steps=60, size=4, seal=seal)
        assert bool(list(run.path.glob("hot/*/*/*.frames"))) is not seal
        shown.append(facts_of(run.path, step=50)[0])
    first, second = shown
    assert (first.signals, first.withheld, first.mixture) == (second.signals, second.withheld, second.mixture)
    assert (first.previews, first.curves) == (second.previews, second.curves)
    assert [cell.samples for cell in first.heats[0].cells] == [cell.samples for cell in second.heats[0].cells]
    assert first.heats[0].measures == second.heats[0].measures


def test_a_damaged_record_is_told_and_the_rest_is_shown(copied: Path) -> None:
    (path,) = copied.glob("index/attempt=0001/rank=00001/*.parquet")
    steps = pq.read_metadata(path).row_group(0).column(0)
    assert steps.path_in_schema == "step"
    flip(path, steps.data_page_offset + steps.total_compressed_size - 2)
    facts, damage = facts_of(copied, step=20)
    assert damage
    assert all("rank=00001" in text for text in damage)
    assert set(damage) <= set(facts.notes)
    assert facts.steps == (0, 39), "what rank 1 completed last cannot be read"
    assert facts.num_samples == 39 * 4
    assert {cell.rank for cell in facts.heats[0].cells} == {0}
    assert facts.curves[0].steps == tuple(range(40))


def test_damaged_telemetry_is_told_and_what_is_around_it_is_drawn(copied: Path) -> None:
    path = copied / "telemetry/attempt=0001/rank=00000.frames"
    flip(path, path.stat().st_size // 2)
    facts, damage = facts_of(copied, step=20)
    assert any("telemetry is damaged" in text for text in damage)
    assert facts.triage is not None
    assert facts.triage.damage
    assert facts.triage.diagnosis.verdict is Verdict.INCONCLUSIVE, "what is missing may hold an incident"
    assert facts.events == ()
    assert len(facts.curves[0].steps) == 40, "rank 1 logged every step"
    assert facts.num_samples == 40 * 8
    assert facts.heats[0].event is None


def test_a_damaged_journal_is_told(copied: Path) -> None:
    flip(copied / "journal/000002.json", 40)
    facts, damage = facts_of(copied)
    assert damage
    assert facts.attempt is None
    assert facts.triage is None
    assert not any("nothing is delivered" in note for note in facts.notes), "nobody knows that"


def test_a_manifest_or_a_plan_that_is_missing_still_leaves_a_page(copied: Path) -> None:
    (path,) = copied.glob("manifest/*.parquet")
    content = path.read_bytes()
    path.unlink()
    facts, damage = facts_of(copied, step=3)
    assert any("no verdict" in text for text in damage)
    assert any("what was delivered cannot be told" in text for text in damage)
    assert len(facts.curves[0].steps) == 40
    assert facts.attempts
    path.write_bytes(content)
    (path,) = copied.glob("plan/*.json")
    path.unlink()
    facts, damage = facts_of(copied, step=3)
    assert damage
    assert (facts.attempt, facts.curves, facts.heats) == (None, (), ())


def test_a_policy_that_is_missing_leaves_rules_their_numbers(copied: Path) -> None:
    (path,) = copied.glob("policy/*.toml")
    path.unlink()
    facts, damage = facts_of(copied, step=20)
    assert any("told by number" in text for text in damage)
    assert all(name.startswith("rule ") for each in facts.withheld for name in each.by_rule)
    assert facts.withheld[0].by_rule


def test_data_that_is_gone_costs_the_previews_alone(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "moved")
    run = Run.open(tmp_path / "moved/run")
    roots = {"web": str(tmp_path / "moved/web")}
    here = gather_run(run, step=20, roots=roots)
    assert here.facts.previews
    assert all(preview.problem is None for preview in here.facts.previews)
    (tmp_path / "moved/web/a.jsonl").unlink()
    gone = gather_run(run, step=20, roots=roots)
    assert gone.damage == ()
    num = len(gone.facts.previews)
    assert any(note.startswith(f"{num} of {num} records cannot be shown: ") for note in gone.facts.notes)
    assert not any("cannot be shown" in note for note in here.facts.notes)
    assert all(preview.problem and not preview.parts for preview in gone.facts.previews)
    assert [cell.num_samples for cell in gone.facts.heats[0].cells] == [
        cell.num_samples for cell in here.facts.heats[0].cells
    ]
