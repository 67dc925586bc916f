"""Replay with a batch store: a second witness where shards are there, and all there is where they are gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from dataguard.cli.main import main
from dataguard.core.tensors import NamedTensor, tensors_digest
from dataguard.gate.policy import read_policy
from dataguard.loader.feed import Fed
from dataguard.replay.answers import ReplayAnswer
from dataguard.replay.lookup import Lookup
from dataguard.replay.rebuild import Rebuilder, Rebuilt
from dataguard.replay.replay import Remake, replay_step
from dataguard.replay.verify import verify_run
from dataguard.replay.writing import write_samples, write_tensors
from dataguard.run.events import TransformIdentity
from dataguard.run.run import Run
from dataguard.run.store_file import encode_store, read_store
from tests.support.corpora import damage, make_corpus
from tests.support.gated import documents, rule
from tests.support.runs import in_turns, make_run, open_loaders

pytestmark = pytest.mark.usefixtures("impatient")


def walk(run: Run, **settings: Any) -> list[Any]:
    loaders = open_loaders(run, **{"world_size": 2, "microbatch_size": 2, "steps": 4, "store": "all", **settings})
    taken = [microbatch for step in in_turns(loaders) for microbatch in step]
    for loader in loaders:
        loader.close()
    return taken


@pytest.fixture
def stored(tmp_path: Path) -> Run:
    corpus = make_corpus(tmp_path / "corpus", {"web": {"a.parquet": 40}, "code": {"b.jsonl": 40}})
    run = make_run(tmp_path / "run", corpus)
    walk(run)
    return run


def without_shards(run: Run) -> None:
    shutil.rmtree(run.path.parent / "corpus" / "web")
    shutil.rmtree(run.path.parent / "corpus" / "code")


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def texts(path: Path) -> dict[int, bytes | None]:
    return {row["slot"]: row["text"] for row in pq.read_table(path).to_pylist()}


def test_what_is_rebuilt_is_compared_with_what_is_kept(stored: Run) -> None:
    answer, _ = replay_step(Lookup(stored), 2)
    assert (answer.status, answer.origin, answer.damage, answer.notes) == ("exact", "both", (), ())
    assert {each.origin for each in answer.microbatches} == {"both"}
    assert all(each.digest == each.made_of == each.recorded for each in answer.microbatches)


def test_without_a_store_all_is_rebuilt(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"web": {"a.parquet": 40}}))
    walk(run, store="none")
    answer, _ = replay_step(Lookup(run), 1)
    assert (answer.status, answer.origin) == ("exact", "rebuilt")


def test_what_shards_no_longer_hold_is_fetched(stored: Run, tmp_path: Path) -> None:
    before = write_samples(*replay_step(Lookup(stored), 3), tmp_path / "before")
    without_shards(stored)
    answer, rebuilt = replay_step(Lookup(stored), 3)
    assert (answer.status, answer.origin) == ("exact", "fetched")
    assert "4 of 4 microbatches could not be rebuilt and were fetched" in answer.notes[0]
    assert all("cannot be read" in str(each.problem) for each in answer.microbatches)
    assert all(sample.digest == sample.recorded for each in answer.microbatches for sample in each.samples)
    after = write_samples(answer, rebuilt, tmp_path / "after")
    assert texts(after) == texts(before)
    assert all(texts(after).values())


def test_windows_are_fetched_as_ids(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_corpus(tmp_path, {"books": {"t.npy": 400}}), form="window", seq_len=8)
    taken = walk(run)
    shutil.rmtree(tmp_path / "books")
    answer, rebuilt = replay_step(Lookup(run), 1)
    assert (answer.status, answer.origin) == ("exact", "fetched")
    for each, delivered in zip(rebuilt, [one for one in taken if one.step == 1], strict=True):
        np.testing.assert_array_equal(each.microbatch.ids, delivered.ids)
        assert each.microbatch.digest == delivered.digest


def test_a_rank_that_kept_nothing_stays_unreadable(stored: Run) -> None:
    without_shards(stored)
    stored.layout.store(1, 3, 1).unlink()
    answer, _ = replay_step(Lookup(stored), 3)
    assert (answer.status, answer.origin) == ("unreadable", "none")
    assert [each.origin for each in answer.microbatches] == ["fetched", "fetched", "none", "none"]
    answer, _ = replay_step(Lookup(stored), 3, rank=0)
    assert (answer.status, answer.origin) == ("exact", "fetched")


def test_a_damaged_store_file_is_named_and_what_is_rebuilt_stands(stored: Run) -> None:
    path = stored.layout.store(1, 2, 1)
    flip(path)
    answer, _ = replay_step(Lookup(stored), 2)
    assert (answer.status, answer.origin) == ("exact", "both")
    assert [each.origin for each in answer.microbatches] == ["both", "both", "rebuilt", "rebuilt"]
    assert len(answer.damage) == 1
    assert str(path) in answer.damage[0]
    without_shards(stored)
    assert replay_step(Lookup(stored), 2)[0].status == "unreadable"


def test_a_kept_microbatch_that_is_not_the_recorded_one_is_no_witness(stored: Run) -> None:
    """Whole by itself, and made of something else: the index has the last word."""
    path = stored.layout.store(1, 2, 0)
    whose = {"run": stored.run_id, "attempt": 1, "rank": 0}
    other = read_store(stored.layout.store(1, 3, 0), step=3, **whose)[1]
    path.write_bytes(encode_store({**whose, "step": 2}, other))
    answer, _ = replay_step(Lookup(stored), 2)
    assert answer.status == "exact"
    assert len(answer.damage) == 2
    assert "is not what was delivered" in answer.damage[0]
    without_shards(stored)
    origins = [each.origin for each in replay_step(Lookup(stored), 2)[0].microbatches]
    assert origins == ["none", "none", "fetched", "fetched"]


def test_a_shard_that_was_changed_differs_though_the_store_has_it(stored: Run) -> None:
    path = stored.path.parent / "corpus" / "code" / "b.jsonl"
    for row in range(40):
        if f"code/b.jsonl:{row} ".encode() in path.read_bytes():
            damage(path, f"code/b.jsonl:{row} ".encode(), f"CODE/b.jsonl:{row} ".encode())
    answer, _ = replay_step(Lookup(stored), 1)
    assert (answer.status, answer.origin) == ("differs", "both")
    assert {each.problem for each in answer.microbatches if each.status == "differs"} == {
        "the store has what was delivered"
    }


def test_what_the_gate_did_is_fetched_as_recorded(tmp_path: Path) -> None:
    """Substituted, masked, refused: without the shards nobody can judge again, and the record says what was done."""
    for number, (action, fill) in enumerate((("mask", "mask"), ("substitute", "substitute"), ("flag", "mask"))):
        folder = tmp_path / str(number)
        run = make_run(folder / "run", documents(folder), fill=fill)
        walk(run, steps=3, policy=read_policy(rule(action), name="test"))
        with_shards = [replay_step(Lookup(run), step)[0] for step in range(3)]
        assert {answer.origin for answer in with_shards} == {"both"}
        shutil.rmtree(folder / "web")
        for step, before in enumerate(with_shards):
            answer, _ = replay_step(Lookup(run), step)
            assert answer.origin == "fetched"
            assert answer.status == before.status

            def facts(one: ReplayAnswer) -> list[Any]:
                return [
                    (s.slot, s.position, s.shard, s.row, s.delivered, s.status, s.digest, s.recorded, s.length)
                    for each in one.microbatches
                    for s in each.samples
                ]

            assert facts(answer) == facts(before)


# -- tensors


IDENTITY = TransformIdentity(name="tests:upper", source=None)


def upper(records: tuple[bytes, ...] | None) -> dict[str, NamedTensor]:
    assert records is not None
    content = b"".join(record.upper()[:4].ljust(4) for record in records)
    return {"input_ids": NamedTensor(dtype="U8", shape=(len(records), 4), data=content)}


@pytest.fixture
def of_tensors(tmp_path: Path) -> Run:
    """A run whose loader handed over tensors, as an adapter with a framework does."""
    corpus = make_corpus(tmp_path / "corpus", {"web": {"a.parquet": 40}, "code": {"b.jsonl": 40}})
    run = make_run(tmp_path / "run", corpus)

    def read(_: object, feeder: Any, planned: Any) -> Any:
        for each in planned:
            fed = feeder.feed(each)
            tensors = upper(fed.microbatch.records)
            digest = tensors_digest(fed.microbatch.digest, tensors)
            yield Fed(
                microbatch=fed.microbatch, planned=each, settled=fed.settled, records=fed.records, tensors=tensors
            ).with_digest(digest)

    walk(run, reading=read, transform=IDENTITY, named=lambda fed: fed.tensors)
    return run


def remaking(rebuilder: Rebuilder) -> Remake:
    assert rebuilder.transform == IDENTITY
    return Remake(tensors=lambda rebuilt: upper(rebuilt.microbatch.records), notes=("as recorded",))


def lower(rebuilder: Rebuilder) -> Remake:
    def make(rebuilt: Rebuilt) -> dict[str, NamedTensor]:
        (one,) = upper(rebuilt.microbatch.records).values()
        return {"input_ids": NamedTensor(dtype="U8", shape=one.shape, data=one.data.lower())}

    return Remake(tensors=make, notes=())


def test_kept_tensors_and_rebuilt_samples_together_prove_the_recorded_digest(of_tensors: Run) -> None:
    answer, rebuilt = replay_step(Lookup(of_tensors), 1)
    assert (answer.status, answer.origin, answer.notes) == ("exact", "both", ())
    assert all(each.digest == each.recorded != each.made_of for each in answer.microbatches)
    assert all(set(each.tensors or ()) == {"input_ids"} for each in rebuilt)


def test_without_store_and_transform_samples_alone_are_compared(of_tensors: Run) -> None:
    shutil.rmtree(of_tensors.layout.store(1, 1, 0).parent)
    answer, rebuilt = replay_step(Lookup(of_tensors), 1)
    assert (answer.status, answer.origin) == ("exact", "rebuilt")
    assert "tests:upper" in answer.notes[0]
    assert all(each.digest is None for each in answer.microbatches)
    assert all("not comparable without the transform" in str(each.problem) for each in answer.microbatches)
    assert all(each.tensors is None for each in rebuilt)


def test_with_the_transform_tensors_are_made_again(of_tensors: Run) -> None:
    shutil.rmtree(of_tensors.layout.store(1, 1, 0).parent)
    answer, rebuilt = replay_step(Lookup(of_tensors), 1, remaking=remaking)
    assert (answer.status, answer.origin, answer.notes) == ("exact", "rebuilt", ("as recorded",))
    assert all(each.digest == each.recorded for each in answer.microbatches)
    assert all(each.tensors is not None for each in rebuilt)
    answer, _ = replay_step(Lookup(of_tensors), 1, remaking=lower)
    assert answer.status == "differs"
    assert {each.problem for each in answer.microbatches} == {"the tensors made now are not those that were delivered"}
    answer, _ = replay_step(Lookup(of_tensors), 2, remaking=lower)
    assert {each.problem for each in answer.microbatches} == {
        "the tensors made now are not those that were delivered; the store has them, made of the same samples"
    }


def test_tensors_are_fetched_where_shards_are_gone_and_written_by_their_names(of_tensors: Run, tmp_path: Path) -> None:
    _, before = replay_step(Lookup(of_tensors), 1)
    without_shards(of_tensors)
    answer, rebuilt = replay_step(Lookup(of_tensors), 1, remaking=remaking)
    assert (answer.status, answer.origin) == ("exact", "fetched")
    out = tmp_path / "out"
    assert set(texts(write_samples(answer, rebuilt, out)).values()) == {None}, "of tensors alone no text is known"
    assert [str(path.relative_to(out)) for path in write_tensors(answer, rebuilt, out)] == [
        f"rank={rank}/microbatch={microbatch}.safetensors" for rank in (0, 1) for microbatch in (0, 1)
    ]
    for each in before:
        address = each.microbatch.address
        loaded = load_file(out / f"rank={address.rank}" / f"microbatch={address.microbatch}.safetensors")
        assert loaded["input_ids"].tobytes() == upper(each.microbatch.records)["input_ids"].data


def test_a_folder_holds_the_tensors_of_one_replay(of_tensors: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tensors(*replay_step(Lookup(of_tensors), 1), out)
    (out / "rank=0" / "mine.safetensors").write_bytes(b"")
    write_tensors(*replay_step(Lookup(of_tensors), 2, rank=1), out)
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.safetensors")) == [
        "rank=0/mine.safetensors",
        "rank=1/microbatch=0.safetensors",
        "rank=1/microbatch=1.safetensors",
    ]


# -- the command


def test_the_command_says_where_it_comes_from(stored: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(stored.path), "--step", "2"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    told, said = capfd.readouterr()
    assert "4 rebuilt and compared with the store" in told
    assert "4 files" in said
    assert sorted(path.name for path in (tmp_path / "out" / "rank=1").iterdir()) == [
        "microbatch=0.safetensors",
        "microbatch=1.safetensors",
    ]
    without_shards(stored)
    assert main([*words, "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert (answer["status"], answer["origin"]) == ("exact", "fetched")
    assert main(words) == 0
    told = capfd.readouterr().out
    assert "4 fetched from the store" in told
    assert "not rebuilt, since it cannot be read" in told
    flip(stored.layout.store(1, 2, 1))
    assert main([*words, "--json"]) == 3
    answer = json.loads(capfd.readouterr().out)
    assert answer["status"] == "unreadable"
    assert "rank=00001" in answer["damage"][0]


def test_verify_reads_all_that_is_kept(stored: Run) -> None:
    lookup = Lookup(stored)
    answer = verify_run(lookup)
    assert answer.ok
    assert [(check.checked, check.faults) for check in answer.checks if check.name == "store"] == [(8, ())]
    flip(stored.layout.store(1, 2, 1))
    whose = {"run": stored.run_id, "attempt": 1, "rank": 0}
    other = read_store(stored.layout.store(1, 3, 0), step=3, **whose)[1]
    stored.layout.store(1, 1, 0).write_bytes(encode_store({**whose, "step": 1}, other))
    answer = verify_run(lookup)
    assert not answer.ok
    (faults,) = (check.faults for check in answer.checks if check.name == "store")
    assert [fault.kind for fault in faults] == ["differs", "differs", "damaged"]
    assert "step 1, rank 0, microbatch 0" in faults[0].message
    assert "step-000000002" in faults[2].message
    assert all(check.name != "store" for check in verify_run(lookup, data=False).checks)
