"""Is what was rebuilt what was delivered? Changed bytes differ, lost ones are unreadable, and everything is named."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest

from dataguard.core.digests import sample_digest
from dataguard.replay.compare import worst
from dataguard.replay.lookup import Lookup
from dataguard.replay.replay import replay_step
from dataguard.run.frames import FramesFile
from dataguard.run.index import Index
from dataguard.run.records import without_rank
from tests.corpus.making import flip, jsonl
from tests.replay.conftest import roots_of
from tests.support.corpora import damage, make_corpus, place_of, text_of
from tests.support.runs import deliver, make_run, open_loaders

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def small(tmp_path):
    """40 records in two shards, one step of 8 slots each a step; the folder is the test's own."""
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 20, "b.jsonl": 20}}, block_bytes=100)
    run = make_run(tmp_path / "run", corpus, lanes=1)
    return run, deliver(run, world_size=2, microbatch_size=2, steps=5)


def test_the_worst_of_the_parts_is_the_whole() -> None:
    assert worst(["skipped", "withheld"]) == "withheld"
    assert worst(["withheld", "exact", "skipped"]) == "exact"
    assert worst(["exact", "differs", "withheld"]) == "differs"
    assert worst(["differs", "unreadable"]) == "unreadable"


def test_one_byte_changed_is_told_with_shard_row_and_both_digests(small, tmp_path) -> None:
    run, batches = small
    damage(tmp_path / "web" / "a.jsonl", b'"web/a.jsonl:7 ', b'"web/a.jsonl:X ')
    changed = text_of("web/a.jsonl", 7).replace(":7", ":X").encode()
    for step, batch in batches.items():
        answer, _ = replay_step(Lookup(run), step)
        held = [place_of(slot) for slot in batch]
        samples = [sample for each in answer.microbatches for sample in each.samples]
        for sample in samples:
            if (sample.shard, sample.row) == ("web/a.jsonl", 7):
                assert sample.status == "differs"
                assert sample.recorded == sample_digest(text_of("web/a.jsonl", 7).encode())[:8].hex()
                assert sample.digest == sample_digest(changed)[:8].hex()
                assert "web/a.jsonl row 7 is changed" in sample.problem
                assert "shard digest" in sample.problem
            else:
                assert sample.status == "exact", "rows that hold what they held are exact, also in the changed shard"
        expected = "differs" if ("web/a.jsonl", 7) in held else "exact"
        assert answer.status == expected
        for each in answer.microbatches:
            assert (each.digest == each.recorded) == (each.status == "exact")


def test_a_shard_that_is_gone_is_unreadable(small, tmp_path) -> None:
    run, batches = small
    (tmp_path / "web" / "a.jsonl").unlink()
    for step, batch in batches.items():
        answer, _ = replay_step(Lookup(run), step)
        statuses = {(s.shard, s.status) for each in answer.microbatches for s in each.samples}
        assert statuses <= {("web/a.jsonl", "unreadable"), ("web/b.jsonl", "exact")}
        assert answer.status == ("unreadable" if any(place_of(s)[0] == "web/a.jsonl" for s in batch) else "exact")


