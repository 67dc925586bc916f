"""Which checkpoints, batches, ranks and facts does an experiment take from a run, and which not?"""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.core.spikes import EventClass
from dataguard.core.trainer import CheckpointFacts, OptimizerFacts, TrainerFacts
from dataguard.corpus.corpus import Corpus
from dataguard.errors import AnswerNo, NotInRun, UsageError
from dataguard.run.events import CheckpointSaved, SpikeFound, TrainerDescribed
from dataguard.run.run import Run
from dataguard.torch.experiment.batches import Rebuilding, choose_ranks, placebo_batches
from dataguard.torch.experiment.recorded import checkpoints_of, facts_of, logged, wanted
from tests.torch.making import a_run, loader_of


def walked(path: Path, corpus: Corpus, num_steps: int, **settings: object) -> Run:
    run = a_run(path / "run", corpus)
    with loader_of(run, steps=num_steps, **settings) as loader:
        for _ in loader:
            pass
    return run


def rebuilding(run: Run, ranks: tuple[int, ...] | None = None) -> Rebuilding:
    return Rebuilding(run=run, attempt=run.newest_leaf(), roots=None, transform=None, collate=None, ranks=ranks)


def found(start: int, stop: int, **facts: object) -> SpikeFound:
    known = {
        "attempt": 1, "event_class": EventClass.TRANSIENT_SPIKE, "peak": start, "size_nats": 1.5, "sigmas": 9.0,
        "aftermath_nats": None, "grad_norm_ratio": None, "signal": "loss", "rank": None, "detector": "default",
    }  # fmt: skip
    return SpikeFound(start=start, stop=stop, **{**known, **facts})  # type: ignore[arg-type]


def test_placebo_batches_are_ordinary_and_unseen_ones_come_first(documents: Corpus, tmp_path: Path) -> None:
    run = walked(tmp_path, documents, 18)
    made = rebuilding(run)
    run.journal.append(found(14, 15))
    losses = {step: 3.0 + 0.01 * (step % 3) for step in range(18)} | {9: 30.0, 10: float("nan")}
    notes: list[str] = []
    chosen = placebo_batches(made, made.batch(5), event=range(5, 6), num_placebos=16, losses=losses, notes=notes)
    steps = [each.step for each in chosen]
    assert not {3, 4, 5, 6, 7} & set(steps), "the event and its neighbours"
    assert not {12, 13, 14, 15, 16} & set(steps), "another event and its neighbours"
    assert not {9, 10} & set(steps), "losses that stand out"
    assert set(steps) == {0, 1, 2, 8, 11, 17}
    assert set(steps[:3]) == {8, 11, 17}, "what the checkpoint has not seen comes first"
    assert set(steps[4:]) == {1, 2}, "those of other sources come last"
    assert "2 of 6 placebo batches hold other sources" in notes[0]
    assert "6 placebo batches instead of 16" in notes[1]
    again = placebo_batches(made, made.batch(5), event=range(5, 6), num_placebos=4, losses=losses, notes=[])
    assert [each.step for each in again] == steps[:4]


def test_too_few_ordinary_batches_are_refused(documents: Corpus, tmp_path: Path) -> None:
    run = walked(tmp_path, documents, 8)
    made = rebuilding(run)
    with pytest.raises(AnswerNo, match="no more than 3 placebo batches"):
        placebo_batches(made, made.batch(5), event=range(5, 6), num_placebos=16, losses={}, notes=[])


def test_ranks_are_sampled_by_key(documents: Corpus, tmp_path: Path) -> None:
    run = walked(tmp_path, documents, 3, world_size=1)
    assert choose_ranks(run, 2, 8, None) is None
    assert choose_ranks(run, 2, 8, 8) is None
    few = choose_ranks(run, 2, 8, 3)
    assert few is not None
    assert len(set(few)) == 3
    assert few == choose_ranks(run, 2, 8, 3)
    assert len({choose_ranks(run, step, 8, 3) for step in range(20)}) > 5
    with pytest.raises(UsageError, match="0 ranks"):
        choose_ranks(run, 2, 8, 0)
    assert rebuilding(run, ranks=(0,)).batch(1).digest == rebuilding(run).batch(1).digest


def test_only_checkpoints_of_the_lineage_count(documents: Corpus, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", documents)
    with loader_of(run, steps=8) as loader:
        for _ in range(16):
            next(iter(loader))
        state = loader.state_dict()
        for _ in loader:
            pass
    with loader_of(run, steps=8) as loader:
        loader.load_state_dict(state)
        for _ in loader:
            pass
    for attempt, next_step in ((1, 2), (1, 4), (1, 6), (2, 7)):
        run.journal.append(CheckpointSaved(attempt=attempt, next_step=next_step, path=f"{attempt}/{next_step}"))
    assert run.attempts().attempt(2).fork_step == 4
    assert checkpoints_of(run, 7, 2, None, None) == ((7, "2/7"), (4, "1/4"))
    assert checkpoints_of(run, 7, 1, None, None) == ((6, "1/6"), (4, "1/4"))
    assert checkpoints_of(run, 7, 2, None, 2) == ((7, "2/7"), (2, "1/2"))
    assert checkpoints_of(run, 3, 2, None, None) == ((2, "1/2"), None)
    with pytest.raises(NotInRun, match="no checkpoint from before step 1"):
        checkpoints_of(run, 1, 2, None, None)
    with pytest.raises(UsageError, match="no earlier checkpoint of step 6"):
        checkpoints_of(run, 7, 2, None, 6)


def test_what_was_never_said_or_logged_is_not_known(documents: Corpus, tmp_path: Path) -> None:
    run = walked(tmp_path, documents, 2)
    assert facts_of(run.read().entries) == TrainerFacts()
    nothing = logged(run, 1)
    assert (nothing.losses, nothing.rates, nothing.seconds_per_step) == ({}, {}, None)
    run.journal.append(TrainerDescribed(facts=TrainerFacts(optimizer=OptimizerFacts(clip_norm=1.0, beta2=0.95))))
    later = TrainerFacts(optimizer=OptimizerFacts(clip_norm=0.5), checkpoints=CheckpointFacts(num_nodes=4))
    run.journal.append(TrainerDescribed(facts=later))
    facts = facts_of(run.read().entries)
    assert (facts.optimizer.clip_norm, facts.optimizer.beta2, facts.checkpoints.num_nodes) == (0.5, 0.95, 4)
    assert facts.precision.compute is None


def test_what_was_found_is_what_is_wanted(documents: Corpus, tmp_path: Path) -> None:
    run = walked(tmp_path, documents, 2)
    plain = wanted(run, 1, 1, None)
    assert (plain.event_class, plain.asked.signal, plain.asked.sign, plain.asked.effect) == (None, "loss", 1, None)
    run.journal.append(found(1, 2))
    run.journal.append(found(1, 2, attempt=7, size_nats=9.0))
    assert wanted(run, 1, 1, None).asked.effect == 1.5, "an attempt of another lineage says nothing"
    run.journal.append(found(1, 2, event_class=EventClass.LOSS_DIP, size_nats=-0.4))
    dip = wanted(run, 1, 1, None).asked
    assert (dip.sign, dip.effect) == (-1, 0.4)
    run.journal.append(found(1, 2, event_class=EventClass.GRAD_NORM_ONLY, size_nats=None, grad_norm_ratio=2.718281828))
    norm = wanted(run, 1, 1, None).asked
    assert (norm.signal, norm.sign) == ("grad_norm", 1)
    assert norm.effect == pytest.approx(1.0)
