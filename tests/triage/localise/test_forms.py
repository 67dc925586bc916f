"""Windows of tokens and of bytes, orders given from outside, attempts that were abandoned, steps that are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.core.address import Geometry
from dataguard.core.evidence import RankPattern, Told
from dataguard.core.spikes import EventClass
from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.loader.rehearse import rehearse
from dataguard.run.run import Run
from dataguard.triage.localise import localise
from tests.triage.localise.planted import Planted, event_at, ordinary, walk, write

SEQ_LEN, STEP = 64, 60


def windows(path: Path, shards: dict[str, np.ndarray], **plan: object) -> Planted:
    """Windows in the order of their shards."""
    for name, ids in shards.items():
        (path / "web").mkdir(exist_ok=True)
        np.save(path / "web" / f"{name}.npy", ids.astype(np.uint16))
    build_manifest_file([f"web={path / 'web'}"], path / "M.parquet", num_workers=1)
    settings = {"form": "window", "seq_len": SEQ_LEN, "lanes": 1, "shuffle": "none", "num_ranks": 2, "steps": STEP + 2}
    return walk(path / "run", Corpus.open(path / "M.parquet"), **{**settings, **plan})


def bytes_of(random: np.random.Generator) -> np.ndarray:
    return np.frombuffer("\n".join(ordinary(random, 120)).encode(), np.uint8)[: SEQ_LEN * 80]


def test_windows_of_bytes_are_judged_as_text_and_fertility_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shards = {f"s{i}": bytes_of(random) for i in range(6)}
    letters = random.integers(0x430, 0x450, 2000)
    foreign = "".join(chr(letter) + " " * (i % 7 == 0) for i, letter in enumerate(letters.tolist())).encode()
    run = windows(tmp_path, shards | {"z": np.frombuffer(foreign, np.uint8)[: SEQ_LEN * 8]})
    found = localise(run.run, event_at(STEP))
    assert found.data is Told.YES
    assert found.shards[0].name == "web/z.npy"
    named = next(each for each in found.signals if each.signal == "fertility_bytes_per_char")
    assert named.stands_out
    assert (named.num_beyond, named.num_beyond_before, named.usual) == (8, 0, 1.0)
    assert any("fertility_bytes_per_char above" in text for text in found.texts[:8]), found.texts
    assert any("judged as text" in note for note in found.notes)


def test_a_shard_of_one_repeated_sequence_of_tokens_is_found_though_the_loss_falls(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    shards = {f"s{i}": random.zipf(1.2, SEQ_LEN * 80) % 5000 for i in range(6)}
    run = windows(tmp_path, shards | {"z": np.tile([7, 9, 11, 13], SEQ_LEN * 2)})
    run.losses[run.records["step"] == STEP] -= 2.0
    run.log()
    found = localise(run.run, event_at(STEP, event_class=EventClass.LOSS_DIP))
    assert found.data is Told.YES
    out = {each.signal for each in found.signals if each.stands_out}
    assert {"token_periodic_repeats", "token_dup_ngram_fraction"} <= out
    assert found.duplicates is not None
    assert found.duplicates.stands_out
    assert (found.duplicates.num_copies, found.duplicates.most_alike_in_step) == (8, 8)
    assert (found.duplicates.num_copies_before, found.duplicates.most_alike_in_step_before) == (0, 1)
    assert found.microbatches[0].step == STEP
    assert found.microbatches[0].loss_z is not None
    assert found.microbatches[0].loss_z < -5
    assert all(sample.num_copies == 7 and sample.step == STEP for sample in found.samples[:8])


def test_copies_that_the_whole_run_is_full_of_are_its_background(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    texts = ordinary(random, 150)
    corpus = write(tmp_path, {f"web/s{i}": texts for i in range(4)})  # a deduplication that did not happen
    run = walk(tmp_path / "run", corpus, steps=70)
    run.log()
    found = localise(run.run, event_at(60))
    assert found.data is Told.NO
    assert found.duplicates is not None
    assert not found.duplicates.stands_out
    assert found.duplicates.num_copies > 8
    assert found.duplicates.num_copies_before > 100


def test_a_second_epoch_is_no_sign_of_anything(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    corpus = write(tmp_path, {"web/a": ordinary(random, 320)})
    run = walk(tmp_path / "run", corpus, steps=70)  # an epoch has 40 steps
    run.log()
    found = localise(run.run, event_at(50))
    assert found.data is Told.NO
    assert found.duplicates is not None
    assert found.duplicates.num_rows_seen_before == found.duplicates.num_samples == 16
    assert found.duplicates.num_copies == 0
    assert all(sample.num_seen_before == 1 and sample.first_seen_step is not None for sample in found.samples)


def test_an_event_too_early_for_a_background_is_not_known(tmp_path: Path) -> None:
    corpus = write(tmp_path, {"web/a": ordinary(np.random.default_rng(7), 160)})
    run = walk(tmp_path / "run", corpus, steps=10, num_ranks=2)
    run.log()
    found = localise(run.run, event_at(2))
    assert (found.data, found.pattern) == (Told.UNKNOWN, RankPattern.UNKNOWN)
    found = localise(run.run, event_at(0))
    assert found.looked_at.steps == (0, 1)
    assert found.looked_at.num_samples_before == 0
    assert (found.data, found.pattern) == (Told.UNKNOWN, RankPattern.UNKNOWN)


def test_steps_of_which_nothing_is_recorded_are_told(tmp_path: Path) -> None:
    corpus = write(tmp_path, {"web/a": ordinary(np.random.default_rng(7), 400)})
    run = walk(tmp_path / "run", corpus, steps=45)
    found = localise(run.run, event_at(45))
    assert found.looked_at.missing_steps == (45,)
    assert found.looked_at.num_samples == 8
    assert any("nothing is recorded of 1 of the steps (45)" in text for text in found.texts)
    found = localise(run.run, event_at(500))
    assert found.data is Told.UNKNOWN
    assert found.samples == ()


def test_each_attempt_answers_for_its_own_steps(tmp_path: Path) -> None:
    corpus = write(tmp_path, {"web/a": ordinary(np.random.default_rng(7), 900)})
    run = walk(tmp_path / "run", corpus, steps=60, num_ranks=2)
    run.losses[(run.records["step"] == 55) & (run.records["slot"] == 3)] += 4.0
    run.log()
    rehearse(run.run, geometry=Geometry(world_size=1, microbatch_size=8), steps=8, from_step=50, parent=1)
    first = localise(run.run, event_at(55), attempt=1)
    assert (first.attempt, first.looked_at.num_losses) == (1, 16)
    assert (first.samples[0].slot, first.samples[0].outlying) == (3, True)
    second = localise(run.run, event_at(55))
    # The newest attempt logged nothing of these steps; what the abandoned one logged there is not of them.
    assert (second.attempt, second.looked_at.num_losses) == (2, 0)
    assert second.looked_at.num_losses_before == 50 * 8
    assert {sample.rank for sample in second.samples} == {0}
    assert not any(sample.outlying for sample in second.samples)


def test_a_run_of_guard_is_answered_from_its_record(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from dataguard.torch import guard

    random = np.random.default_rng(9)
    ids = random.zipf(1.2, (480, SEQ_LEN)) % 1000
    ids[400:408] = 5

    class Windows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(ids)

        def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
            return {"input_ids": torch.tensor(ids[i])}

    loader = torch.utils.data.DataLoader(Windows(), batch_size=8)
    with guard(loader, tmp_path / "run", policy="default", vocab_size=1000) as guarded:
        for _ in guarded:
            pass
    found = localise(Run.open(tmp_path / "run"), event_at(50))
    assert found.data is Told.YES
    assert found.looked_at.scored_from == "recorded"
    assert {each.origin for each in found.signals} == {"recorded"}
    assert "token_periodic_repeats" in {each.signal for each in found.signals if each.stands_out}
    assert {sample.row for sample in found.samples if sample.outlying} == set(range(400, 408))
    assert any("order of this run is given from outside" in note for note in found.notes)
