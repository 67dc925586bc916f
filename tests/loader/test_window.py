"""Windows of token shards: every window once an epoch, the ids of the shard, the remainder left alone."""

from __future__ import annotations

import numpy as np
import pytest

from dataguard.errors import PlanError
from tests.corpus.making import npy
from tests.loader.conftest import TOKENS
from tests.support.corpora import make_corpus, manifest_of, window_place
from tests.support.runs import deliver, make_run, open_loaders

NAMES = [f"{source}/{path}" for source, paths in TOKENS.items() for path in paths]


@pytest.mark.parametrize("seq_len", [1, 16, 207])
def test_an_epoch_holds_every_window_once(tmp_path, tokens, seq_len) -> None:
    run = make_run(tmp_path / "run", tokens, form="window", seq_len=seq_len, global_batch=2, lanes=2)
    batches = deliver(run, world_size=2, epochs=1, steps=None)
    found = [window_place(np.array(slot), NAMES) for batch in batches.values() for slot in batch if slot is not None]
    wanted = [
        (f"{source}/{path}", window * seq_len)
        for source, paths in TOKENS.items()
        for path, num_tokens in paths.items()
        for window in range(num_tokens // seq_len)
    ]
    assert sorted(found) == sorted(wanted)


def test_a_window_that_no_shard_holds_is_refused(tmp_path, tokens) -> None:
    with pytest.raises(PlanError):
        make_run(tmp_path / "run", tokens, form="window", seq_len=481)


def test_windows_over_the_borders_of_blocks(tmp_path) -> None:
    corpus = make_corpus(tmp_path, {"books": {"t.npy": 200}}, block_tokens=32)
    assert len(corpus.manifest.blocks) == 7
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=24, global_batch=4)
    batches = deliver(run, microbatch_size=2, num_threads=2, epochs=1)
    found = [
        window_place(np.array(s), ["books/t.npy"])[1] for batch in batches.values() for s in batch if s is not None
    ]
    assert sorted(found) == [24 * window for window in range(8)]


@pytest.mark.parametrize(
    ("kind", "ids", "dtype"),
    [
        ("<u2", [0, 65_535, 7, 8], np.int32),
        (">u2", [0, 65_535, 7, 8], np.int32),
        ("<i4", [0, 2**31 - 1, 7, 8], np.int32),
        ("<u4", [0, 2**32 - 1, 7, 8], np.int64),
        ("<i8", [0, 2**40, 7, 8], np.int64),
    ],
)
def test_ids_keep_their_value_whatever_their_width(tmp_path, kind, ids, dtype) -> None:
    npy(tmp_path / "books" / "t.npy", ids, kind)
    from dataguard.corpus.corpus import Corpus

    corpus = Corpus.open(manifest_of(tmp_path, ["books"]))
    run = make_run(tmp_path / "run", corpus, form="window", seq_len=4, global_batch=1)
    with open_loaders(run, steps=1)[0] as loader:
        microbatch = next(loader)
    assert microbatch.ids.tolist() == [ids]
    assert microbatch.ids.dtype == dtype
    assert microbatch.mask.all()
    assert microbatch.mask.shape == (1, 4)
    assert microbatch.lengths.tolist() == [4]


def test_padding_of_windows_is_zeros_that_do_not_count(tmp_path, tokens) -> None:
    run = make_run(
        tmp_path / "run", tokens, form="window", seq_len=100, global_batch=4, lanes=1, weights={"books": 1, "wiki": 0}
    )
    with open_loaders(run, microbatch_size=4, epochs=1)[0] as loader:
        *_, last = loader
    assert last.mask.sum(axis=1).tolist() == [100, 100, 100, 0], "seven windows: 4 + 3"
    assert not last.ids[3].any()
    assert last.lengths.tolist() == [100, 100, 100, 0]
