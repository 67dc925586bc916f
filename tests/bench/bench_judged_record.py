"""What does a policy cost in the record: bytes a sample, and time a microbatch at hand-over?

    pytest tests/bench/bench_judged_record.py --benchmark-enable [-m "long or not long"]

Signals are made up, but distributed as those of ordinary text: most fractions are 0 for most samples. The share of
samples that are no plain pass decides, since those keep all signals of the policy: few where rules mask, a third to a
half where the flag rules of the default policy are asked of web text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataguard.gate.policy import named_policy
from dataguard.run.columns import FileIdentity
from dataguard.run.headline import encode
from dataguard.run.layout import Layout
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX, conformed, index_record, rounded, with_rank
from dataguard.run.seal import publish_records
from dataguard.score.registry import HEADLINE, spec_of
from tests.bench.bench_record import SEGMENT, SIZE, realistic
from tests.bench.conftest import Claims, Interleaved
from tests.run.recording import DIGESTS, HEAD, RUN_ID, microbatch, open_writer

SIGNALS = named_policy("default").signals("text")
RECORD = index_record(HEADLINE["text"], SIGNALS)


def judged(records: np.ndarray, share: float) -> np.ndarray:
    """The same with verdicts and signals; `share` of the samples is flagged."""
    dice = np.random.Generator(np.random.PCG64(1))
    n, length = len(records), records["length"].astype(float)
    exact = {
        "length_bytes": length,
        "length_words": np.round(length / 6.1 * np.exp(dice.normal(0, 0.08, n))),
        "length_outlier": (np.log1p(length) - 7.2) / 1.1,
        "byte_entropy": dice.normal(4.5, 0.15, n).clip(0, 8),
        "mean_word_chars": dice.normal(4.8, 0.5, n),
        "alpha_word_fraction": 1 - dice.exponential(0.05, n).clip(0, 1),
        "digit_fraction": dice.exponential(0.02, n).clip(0, 1),
    }
    common = {
        "top_2gram": 0.8,
        "top_3gram": 0.7,
        "top_4gram": 0.6,
        "dup_5gram": 0.6,
        "dup_6gram": 0.5,
        "dup_7gram": 0.4,
    }
    values = {}
    for name in dict.fromkeys((*SIGNALS, *HEADLINE["text"])):
        often = next((how for part, how in common.items() if name.startswith(part)), 0.15)
        sparse = np.where(dice.random(n) < often, dice.exponential(0.05, n).clip(0, 0.99), 0)
        values[name] = exact.get(name, np.round(sparse * 300) if spec_of(name).whole else sparse)
    answer = conformed(records, RECORD)
    flagged = dice.random(n) < share
    answer["verdict"] = flagged
    bits = np.uint64(1) << dice.geometric(0.25, n).clip(1, 30).astype(np.uint64)
    answer["rules"] = np.where(flagged, bits, np.uint64(0))
    keep = flagged | (dice.random(n) < 0.01)
    for name in HEADLINE["text"]:
        answer[HEADLINE_PREFIX + name] = encode(name, values[name])
    for name in SIGNALS:
        answer[SIGNAL_PREFIX + name] = np.where(keep, rounded(values[name]), np.float32(np.nan))
    return answer


@pytest.mark.parametrize(("share", "target"), [(0.01, 24), (0.03, 24), (0.4, None)])
def test_bytes_a_sample(tmp_path: Path, share: float, target: float | None, claims: Claims) -> None:
    layout = Layout(tmp_path)
    identity = FileIdentity(
        kind="sealed", run_id=RUN_ID, attempt=1, rank=0, first_step=0, stop_step=SEGMENT, digests=DIGESTS,
        journal_head=HEAD,
    )  # fmt: skip
    records = with_rank(judged(realistic(0, SEGMENT), share), 0)
    seal = publish_records(layout, layout.sealed(1, 0, 0, SEGMENT), records, identity)
    size = seal.size_bytes / (SEGMENT * SIZE)
    claims(f"index with the default policy, {share:.0%} flagged, a sample", size, "B", target=target or 50)
    assert target is None or size <= target


def test_record_in_turns(tmp_path: Path, claims: Claims, interleaved: Interleaved) -> None:
    """A hundred microbatches of 4 a round, with signals and without."""
    plain = iter([microbatch(step) for step in range(9_000)])
    signalled = iter([judged(microbatch(step), 0.4) for step in range(9_000)])
    with open_writer(tmp_path / "a") as without, open_writer(tmp_path / "b", record=RECORD) as with_signals:
        turns = interleaved(
            {
                "without": lambda: [without.append(next(plain)) for _ in range(100)],
                "with": lambda: [with_signals.append(next(signalled)) for _ in range(100)],
            },
            rounds=60,
        )
    claims(
        "recording a microbatch of 4 with signals", turns.seconds_of("with") / 100 * 1e6, "us", target=20,
        detail=f"{turns.ratio('with', 'without'):.2f} times without",
    )  # fmt: skip
