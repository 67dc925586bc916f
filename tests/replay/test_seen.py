"""What was a checkpoint trained on? Held against counting a delivery log record by record."""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataguard.errors import NotInRun
from dataguard.replay.lookup import Lookup
from dataguard.replay.seen import seen_before, write_rows
from dataguard.run.tidy import compact_run, seal_run
from tests.support.corpora import make_corpus
from tests.support.runs import deliver, make_run
from tests.twins.places import planned_at
from tests.twins.seen import count


def plan_of(story, leaf: int) -> dict[int, tuple[str, int]]:
    return dict(enumerate(planned_at(story.run, leaf, max(handed.position for handed in story.log) + 1)))


def check(story, leaf: int, stop: int, first_label: int = 0) -> None:
    answer, rows = seen_before(Lookup(story.run), stop + first_label, attempt=leaf)
    sources, shards, listed = count(story, leaf, stop, plan_of(story, leaf))
    assert {
        each.source: (each.num_samples, each.length, each.num_distinct, each.num_withheld) for each in answer.sources
    } == {name: (c.num_samples, c.length, len(c.rows), c.num_withheld) for name, c in sources.items()}
    assert {each.shard: (each.num_samples, each.length, each.num_distinct) for each in answer.shards} == {
        name: (c.num_samples, c.length, len(c.rows)) for name, c in shards.items()
    }
    assert [each.shard for each in answer.shards] == sorted(shards)
    assert (answer.num_samples, answer.unit) == (len(listed), "bytes")
    assert answer.num_withheld == sum(c.num_withheld for c in sources.values())
    assert answer.length == sum(c.length for c in sources.values())
    told = sorted(rows.select("step", "position", "shard", "row").rows())
    assert told == [(step + first_label, *rest) for step, *rest in listed]


@pytest.mark.parametrize("which", ["story", "substituted"])
@pytest.mark.parametrize(
    ("leaf", "stop"), [(1, 60), (1, 1), (2, 35), (2, 36), (2, 70), (3, 30), (3, 33), (3, 7), (2, 0)]
)
def test_along_every_lineage(request, which, leaf, stop) -> None:
    check(request.getfixturevalue(which), leaf, stop)


@pytest.mark.parametrize("stop", [40, 43, 60, 70])
def test_holes_and_labels_from_one(holes, stop) -> None:
    check(holes, 2, stop, first_label=1)


def test_epochs_begun_are_those_of_the_lanes(story) -> None:
    for stop in (1, 20, 30, 59):
        answer, _ = seen_before(Lookup(story.run), stop, attempt=1)
        samples = story.run.stream_of(1).samples(np.arange(4 * stop))
        names = story.run.stream_of(1).source_names
        for each in answer.sources:
            mine = samples.source == names.index(each.source)
            last = dict(zip(samples.lane[mine].tolist(), samples.epoch[mine].tolist(), strict=True))
            assert each.lowest_epoch is not None
            assert each.lowest_epoch <= min(last.values())
            assert each.highest_epoch == max(last.values())


def test_a_step_that_the_lineage_never_came_to(story) -> None:
    with pytest.raises(NotInRun, match=r"no checkpoint of step 34 can exist on the lineage of attempt 3\n.*to step 33"):
        seen_before(Lookup(story.run), 34)
    with pytest.raises(NotInRun, match="lineage of attempt 1"):
        seen_before(Lookup(story.run), 61, attempt=1)


def test_a_sealed_and_a_compacted_record_answer_the_same(copy) -> None:
    story = copy()
    before = seen_before(Lookup(story.run), 33)[0]
    list(seal_run(story.run))
    assert seen_before(Lookup(story.run), 33)[0] == before
    list(compact_run(story.run))
    assert seen_before(Lookup(story.run), 33)[0] == before


def test_rows_come_in_the_order_of_steps_and_positions(story) -> None:
    """Joins and threads leave rows in any order; a file that is compared or digested must not depend on that."""
    _, rows = seen_before(Lookup(story.run), 33)
    order = rows.select("step", "position").rows()
    assert order == sorted(order)
    assert len(set(order)) == len(order)
    for _ in range(3):
        assert seen_before(Lookup(story.run), 33)[1].equals(rows)


def test_the_rows_as_a_file(story, tmp_path) -> None:
    _, rows = seen_before(Lookup(story.run), 33)
    write_rows(rows, tmp_path / "rows.parquet")
    table = pq.read_table(io.BytesIO((tmp_path / "rows.parquet").read_bytes()))
    assert table.column_names == ["step", "position", "source", "shard", "row", "length"]
    assert table.num_rows == 33 * 4
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_windows_are_counted_in_tokens(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"books": {"t.npy": 95}})
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=10, global_batch=3, lanes=1)
    deliver(run, microbatch_size=3, steps=5)
    answer, _ = seen_before(Lookup(run), 5)
    (source,) = answer.sources
    assert (answer.unit, answer.length, source.num_samples, source.num_distinct) == ("tokens", 150, 15, 9)
    assert (source.lowest_epoch, source.highest_epoch) == (1, 1)


def test_padding_past_the_end_is_not_withheld(tmp_path) -> None:
    """A slot that never held a sample lacks none."""
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 10}})
    run = make_run(tmp_path / "run", corpus, global_batch=4, lanes=1)
    deliver(run, microbatch_size=4, epochs=1)
    answer, _ = seen_before(Lookup(run), 3)
    assert (answer.num_samples, answer.num_withheld) == (10, 0)
