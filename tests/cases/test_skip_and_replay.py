"""K10, skip and replay (G19, G20), and G14 where a changed shard is asked for again."""

from __future__ import annotations

import io
import os
import shutil

import pyarrow.parquet as pq
import pytest

from dataguard.cli.main import main
from dataguard.replay.lookup import Lookup
from dataguard.replay.replay import replay_step
from dataguard.replay.verify import verify_run
from dataguard.run import amend
from dataguard.run.run import Run
from tests.support.commands import dataguard, lines_of
from tests.support.rows import id_of, rows_in
from tests.support.runs import deliver, in_turns, make_run, open_loaders, slots_of

Labels = dict[int, list[int | None]]


def by_rank(run: Run, world_size: int, **settings) -> dict[int, dict[int, list[int | None]]]:
    """Ids handed to each rank, by step."""
    loaders = open_loaders(run, world_size=world_size, **settings)
    held: dict[int, dict[int, list[int | None]]] = {rank: {} for rank in range(world_size)}
    for taken in in_turns(loaders):
        for microbatch in taken:
            ids = [None if slot is None else id_of(slot) for slot in slots_of(microbatch)]
            held[microbatch.address.rank].setdefault(microbatch.step, []).extend(ids)
    for loader in loaders:
        loader.close()
    return held


