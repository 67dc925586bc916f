"""What is gone since the last audit is told, however alike the records are that are left."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dataguard.audit.drift import drift_of
from dataguard.score.profile import Profile, ProfileBuilder
from tests.audit.making import PROSE, audit
from tests.corpus.making import jsonl
from tests.support.commands import dataguard


def profile(**records: int) -> Profile:
    """Sources with so many records, whose lengths are spread alike."""
    builder = ProfileBuilder()
    for source, number in records.items():
        builder.add(source, {"length_bytes": 100 + np.arange(number, dtype=np.int64) % 97})
    return builder.profile()


@pytest.mark.parametrize(
    ("then", "now", "state"),
    [
        ({"code": 1000}, {"code": 600}, "drifted"),
        ({"code": 9000, "web": 1000}, {"code": 5400, "web": 1000}, "drifted"),
        ({"code": 1000, "web": 1000}, {"code": 600, "web": 600}, "drifted"),
        ({"code": 1000}, {"code": 850}, "moved"),
        ({"code": 1000}, {"code": 950}, "same"),
        ({"code": 1000, "web": 1000}, {"code": 4000, "web": 4000}, "same"),
        ({"code": 1000, "web": 1000}, {"web": 1000}, "gone"),
        ({"web": 1000}, {"web": 1000, "code": 10}, "new"),
    ],
)
def test_a_source_that_lost_records_is_told(then: dict[str, int], now: dict[str, int], state: str) -> None:
    drift = drift_of(profile(**now), profile(**then))
    (code,) = [source for source in drift.sources if source.source == "code"]
    assert code.state == state
    assert drift.drifted == (state in {"drifted", "gone", "new"})


def test_a_sample_is_held_against_the_whole() -> None:
    then = profile(code=100_000, web=100_000)
    (code, web) = drift_of(profile(code=990, web=1010), then, sample=Fraction(1, 100)).sources
    assert (code.state, web.state) == ("same", "same")
    (code, web) = drift_of(profile(code=600, web=600), then, sample=Fraction(1, 100)).sources
    assert (code.state, web.state) == ("drifted", "drifted")
    (code, _) = drift_of(profile(code=7, web=7), profile(code=1000, web=1000), sample=Fraction(1, 100)).sources
    assert code.state == "same", "7 instead of 10 is chance"


def test_nobody_can_overlook_it(tmp_path: Path) -> None:
    jsonl(tmp_path / "code/a.jsonl", PROSE)
    audit(tmp_path / "old", tmp_path / "code")
    jsonl(tmp_path / "code/a.jsonl", [text for i, text in enumerate(PROSE) if i % 5 > 1])
    words = ("audit", "code", "-o", "new", "--baseline", "old/profile.json", "--policy")
    policy = tmp_path / "p.toml"
    policy.write_text('[[rules]]\nname = "few"\nsignal = "length_words"\nbelow = 2\naction = "mask"\n')
    done = dataguard(*words, "p.toml", cwd=tmp_path)
    assert "drift: source code is drifted: 400 records then and 240 now" in done.stdout
    assert "BUT the corpus has drifted" in done.stderr
    done = dataguard(*words, "p.toml", "--fail-on", "drift", "-o", "failed", cwd=tmp_path, code=1)
    assert "fail: the corpus has drifted from the baseline" in done.stderr
