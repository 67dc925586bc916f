"""The detector on real ranks: the numbers of one decide for all, at the same step; a checkpoint goes on elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.run.events import CheckpointSaved, SpikeFound, TrainerDescribed
from dataguard.run.notes import noted
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import telemetry_of_lineage
from tests.support.corpora import make_corpus
from tests.support.runs import make_run
from tests.torch.detecting_rank import loss_of
from tests.torch.forking import Launch

SPIKE = {str(step): {"1": 3.0} for step in range(70, 74)}
"""Of rank 1 alone, for four steps: the mean of three ranks rises by one."""
NAN = {"90": {"0": "nan"}, **{str(step): {"1": "nan"} for step in range(100, 110)}}
FAULTS = {**SPIKE, **NAN}
STEPS, SAVE_AT = 112, 72


def launch(ranks: Launch, run: Run, folder: Path, world_size: int, **words: Any) -> list[list[dict[str, Any]]]:
    """What each rank printed."""
    said = ranks("tests.torch.detecting_rank", folder, world_size, run=str(run.path), **words)
    return [[json.loads(line) for line in out.splitlines()] for out in said]


def decisions(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in said if "began" in line]


def kinds(said: list[dict[str, Any]], word: str) -> list[Any]:
    return [line for line in said if word in line]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 120}})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Run:
    # A batch fits 3 ranks as well as 2.
    return make_run(tmp_path_factory.mktemp("run") / "run", corpus, global_batch=12)


@pytest.fixture(scope="module")
def three(ranks: Launch, run: Run, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("three")
    return launch(ranks, run, folder, 3, steps=STEPS, faults=FAULTS, save_at=SAVE_AT, describe_at=4)


@pytest.fixture(scope="module")
def two(
    ranks: Launch, run: Run, three: list[list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> list[list[dict[str, Any]]]:
    """Resumed in the middle of the event, on two ranks; the mean stays what it was with three."""
    (state,) = (line["state"] for line in kinds(three[0], "state"))
    faults = {**FAULTS, **{str(step): {"1": 2.0} for step in range(70, 74)}}
    return launch(ranks, run, tmp_path_factory.mktemp("two"), 2, steps=STEPS, faults=faults, state=state)


def test_all_ranks_decide_the_same_at_the_same_step(three: list[list[dict[str, Any]]]) -> None:
    first, *others = map(decisions, three)
    assert [line["step"] for line in first] == list(range(102 + 1))
    assert all(other == first for other in others)


def test_a_spike_of_one_rank_is_an_event_of_all_and_the_rank_is_named(three: list[list[dict[str, Any]]]) -> None:
    for said in three:
        at = {line["step"]: line for line in decisions(said)}
        assert [event[1] for event in at[70]["began"]] == [70]
        assert at[70]["began"][0][3] == 1
        assert at[70]["outliers"][0][:2] == ["loss", 1]
        assert not any(line["began"] for step, line in at.items() if step < 70)
        assert not any(line["skip"] for step, line in at.items() if step < 90), "spikes are trained on unless asked"


def test_nan_on_one_rank_skips_the_update_on_all(three: list[list[dict[str, Any]]]) -> None:
    for said in three:
        at = {line["step"]: line for line in decisions(said)}
        assert at[90]["nonfinite"] == [0]
        assert at[90]["began"] == [["hard_fault", 90, 90, 0]]
        assert [step for step, line in at.items() if line["skip"]] == [90, 100, 101, 102]


def test_nobody_skips_for_ever_and_all_stop_at_once(three: list[list[dict[str, Any]]]) -> None:
    for said in three:
        (error,) = kinds(said, "error")
        assert (error["error"], error["at"]) == ("AnswerNo", 103)
        assert "the 4th to be skipped in a row" in error["text"]
        assert "loss is not finite on rank 1" in error["text"]


def test_a_resume_in_the_middle_of_an_event_on_another_world_size_goes_on_exactly(
    three: list[list[dict[str, Any]]], two: list[list[dict[str, Any]]]
) -> None:
    assert decisions(two[0]) == decisions(two[1])
    unbroken = [line for line in decisions(three[0]) if line["step"] >= SAVE_AT]
    resumed = decisions(two[0])
    assert [line["step"] for line in resumed] == [line["step"] for line in unbroken]
    for before, after in zip(unbroken, resumed, strict=True):
        assert [event[:3] for event in after["began"]] == [event[:3] for event in before["began"]]
        assert [event[:3] for event in after["ended"]] == [event[:3] for event in before["ended"]]
        assert (after["skip"], after["nonfinite"]) == (before["skip"], before["nonfinite"])
    assert not any(line["began"] for line in resumed if line["step"] < 90), "the event that went on did not begin again"
    assert kinds(two[0], "error")[0]["at"] == 103


def test_the_journal_holds_each_event_once(run: Run, two: Any) -> None:
    notes = [note for _, note in noted(run.read().entries, SpikeFound)]
    faults = [(note.attempt, note.start, note.stop, note.rank) for note in notes if note.event_class == "hard_fault"]
    assert faults == [(1, 90, 91, 0), (1, 100, 104, 1), (2, 90, 91, 0), (2, 100, 104, 1)]
    spikes = [note for note in notes if note.event_class != "hard_fault"]
    assert {(note.start, note.stop, note.peak) for note in spikes} == {(70, 74, spikes[0].peak)}
    assert {note.attempt for note in spikes} == {1}, "its peak was delivered by the first attempt"
    assert all(note.rank == 1 and note.detector == "default" for note in spikes)


def test_largest_logits_are_those_of_all_ranks_from_the_sample_after_the_first(run: Run, three: Any) -> None:
    """Names are agreed on with the first sampled step, whose values are in the telemetry alone."""
    given = {line["step"]: line["more"] for line in decisions(three[0])}
    assert [step for step, more in given.items() if more] == list(range(10, 103, 10))
    names = [f"attention_logit_max/blocks.{block}" for block in range(2)]
    rows = telemetry_of_lineage(run, 1, names=names)
    for step in range(10, 103, 10):
        for name in names:
            own = rows[(rows["step"] == step) & (rows["name"] == name.encode())]
            assert len(set(own["value"].tolist())) == 3, "each rank has its own"
            assert given[step][name] == own["value"].max()


def test_alerts_come_from_rank_0_alone(three: list[list[dict[str, Any]]]) -> None:
    alerts = [line["alert"] for line in kinds(three[0], "alert")]
    assert "hard_fault/loss/rank=0" in alerts
    assert "hard_fault/loss/rank=1" in alerts
    assert len(alerts) == len(set(alerts)), "a cooldown holds back what comes again"
    assert not any(kinds(said, "alert") for said in three[1:])


def test_the_state_is_that_of_any_rank(three: list[list[dict[str, Any]]]) -> None:
    states = [line["state"]["monitor"] for said in three for line in kinds(said, "state")]
    for state in states:
        state.pop("seconds")  # of its own clock; what the detector is given is that of the slowest
    assert states[0] == states[1] == states[2]


def test_checkpoints_and_facts_are_noted_by_rank_0_alone(run: Run, three: Any) -> None:
    entries = run.read().entries
    assert [note for _, note in noted(entries, CheckpointSaved)] == [
        CheckpointSaved(attempt=1, next_step=SAVE_AT, path=f"ckpt/{SAVE_AT}")
    ]
    described = [note for _, note in noted(entries, TrainerDescribed)]
    assert [note.attempt for note in described] == [1, 1], "what was described, and that a detector is on"
    assert sorted(note.facts.monitoring.spike_detector is True for note in described) == [False, True]


def test_each_rank_still_logs_its_own(run: Run, three: Any) -> None:
    rows = telemetry_of_lineage(run, 1, names=["loss"])
    got = {(step, rank): value for step, rank, value in rows[["step", "rank", "value"]].tolist()}
    assert len(got) == 3 * 104
    assert all(got[70, rank] == loss_of(70, rank, FAULTS) for rank in range(3))
    assert got[70, 1] > got[70, 0] + 2
