"""What was planted is found, named and placed; what was not is not found, and says so."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dataguard.core.evidence import RankPattern, Told
from dataguard.core.spikes import EventClass
from dataguard.triage.localise import FALSE_ALARMS, Localised, localise
from tests.triage.localise.planted import Planted, event_at, ordinary, prose, walk, write

NUM_SHARDS, NUM_ROWS, BATCH = 6, 80, 8
STEP = NUM_SHARDS * NUM_ROWS // BATCH


def bad_records(kind: str, random: np.random.Generator, count: int) -> list[str]:
    """Records of a shard that is wrong in one way."""
    if kind == "base64":
        return [base64.b64encode(random.bytes(int(random.integers(90, 300)))).decode() for _ in range(count)]
    if kind == "foreign":
        abroad = str.maketrans("abcdefghijklmnoprstuvw", "абцдефгхийклмнопрстувш")
        return [prose(random, 30).lower().translate(abroad) for _ in range(count)]
    if kind == "repeated":
        return ["g4OD " * 90] * count
    if kind == "digits":
        return [" ".join(str(each) for each in random.integers(10**17, 10**18, 12)) for _ in range(count)]
    if kind == "markup":
        return [f'<div class="c{i}"><span class="row">{prose(random, 6)}</span></div>' for i in range(count)]
    assert kind == "nontext"
    return [prose(random, 20) + "\x00\x01\x02" * 30 for _ in range(count)]


def planted(path: Path, kind: str, *, num_bad: int = BATCH, num_ranks: int = 4, **more: Any) -> Planted:
    """Six ordinary shards in their order, then a bad one, then the ordinary ones again: bad is step 60."""
    random = np.random.default_rng(3)
    shards = {f"web/s{i}": ordinary(random, NUM_ROWS) for i in range(NUM_SHARDS)}
    corpus = write(path, shards | {"web/z": bad_records(kind, random, num_bad)})
    settings = {"num_ranks": num_ranks, "steps": STEP + 1, "global_batch": BATCH, "lanes": 1, "shuffle": "none"}
    run = walk(path / "run", corpus, **{**settings, **more})
    assert set(run.records["step"][run.shard("z")].tolist()) == {STEP}
    return run


def clean(path: Path, *, num_ranks: int = 4, **more: Any) -> Planted:
    """Ordinary shards alone, shuffled."""
    random = np.random.default_rng(3)
    corpus = write(path, {f"web/s{i}": ordinary(random, NUM_ROWS) for i in range(NUM_SHARDS)})
    return walk(path / "run", corpus, **{"num_ranks": num_ranks, "steps": STEP, "global_batch": BATCH, **more})


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("base64", "encoded_fraction"),
        ("foreign", "fertility_bytes_per_char"),
        ("repeated", "byte_periodic_repeats"),
        ("digits", "digit_fraction"),
        ("markup", "markup_fraction"),
        ("nontext", "nontext_fraction"),
    ],
)
def test_a_bad_shard_is_found_with_its_signal_and_its_samples(tmp_path: Path, kind: str, named: str) -> None:
    run = planted(tmp_path, kind)
    bad = run.shard("z")
    run.losses[bad] += 3.0
    run.log()
    found = localise(run.run, event_at(STEP))
    assert found.data is Told.YES
    assert found.shards[0].name == "web/z.jsonl"
    assert found.shards[0].num_samples > found.shards[0].num_expected
    there = bad & np.isin(run.records["step"], found.looked_at.tested)
    worst = found.samples[: int(there.sum())]
    assert {(each.step, each.slot) for each in worst} == set(run.records[there][["step", "slot"]].tolist())
    assert all(each.outlying and each.shard == "web/z.jsonl" for each in worst)
    assert any(signal.signal == named for each in worst for signal in each.signals), worst[0].signals
    assert any(named in text for text in found.texts), found.texts
    assert found.samples[len(worst) :]
    assert not any(each.outlying for each in found.samples[len(worst) :])


def test_ranks_that_hold_the_bad_samples_are_put_down_to_them(tmp_path: Path) -> None:
    run = planted(tmp_path, "base64", num_bad=2)
    bad = run.shard("z")
    run.losses[bad] += 3.0
    run.log()
    found = localise(run.run, event_at(STEP))
    assert found.pattern is RankPattern.WITH_DATA, found.texts
    holding = set(run.records["rank"][bad & (run.records["step"] == STEP)].tolist())
    assert {rank.rank for rank in found.ranks if rank.outlying} == holding
    assert found.microbatches[0].rank in holding
    assert found.microbatches[0].num_outlying_samples > 0


@pytest.mark.parametrize(("own", "data"), [(0.0, Told.NO), (3.0, Told.YES)])
def test_one_odd_sample_is_no_data_while_its_loss_is_as_its_neighbours(tmp_path: Path, own: float, data: Told) -> None:
    """Every loss of the step is raised, by the state; a sample that is far too long did it only if its own is more."""
    random = np.random.default_rng(3)
    shards = {f"web/s{i}": ordinary(random, NUM_ROWS) for i in range(NUM_SHARDS)}
    shards["web/s5"][40] = " ".join(prose(random, 40) for _ in range(3000))
    settings: dict[str, Any] = {"steps": STEP, "global_batch": BATCH, "lanes": 1, "shuffle": "none"}
    run = walk(tmp_path / "run", write(tmp_path, shards), num_ranks=4, **settings)
    odd = run.shard("s5") & (run.records["row"] == 40)
    (step,) = run.records["step"][odd].tolist()
    run.losses[run.records["step"] == step] += 2.0
    run.losses[odd] += own
    run.log()
    found = localise(run.run, event_at(step))
    assert found.data is data, found.texts


def test_one_sick_rank_is_no_data(tmp_path: Path) -> None:
    run = clean(tmp_path)
    sick = (run.records["step"] == 50) & (run.records["rank"] == 2)
    run.losses[sick] += 3.0
    run.log()
    found = localise(run.run, event_at(50))
    assert (found.pattern, found.data) == (RankPattern.ONE_RANK, Told.NO), found.texts
    assert [rank.rank for rank in found.ranks if rank.outlying] == [2]


def test_a_rank_whose_own_gradient_is_off_again_and_again_is_persistent(tmp_path: Path) -> None:
    run = clean(tmp_path)
    num_steps = len(np.unique(run.records["step"]))
    norms = np.exp(run.random.normal(0, 0.1, (num_steps, 4)))
    norms[::5, 3] *= 4
    run.log(reduced=True, samples=False, norms=norms)
    found = localise(run.run, event_at(50))
    assert found.pattern is RankPattern.PERSISTENT, found.texts
    assert found.ranks[0].rank == 3
    assert found.ranks[0].loss is None
    assert found.ranks[0].grad_norm == pytest.approx(norms[50, 3])
    assert any("one and the same on all ranks" in text for text in found.texts)


def test_losses_reduced_before_they_were_logged_say_nothing_of_ranks(tmp_path: Path) -> None:
    run = clean(tmp_path)
    run.log(reduced=True, samples=False)
    found = localise(run.run, event_at(50))
    assert found.pattern is RankPattern.UNKNOWN
    assert any("reduced before" in text for text in found.texts)
    assert all(rank.loss is None for rank in found.ranks)


def test_a_state_that_raises_every_loss_is_no_data(tmp_path: Path) -> None:
    run = clean(tmp_path)
    run.losses[run.records["step"] == 50] += 2.0
    run.log()
    found = localise(run.run, event_at(50))
    assert found.data is Told.NO, found.texts
    assert found.pattern is RankPattern.NONE
    assert not any(sample.outlying for sample in found.samples)
    assert not any(share.stands_out for share in found.shards)


def test_without_any_telemetry_signals_alone_find_it(tmp_path: Path) -> None:
    run = planted(tmp_path, "foreign")
    found = localise(run.run, event_at(STEP))
    assert (found.data, found.pattern) == (Told.YES, RankPattern.UNKNOWN)
    assert found.shards[0].num_outlying > 0
    assert all(sample.loss is None and sample.loss_z is None for sample in found.samples)
    assert any("were not logged" in text for text in found.texts)


def test_a_clean_run_is_within_its_background(tmp_path: Path) -> None:
    # The bound is 1 in 100 events: two of 12 would come up once in 160 times if it were just kept.
    alarms = 0
    for seed in range(4):
        random = np.random.default_rng(200 + seed)
        folder = tmp_path / str(seed)
        corpus = write(folder, {f"web/s{i}": ordinary(random, 60) for i in range(8)})
        run = walk(folder / "run", corpus, seed=seed, num_ranks=2, steps=58)
        run.log(samples=seed % 2 == 0)
        for step in (42, 48, 54):
            found = localise(run.run, event_at(step), events=[event_at(20), event_at(33)])
            assert found.data is not Told.UNKNOWN
            alarms += found.data is Told.YES
            assert found.false_alarms == FALSE_ALARMS
            assert found.num_comparisons > 50
    assert alarms <= 1


def test_the_answer_is_a_document_and_always_the_same(tmp_path: Path) -> None:
    run = clean(tmp_path)
    run.losses[run.records["step"] == 50] = np.inf
    run.losses[(run.records["step"] == 49) & (run.records["slot"] == 1)] = np.nan
    run.log()
    found = localise(run.run, event_at(50, event_class=EventClass.HARD_FAULT))
    encoded = msgspec.json.encode(found)
    assert msgspec.json.decode(encoded, type=Localised) == found
    assert encoded == msgspec.json.encode(localise(run.run, event_at(50, event_class=EventClass.HARD_FAULT)))
    gone = [sample for sample in found.samples if not sample.is_finite]
    assert (49, 1) in {(sample.step, sample.slot) for sample in gone}
    assert all(sample.loss is None for sample in gone)


def test_shards_that_can_no_longer_be_read_are_counted_and_the_record_answers(tmp_path: Path) -> None:
    run = planted(tmp_path, "nontext", policy="default")
    run.log()
    (tmp_path / "web" / "z.jsonl").unlink()
    found = localise(run.run, event_at(STEP))
    assert found.looked_at.num_unreadable > 0
    assert found.looked_at.unreadable_shards == ("web/z.jsonl",)
    assert found.data is Told.YES
    out = {each.signal for each in found.signals if each.stands_out}
    assert {each.origin for each in found.signals if each.stands_out} == {"recorded"}
    assert "nontext_fraction" in out or "rule nontext" in " ".join(out)
    assert any("cannot be read now (web/z.jsonl)" in text for text in found.texts)


def test_where_nothing_can_be_read_and_nothing_was_recorded_it_is_not_known(tmp_path: Path) -> None:
    run = clean(tmp_path)
    run.log()
    for path in (tmp_path / "web").iterdir():
        path.unlink()
    found = localise(run.run, event_at(50))
    assert found.data is Told.UNKNOWN
    assert found.looked_at.scored_from == "none"
    assert found.looked_at.num_unreadable > 0
    assert "not known" in found.texts[0]


def test_a_shard_that_was_there_whenever_the_loss_misbehaved_is_told(tmp_path: Path) -> None:
    # Ordinary texts: nothing in them shows. One shard is read now and then among the others.
    random = np.random.default_rng(8)
    corpus = write(tmp_path, {f"web/s{i}": ordinary(random, 400 if i else 20) for i in range(4)})
    run = walk(tmp_path / "run", corpus, steps=150, shuffle="all", num_ranks=1)
    suspect = run.shard("s0")
    steps = sorted(set(run.records["step"][suspect].astype(int).tolist()))
    assert len(steps) >= 12
    run.losses[np.isin(run.records["step"], steps)] += 2.0  # all samples alike, as a bad update would
    run.log()
    last = steps[-1]
    found = localise(run.run, event_at(last), events=[event_at(step) for step in steps])
    share = next(each for each in found.shards if each.name == "web/s0.jsonl")
    assert share.stands_out
    assert share is found.shards[0]
    assert share.steps_before == share.steps_before_out == len(steps) - 1
    assert share.num_steps_before_out < share.num_steps_before / 3
    assert share.steps_p_value is not None
    assert share.steps_p_value < 1e-4
    assert found.data is Told.YES
    assert any(
        f"of {len(steps) - 1} earlier steps with it the loss stood out at {len(steps) - 1}" in text
        for text in found.texts
    )
    others = [each for each in found.shards if each is not share]
    assert not any(each.stands_out for each in others)


def test_labels_of_the_trainer_are_used_throughout(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    corpus = write(tmp_path, {"web/a": ordinary(random, 400)})
    run = walk(tmp_path / "run", corpus, steps=45, first_label=1)
    run.losses[(run.records["step"] == 40) & (run.records["slot"] == 5)] += 4.0
    run.log()
    found = localise(run.run, event_at(41, onset=40))
    assert found.looked_at.steps == (39, 42)
    assert found.looked_at.tested == (39, 40, 41)
    assert (found.samples[0].step, found.samples[0].slot, found.samples[0].outlying) == (41, 5, True)
    assert found.samples[0].loss_z is not None
    assert math.isclose(found.samples[0].loss_z, 40, rel_tol=0.4)  # 4 nats of 0.1


def test_a_shard_of_another_kind_is_news_when_it_begins_and_not_after(tmp_path: Path) -> None:
    # Shards differ, and blocks are read together: in the midst of one, its own kind is what was read right before.
    random = np.random.default_rng(12)
    shards = {f"web/s{i}": ordinary(random, NUM_ROWS) for i in range(NUM_SHARDS)}
    tables = [" ".join(f"{random.integers(10**6):06d}" for _ in range(20)) for _ in range(NUM_ROWS)]
    corpus = write(tmp_path, shards | {"web/z": tables})
    run = walk(tmp_path / "run", corpus, steps=STEP + 5, lanes=1, shuffle="none")
    assert localise(run.run, event_at(STEP)).data is Told.YES
    after = localise(run.run, event_at(STEP + 3))
    assert after.data is Told.NO, after.texts
    digits = next(each for each in after.signals if each.signal == "digit_fraction")
    assert digits.corrected < 1e-4
    assert digits.near_p_value is not None
    assert digits.near_p_value > 0.01
    assert not digits.stands_out
