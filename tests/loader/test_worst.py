"""The sample to look at first is that of the gravest verdict, the most rules that fired, the earliest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dataguard.core.address import Geometry
from dataguard.gate.verdict import Verdict
from dataguard.loader.rehearse import rehearse
from dataguard.report.loader import render_rehearse
from tests.loader.test_gate import gated, records_of
from tests.support.gated import documents, rule


def test_the_worst_sample_is_named_with_the_command_that_shows_it(tmp_path: Path) -> None:
    corpus = documents(tmp_path / "c")
    text = rule("mask") + '[[rules]]\nname = "long"\nsignal = "length_bytes"\nabove = 326\naction = "flag"\n'
    run = gated(tmp_path / "run", corpus, text, first_label=1)
    answer = rehearse(run, geometry=Geometry(world_size=2, microbatch_size=2), steps=12)
    assert answer.gate is not None
    worst = answer.gate.worst
    assert worst is not None
    records = records_of(run)
    keys = [
        (-int(r["verdict"]), -int(np.bitwise_count(r["rules"])), int(r["step"]), int(r["slot"]), int(r["rank"]))
        for r in records
    ]
    gravest = min(keys)
    assert (worst.verdict, worst.step, worst.slot, worst.rank) == (
        Verdict(-gravest[0]).name.lower(),
        gravest[2] + 1,
        *gravest[3:],
    )
    (record,) = [r for r, key in zip(records, keys, strict=True) if key == gravest]
    assert worst.row == int(record["row"])
    assert worst.rules[0] == "low"
    told = [part for part in render_rehearse(answer) if isinstance(part, str) and part.startswith("worst: ")]
    assert told == [
        (
            f"worst: step {worst.step}, rank {worst.rank}, slot {worst.slot}: mask by {', '.join(worst.rules)}, "
            f"{worst.shard}:{worst.row}; see dataguard inspect {run.path} --step {worst.step}"
        )
    ]


def test_where_all_pass_there_is_no_worst(tmp_path: Path) -> None:
    corpus = documents(tmp_path / "c", bad=lambda _shard, _row: False)
    run = gated(tmp_path / "run", corpus, rule("mask"))
    answer = rehearse(run, geometry=Geometry(world_size=1, microbatch_size=2), steps=2)
    assert answer.gate is not None
    assert answer.gate.worst is None
    assert answer.gate.verdicts["pass"] == 16
