"""A monitor that detects: what is judged and when, what is skipped, who is told, and what a checkpoint takes along."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dataguard.core.spikes import EventClass
from dataguard.core.trainer import MonitoringFacts, PlannedChange, TrainerFacts
from dataguard.corpus.corpus import Corpus
from dataguard.errors import AnswerNo, UsageError
from dataguard.loader.loader import Loader
from dataguard.run.events import TrainerDescribed
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import read_telemetry
from dataguard.torch.monitoring.decision import Decision, SkipBudget
from dataguard.torch.monitoring.monitor import Monitor
from dataguard.triage.alerts import Alert, JsonLines
from dataguard.triage.detect import Detector, DetectorSettings
from dataguard.triage.preflight import preflight
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders
from tests.torch.detected import notes_of, told, walk
from tests.torch.later import FakeDevice


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 90}})


@pytest.fixture
def run(tmp_path: Path, corpus: Corpus) -> Run:
    return make_run(tmp_path / "run", corpus)


@pytest.fixture
def loader(run: Run) -> Iterator[Loader]:
    (made,) = open_loaders(run, microbatch_size=8, steps=500)
    with made:
        yield made


# -- what is judged


def test_without_a_detector_log_decides_nothing(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader) as monitor:
        loader.take_step()
        assert monitor.log(0, loss=math.nan) is None
        assert monitor.decision is None
        assert monitor.state_dict() == {}
    assert notes_of(run) == []


def test_a_detector_is_known_to_the_run_from_its_first_step_on_and_told_once(run: Run, loader: Loader) -> None:
    def point() -> tuple[str, str]:
        (found,) = (each for each in preflight(run).points if each.name == "spike_detector")
        return found.state, found.reason

    assert point()[0] == "not known"
    with Monitor(run, loader=loader, detector=True) as monitor:
        assert point()[0] == "not known", "nothing was judged"
        walk(monitor, loader, {}, range(3))
        assert point() == ("pass", "a detector is on")
        at = loader.state()
    (resumed,) = open_loaders(run, microbatch_size=8, steps=500, state=at)
    with resumed, Monitor(run, loader=resumed, detector=True) as again:
        walk(again, resumed, {}, range(3, 6))
    assert len(run.attempts()) == 2
    ((entry, said),) = noted(run.read().entries, TrainerDescribed)
    assert (said.attempt, said.facts) == (1, TrainerFacts(monitoring=MonitoringFacts(spike_detector=True)))
    assert entry.by


def test_each_step_is_judged_whatever_is_kept(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, every=50, detector=True) as monitor:
        decided = walk(monitor, loader, {73: 1.0}, range(90))
    assert told(decided)[0][:2] == ("began", 73)
    assert read_telemetry(run.layout, 1, names=["loss"])["step"].tolist() == [0, 50]


def test_a_step_is_judged_once_by_the_call_that_gives_its_loss(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, detector=True) as monitor:
        for step in range(40):
            loader.take_step()
            assert monitor.log(step, lr=0.1) is None
            assert monitor.log(step, grad_norm=math.inf if step == 39 else 1.0) is None
            first = monitor.log(step, loss=2.0)
            assert first is not None
            assert monitor.log(step, loss=math.nan) is first, "what is logged again is kept, and judged no more"
        assert first.nonfinite_ranks == (0,), "the gradient norm came before the loss, and counts"
        assert monitor.notes == ()
        loader.take_step()
        monitor.log(40, loss=2.0)
        monitor.log(40, grad_norm=1.0)
        assert "logged after its step was judged" in monitor.notes[0]


def test_a_loss_that_is_not_there_is_not_judged(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, detector=True) as monitor:
        loader.take_step()
        assert monitor.log(0, loss=None, grad_norm=1.0) is None
        loader.take_step()
        decision = monitor.log(1, loss=2.0)
    assert decision is not None
    assert decision.grad_norm is None, "that of another step does not stay"


def test_numbers_of_a_step_come_in_one_copy_and_are_waited_for_once(
    run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(monkeypatch)
    with Monitor(run, loader=loader, detector=True) as monitor:
        for step in range(5):
            loader.take_step()
            values = {f"attention_logit_max/blocks.{i}": torch.tensor(1.0 + i) for i in range(20)}
            monitor.record(step, values)
            monitor.log(step, grad_norm=torch.tensor(1.0), lr=torch.tensor(0.1))
            assert device.waited_for == step, "nothing is judged yet, so nobody waits"
            before = len(device.copies)
            decision = monitor.log(step, loss=torch.tensor(2.0), tokens=torch.tensor(5.0))
            assert len(device.copies) == before + 1
            assert device.copies[-1].tensor.shape == (23,)
            assert decision is not None
            assert (decision.loss, decision.grad_norm) == (2.0, 1.0)
        assert device.waited_for == 5, "once a step, for what is judged"


def test_events_go_to_the_journal_once_with_their_final_class(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, detector=True) as monitor:
        decided = walk(monitor, loader, {60: 1.0, 100: math.nan}, range(320))
        before_close = notes_of(run)
    assert [event[2] for event in told(decided) if event[0] == "ended"] == ["hard_fault", "hard_batch"]
    assert [(note.event_class, note.start, note.stop, note.attempt) for note in before_close] == [
        (EventClass.HARD_FAULT, 100, 101, 1),
        (EventClass.HARD_BATCH, 60, 61, 1),
    ]
    assert notes_of(run) == before_close


def test_what_is_not_over_is_noted_at_the_end(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, detector=True) as monitor:
        walk(monitor, loader, {60: 1.0, 100: math.nan, 101: math.nan}, range(102))
        assert notes_of(run) == []
    assert [(note.event_class, note.start, note.stop) for note in notes_of(run)] == [
        (EventClass.HARD_BATCH, 60, 61),
        (EventClass.HARD_FAULT, 100, 102),
    ]


def test_labels_are_the_trainers_and_the_journal_counts_from_0(tmp_path: Path, corpus: Corpus) -> None:
    run = make_run(tmp_path / "run", corpus, first_label=1)
    (loader,) = open_loaders(run, microbatch_size=8, steps=100)
    with loader, Monitor(run, loader=loader, detector=True) as monitor:
        decided = walk(monitor, loader, {60: math.nan}, range(1, 70))
    assert told(decided)[0] == ("began", 60, "hard_fault", 60)
    assert [(note.start, note.peak) for note in notes_of(run)] == [(59, 59)]


def test_changes_that_are_planned_are_no_events(tmp_path: Path, corpus: Corpus) -> None:
    shift = dict.fromkeys(range(60, 200), -0.5)
    facts = TrainerFacts(changes=(PlannedChange(step=60, what="lr / 10"),))
    found = {}
    for when in ("never", "before", "later"):
        run = make_run(tmp_path / when, corpus)
        (loader,) = open_loaders(run, microbatch_size=8, steps=200)
        with loader, Monitor(run, loader=loader, detector=True) as monitor:
            if when == "before":
                monitor.describe(facts)
            decided = walk(monitor, loader, shift, range(40))
            if when == "later":
                monitor.describe(facts)
            decided += walk(monitor, loader, shift, range(40, 200))
        found[when] = told(decided)
    assert any(event[1] == 60 for event in found["never"])
    assert found["before"] == found["later"] == []


def test_attention_logits_that_climb_are_seen_by_block(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, detector=True) as monitor:
        assert monitor._judging is not None
        seen: list[dict[str, float]] = []

        class Kept(Detector):
            def observe(self, step: int, **values: Any) -> Any:
                seen.append(dict(values["more"]))
                return super().observe(step, **values)

        monitor._judging._judges = Kept()
        model = nn.MultiheadAttention(8, 2, batch_first=True)
        block = nn.ModuleDict({"attention": model})
        block.forward = lambda x: block["attention"](x, x, x)[0]  # type: ignore[method-assign]
        monitor.watch(block, every=2)
        for step in range(6):
            loader.take_step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                block(torch.randn(1, 3, 8)).sum().backward()
            monitor.log(step, loss=2.0)
    assert [sorted(each) for each in seen] == [["attention_logit_max/attention"], []] * 3


# -- what is skipped


def test_an_update_of_nan_is_skipped_and_nobody_skips_for_ever(run: Run, loader: Loader) -> None:
    faults = dict.fromkeys((40, 60, 61, 62, 63), math.nan)
    with Monitor(run, loader=loader, detector=True) as monitor:
        decided = walk(monitor, loader, faults, range(63))
        assert [decision.step for decision in decided if decision.skip_update] == [40, 60, 61, 62]
        assert decided[40].reason == "loss is not finite"
        assert decided[41].reason == ""
        loader.take_step()
        with pytest.raises(AnswerNo, match="training stops at step 63: its update would be the 4th"):
            monitor.log(63, loss=math.nan)
    assert read_telemetry(run.layout, 1, names=["loss"])["step"].tolist() == list(range(64)), "it is on record"
    assert [note.start for note in notes_of(run)] == [40, 60]


def test_an_overflow_is_left_to_the_loss_scaler(run: Run, loader: Loader) -> None:
    def log(step: int, loss: float) -> Decision | None:
        overflows = step in range(40, 45)
        norm = math.inf if overflows else 1.0
        scale = 2.0 ** (16 - max(0, min(5, step - 40)))
        return monitor.log(step, loss=loss, grad_norm=norm, loss_scale=scale)

    with Monitor(run, loader=loader, detector=True) as monitor:
        decided = walk(monitor, loader, {}, range(60), log=log)
    assert not any(decision.skip_update for decision in decided)
    assert told(decided) == []
    assert notes_of(run) == []


@pytest.mark.parametrize(("on", "skipped"), [("never", []), ("nonfinite", [80]), ("spike", [50, 51, 80])])
def test_what_is_skipped_is_chosen(run: Run, loader: Loader, on: Any, skipped: list[int]) -> None:
    # 52 decays: it stands out no more than what began it, so it is trained on.
    faults = {50: 1.0, 51: 1.5, 52: 0.5, 70: -1.0, 80: math.nan}
    with Monitor(run, loader=loader, detector=True, budget=SkipBudget(on=on)) as monitor:
        decided = walk(monitor, loader, faults, range(90))
    assert [decision.step for decision in decided if decision.skip_update] == skipped


def test_ranks_that_share_no_group_skip_nothing_and_say_so(run: Run) -> None:
    loaders = open_loaders(run, world_size=2, microbatch_size=4, steps=3)
    with loaders[0], loaders[1], Monitor(run, loader=loaders[1], detector=True) as monitor:
        for step in range(3):
            [loader.take_step() for loader in loaders]
            decision = monitor.log(step, loss=math.nan)
            assert decision is not None
            assert decision.nonfinite_ranks
            assert not decision.skip_update
        assert "there is no process group" in monitor.notes[-1]
    assert notes_of(run) == [], "rank 1 writes nothing into the journal"


# -- who is told


def test_alerts_say_what_happened_and_are_held_back(run: Run, loader: Loader, tmp_path: Path) -> None:
    sent: list[Alert] = []
    stream = io.StringIO()
    faults = dict.fromkeys((40, 45, 50), math.nan)
    with Monitor(
        run, loader=loader, detector=True, alerts=[sent.append, JsonLines(stream), tmp_path / "a.jsonl"],
        cooldown_steps=8,
    ) as monitor:  # fmt: skip
        walk(monitor, loader, faults, range(60))
    began = [alert for alert in sent if alert.key == "hard_fault/loss"]
    assert [(alert.step, alert.num_held_back) for alert in began] == [(40, 0), (50, 1)]
    assert began[0].text == "hard_fault since step 40, not over yet"
    assert began[0].run == str(run.path)
    over = [alert for alert in sent if alert.key == "hard_fault/loss/over"]
    assert [(alert.start, alert.stop) for alert in over] == [(40, 41), (50, 51)]
    assert len(stream.getvalue().splitlines()) == len(sent)
    assert (tmp_path / "a.jsonl").read_text() == stream.getvalue()


def test_an_alert_that_cannot_be_sent_does_not_stop_training(run: Run, loader: Loader) -> None:
    def broken(_: Alert) -> None:
        raise RuntimeError("no pager")

    with Monitor(run, loader=loader, detector=True, alerts=[broken]) as monitor:
        with pytest.warns(RuntimeWarning, match="no pager"):
            walk(monitor, loader, {3: math.nan}, range(5))
        assert "no pager" in monitor.notes[-1]


def test_what_cannot_be(run: Run, loader: Loader, tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="nothing detects"):
        Monitor(run, loader=loader, alerts=[print])
    with pytest.raises(UsageError, match="does not detect"):
        Monitor(run, loader=loader, detector="default")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a list"):
        Monitor(run, loader=loader, detector=True, alerts="http://a")
    with Monitor(run, loader=loader, detector=True) as monitor, pytest.raises(UsageError, match="no state"):
        monitor.load_state_dict({"format": "other"})
    with Monitor(run, loader=loader, detector=DetectorSettings(threshold=7.0)) as monitor:
        loader.take_step()
        monitor.log(0, loss=2.0)
        state = monitor.state_dict()
    (other,) = open_loaders(make_run(tmp_path / "other", corpus), microbatch_size=8, steps=1)
    with other, Monitor(other.run, loader=other, detector=True) as monitor:
        monitor.load_state_dict(state)
        other.take_step()
        with pytest.raises(UsageError, match="other settings"):
            monitor.log(0, loss=2.0)


# -- checkpoints


FAULTS = {60: 1.0, 61: 1.2, 62: 0.6, 100: math.nan, 102: math.nan, 130: 2.0}


def monitored(run: Run, loader: Loader, sent: list[Alert]) -> Monitor:
    budget = SkipBudget(on="spike")
    return Monitor(run, loader=loader, alerts=[sent.append], detector=True, budget=budget, cooldown_steps=40)


@pytest.fixture(scope="module")
def unbroken(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Decision], list[Alert]]:
    """What 200 steps decide and send that nothing interrupts."""
    sent: list[Alert] = []
    run = make_run(tmp_path_factory.mktemp("whole") / "run", corpus)
    (loader,) = open_loaders(run, microbatch_size=8, steps=200)
    with loader, monitored(run, loader, sent) as monitor:
        return walk(monitor, loader, FAULTS, range(200)), sent


@pytest.mark.parametrize("cut", [20, 61, 63, 101, 150])
def test_a_resume_goes_on_exactly(run: Run, unbroken: tuple[list[Decision], list[Alert]], cut: int) -> None:
    decided, whole = unbroken
    parts: list[Alert] = []
    (loader,) = open_loaders(run, microbatch_size=8, steps=200)
    with loader, monitored(run, loader, parts) as monitor:
        resumed = walk(monitor, loader, FAULTS, range(cut))
        state, at = json.loads(json.dumps(monitor.state_dict())), loader.state()
        num_sent = len(parts)
        # What the first attempt did beyond its checkpoint, and saw there, is taken back.
        walk(monitor, loader, {**FAULTS, cut + 1: 3.0, cut + 3: math.nan}, range(cut, cut + 10))
    del parts[num_sent:]
    (loader,) = open_loaders(run, microbatch_size=8, steps=200, state=at)
    with loader, monitored(run, loader, parts) as monitor:
        monitor.load_state_dict(state)
        assert monitor.state_dict() == state, "before the first step it is what was loaded"
        resumed += walk(monitor, loader, FAULTS, range(cut, 200))
    assert told(resumed) == told(decided)
    assert [decision.skip_update for decision in resumed] == [decision.skip_update for decision in decided]
    assert [(alert.key, alert.step, alert.num_held_back) for alert in parts] == [
        (alert.key, alert.step, alert.num_held_back) for alert in whole
    ]


@pytest.mark.parametrize("cut", [61, 62, 63])
def test_skips_in_a_row_are_counted_across_a_resume(run: Run, cut: int) -> None:
    faults = dict.fromkeys(range(60, 70), math.nan)
    (loader,) = open_loaders(run, microbatch_size=8, steps=200)
    with loader, Monitor(run, loader=loader, detector=True) as monitor:
        decided = walk(monitor, loader, faults, range(cut))
        state, at = monitor.state_dict(), loader.state()
    assert [decision.step for decision in decided if decision.skip_update] == list(range(60, cut))
    (loader,) = open_loaders(run, microbatch_size=8, steps=200, state=at)
    with loader, Monitor(run, loader=loader, detector=True) as monitor:
        monitor.load_state_dict(state)
        with pytest.raises(AnswerNo, match=r"stops at step 63: .* the 4th to be skipped in a row"):
            walk(monitor, loader, faults, range(cut, 70))


def test_going_back_without_a_state_takes_back_what_was_found(run: Run) -> None:
    (loader,) = open_loaders(run, microbatch_size=8, steps=200)
    with loader:
        monitor = Monitor(run, detector=True)
        walk(monitor, loader, {}, range(60))
        at = loader.state()
        walk(monitor, loader, {70: math.nan}, range(60, 75))
    (loader,) = open_loaders(run, microbatch_size=8, steps=200, state=at)
    with loader, monitor:
        decided = walk(monitor, loader, {70: math.nan}, range(60, 80))
    assert told(decided) == [("began", 70, "hard_fault", 70), ("ended", 71, "hard_fault", 70)]
    assert [(note.attempt, note.start) for note in notes_of(run)] == [(1, 70), (2, 70)]


def longest(state: Any) -> int:
    """Of all lists and objects in a state."""
    if isinstance(state, dict):
        return max([len(state), *map(longest, state.values())])
    return max([len(state), *map(longest, state)]) if isinstance(state, list) else 0


def test_a_state_stays_bounded(run: Run) -> None:
    settings = DetectorSettings(num_rewind=64, num_most_events=8, num_window=64, num_aftermath=32)
    (loader,) = open_loaders(run, microbatch_size=8, steps=500)
    faults = dict.fromkeys(range(7, 500, 20), math.nan)
    with loader, Monitor(run, loader=loader, detector=settings, budget=SkipBudget(on="never")) as monitor:
        walk(monitor, loader, faults, range(500))
        state = monitor.state_dict()
    assert longest(state) <= 256, "a list of all 500 steps would be longer"
    assert len(state["noted"]) == settings.num_most_events, "there were 25"
