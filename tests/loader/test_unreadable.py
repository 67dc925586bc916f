"""A row that cannot be read stops nobody: withheld or replaced, written down, proposed, rebuilt, read again later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import AttemptError, ShardDamaged
from dataguard.plan.slots import SlotStatus
from dataguard.replay.lookup import Lookup
from dataguard.replay.replay import replay_step
from dataguard.replay.verify import verify_run
from dataguard.run import amend
from dataguard.run.events import Proposed
from dataguard.run.exceptions import ExceptionReason, read_exceptions, scan_exceptions
from dataguard.run.run import Run
from tests.support.corpora import damage, make_corpus, manifest_of, place_of
from tests.support.runs import Slot, deliver, in_turns, make_run, open_loaders

LOST = "web/b.jsonl"
STEPS = 8

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    return make_corpus(tmp_path, {"web": {"a.jsonl": 20, "b.jsonl": 20, "c.jsonl": 20}})


@pytest.fixture
def plain(tmp_path, corpus) -> dict[int, list[Slot]]:
    """What stands in the slots while everything can be read."""
    return deliver(make_run(tmp_path / "plain", corpus, lanes=1), microbatch_size=8, steps=STEPS)


def proposals(run: Run) -> list[Proposed]:
    return [entry.event for entry in run.read().entries if isinstance(entry.event, Proposed)]


def rows_of(plain: dict[int, list[Slot]], shard: str) -> list[int]:
    return sorted({place_of(slot)[1] for batch in plain.values() for slot in batch if place_of(slot)[0] == shard})


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_missing_shard_is_withheld_slot_by_slot(tmp_path, corpus, plain, num_threads) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / LOST).rename(tmp_path / "gone")
    batches = deliver(run, world_size=2, microbatch_size=2, num_threads=num_threads, steps=STEPS)
    for step, batch in batches.items():
        for slot, planned in zip(batch, plain[step], strict=True):
            assert slot == (None if place_of(planned)[0] == LOST else planned)
    exceptions = read_exceptions(run.layout, 1, range(2))
    lost = [8 * step + i for step, batch in plain.items() for i, slot in enumerate(batch) if place_of(slot)[0] == LOST]
    assert sorted(exceptions) == lost
    assert {(each.reason, each.shard, each.row, each.draw) for each in exceptions.values()} == {
        ("unreadable", -1, -1, -1)
    }
    (proposal,) = proposals(run)
    assert (proposal.proposal, proposal.attempt, proposal.shard) == ("quarantine", 1, LOST)
    assert list(proposal.rows) == rows_of(plain, LOST)
    assert list(proposal.positions) == lost


def test_a_missing_shard_is_replaced_where_the_plan_says_so(tmp_path, corpus, plain) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1, fill="substitute")
    (tmp_path / LOST).rename(tmp_path / "gone")
    batches = deliver(run, microbatch_size=4, steps=STEPS)
    for step, batch in batches.items():
        for slot, planned in zip(batch, plain[step], strict=True):
            if place_of(planned)[0] == LOST:
                assert slot is not None
                assert place_of(slot)[0] in {"web/a.jsonl", "web/c.jsonl"}
            else:
                assert slot == planned
    (proposal,) = proposals(run)
    assert proposal.shard == LOST, "draws that met the lost shard blame it too"
    assert set(proposal.rows) >= set(rows_of(plain, LOST))
    assert verify_run(Lookup(run)).ok


@pytest.mark.parametrize("fill", ["mask", "substitute"])
def test_replay_knows_what_the_environment_decided(tmp_path, corpus, plain, fill) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1, fill=fill)
    (tmp_path / LOST).rename(tmp_path / "gone")
    batches = deliver(run, world_size=2, microbatch_size=2, steps=STEPS)
    for back in (False, True):
        if back:
            (tmp_path / "gone").rename(tmp_path / LOST)
        for step in range(STEPS):
            answer, rebuilt = replay_step(Lookup(run), step)
            assert answer.status == "exact"
            held = [record if mask else None for each in rebuilt for record, mask in zip(
                each.microbatch.records, each.microbatch.mask, strict=True
            )]  # fmt: skip
            assert held == batches[step]
            for sample, slot, planned in zip(
                (sample for each in answer.microbatches for sample in each.samples),
                batches[step],
                plain[step],
                strict=True,
            ):
                assert (sample.shard, sample.row) == place_of(planned)
                if slot is None:
                    assert (sample.status, sample.delivered) == ("withheld", None)
                elif slot != planned:
                    assert (sample.delivered.shard, sample.delivered.row) == place_of(slot)
        assert verify_run(Lookup(run)).ok


def test_another_attempt_reads_a_shard_that_is_back(tmp_path, corpus, plain) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / LOST).rename(tmp_path / "gone")
    first = deliver(run, microbatch_size=8, steps=STEPS)
    (tmp_path / "gone").rename(tmp_path / LOST)
    assert first != plain
    assert deliver(run, microbatch_size=8, from_step=0, steps=STEPS) == plain
    assert {replay_step(Lookup(run), 3, attempt=attempt)[0].status for attempt in (1, 2)} == {"exact"}
    assert verify_run(Lookup(run), attempt=1).ok
    assert verify_run(Lookup(run), attempt=2).ok
    assert [(each.attempt, each.shard) for each in proposals(run)] == [(1, LOST)]


def test_changed_bytes_are_an_exception_with_its_own_reason(tmp_path, corpus, plain) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    damage(tmp_path / LOST, b"b.jsonl:3 ", b"b.jsonl:X ")
    batches = deliver(run, microbatch_size=8, steps=STEPS)
    withheld = [slot for step in plain for slot, got in zip(plain[step], batches[step], strict=True) if got is None]
    assert {place_of(slot)[0] for slot in withheld} == {LOST}, "the block that changed, and no other"
    records = scan_exceptions(run.layout, 1, 0).records
    assert set(records["reason"].tolist()) == {ExceptionReason.CHANGED}
    assert len(proposals(run)) == 1


def test_halt_stops_at_the_first_microbatch_that_holds_it_and_stays_stopped(tmp_path, corpus, plain) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / LOST).rename(tmp_path / "gone")
    loader = open_loaders(run, microbatch_size=1, on_unreadable="halt", num_threads=2)[0]
    first = next(
        i for i, slot in enumerate(slot for batch in plain.values() for slot in batch) if place_of(slot)[0] == LOST
    )
    for _ in range(first):
        next(loader)
    with pytest.raises(ShardDamaged, match=rf"slot {first % 8}: row \d+ of {LOST} is missing"):
        next(loader)
    for _ in range(2):
        with pytest.raises(AttemptError, match="has failed on rank 0"):
            next(loader)
    state = loader.state()
    loader.close()
    assert state.next_step == first // 8
    (tmp_path / "gone").rename(tmp_path / LOST)
    batches = deliver(run, microbatch_size=1, state=state, steps=2, on_unreadable="halt")
    assert batches == {step: plain[step] for step in range(first // 8, first // 8 + 2)}


def test_every_substitute_may_be_unreadable_too(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1, fill="substitute")
    (tmp_path / "web" / "README").touch()  # an empty folder would be a source that is not there
    for shard in ("a", "b", "c"):
        (tmp_path / "web" / f"{shard}.jsonl").rename(tmp_path / shard)
    batches = deliver(run, microbatch_size=8, steps=2)
    assert batches == {0: [None] * 8, 1: [None] * 8}
    for shard in ("a", "b", "c"):
        (tmp_path / shard).rename(tmp_path / "web" / f"{shard}.jsonl")
    assert replay_step(Lookup(run), 1)[0].status == "withheld"
    assert sorted(each.shard for each in proposals(run)) == ["web/a.jsonl", "web/b.jsonl", "web/c.jsonl"]


@pytest.mark.parametrize("how", ["quarantined", "removed"])
def test_a_substitute_that_cannot_be_read_leaves_the_first_reason(tmp_path, how) -> None:
    """The row was withheld by the plan, its substitute lost by the environment: both are told, and rebuilt."""
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 20, "b.jsonl": 20}})
    run = make_run(tmp_path / "run", corpus, lanes=1, global_batch=4, fill="substitute")
    deliver(run, microbatch_size=4, steps=1)
    settings = {}
    if how == "quarantined":
        amend.quarantine(run, "web/a.jsonl", reason="bad")
    else:
        (tmp_path / "web" / "a.jsonl").rename(tmp_path / "a")
        settings["corpus"] = Corpus.open(manifest_of(tmp_path, ["web"], output="N.parquet"))
        (tmp_path / "a").rename(tmp_path / "web" / "a.jsonl")
    (tmp_path / "web" / "b.jsonl").rename(tmp_path / "b")
    statuses = []
    for taken in in_turns(loaders := open_loaders(run, microbatch_size=4, from_step=1, steps=6, **settings)):
        statuses += taken[0].status.tolist()
    loaders[0].close()
    wanted = SlotStatus.QUARANTINED if how == "quarantined" else SlotStatus.REMOVED
    assert set(statuses) == {wanted, SlotStatus.UNREADABLE}
    (tmp_path / "b").rename(tmp_path / "web" / "b.jsonl")
    lookup = Lookup(Run.open(run.path))
    assert {replay_step(lookup, step)[0].status for step in range(1, 7)} == {"withheld"}
    answer = verify_run(lookup)
    assert answer.ok, [fault.message for check in answer.checks for fault in check.faults][:3]
    assert [each.shard for each in proposals(run)] == ["web/b.jsonl"], "nobody blames the shard that was not asked for"


def test_a_proposal_is_made_by_the_next_attempt_where_a_kill_came_first(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / LOST).rename(tmp_path / "gone")
    loader = open_loaders(run, microbatch_size=8)[0]
    for _ in range(3):
        next(loader)
    state = loader.state()
    del loader  # as a kill would: nothing is closed
    assert proposals(run) == []
    deliver(run, microbatch_size=8, state=state, steps=1)
    assert (proposals(run)[0].attempt, proposals(run)[0].shard) == (1, LOST)
    number = len(proposals(run))
    deliver(run, microbatch_size=8, from_step=3, steps=1)
    assert len([each for each in proposals(run) if each.attempt == 1]) == 1
    assert len(proposals(run)) <= number + 1


def test_damaged_exceptions_keep_nobody_from_going_on(tmp_path, corpus) -> None:
    run = make_run(tmp_path / "run", corpus, lanes=1)
    (tmp_path / LOST).rename(tmp_path / "gone")
    deliver(run, microbatch_size=8, steps=STEPS)
    path = run.layout.exceptions(1, 0)
    content = bytearray(path.read_bytes())
    content[4096 + 3] ^= 1
    path.write_bytes(bytes(content))
    assert list(deliver(run, microbatch_size=8, from_step=STEPS, steps=1)) == [STEPS]
    assert not verify_run(Lookup(run), attempt=1).ok


def test_windows_of_a_lost_shard(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"books": {"t.npy": 100, "u.npy": 100}})
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=10, global_batch=4, lanes=1)
    plain = deliver(make_run(tmp_path / "plain", corpus, form="window", seq_len=10, global_batch=4, lanes=1), steps=5)
    Path(tmp_path / "books" / "u.npy").unlink()
    batches = deliver(run, world_size=2, microbatch_size=1, steps=5)
    lost = [slot for step in plain for slot, got in zip(plain[step], batches[step], strict=True) if got is None]
    kept = [got for step in plain for slot, got in zip(plain[step], batches[step], strict=True) if got == slot]
    assert len(lost) + len(kept) == 20
    assert len(lost) == len([slot for batch in plain.values() for slot in batch if slot in lost]) == 10
    assert {int(np.array(slot)[0]) >> 10 for slot in lost}.isdisjoint({int(np.array(slot)[0]) >> 10 for slot in kept})
    assert {replay_step(Lookup(run), step)[0].status for step in range(5)} <= {"exact", "withheld"}
