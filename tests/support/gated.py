"""Corpora on which rules fire where a test says so, policies over them, and a naive answer to what is delivered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus

LOW = "zzzzzzzz" * 40
"""Entropy 0: below every bound."""
VOCABULARY = 1000


def text(source: str, shard: int, row: int) -> str:
    """An ordinary record; what it is shows in it."""
    return f"{source} {shard} {row} " + "the quick brown fox jumps over a lazy dog; " * (1 + row % 3)


def documents(
    folder: Path,
    *,
    bad: Callable[[int, int], bool] = lambda _shard, row: row % 7 == 2,
    num_shards: int = 3,
    num_rows: int = 60,
    source: str = "web",
) -> Corpus:
    """JSON lines of one source; a bad record is `LOW` with its place behind it."""
    (folder / source).mkdir(parents=True)
    for shard in range(num_shards):
        lines = [
            json.dumps({"text": LOW + f" {shard} {row}" if bad(shard, row) else text(source, shard, row)})
            for row in range(num_rows)
        ]
        (folder / source / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")
    build_manifest_file([f"{source}={folder / source}"], folder / "M.parquet", num_workers=1)
    return Corpus.open(folder / "M.parquet")


def tokens(
    folder: Path,
    *,
    seq_len: int = 64,
    periodic: Callable[[int], bool] = lambda window: window % 5 == 1,
    outside: Callable[[int], bool] = lambda _window: False,
    num_windows: int = 120,
) -> Corpus:
    """One shard of windows: climbing ids, a run of one id from the 10th to the 50th of some, an id outside in others"""
    (folder / "books").mkdir(parents=True)
    ids = np.zeros((num_windows, seq_len), np.uint16)
    for window in range(num_windows):
        ids[window] = (window * 7 + np.arange(seq_len) * 3) % VOCABULARY
        if periodic(window):
            ids[window, 10:50] = 5
        if outside(window):
            ids[window, 20] = VOCABULARY + window
    np.save(folder / "books" / "t.npy", ids.reshape(-1))
    build_manifest_file([f"books={folder / 'books'}"], folder / "M.parquet", num_workers=1)
    return Corpus.open(folder / "M.parquet")


def rule(action: str, **more: object) -> str:
    """A policy of one rule: records of low entropy."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    return (
        "\n".join(
            ["[[rules]]", 'name = "low"', 'signal = "byte_entropy"', "below = 2.0", f'action = "{action}"', *lines]
        )
        + "\n"
    )


TOKEN_POLICY = """
[[rules]]
name = "periods"
signal = "token_periodic_repeats"
at_least = 32
action = "mask"
masks = "span"

[[rules]]
name = "vocabulary"
signal = "out_of_vocabulary"
above = 0
action = "halt"
"""
