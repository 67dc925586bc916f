"""A replay judges again: the same microbatch bit for bit, the same verdicts, and every difference told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.corpus.problems import Retry
from dataguard.plan.slots import SlotStatus
from dataguard.replay.inspect import inspect_step
from dataguard.replay.lookup import Lookup
from dataguard.replay.replay import replay_step
from dataguard.replay.seen import seen_before
from dataguard.replay.verify import verify_run
from dataguard.replay.where import where_record
from dataguard.run.index import Index, merge
from dataguard.run.records import without_rank
from dataguard.run.run import Run
from tests.loader.test_gate import gated, walk
from tests.support.gated import TOKEN_POLICY, VOCABULARY, documents, rule, tokens


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents(tmp_path_factory.mktemp("web"))


POLICIES = {
    "flag": rule("flag"),
    "mask": rule("mask"),
    "substitute": rule("substitute"),
    "substitutes for what is quarantined": 'fill = "substitute"\n' + rule("mask"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_step_comes_out_as_it_was_delivered(tmp_path: Path, web: Corpus, name: str) -> None:
    from dataguard.run.amend import quarantine

    run = gated(tmp_path / "run", web, POLICIES[name], lanes=2)
    quarantine(run, "web/1.jsonl", reason="test")
    delivered = {(m.step, m.address.rank, m.address.microbatch): m for m in walk(run, world_size=2, num_threads=2)}
    lookup = Lookup(run)
    for step in range(12):
        answer, rebuilt = replay_step(lookup, step)
        assert answer.status in {"exact", "withheld"}
        for each in rebuilt:
            address = each.microbatch.address
            was = delivered[address.step, address.rank, address.microbatch]
            assert each.microbatch.digest == was.digest
            assert each.microbatch.records == was.records
            assert each.microbatch.mask.tolist() == was.mask.tolist()
            assert each.microbatch.status.tolist() == was.status.tolist()
    verified = verify_run(lookup)
    assert verified.ok, verified.checks
    assert verified.checks[-1].checked == 96


def test_windows_with_masked_spans_and_a_halt(tmp_path: Path) -> None:
    corpus = tokens(tmp_path / "c", outside=lambda window: window == 60)
    facts: dict[str, Any] = {"form": "window", "seq_len": 64, "shuffle": "none", "lanes": 1}
    run = gated(tmp_path / "run", corpus, TOKEN_POLICY, vocab_size=VOCABULARY, **facts)
    from tests.support.runs import open_loaders

    (loader,) = open_loaders(run, microbatch_size=4)
    taken = [m for _ in range(9) for m in loader.take_step()]
    loader.close()
    lookup = Lookup(run)
    assert [m.mask.tobytes() for m in taken] == [
        each.microbatch.mask.tobytes() for step in range(9) for each in replay_step(lookup, step)[1]
    ]
    assert verify_run(lookup).ok
    answer, _ = replay_step(lookup, 7)
    assert {s.status for m in answer.microbatches for s in m.samples if s.row == 60} == {"withheld"}


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataguard.corpus.reader.Retry", lambda: Retry(attempts=1, pause_seconds=0.0))


@pytest.mark.usefixtures("unreadable")
@pytest.mark.parametrize("fill", ["mask", "substitute"])
def test_rows_unreadable_then_are_readable_now(tmp_path: Path, fill: str) -> None:
    """Whether a row failed or was refused is told apart by the exception, whatever can be read when looking back."""
    corpus = documents(tmp_path / "c")
    run = gated(tmp_path / "run", corpus, f'fill = "{fill}"\n' + rule("substitute"))
    shard = tmp_path / "c" / "web" / "1.jsonl"
    away = tmp_path / "away.jsonl"
    shard.rename(away)
    delivered = {(m.step, m.address.microbatch): m.digest for m in walk(run)}
    away.rename(shard)
    records = merge(list(Index(run.layout).records(1, num_ranks=1)))
    assert {SlotStatus.UNREADABLE, SlotStatus.SUBSTITUTED} & set(records["status"].tolist())
    assert (records["verdict"] == 3).any()
    lookup = Lookup(run)
    for step in range(12):
        answer, rebuilt = replay_step(lookup, step)
        assert answer.status in {"exact", "withheld"}, answer
        for each in rebuilt:
            address = each.microbatch.address
            assert each.microbatch.digest == delivered[address.step, address.microbatch]
    assert verify_run(lookup).ok


def rewritten(run: Run, change: Any) -> None:
    """The record of rank 0 again, as somebody else would have judged it."""
    records = without_rank(np.concatenate(list(Index(run.layout).records(1, num_ranks=1))))
    change(records)
    layout = run.layout
    for folder in (layout.index, layout.root / "notable", layout.root / "seals"):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    from tests.run.recording import open_writer

    with open_writer(layout.root, run_id=run.run_id, microbatch_size=2, record=records.dtype) as writer:
        for first in range(0, len(records), 2):
            writer.append(records[first : first + 2])


def change_verdict(records: np.ndarray) -> None:
    records["verdict"][5] ^= 1


def change_rules(records: np.ndarray) -> None:
    records["rules"][5] |= 1 << 7


def change_headline(records: np.ndarray) -> None:
    records["headline_byte_entropy"][5] += 1


def change_signal(records: np.ndarray) -> None:
    records["signal_byte_entropy"][5] = 3.25


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (change_verdict, "verdict"),
        (change_rules, "rules"),
        (change_headline, "headline_byte_entropy"),
        (change_signal, "signal_byte_entropy"),
    ],
)
def test_another_verdict_is_a_difference_and_is_named(tmp_path: Path, web: Corpus, change: Any, told: str) -> None:
    run = gated(tmp_path / "run", web, rule("flag"))
    walk(run)
    rewritten(run, change)
    lookup = Lookup(run)
    answer, _ = replay_step(lookup, 0)
    wrong = [sample for m in answer.microbatches for sample in m.samples if sample.status == "differs"]
    assert (answer.status, [sample.slot for sample in wrong]) == ("differs", [5])
    assert wrong[0].problem is not None
    assert wrong[0].problem.startswith(f"{told} ")
    assert "judged now" in wrong[0].problem
    assert not verify_run(lookup).ok


def test_a_policy_that_is_gone_is_damage(tmp_path: Path, web: Corpus) -> None:
    from dataguard.errors import RunDamaged

    run = gated(tmp_path / "run", web, rule("flag"))
    walk(run, steps=2)
    assert run.document.policy is not None
    path = run.layout.policy(run.document.policy)
    path.write_text(rule("mask"))
    with pytest.raises(RunDamaged, match="another policy"):
        replay_step(Lookup(run), 0)


def test_refused_samples_were_not_trained_on(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("mask"))
    walk(run)
    lookup = Lookup(run)
    records = merge(list(Index(run.layout).records(1, num_ranks=1)))
    refused = records[records["status"] == SlotStatus.REFUSED]
    seen, rows = seen_before(lookup, 12)
    assert (seen.num_samples, seen.num_withheld) == (96 - len(refused), len(refused))
    assert not set(refused["position"].tolist()) & set(rows["position"].to_list())
    shard = lookup.run.stream_of(1).manifest_set.shard_name(int(refused[0]["shard"]))
    places = where_record(lookup, shard, int(refused[0]["row"])).places
    assert [place.status for place in places if place.position == int(refused[0]["position"])] == ["refused"]


def test_what_the_gate_drew_is_found_by_where(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("substitute"))
    walk(run)
    lookup = Lookup(run)
    records = merge(list(Index(run.layout).records(1, num_ranks=1)))
    drawn = records[records["status"] == SlotStatus.SUBSTITUTED][0]
    shard = lookup.run.stream_of(1).manifest_set.shard_name(int(drawn["delivered_shard"]))
    places = where_record(lookup, shard, int(drawn["delivered_row"])).places
    (found,) = [place for place in places if place.position == int(drawn["position"])]
    assert found.status == "substitute"
    assert found.substitute_for is not None
    assert found.substitute_for.row == int(drawn["row"])


def test_inspect_shows_verdicts_worst_first_and_imports_no_numba(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("mask"))
    walk(run)
    records = merge(list(Index(run.layout).records(1, num_ranks=1)))
    step = int(records["step"][records["verdict"] > 0][0])
    answer = inspect_step(Lookup(run), step)
    verdicts = [sample.verdict for sample in answer.samples]  # type: ignore[union-attr]
    assert verdicts == sorted(verdicts, key=["mask", "pass"].index)
    worst = answer.samples[0]  # type: ignore[union-attr]
    assert (worst.status, worst.verdict, worst.rules) == ("refused", "mask", ("low",))
    assert worst.signals is not None
    assert worst.signals["byte_entropy"] < 2
    assert worst.headline is not None
    assert worst.headline["byte_entropy"] < 2
    assert worst.headline["length_outlier"] is None
    code = (
        "import sys; from dataguard.run.run import Run; from dataguard.replay.lookup import Lookup; "
        "from dataguard.replay.inspect import inspect_step; "
        f"inspect_step(Lookup(Run.open({str(run.path)!r})), {step}); "
        "print(sorted({'numba', 'polars', 'datasets'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
