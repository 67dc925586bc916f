"""How fast are the token signals beside what people run today?

Run with ``pytest tests/bench/bench_tokens.py --benchmark-enable``. Rows of 2,048 ids, drawn like words of a text: the
commonest most often, about 860 different ones a row. Two contenders beside ours, on the same rows in the same rounds:

- **anomaly**: a loop over the rows in Python, with tuples in a `Counter` and, where torch is installed, a logarithm of
  a tensor an id: what the published function does. Without torch the loop takes `math.log2`, several times as fast;
  that one is shown too, with no target.
- **runs**: a finder over NumPy arrays, period by period: the row as a matrix as wide as the period, rows compared with
  their neighbours, groups of equal ones followed to both sides. As it is published it pads and rolls copies; a leaner
  one, which does without, is shown too.

Ours takes 128 rows a call, eight calls a round, so that both are at work for some milliseconds. Time is the process's
own. Both contenders' answers are checked against ours first.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dataguard.score.registry import TOKEN_SIGNALS
from dataguard.score.tokens import score_token_rows
from tests.bench.conftest import Claims, Interleaved

LENGTH = 2048
VOCAB_SIZE = 50_000
NUM_ROWS = 128
NUM_CALLS = 8
NUM_SLOW_ROWS = 8
N = 4


def rows(num_rows: int, *, seed: int = 5) -> NDArray[np.uint16]:
    """Ids by a law of word frequencies, in an order of the vocabulary that has nothing to do with it."""
    rng = np.random.default_rng(seed)
    share = 1 / (np.arange(VOCAB_SIZE) + 2.7) ** 1.15
    ids = rng.choice(VOCAB_SIZE, size=(num_rows, LENGTH), p=share / share.sum())
    return rng.permutation(VOCAB_SIZE)[ids].astype(np.uint16)


def with_runs(matrix: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """In every row a few runs of 3 to 40 repeats of units of 1 to 13 ids."""
    rng = np.random.default_rng(6)
    changed = matrix.copy()
    for row in changed:
        for _ in range(4):
            period, repeats = int(rng.integers(1, 14)), int(rng.integers(3, 41))
            start = int(rng.integers(0, LENGTH - period * repeats))
            row[start : start + period * repeats] = np.tile(row[start : start + period], repeats)
    return changed


def several_times(matrix: NDArray[Any], signals: Sequence[str]) -> None:
    for _ in range(NUM_CALLS):
        ours(matrix, signals)


def ours(matrix: NDArray[Any], signals: Sequence[str]) -> dict[str, Any]:
    offsets = np.arange(len(matrix) + 1, dtype=np.int64) * matrix.shape[1]
    return score_token_rows(matrix.reshape(-1), offsets, signals, vocab_size=VOCAB_SIZE)


def anomaly_in_python(matrix: Any, log2: Callable[[float], float]) -> list[float]:
    """The batch score of the published function, its last window mended."""
    scores = []
    for tensor in matrix:
        tokens = tensor.tolist()
        windows = Counter(tuple(tokens[start : start + N]) for start in range(len(tokens) - N + 1))
        num_windows = sum(windows.values())
        repeated = sum(count - 1 for count in windows.values() if count > 1) / num_windows
        entropy = 0.0
        for count in Counter(tokens).values():
            entropy -= count / len(tokens) * log2(count / len(tokens))
        scores.append(0.5 * repeated + 0.5 * max(0.0, 1 - entropy / 8))
    return scores


def runs_in_numpy(tokens: NDArray[np.int64], *, is_lean: bool, largest_period: int = 13) -> list[tuple[int, int, int]]:
    """(start, stop, period) of runs of at least 3 repeats, each period by itself.

    As it is published the row is padded to a multiple of the period, and its matrix compared with a copy that is rolled
    by a row; lean, the rest is cut off and two views are compared.
    """
    found = []
    for period in range(1, largest_period + 1):
        if is_lean:
            table = tokens[: len(tokens) // period * period].reshape(-1, period)  # (repeats, period)
            alike = np.flatnonzero((table[1:] == table[:-1]).all(axis=1)) + 1
        else:
            padded = np.pad(tokens, (0, -len(tokens) % period), constant_values=-1)
            table = padded.reshape(-1, period)
            (alike,) = np.where((table == np.roll(table, 1, axis=0)).all(axis=1))
        if not len(alike):
            continue
        for group in np.split(alike, np.where(np.diff(alike) != 1)[0] + 1):
            start, stop = (int(group[0]) - 1) * period, (int(group[-1]) + 1) * period
            while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
                start -= 1
            while stop < len(tokens) and tokens[stop] == tokens[stop - period]:
                stop += 1
            if start >= 0 and (stop - start) // period >= 3:
                found.append((start, stop, period))
    return found


def test_anomaly_in_turns_with_the_published_loop(claims: Claims, interleaved: Interleaved, measured: bool) -> None:
    matrix = rows(NUM_ROWS if measured else 16)
    few = matrix[:NUM_SLOW_ROWS]
    assert np.allclose(anomaly_in_python(few, math.log2), ours(few, ["anomaly"])["anomaly"])
    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: several_times(matrix, ["anomaly"]),
        "math": lambda: anomaly_in_python(few, math.log2),
    }
    try:
        import torch
    except ImportError:
        torch = None  # type: ignore[assignment]
    else:
        tensors = torch.from_numpy(few.astype(np.int64))
        contenders["torch"] = lambda: anomaly_in_python(tensors, lambda x: torch.log2(torch.tensor(x)).item())
    turns = interleaved(contenders, rounds=7, clock=time.process_time)
    share = NUM_CALLS * len(matrix) / len(few)
    speed = f"{NUM_CALLS * matrix.size / turns.seconds_of('ours') / 1e6:.0f} M ids/s, one thread"
    if torch is not None:
        times = turns.ratio("torch", "ours") * share
        claims("anomaly, the published loop / ours", times, target=150, at_least=True, detail=speed)
    claims("anomaly, the loop with math.log2 / ours", turns.ratio("math", "ours") * share, detail=speed)


@pytest.mark.parametrize("regime", ["prose", "runs"])
def test_runs_in_turns_with_a_numpy_finder(
    claims: Claims, interleaved: Interleaved, measured: bool, regime: str
) -> None:
    matrix = rows(NUM_ROWS if measured else 16)
    if regime == "runs":
        matrix = with_runs(matrix)
    matrix = matrix.astype(np.int64)  # padding wants a number that is no id
    few = matrix[:NUM_SLOW_ROWS]
    for is_lean in (True, False):
        found = [runs_in_numpy(row, is_lean=is_lean) for row in few]
        most = [max(((stop - start) // p for start, stop, p in runs), default=0) for runs in found]
        assert most == ours(few, ["token_periodic_repeats"])["token_periodic_repeats"].tolist()
    turns = interleaved(
        {
            "ours": lambda: several_times(matrix, ["token_periodic_repeats"]),
            "published": lambda: [runs_in_numpy(row, is_lean=False) for row in few],
            "lean": lambda: [runs_in_numpy(row, is_lean=True) for row in few],
        },
        rounds=15,
        clock=time.process_time,
    )
    share = NUM_CALLS * len(matrix) / len(few)
    claims(
        f"periodic runs, 1..13, {regime}: NumPy finder as published / ours",
        turns.ratio("published", "ours") * share,
        target=250,
        at_least=True,
        detail=f"{NUM_CALLS * matrix.size / turns.seconds_of('ours') / 1e6:.0f} M ids/s, one thread",
    )
    claims(f"periodic runs, 1..13, {regime}: lean NumPy finder / ours", turns.ratio("lean", "ours") * share)


SIGNALS = [spec.name for spec in TOKEN_SIGNALS if "text_bytes" not in spec.needs]


def test_every_signal_by_itself_and_all_at_once(claims: Claims, interleaved: Interleaved, measured: bool) -> None:
    matrix = rows(NUM_ROWS if measured else 16)
    contenders: dict[str, Callable[[], object]] = {"all": lambda: ours(matrix, SIGNALS)}
    for name in SIGNALS:
        contenders[name] = lambda name=name: ours(matrix, [name])  # type: ignore[misc]
    turns = interleaved(contenders, rounds=9, clock=time.process_time)
    for name in contenders:
        claims(f"token signals: {name}, an id", turns.seconds_of(name) / matrix.size * 1e9, "ns")


@pytest.mark.parametrize("length", [2**11, 2**14, 2**17, 2**20], ids="length={}".format)
@pytest.mark.parametrize("kind", ["prose", "one id", "all distinct", "period 14"])
def test_time_an_id_does_not_grow_with_the_row(
    claims: Claims, interleaved: Interleaved, measured: bool, kind: str, length: int
) -> None:
    if not measured:
        length = 2**11
    ids = {
        "prose": lambda: np.resize(rows(64), length).astype(np.uint32) + np.arange(length, dtype=np.uint32) // 2**17,
        "one id": lambda: np.full(length, 7, dtype=np.uint32),
        "all distinct": lambda: np.arange(length, dtype=np.uint32),
        "period 14": lambda: np.resize(np.arange(14, dtype=np.uint32), length),
    }[kind]()
    matrix = np.tile(ids, (2**20 // length, 1)) if measured else ids.reshape(1, -1)
    turns = interleaved({"ours": lambda: ours(matrix, SIGNALS)}, rounds=5, clock=time.process_time)
    claims(f"all token signals, {kind}, rows of {length:,}, an id", turns.seconds_of("ours") / matrix.size * 1e9, "ns")
