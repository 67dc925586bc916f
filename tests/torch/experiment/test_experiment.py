"""Does the replay tell a bad batch, a bad state and a bad node apart, and what it cannot tell from what it can?"""

from __future__ import annotations

import copy
import dataclasses
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from dataguard.core.evidence import Replay, Told
from dataguard.core.spikes import EventClass
from dataguard.corpus.corpus import Corpus
from dataguard.errors import AnswerNo, NotInRun, UsageError
from dataguard.run.events import ExperimentDone, SpikeFound
from dataguard.run.notes import noted, read_document
from dataguard.run.run import Run
from dataguard.torch.experiment import experiment, run_experiment, runner
from dataguard.torch.experiment.answers import ExperimentReport, decode_report, number
from dataguard.torch.experiment.recorded import Logged
from dataguard.torch.microbatch import TensorMicrobatch
from tests.support.corpora import make_corpus
from tests.torch.experiment import planted
from tests.torch.experiment.planted import EVENT, GLOBAL_BATCH, SPIKE, Trained, load, loss, marked, noisy, plain, train


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 270, "b.jsonl.gz": 100}})


@pytest.fixture(scope="module")
def bad_batch(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The batch of one step is noise."""
    return train(tmp_path_factory.mktemp("noisy"), corpus, noisy)


@pytest.fixture(scope="module")
def ordinary(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Nothing is planted."""
    return train(tmp_path_factory.mktemp("plain"), corpus, plain, microbatch_size=GLOBAL_BATCH)


WHOLE: dict[str, Any] = {"num_placebos": 12, "num_after": 8, "float32": True}
"""Nearly as by default: batches behind an update as well, and once more in float32."""


def run_it(trained: Trained, step: int = SPIKE, **settings: Any) -> ExperimentReport:
    """Cells alone, which is a third of the work; what a test wants beside them it asks for."""
    known = {"record": False, "num_after": 0, "float32": False, **trained.settings}
    return experiment(trained.run, step, **{**known, **settings})


def shown(report: ExperimentReport) -> dict[tuple[str, str, str], Told]:
    return {(each.checkpoint, each.batch, each.node): each.spikes for each in report.cells}


def paths_of(trained: Trained, *steps: int) -> dict[int, str | Path]:
    return {step: trained.run.path.parent / f"{step}.pt" for step in steps}


def test_a_bad_batch_shows_from_both_checkpoints_and_the_placebo_from_neither(bad_batch: Trained) -> None:
    report = run_it(bad_batch, **WHOLE)
    assert report.outcome is Replay.BATCH
    assert shown(report) == {
        ("before", "event", "this"): Told.YES,
        ("before", "placebo", "this"): Told.NO,
        ("earlier", "event", "this"): Told.YES,
        ("earlier", "placebo", "this"): Told.NO,
        **dict.fromkeys([(c, b, "other") for c in ("before", "earlier") for b in ("event", "placebo")], Told.UNKNOWN),
    }
    assert number(report.states[0].repeats[0].batch.loss) == pytest.approx(bad_batch.losses[SPIKE], abs=1e-5)
    assert SPIKE not in {each.step for each in report.placebos}
    assert not {SPIKE - 1, SPIKE + 1} & {each.step for each in report.placebos}
    assert number(report.layers[0].batch) > number(report.layers[0].placebo)
    assert report.layers[0].layer in {"layers.0", "layers.1", "embed", "head"}


def test_the_steps_between_are_trained_on_their_exact_batches(bad_batch: Trained) -> None:
    report = run_it(bad_batch, checkpoints=paths_of(bad_batch, 14, 20), num_after=2)
    before, earlier = report.checkpoints
    assert (before.next_step, before.trained_steps, earlier.next_step, earlier.trained_steps) == (20, 4, 14, 0)
    for repeat in report.states[0].repeats:
        replayed = {step: number(value) for step, value, _ in repeat.trained}
        assert replayed == pytest.approx({step: bad_batch.losses[step] for step in range(20, 24)}, abs=1e-5)
        assert number(repeat.batch.loss) == pytest.approx(bad_batch.losses[SPIKE], abs=1e-5)
    assert report.outcome is Replay.BATCH
    assert report.cost.train_steps == 2 * (4 + 4)


def test_a_replay_that_leaves_the_run_proves_nothing(bad_batch: Trained) -> None:
    """Another learning rate on the way gives another state: its cells are unknown, over the same horizon."""

    def too_fast(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        optimizer.step()

    report = run_it(bad_batch, checkpoints=paths_of(bad_batch, 14, 20), update=too_fast)
    assert report.outcome is Replay.INCONCLUSIVE
    assert shown(report)[("before", "event", "this")] is Told.UNKNOWN
    assert any("no replay of this run" in each.text for each in report.cells)


def test_the_baseline_is_taken_over_the_whole_horizon(bad_batch: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates that differ from replay to replay: what shows from the step itself cannot be told from further back."""
    monkeypatch.setattr(runner, "logged", lambda run, attempt: Logged(losses={}, rates={}, seconds_per_step=None))

    def unsteady(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        optimizer.step()
        with torch.no_grad():  # of the bytes of the noise alone: placebo batches stay as they are
            model.get_parameter("head.bias")[128:256] += 10 * torch.randn(())

    settings: dict[str, Any] = {"update": unsteady, "num_repeats": 4}
    near = run_it(bad_batch, **settings)
    far = run_it(bad_batch, **settings, checkpoints=paths_of(bad_batch, 14, 20))
    assert shown(near)[("before", "event", "this")] is Told.YES
    assert shown(far)[("before", "event", "this")] is Told.UNKNOWN
    assert far.outcome is Replay.INCONCLUSIVE
    assert any("whether the replay follows the run is not known" in each for each in far.notes)
    assert far.cost.node_seconds is None, "nobody logged how long a step takes"


def test_damage_done_on_the_way_is_pointed_at(ordinary: Trained) -> None:
    """The step before did it; at this step anything shows it."""

    def breaks(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        optimizer.step()
        if step == SPIKE - 1:
            with torch.no_grad():
                model.get_parameter("head.weight").mul_(30)

    late = run_it(ordinary, update=breaks, checkpoints=paths_of(ordinary, 14, 20))
    assert late.outcome is Replay.STATE
    assert any("run the experiment on that step as well" in each for each in late.notes)
    settings: dict[str, Any] = {"num_placebos": 12, "num_after": 8}  # of fewer an ordinary update harms not every one
    there = run_it(ordinary, SPIKE - 1, update=breaks, checkpoints=paths_of(ordinary, 14, 20), **settings)
    assert there.damage is Told.NO, "an ordinary update does the same here: it is the trainer's, not the batch's"


def test_nothing_under_test_is_changed_and_random_states_are_put_back(bad_batch: Trained) -> None:
    models: dict[str, tuple[nn.Module, torch.optim.Optimizer]] = {}

    def load_once(path: str) -> tuple[nn.Module, torch.optim.Optimizer]:
        models[path] = load(path)
        return models[path]

    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002
    run_it(bad_batch, load=load_once, checkpoints=paths_of(bad_batch, 14, 20), **WHOLE)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]  # noqa: NPY002
    assert len(models) == 2
    for path, (model, optimizer) in models.items():
        fresh, its_optimizer = load(path)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, fresh.state_dict()[name]), name
        assert all(parameter.grad is None for parameter in model.parameters())
        now, then = optimizer.state_dict()["state"], its_optimizer.state_dict()["state"]
        assert all(torch.equal(now[i][key], then[i][key]) for i in then for key in then[i])


def test_a_batch_that_only_this_state_cannot_take(corpus: Corpus, tmp_path: Path) -> None:
    trained = train(tmp_path, corpus, marked, microbatch_size=GLOBAL_BATCH)
    path = paths_of(trained, SPIKE)[SPIKE]
    saved = torch.load(path)
    saved["model"]["head.bias"][planted.MARK] = -60.0  # the state at this step has lost one byte
    torch.save(saved, path)
    report = run_it(trained)
    assert shown(report)[("before", "event", "this")] is Told.YES
    assert shown(report)[("earlier", "event", "this")] is Told.NO
    assert report.outcome is Replay.BATCH_FROM_THIS_STATE


def test_a_state_that_does_it_to_anything(ordinary: Trained, tmp_path: Path) -> None:
    saved = torch.load(paths_of(ordinary, SPIKE)[SPIKE])
    saved["model"]["head.weight"] *= 30
    torch.save(saved, tmp_path / "damaged.pt")
    checkpoints = {**paths_of(ordinary, 14), SPIKE: tmp_path / "damaged.pt"}
    report = run_it(ordinary, checkpoints=checkpoints)
    assert shown(report)[("before", "placebo", "this")] is Told.YES
    assert report.outcome is Replay.STATE


def test_a_state_whose_shift_all_batches_share_is_no_event_that_does_not_reproduce(
    ordinary: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One checkpoint alone is known, from within the shift: nothing measured is ordinary, and the log says what was."""
    saved = torch.load(paths_of(ordinary, SPIKE)[SPIKE])
    saved["model"]["head.bias"][0] += 12.0  # another byte is expected of everything
    torch.save(saved, tmp_path / "shifted.pt")
    settings: dict[str, Any] = {"checkpoints": {SPIKE: tmp_path / "shifted.pt"}}
    report = run_it(ordinary, **settings)
    assert report.outcome is not Replay.STATE, "what was logged of the step is not what this state gives"
    level = float(np.median(ordinary.losses[:SPIKE]))
    own = number(report.states[0].repeats[0].batch.loss)
    assert own > level + 1
    losses = {**dict(enumerate(ordinary.losses[:SPIKE])), SPIKE: own}
    monkeypatch.setattr(runner, "logged", lambda *_: Logged(losses=losses, rates={}, seconds_per_step=None))
    report = run_it(ordinary, **settings)
    assert shown(report)[("before", "placebo", "this")] is Told.YES
    assert shown(report)[("before", "event", "this")] is Told.YES
    assert report.outcome is Replay.STATE


def test_nothing_reproduces(ordinary: Trained) -> None:
    report = run_it(ordinary)
    assert report.outcome is Replay.NOT_REPRODUCED
    assert "proves nothing by itself" in report.summary


def test_a_sick_node_is_told_by_another(ordinary: Trained, tmp_path: Path) -> None:
    """Equal weights, wrong products on one node: whichever is asked first, that one is named."""

    def load_sick(path: str) -> tuple[nn.Module, torch.optim.Optimizer]:
        model, optimizer = load(path)
        model.get_submodule("layers.1.up").register_forward_hook(lambda _module, _inputs, output: output * -40)
        return model, optimizer

    shutil.copytree(ordinary.run.path, tmp_path / "run")
    ordinary = dataclasses.replace(ordinary, run=Run.open(tmp_path / "run"))
    first = run_it(ordinary, node="node-7", load=load_sick, record=True)
    assert first.outcome is not Replay.NODE, "one node alone cannot say so"
    second = run_it(ordinary, node="node-8")
    assert (second.outcome, second.other_node) == (Replay.NODE, "node-7")
    assert shown(second)[("before", "event", "this")] is Told.YES
    assert shown(second)[("before", "event", "other")] is Told.NO


def test_nodes_that_agree_are_both_told(bad_batch: Trained, tmp_path: Path) -> None:
    first = run_it(bad_batch, node="node-7")
    path = tmp_path / "node-7.json"
    path.write_bytes(msgspec.json.encode(first))
    second = run_it(bad_batch, node="node-8", others=[path])
    assert second.outcome is Replay.BATCH
    assert Told.UNKNOWN not in shown(second).values()
    with pytest.raises(UsageError, match="of this node"):
        run_it(bad_batch, node="node-7", others=[path])
    with pytest.raises(UsageError, match="other inputs"):
        run_it(bad_batch, node="node-8", others=[path], checkpoints=paths_of(bad_batch, 14, 20))


def test_a_run_that_differs_from_itself_is_inconclusive(bad_batch: Trained) -> None:
    def wild(model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
        return loss(model, microbatch) + 10 * torch.randn(())

    report = run_it(bad_batch, loss=wild)
    assert report.outcome is Replay.INCONCLUSIVE
    assert set(shown(report).values()) == {Told.UNKNOWN}


def test_what_is_missing_is_unknown(bad_batch: Trained) -> None:
    report = run_it(bad_batch, checkpoints=paths_of(bad_batch, SPIKE))
    assert report.outcome is Replay.INCONCLUSIVE
    assert shown(report)[("earlier", "event", "this")] is Told.UNKNOWN
    assert any("one checkpoint alone" in each for each in report.notes)


def test_nan_shows(ordinary: Trained) -> None:
    def overflows(model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
        return loss(model, microbatch) * (float("inf") if microbatch.step == SPIKE else 1.0)

    report = run_it(ordinary, loss=overflows, event=dataclasses.replace(EVENT, event_class=EventClass.HARD_FAULT))
    assert report.outcome is Replay.BATCH
    assert report.states[0].repeats[0].batch.loss == "inf"
    assert decode_report(msgspec.json.encode(report)) == report


def test_a_dip_is_looked_for_below(corpus: Corpus, tmp_path: Path) -> None:
    trained = train(tmp_path, corpus, planted.easy, microbatch_size=GLOBAL_BATCH)
    dip = dataclasses.replace(EVENT, event_class=EventClass.LOSS_DIP)
    report = run_it(trained, event=dip)
    assert report.direction == "down"
    assert shown(report)[("before", "event", "this")] is Told.YES
    assert run_it(trained).outcome is Replay.NOT_REPRODUCED, "nothing rises there"


def test_what_was_found_is_what_is_reproduced_and_the_result_is_kept(bad_batch: Trained) -> None:
    run = bad_batch.run
    found = SpikeFound(
        attempt=1, event_class=EventClass.TRANSIENT_SPIKE, start=SPIKE, stop=SPIKE + 2, peak=SPIKE, size_nats=3.7,
        sigmas=20.0, aftermath_nats=None, grad_norm_ratio=None, signal="loss", rank=None, detector="default",
    )  # fmt: skip
    run.journal.append(found)
    report = run_it(bad_batch, record=True, by="ada@host")
    assert (report.event_class, report.effect) == (EventClass.TRANSIENT_SPIKE, 3.7)
    entry, note = noted(run.read().entries, ExperimentDone)[-1]
    assert (entry.by, note.outcome, note.step, note.results) == ("ada@host", report.outcome, SPIKE, report.results)
    kept = decode_report(read_document(run.layout, "experiment", note.results))
    assert msgspec.structs.replace(kept, results=note.results) == report


def test_a_dry_run_loads_nothing_and_tells_the_cost(bad_batch: Trained) -> None:
    def refuse(path: str) -> Any:
        raise AssertionError(path)

    report = run_it(bad_batch, load=refuse, dry_run=True, checkpoints=paths_of(bad_batch, 14, 20), **WHOLE)
    assert report.outcome is Replay.NOT_RUN
    assert report.cost.train_steps == 2 * (4 + 4)
    assert report.cost.node_seconds is not None
    assert report.cost.text in report.summary


def test_a_batch_that_cannot_be_made_again_is_refused(bad_batch: Trained, ordinary: Trained) -> None:
    with pytest.raises(AnswerNo, match="cannot be made again exactly"):
        run_it(bad_batch, transform=plain)
    with pytest.raises(NotInRun, match="no checkpoint from before step 5"):
        run_it(ordinary, 5)
    with pytest.raises(UsageError, match="2 repeats"):
        run_it(ordinary, num_repeats=1)
    with pytest.raises(UsageError, match="no scalar"):
        run_it(ordinary, loss=lambda model, microbatch: model(microbatch["input_ids"]))
    with pytest.raises(UsageError, match="no model and optimizer"):
        run_it(ordinary, load=lambda path: load(path)[0])


def test_it_happens_in_half_precision_alone(ordinary: Trained) -> None:
    """A product beyond 65,504 on one batch: float16 has no number for it, float32 has."""

    class Scaled(planted.Tiny):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            large = self.head.weight.new_full((), 300.0) if self.is_event else self.head.weight.new_full((), 1.0)
            made = super().forward(ids)
            return made * large * large / 90_000.0 if self.is_event else made

        is_event = False

    def load_half(path: str) -> tuple[nn.Module, torch.optim.Optimizer]:
        model, _ = load(path)
        scaled = Scaled()
        scaled.load_state_dict(copy.deepcopy(model.state_dict()))
        scaled.half()
        return scaled, torch.optim.SGD(scaled.parameters(), lr=1e-3)

    def marks(model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
        model.is_event = microbatch.step == SPIKE
        return loss(model, microbatch)

    report = run_it(ordinary, load=load_half, loss=marks, checkpoints=paths_of(ordinary, 14, SPIKE), float32=True)
    assert report.float_check is not None
    assert report.float_check.run_dtype == "float16"
    assert report.float_check.told is Told.YES
    assert number(report.float_check.loss_float32 or "nan") == pytest.approx(ordinary.losses[SPIKE], abs=0.05)


def test_functions_are_found_by_the_name_of_their_module(bad_batch: Trained) -> None:
    for name in ("functions", "by_name"):
        report = run_experiment(bad_batch.run, SPIKE, f"tests.torch.experiment.{name}", record=False, dry_run=True)
        assert report.outcome is Replay.NOT_RUN
    with pytest.raises(UsageError, match="cannot be had"):
        run_experiment(bad_batch.run, SPIKE, "tests.torch.experiment.nothing", record=False)
