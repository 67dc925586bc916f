"""Is what a trainer is handed what the plan has, whatever reads it, and does the record say so?"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from dataguard.corpus.corpus import Corpus
from dataguard.errors import AttemptError, UsageError
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from tests.support.corpora import place_of, window_place
from tests.support.runs import deliver, make_run
from tests.torch.making import SEQ_LEN, Delivered, a_run, all_of, from_text, loader_of, texts_of, told


def test_documents_are_those_of_the_loader_without_torch(documents: Corpus, tmp_path: Path) -> None:
    plain = deliver(make_run(tmp_path / "plain", documents, lanes=4), microbatch_size=2, steps=6)
    with loader_of(a_run(tmp_path / "run", documents), steps=6) as loader:
        for microbatch in loader:
            expected = plain[microbatch.step][microbatch.slots.start : microbatch.slots.stop]
            assert texts_of(microbatch) == [record[:SEQ_LEN].decode() for record in expected]
            for i, record in enumerate(expected):
                assert (microbatch.names[i], int(microbatch.rows[i])) == place_of(record)
            assert microbatch.num_loss_tokens == int((microbatch["labels"] != -100).sum())
            assert microbatch["input_ids"].dtype == torch.int64


def test_windows_need_no_transform(tokens: Corpus, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", tokens, form="window", seq_len=10, lanes=2)
    with loader_of(run, steps=5) as loader:
        for microbatch in loader:
            assert set(microbatch) == {"input_ids", "labels", "attention_mask"}
            for i, ids in enumerate(microbatch["input_ids"].numpy()):
                shard = microbatch.names[i]
                assert window_place(ids, [shard]) == (shard, 10 * int(microbatch.rows[i]))
            assert microbatch["labels"][:, 0].tolist() == [-100, -100]
            assert torch.equal(microbatch["labels"][:, 1:], microbatch["input_ids"][:, 1:])
            assert microbatch.num_loss_tokens == 18


def test_workers_deliver_the_same(documents: Corpus, run_folder: Path, unbroken: list[Delivered]) -> None:
    assert all_of(a_run(run_folder, documents), steps=12, num_workers=2) == unbroken


def test_text_and_bytes_are_the_same_record(documents: Corpus, run_folder: Path, unbroken: list[Delivered]) -> None:
    delivered = all_of(a_run(run_folder, documents), steps=2, transform=from_text)
    assert [each[2] for each in delivered] == [each[2] for each in unbroken[:8]]


def test_the_record_is_written_and_verifies(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    delivered = all_of(run, steps=4)
    lookup = Lookup(run)
    records = [
        record["microbatch_digest"].tobytes().hex()
        for step in range(4)
        for record in lookup.index.step(1, step, num_ranks=1).records
        if any(record["microbatch_digest"].tobytes())
    ]
    assert records == [each[3] for each in delivered]
    answer = verify_run(lookup)
    assert answer.ok
    (data,) = [check for check in answer.checks if check.name == "data"]
    assert data.checked == 32
    assert any("without their transform" in note for note in data.notes)


def test_the_attempt_names_its_transform(documents: Corpus, run_folder: Path) -> None:
    run = a_run(run_folder, documents)
    all_of(run, steps=1, version="3")
    transform = run.begun(1).transform
    assert transform
    assert (transform.name, transform.version) == ("dataguard.torch.transforms:ByteTransform", "3")
    assert transform.source is not None


def test_a_state_goes_on_where_it_stood(documents: Corpus, run_folder: Path, unbroken: list[Delivered]) -> None:
    run = a_run(run_folder, documents)
    delivered = []
    with loader_of(run, steps=12) as loader:
        for microbatch in loader:
            delivered.append(told(microbatch))
            if microbatch.step == 5 and microbatch.address.microbatch == 1:
                break
        state = loader.state_dict()
    assert state["next_step"] == 5
    with loader_of(run, steps=7, microbatch_size=1, num_workers=2) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        resumed = [told(microbatch) for microbatch in loader]
    assert delivered[:20] == unbroken[:20]
    halves = [each[2]["input_ids"] for each in resumed]
    assert [a + b for a, b in zip(halves[::2], halves[1::2], strict=True)] == [e[2]["input_ids"] for e in unbroken[20:]]


def test_a_state_loaded_too_late_is_refused(documents: Corpus, run_folder: Path) -> None:
    with loader_of(a_run(run_folder, documents)) as loader:
        iterator = iter(loader)
        state = loader.state_dict()
        loader.load_state_dict(state)  # nothing was handed over
        next(iterator)
        with pytest.raises(AttemptError, match="has begun attempt 1 already"):
            loader.load_state_dict(state)


def test_documents_need_a_transform(documents: Corpus, run_folder: Path) -> None:
    with pytest.raises(UsageError, match="no transform is given"):
        loader_of(a_run(run_folder, documents), transform=None)


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("begun", [False, True])
def test_a_loader_is_of_one_process(documents: Corpus, run_folder: Path, take: Any, begun: bool) -> None:
    with loader_of(a_run(run_folder, documents)) as loader:
        if begun:
            loader.hand_over()
        for each, name in ((loader, "GuardedLoader"), (loader.loader, "Loader")):
            with pytest.raises(UsageError, match=f"a {name} cannot be copied, nor sent to another process"):
                take(each)
