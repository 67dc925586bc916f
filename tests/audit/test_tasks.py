"""Tasks and samples: every block in one task, every choice keyed, and shares that are kept."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.audit.job import Job
from dataguard.audit.sample import Sample
from dataguard.audit.tasks import ROW_COST_BYTES, num_samples, plan_tasks, windows_of_block
from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.corpus.corpus import Corpus
from tests.audit.making import corpus
from tests.support.corpora import manifest_of


def manifest(blocks: list[tuple[int, int]], *, kind: str = "text") -> Manifest:
    """One shard of blocks of (rows, bytes of content)."""
    made = np.zeros(len(blocks), BLOCK_DTYPE)
    made["num_rows"] = [rows for rows, _ in blocks]
    made["first_row"] = np.cumsum([0, *(rows for rows, _ in blocks)])[:-1]
    made["content_bytes"] = [size for _, size in blocks]
    shard = Shard(
        source=0, path="a", format="jsonl" if kind == "text" else "npy", compression="none", item_type="",
        size_bytes=1, digest="", num_rows=int(made["num_rows"].sum()), effect="clean",
    )  # fmt: skip
    source = Source(name="web", kind="text" if kind == "text" else "tokens", text_field="text")
    return Manifest(sources=(source,), shards=(shard,), blocks=made, rejected=np.zeros(0, REJECTED_DTYPE), codes=())


@given(
    blocks=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3000)), min_size=1, max_size=60),
    task_bytes=st.integers(1, 20_000),
)
def test_every_block_is_in_one_task_and_no_task_is_larger_than_it_must_be(
    blocks: list[tuple[int, int]], task_bytes: int
) -> None:
    tasks = plan_tasks(manifest(blocks), task_bytes=task_bytes)
    assert [number for task in tasks for number in range(task.start, task.stop)] == list(range(len(blocks)))
    assert [task.number for task in tasks] == list(range(len(tasks)))
    for task in tasks:
        costs = [size + ROW_COST_BYTES * rows for rows, size in blocks[task.start : task.stop]]
        assert sum(costs[:-1]) < task_bytes, "without its last block it would be too small"
        assert task is tasks[-1] or sum(costs) >= task_bytes
        assert task.content_bytes == sum(size for _, size in blocks[task.start : task.stop])


@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=20), seq_len=st.integers(1, 50))
def test_every_window_begins_in_one_block(cuts: list[int], seq_len: int) -> None:
    firsts = np.cumsum([0, *cuts]).tolist()
    windows = [
        window
        for first, size in zip(firsts[:-1], cuts, strict=True)
        for window in windows_of_block(first, size, seq_len)
    ]
    assert windows == list(range(-(-firsts[-1] // seq_len)))
    counted = num_samples(manifest([(size, 0) for size in cuts], kind="tokens"), seq_len=seq_len)
    assert int(counted.sum()) == len(windows)


@pytest.mark.parametrize("share", [Fraction(1, 100), Fraction(1, 3), Fraction(99, 100), Fraction(1)])
@pytest.mark.parametrize("num_blocks", [1, 300, 100_000])
def test_a_sample_takes_its_share_and_reads_little_more(share: Fraction, num_blocks: int) -> None:
    sample = Sample.of(share, num_blocks=num_blocks)
    expected = float(share)
    chosen = [block for block in range(4000) if sample.takes_block("web/a", block * 1000)]
    rows = [len(sample.rows("web/a", block * 1000, block * 1000, block * 1000 + 1000)) for block in chosen[:400]]
    taken = sum(rows) / (1000 * max(len(rows), 1)) * len(chosen) / 4000
    assert taken == pytest.approx(expected, rel=0.1)
    if num_blocks == 100_000 and share < 1:
        assert len(chosen) / 4000 == pytest.approx(expected**0.5, rel=0.1)
    if num_blocks == 1:
        assert len(chosen) == 4000, "of a small corpus every block is looked at"


def test_a_choice_depends_on_the_shard_and_the_row_alone() -> None:
    sample = Sample.of(Fraction(1, 10), num_blocks=10)
    assert sample.rows("web/a", 0, 0, 1000).tolist() != sample.rows("web/b", 0, 0, 1000).tolist()
    halves = [sample.rows("web/a", 0, 0, 500), sample.rows("web/a", 0, 500, 1000)]
    assert np.concatenate(halves).tolist() == sample.rows("web/a", 0, 0, 1000).tolist()


def test_a_job_is_the_same_after_it_was_sent_elsewhere(tmp_path: Path) -> None:
    corpus(tmp_path)
    opened = Corpus.open(manifest_of(tmp_path, ["web", "ids"], block_bytes=1000, block_tokens=100))
    job = Job(corpus=opened, sample=Sample(), seq_len=64, vocab_size=1000)
    there = pickle.loads(pickle.dumps(job))
    tasks = plan_tasks(opened.manifest, task_bytes=4000)
    assert [there.segments(task) for task in tasks] == [job.segments(task) for task in tasks]
    assert {kind: there.signals(kind) for kind in there.kinds} == {kind: job.signals(kind) for kind in job.kinds}
