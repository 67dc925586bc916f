"""Record and telemetry as frames, against a twin that looks at every step, one record at a time."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.errors import NotInRun, RunDamaged, UsageError
from dataguard.gate.verdict import Verdict
from dataguard.plan.slots import SlotStatus
from dataguard.replay.frames import INDEX_COLUMNS
from dataguard.run.amend import quarantine
from dataguard.run.compact import compact
from dataguard.run.headline import decode
from dataguard.run.index import Index
from dataguard.run.policies import policy_of
from dataguard.run.records import HEADLINE_PREFIX, SIGNAL_PREFIX, headline_fields, signal_fields
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from tests.loader.test_gate import gated
from tests.support.gated import documents, rule
from tests.support.runs import in_turns, open_loaders

POLICY = (
    'fill = "substitute"\n'
    + rule("substitute")
    + '\n[[rules]]\nname = "long"\nsignal = "length_bytes"\nabove = 100\naction = "flag"\n'
)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents(tmp_path_factory.mktemp("web"))


def begin(path: Path, corpus: Corpus) -> Run:
    """Two ranks for six steps, one of which another attempt of one rank delivers again, and goes on; steps from 1."""
    run = gated(path, corpus, POLICY, lanes=2, first_label=1)
    with ExitStack() as stack:
        loaders = [stack.enter_context(each) for each in open_loaders(run, world_size=2, microbatch_size=2, steps=6)]
        for taken in in_turns(loaders):
            for microbatch in taken:
                if microbatch.step == 3 and microbatch.address.rank == 0:
                    state = loaders[0].state()
    quarantine(run, "web/1.jsonl", reason="test")
    with ExitStack() as stack:
        (loader,) = (stack.enter_context(each) for each in open_loaders(run, microbatch_size=4, steps=4, state=state))
        assert sum(1 for _ in loader) == 8
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, web: Corpus) -> Run:
    return begin(tmp_path_factory.mktemp("run") / "run", web)


def slow_rows(run: Run, attempt: int, steps: range, *, live: range | None) -> list[dict[str, Any]]:
    """Every slot of some steps (from 0) of an attempt, one record at a time."""
    rows = []
    stream, policy = run.stream_of(attempt), policy_of(run, attempt)
    for step in steps:
        for record in Index(run.layout).step(attempt, step).records:
            headline = {name: int(record[HEADLINE_PREFIX + name]) for name in headline_fields(record.dtype)}
            kept = {name: float(record[SIGNAL_PREFIX + name]) for name in signal_fields(record.dtype)}
            judged = any(headline.values())
            substitute = int(record["delivered_shard"])
            digests = {name: record[name].tobytes() for name in ("digest", "microbatch_digest")}
            rows.append(
                {
                    "step": step + run.first_label,
                    "attempt": attempt,
                    "live": live is None or step in live,
                    "rank": int(record["rank"]),
                    "microbatch": int(record["microbatch"]),
                    "slot": int(record["slot"]),
                    "batch": int(record["batch"]) + run.first_label,
                    "position": int(record["position"]),
                    "source": stream.source_names[int(record["source"])],
                    "shard": stream.manifest_set.shard_name(int(record["shard"])),
                    "row": int(record["row"]),
                    "status": SlotStatus(int(record["status"])).name.lower(),
                    "delivered_shard": None if substitute < 0 else stream.manifest_set.shard_name(substitute),
                    "delivered_row": None if substitute < 0 else int(record["delivered_row"]),
                    "length": int(record["length"]),
                    "verdict": Verdict(int(record["verdict"])).name.lower() if judged else None,
                    "rules": None if not judged or policy is None
                    else [rule.name for rule in policy.rules if int(record["rules"]) >> rule.bit & 1],
                    "event": int(record["event"]) or None,
                    **{name: each.hex() if any(each) else None for name, each in digests.items()},
                    **{
                        f"headline_{name}": float(decode(name, byte)) if byte else None
                        for name, byte in headline.items()
                    },
                    **{f"signal_{name}": None if np.isnan(value) else value for name, value in kept.items()},
                }
            )  # fmt: skip
    return rows


def test_the_newest_lineage_slot_by_slot(run: Run) -> None:
    expected = [
        *slow_rows(run, 1, range(4), live=None),
        *slow_rows(run, 2, range(4, 8), live=None),
    ]
    frame = run.index_frame()
    assert frame.to_dicts() == expected
    assert frame.columns[: len(INDEX_COLUMNS)] == list(INDEX_COLUMNS)
    seen = {name: set(frame[name].unique().to_list()) for name in ("status", "verdict", "attempt", "rank")}
    assert seen == {
        "status": {"live", "substituted"},
        "verdict": {"pass", "flag", "substitute"},
        "attempt": {1, 2},
        "rank": {0, 1},
    }
    assert {"low", "long"} <= set(frame["rules"].explode().drop_nulls().to_list())
    assert frame["event"].drop_nulls().len()
    assert frame["signal_byte_entropy"].null_count() > 0


def test_everything_that_was_delivered_says_what_of_it_counts(run: Run) -> None:
    expected = [
        *slow_rows(run, 1, range(6), live=range(4)),
        *slow_rows(run, 2, range(4, 8), live=None),
    ]
    expected.sort(key=lambda row: [row[name] for name in ("step", "attempt", "rank", "microbatch", "slot")])
    assert run.index_frame(live=False).to_dicts() == expected


def test_another_lineage(run: Run) -> None:
    assert run.index_frame(attempt=1).to_dicts() == slow_rows(run, 1, range(6), live=None)
    everything = run.index_frame(attempt=1, live=False)
    assert everything.filter("live")["attempt"].unique().to_list() == [1]
    with pytest.raises(NotInRun, match="attempt 3"):
        run.index_frame(attempt=3)


def test_steps_in_the_trainers_labels_and_only_some_columns(run: Run) -> None:
    columns = ["shard", "step", "headline_byte_entropy", "signal_token_entropy", "headline_out_of_vocabulary"]
    frame = run.index_frame(steps=(4, 6), columns=columns)
    assert frame.columns == columns
    slow = [*slow_rows(run, 1, range(3, 4), live=None), *slow_rows(run, 2, range(4, 5), live=None)]
    assert frame.select(columns[:3]).rows() == [tuple(row[name] for name in columns[:3]) for row in slow]
    assert frame["signal_token_entropy"].null_count() == frame.height
    assert frame.schema["signal_token_entropy"] == pl.Float32
    assert run.index_frame(steps=(90, 99)).height == 0
    assert (
        run.index_frame(steps=(90, 99), columns=["step", "verdict"]).schema
        == run.index_frame(columns=["step", "verdict"]).schema
    )
    with pytest.raises(UsageError, match="no column 'shards'") as caught:
        run.index_frame(columns=["shards"])
    assert "did you mean shard?" in str(caught.value)


def test_it_is_the_same_while_it_is_written_sealed_and_compacted(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, POLICY, lanes=2)
    with ExitStack() as stack:
        loaders = [stack.enter_context(each) for each in open_loaders(run, world_size=2, microbatch_size=2)]
        for _ in zip(range(5), in_turns(loaders), strict=False):
            pass
        assert list(run.layout.hot_rank(1, 0).iterdir())
        assert not run.layout.index_rank(1, 0).exists()
        hot = run.index_frame()
    assert not list(run.layout.hot_rank(1, 0).iterdir())
    sealed = run.index_frame()
    assert compact(run.layout, 1).num_records == hot.height == 40
    assert hot.equals(sealed)
    assert hot.equals(run.index_frame())


def test_damage_is_raised_or_told_and_left_out(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, POLICY, lanes=2)
    with ExitStack() as stack:
        loaders = [stack.enter_context(each) for each in open_loaders(run, world_size=2, microbatch_size=2, steps=5)]
        for _ in in_turns(loaders):
            pass
    (path,) = run.layout.index_rank(1, 1).iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunDamaged):
        run.index_frame()
    told: list[str] = []
    assert run.index_frame(damage=told)["rank"].unique().to_list() == [0]
    assert len(told) == 1
    assert "rank=00001" in told[0]


def test_a_run_without_a_policy_has_no_verdicts(tmp_path: Path, web: Corpus) -> None:
    from tests.support.runs import deliver, make_run

    run = make_run(tmp_path / "run", web, lanes=2)
    with pytest.raises(NotInRun):
        run.index_frame()
    deliver(run, steps=3)
    frame = run.index_frame()
    assert frame.columns == list(INDEX_COLUMNS)
    assert frame.to_dicts() == [
        {**row, "verdict": None, "rules": None} for row in slow_rows(run, 1, range(3), live=None)
    ]


def test_the_evaluations_of_a_stream_all_count(tmp_path: Path, web: Corpus) -> None:
    from tests.support.runs import make_run

    run = make_run(tmp_path / "run", web, lanes=2, first_label=1)
    stream = run.stream("valid", web, end=2)
    for _ in range(2):
        with stream.loader(geometry=Geometry(world_size=1, microbatch_size=8)) as loader:
            assert sum(1 for _ in loader) == 2
    frame = stream.run.index_frame()
    assert frame.select("step", "attempt").unique(maintain_order=True).rows() == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert frame["live"].all()
    first, second = (frame.filter(pl.col("attempt") == number)["digest"] for number in (1, 2))
    assert first.to_list() == second.to_list()
    assert stream.run.index_frame(attempt=2).height == 16


def test_telemetry_of_the_lineage(tmp_path: Path, web: Corpus) -> None:
    run = begin(tmp_path / "run", web)
    for attempt, ranks, steps in ((1, 2, range(6)), (2, 1, range(4, 8))):
        for rank in range(ranks):
            with open_telemetry(run, attempt, rank, fenced=False) as writer:
                for step in steps:
                    value = 100 * attempt + 10 * rank + step
                    writer.append(telemetry_records(step, ["loss", "lr"], [value, np.nan], time_ns=1))
                    writer.append(telemetry_records(step, "loss", [value + 0.25], time_ns=1, slots=[2 * rank]))
    frame = run.telemetry_frame(names=["loss"])
    assert frame.columns == ["step", "rank", "attempt", "loss"]
    assert frame.rows() == [
        *((step + 1, rank, 1, 100 + 10 * rank + step) for step in range(4) for rank in range(2)),
        *((step + 1, 0, 2, 200 + step) for step in range(4, 8)),
    ]
    assert run.telemetry_frame()["lr"].is_nan().all()
    everything = run.telemetry_frame(live=False, names=["loss"], steps=(5, 6))
    assert everything.rows() == [(5, 0, 1, 104.0), (5, 0, 2, 204.0), (5, 1, 1, 114.0)]
    samples = run.telemetry_frame(samples=True, steps=(4, 6))
    assert samples.rows() == [
        (4, 0, 1, 0, "loss", 103.25),
        (4, 1, 1, 2, "loss", 113.25),
        (5, 0, 2, 0, "loss", 204.25),
    ]
    joined = samples.join(run.index_frame(), on=["step", "attempt", "slot"], how="left")
    assert joined["shard"].null_count() == 0
    assert run.telemetry_frame(attempt=1, names=["nope"], steps=(90, 91)).columns == ["step", "rank", "attempt", "nope"]


def test_polars_comes_with_the_first_frame_alone(run: Run) -> None:
    code = (
        "import sys; from dataguard import Loader, Run\n"
        f"run = Run.open({str(run.path)!r}); repr(run); run._repr_html_()\n"
        "assert 'polars' not in sys.modules\n"
        "run.index_frame(columns=['step']); assert 'polars' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
