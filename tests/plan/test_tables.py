"""Samples of a source: which rows they are, in both forms, and which rows are none."""

from __future__ import annotations

import numpy as np
import pytest

from dataguard.errors import NotInRun, PlanError
from dataguard.plan.tables import SourceTable, num_samples, samples_of_blocks
from tests.plan.stream_cases import ShardSpec, make_manifest

TEXT = make_manifest(
    {
        "a": [
            ShardSpec("p", ("x..", "xx", ".x.x.")),
            ShardSpec("q", ("...",), excluded=True),
            ShardSpec("r", ("..x",)),
        ],
        "b": [ShardSpec("p", ("xx",))],
    }
)
TOKENS = make_manifest(
    {
        "t": [
            ShardSpec("p", ("." * 5, "." * 2, "." * 1, "." * 6)),
            ShardSpec("q", ("..",)),
            ShardSpec("s", ("." * 9,), excluded=True),
        ]
    },
    kind="tokens",
)


def every_sample(table: SourceTable) -> list[tuple[int, int, int]]:
    block, shard, row = table.samples(np.arange(table.num_samples))
    return list(zip(block.tolist(), shard.tolist(), row.tolist(), strict=True))


def test_documents_are_the_deliverable_rows_in_manifest_order() -> None:
    table = SourceTable.of(TEXT, "a", "document", None)
    assert every_sample(table) == [(0, 0, 1), (0, 0, 2), (2, 0, 5), (2, 0, 7), (2, 0, 9), (4, 2, 0), (4, 2, 1)]
    assert table.num_blocks == 3
    assert num_samples(TEXT, "document", None) == {"a": 7, "b": 0}


def test_windows_belong_to_the_block_of_their_first_token_and_the_tail_is_cut() -> None:
    table = SourceTable.of(TOKENS, "t", "window", 4)
    # 14 tokens: windows at 0, 4 | (5:7 none) | (7:8 none) | 8; the last two tokens are no window, shard q has none.
    assert every_sample(table) == [(0, 0, 0), (0, 0, 1), (3, 0, 2)]
    assert samples_of_blocks(TOKENS, "window", 4).tolist() == [2, 0, 0, 1, 0, 0]
    assert num_samples(TOKENS, "window", 2) == {"t": 8}
    assert SourceTable.of(TOKENS, "t", "window", 1).num_samples == 16


def test_find_is_the_inverse_and_none_for_what_is_no_sample() -> None:
    table = SourceTable.of(TEXT, "a", "document", None)
    found = {}
    for shard in (0, 1, 2):
        for row in range(TEXT.shards[shard].num_rows):
            at = table.find(shard, row)
            if at is not None:
                found[at] = (shard, row)
    ordinals, offsets = (np.array(column) for column in zip(*sorted(found), strict=True))
    _, shards, rows = table.rows(ordinals, offsets)
    assert list(zip(shards.tolist(), rows.tolist(), strict=True)) == [found[at] for at in sorted(found)]
    assert len(found) == table.num_samples
    assert table.find(0, 0) is None
    assert table.find(0, 3) is None
    assert table.find(1, 0) is None
    with pytest.raises(NotInRun, match="row 10 is not in shard a/p"):
        table.find(0, 10)


def test_windows_past_the_last_are_not_in_the_shard() -> None:
    table = SourceTable.of(TOKENS, "t", "window", 4)
    assert [table.find(0, w) for w in range(3)] == [(0, 0), (0, 1), (1, 0)]
    with pytest.raises(NotInRun, match="0:3"):
        table.find(0, 3)


@pytest.mark.parametrize(
    ("manifest", "name", "form", "seq_len", "words"),
    [
        (TEXT, "b", "document", None, "'b' has no deliverable row"),
        (TOKENS, "t", "window", 100, "no deliverable window of 100 tokens"),
        (TOKENS, "t", "document", None, "--form window"),
        (TEXT, "a", "window", 4, "--form document"),
        (TEXT, "c", "document", None, "'c' is not in the manifest"),
        (TOKENS, "t", "window", None, "--seq-len"),
    ],
)
def test_sources_that_cannot_be_mixed_are_refused_by_name(manifest, name, form, seq_len, words) -> None:
    with pytest.raises(PlanError, match=words):
        SourceTable.of(manifest, name, form, seq_len)


def test_sources_of_another_kind_have_no_samples() -> None:
    assert num_samples(TEXT, "window", 4) == {"a": 0, "b": 0}
    assert num_samples(TOKENS, "document", None) == {"t": 0}
    empty = make_manifest({})
    assert num_samples(empty, "document", None) == {}