# -- G19


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [16], [1, 7, 8]])
@pytest.mark.parametrize("world_size", [2, 4, 1])
def test_a_skip_leaves_every_rank_its_own_rows(tmp_path, sizes, world_size) -> None:
    corpus = rows_in(tmp_path, sizes)
    size = {1: 4, 2: 2, 4: 1}[world_size]
    plain = by_rank(make_run(tmp_path / "plain", corpus, global_batch=4), world_size, microbatch_size=size, epochs=1)
    run = make_run(tmp_path / "run", corpus, global_batch=4, skip_mode="hole")
    amend.skip(run, 1, 2, reason="spike")
    held = by_rank(run, world_size, microbatch_size=size, epochs=1)
    for rank in range(world_size):
        assert held[rank] == {step: plain[rank][step] for step in (0, 2, 3)}
    rows = [[number for ids in held[rank].values() for number in ids] for rank in range(world_size)]
    assert {len(each) for each in rows} == {12 // world_size}
    assert len({number for each in rows for number in each}) == 12


@pytest.mark.parametrize("skips", [[(0, 1)], [(3, 4)], [(0, 3)], [(2, 3), (0, 1)], [(1, 3), (2, 4)]])
def test_any_skip_in_any_order_at_either_end(tmp_path, skips) -> None:
    corpus = rows_in(tmp_path, [4, 4, 4, 4])
    plain = by_rank(make_run(tmp_path / "plain", corpus, global_batch=4), 2, microbatch_size=2, epochs=1)
    run = make_run(tmp_path / "run", corpus, global_batch=4, skip_mode="hole")
    for start, stop in skips:
        amend.skip(run, start, stop, reason="spike")
    held = by_rank(run, 2, microbatch_size=2, epochs=1)
    kept = [step for step in range(4) if not any(start <= step < stop for start, stop in skips)]
    assert held == {rank: {step: plain[rank][step] for step in kept} for rank in range(2)}


def test_under_jump_the_same_data_is_passed_over_and_later_steps_carry_it(tmp_path) -> None:
    corpus = rows_in(tmp_path, [4, 4, 4, 4])
    plain = by_rank(make_run(tmp_path / "plain", corpus, global_batch=4), 2, microbatch_size=2, epochs=1)
    run = make_run(tmp_path / "run", corpus, global_batch=4)
    amend.skip(run, 1, 2, reason="spike")
    held = by_rank(run, 2, microbatch_size=2, epochs=1)
    for rank in range(2):
        assert held[rank] == {0: plain[rank][0], 1: plain[rank][2], 2: plain[rank][3]}


# -- G20


@pytest.fixture(scope="module")
def skipped(tmp_path_factory) -> tuple[Run, Labels]:
    """64 rows in 16 steps of 4, of which 2, 3 and 4 are skipped; the ids handed over by step label."""
    folder = tmp_path_factory.mktemp("skipped")
    run = make_run(folder / "run", rows_in(folder, [64]), global_batch=4, skip_mode="hole")
    amend.skip(run, 2, 5, reason="loss spike")
    batches = deliver(run, world_size=2, microbatch_size=2, epochs=1)
    return run, {step: [None if slot is None else id_of(slot) for slot in batch] for step, batch in batches.items()}


def test_a_new_process_replays_every_label_from_the_record_alone(tmp_path, skipped) -> None:
    run, labels = skipped
    assert list(labels) == [0, 1, *range(5, 16)]
    done = dataguard("replay", run.path, "--step", "0:16", "-o", tmp_path / "out", "--json", code=1)
    answers = {answer["step"]: answer for answer in lines_of(done)}
    assert list(answers) == list(range(16))
    for label in (2, 3, 4):
        assert answers[label]["status"] == "skipped"
        assert answers[label]["microbatches"] == []
        assert [skip["reason"] for skip in answers[label]["skips"]] == ["loss spike"]
        assert not (tmp_path / "out" / f"step={label}").exists()
    for label, ids in labels.items():
        assert answers[label]["status"] == "exact"
        table = pq.read_table(io.BytesIO((tmp_path / "out" / f"step={label}" / "samples.parquet").read_bytes()))
        assert [id_of(text) for text in table.column("text").to_pylist()] == ids
        assert table.column("step").to_pylist() == [label] * 4


@pytest.mark.parametrize("mode", ["jump", "hole"])
@pytest.mark.parametrize("first_label", [0, 1])
def test_labels_mean_the_same_before_and_after_a_skip_and_a_second_one(tmp_path, mode, first_label) -> None:
    """The kind: each attempt's labels, after skips decided one after the other, with other labels and another world."""
    corpus = rows_in(tmp_path, [64])
    run = make_run(tmp_path / "run", corpus, global_batch=4, skip_mode=mode, first_label=first_label)
    told: dict[int, Labels] = {}
    for world_size, start, skip in ((2, None, (6, 8)), (4, 5, (9, 12)), (1, 7, None)):
        settings = {} if start is None else {"from_step": start}
        batches = deliver(run, world_size=world_size, microbatch_size=1, steps=8, **settings)
        told[len(run.attempts())] = {
            step: [None if slot is None else id_of(slot) for slot in batch] for step, batch in batches.items()
        }
        if skip is not None:
            amend.skip(run, skip[0] + first_label, skip[1] + first_label, reason="spike")
    lookup = Lookup(Run.open(run.path))
    for attempt, labels in told.items():
        for step, ids in labels.items():
            owner = lookup.tree.owner(step, attempt)
            answer, rebuilt = replay_step(lookup, step + first_label, attempt=attempt)
            assert (answer.status, answer.step, answer.attempt) == ("exact", step + first_label, owner)
            assert [id_of(r) for each in rebuilt for r in each.microbatch.records] == told[owner][step]
            assert ids == told[owner][step]
    assert all(verify_run(Lookup(run), attempt=attempt).ok for attempt in told)


# -- G14


def two_versions(folder) -> Run:
    """A run over v1, of two rows; v2 has as many bytes, one letter other."""
    shard = folder / "rows" / "v.jsonl"
    shard.parent.mkdir()
    shard.write_bytes(b'{"id": 0, "text": "alpha"}\n{"id": 1, "text": "beta"}\n')
    from dataguard.corpus.corpus import Corpus
    from tests.support.corpora import manifest_of

    run = make_run(folder / "run", Corpus.open(manifest_of(folder, ["rows"])), global_batch=2, lanes=1)
    deliver(run, microbatch_size=2, steps=2)
    return run


def test_a_shard_of_the_same_size_and_time_with_other_bytes_is_never_replayed_as_the_same(tmp_path) -> None:
    run = two_versions(tmp_path)
    shard = tmp_path / "rows" / "v.jsonl"
    times = shard.stat().st_atime_ns, shard.stat().st_mtime_ns
    content = shard.read_bytes()
    shard.write_bytes(content.replace(b"beta", b"BETA"))
    assert shard.stat().st_size == len(content)
    assert shard.read_bytes() != content
    os.utime(shard, ns=times)
    done = dataguard("replay", run.path, "--step", "0", code=1)
    assert "rows/v.jsonl row 1" in done.stdout
    digest = run.plan.manifests[run.plan.document.mixtures[0].manifest].shards[0].digest
    assert f"shard digest {digest} expected, " in done.stdout
    assert " found)" in done.stdout
    (answer,) = lines_of(dataguard("replay", run.path, "--step", "1", "--json", code=1))
    samples = {sample["row"]: sample for each in answer["microbatches"] for sample in each["samples"]}
    assert (samples[0]["status"], samples[1]["status"]) == ("exact", "differs")
    assert samples[1]["digest"] != samples[1]["recorded"]
    verified = verify_run(Lookup(run))
    assert not verified.ok
    assert all("rows/v.jsonl row 1" in fault.message for check in verified.checks for fault in check.faults)


@pytest.mark.parametrize("how", ["touched", "copied", "moved away and back", "hard link"])
def test_a_shard_that_holds_what_it_held_is_the_same_file(tmp_path, how) -> None:
    run = two_versions(tmp_path)
    shard, other = tmp_path / "rows" / "v.jsonl", tmp_path / "other"
    if how == "touched":
        os.utime(shard, ns=(1, 1))
    elif how == "copied":
        shutil.copy(shard, other)
        other.rename(shard)
    elif how == "hard link":
        os.link(shard, other)
        shard.unlink()
        os.link(other, shard)
    else:
        shard.rename(other)
        other.rename(shard)
    assert {replay_step(Lookup(run), step)[0].status for step in (0, 1)} == {"exact"}
    assert verify_run(Lookup(run)).ok


def test_where_the_record_is_gone_nothing_is_compared_and_that_is_no_success(tmp_path, monkeypatch, capsys) -> None:
    run = two_versions(tmp_path)
    assert main(["replay", str(run.path), "--step", "0"]) == 0
    for path in (run.path / "index").rglob("*.parquet"):
        path.unlink()
    assert main(["replay", str(run.path), "--step", "0"]) == 3, "a sealed file is missing: the record is damaged"
    said = capsys.readouterr()
    assert "have no record" in said.out
    assert "is missing" in said.out