@pytest.mark.parametrize("how", ["truncated", "emptied", "other format", "lines swapped", "line removed"])
def test_whatever_becomes_of_a_shard_nothing_else_is_returned_as_the_same(small, tmp_path, how) -> None:
    run, batches = small
    path = tmp_path / "web" / "a.jsonl"
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(
        {
            "truncated": content[: len(content) // 2],
            "emptied": b"",
            "other format": gzip.compress(content),
            "lines swapped": b"".join([lines[1], lines[0], *lines[2:]]),
            "line removed": b"".join(lines[:-1]),
        }[how]
    )
    wrong = 0
    for step, batch in batches.items():
        answer, rebuilt = replay_step(Lookup(run), step)
        contents = [record for each in rebuilt for record in each.microbatch.records]
        samples = [sample for each in answer.microbatches for sample in each.samples]
        for sample, slot, got in zip(samples, batch, contents, strict=True):
            assert sample.status in {"exact", "differs"}, sample.problem
            assert (sample.status == "exact") == (slot == got)
            wrong += sample.status == "differs"
            if sample.status == "differs":
                assert sample.shard == "web/a.jsonl"
                assert sample.problem is not None
    assert wrong > 0


@pytest.mark.parametrize("kind", ["gz", "zst", "parquet"])
def test_a_flipped_byte_anywhere_in_a_compressed_shard_differs(tmp_path, kind) -> None:
    corpus = make_corpus(tmp_path, {"web": {f"a.{'jsonl.' if kind != 'parquet' else ''}{kind}": 20, "b.jsonl": 20}})
    run = make_run(tmp_path / "run", corpus, lanes=1)
    deliver(run, microbatch_size=8, steps=5)
    (path,) = (tmp_path / "web").glob("a.*")
    good = path.read_bytes()
    for offset in range(5, len(good), len(good) // 7):
        flip(path, offset)
        statuses = {replay_step(Lookup(run), step)[0].status for step in range(5)}
        path.write_bytes(good)
        assert statuses <= {"exact", "differs"}
    assert {replay_step(Lookup(run), step)[0].status for step in range(5)} == {"exact"}


def test_a_touched_or_copied_shard_is_the_same(small, tmp_path) -> None:
    run, _ = small
    path = tmp_path / "web" / "a.jsonl"
    os.utime(path, ns=(1, 1))
    copied = path.with_name("copy")
    copied.write_bytes(path.read_bytes())
    copied.rename(path)
    assert {replay_step(Lookup(run), step)[0].status for step in range(5)} == {"exact"}


def test_a_changed_row_of_a_substitute_differs_too(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 12, "b.jsonl": 12}})
    run = make_run(tmp_path / "run", corpus, lanes=1, fill="substitute", global_batch=4)
    from dataguard.run import amend

    deliver(run, microbatch_size=4, steps=1)
    amend.quarantine(run, "web/a.jsonl", reason="damaged")
    batches = deliver(run, microbatch_size=4, from_step=1, steps=5)
    jsonl(tmp_path / "web" / "b.jsonl", [text_of("web/b.jsonl", row).upper() for row in range(12)])
    for step in batches:
        answer, _ = replay_step(Lookup(run), step)
        assert answer.status == "differs"
        for sample in (s for each in answer.microbatches for s in each.samples):
            assert sample.status == "differs"
            assert (sample.delivered is not None) == (sample.shard == "web/a.jsonl")


@pytest.mark.parametrize("what", ["row", "digest", "status", "microbatch_digest", "position", "withheld"])
def test_a_record_that_says_something_else_differs(tmp_path, what) -> None:
    """Whoever rewrites a frame with a checksum that fits is found by the plan, the bytes, or the microbatch."""
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 20}})
    run = make_run(tmp_path / "run", corpus, lanes=1)
    loader = open_loaders(run, microbatch_size=8)[0]
    next(loader)
    del loader  # the frames stay
    path = run.layout.hot_segment(1, 0, 0)
    records = without_rank(np.concatenate(list(Index(run.layout).records(1, num_ranks=1))))
    assert replay_step(Lookup(run), 0)[0].status == "exact"
    if what == "row":
        records["row"][3] += 1
    elif what == "position":
        records["position"][3] += 100
    elif what == "status":
        records["status"][3] = 2
    elif what == "withheld":
        records["digest"][3] = np.void(bytes(8))
    else:
        records[what][0] = np.void(bytes([1] * records.dtype[what].itemsize))
    with_header(path, records)
    answer, _ = replay_step(Lookup(run), 0)
    assert answer.status == "differs"
    (each,) = answer.microbatches
    wrong = [sample.slot for sample in each.samples if sample.status == "differs"]
    assert wrong == {"digest": [0], "microbatch_digest": []}.get(what, [3])


def with_header(path, records) -> None:
    """Write frames anew under the header that stands there."""
    from dataguard.run.frames import FramesReader

    with FramesReader(path, "index") as reader:
        header = reader.header
    path.unlink()
    with FramesFile.create(path, header, tmp=path.parents[3] / "tmp") as file:
        for first in range(0, len(records), header.records_per_frame):
            file.append(records[first : first + header.records_per_frame])


def test_a_wholly_withheld_microbatch_is_compared_by_its_own_digest(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 20, "b.jsonl": 20}})
    run = make_run(tmp_path / "run", corpus, lanes=1, global_batch=4)
    from dataguard.run import amend

    deliver(run, microbatch_size=4, steps=1)
    for shard in ("web/a.jsonl", "web/b.jsonl"):
        amend.quarantine(run, shard, reason="all")
    loader = open_loaders(run, microbatch_size=4, from_step=1)[0]
    next(loader)
    del loader
    assert replay_step(Lookup(run), 1)[0].status == "withheld"
    records = without_rank(np.concatenate(list(Index(run.layout).records(2, num_ranks=1))))
    records["microbatch_digest"][0] = np.void(bytes(range(16)))
    with_header(run.layout.hot_segment(2, 0, 1), records)
    assert replay_step(Lookup(run), 1)[0].status == "differs"


def test_a_copied_story_is_told_where_its_shards_lie(copy) -> None:
    story = copy()
    assert replay_step(Lookup(story.run), 20, roots=roots_of(story))[0].status == "exact"
