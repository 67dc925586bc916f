"""Samples are judged before they are delivered: what becomes of each verdict, in the batch and in the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.core.microbatch import Microbatch
from dataguard.corpus.corpus import Corpus
from dataguard.errors import AnswerNo, PolicyError, RanksDisagree, UsageError
from dataguard.gate.policy import Policy, read_policy
from dataguard.gate.verdict import Verdict
from dataguard.loader.feeding import Feeding
from dataguard.loader.walk import End
from dataguard.plan.plan import Plan
from dataguard.plan.slots import SlotStatus
from dataguard.run.events import Halted
from dataguard.run.halting import read_halts
from dataguard.run.index import Index, merge
from dataguard.run.judging import account_of, keeps_signals
from dataguard.run.policies import policy_of
from dataguard.run.run import Run
from tests.support.corpora import make_corpus
from tests.support.gated import LOW, TOKEN_POLICY, VOCABULARY, documents, rule, tokens
from tests.support.runs import in_turns, open_loaders


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return tokens(tmp_path_factory.mktemp("books"))


def policy(text: str) -> Policy:
    return read_policy(text, name="test")


def gated(path: Path, corpus: Corpus, text: str | None, **plan: Any) -> Run:
    gate = {} if text is None else {"policy": policy(text)}
    vocab_size = plan.pop("vocab_size", None)
    return Run.create(path, Plan(corpus, **{"seed": 7, "global_batch": 8, **plan}), vocab_size=vocab_size, **gate)


def walk(run: Run, **settings: Any) -> list[Microbatch]:
    loaders = open_loaders(run, **{"steps": 12, "microbatch_size": 2, **settings})
    taken = [microbatch for step in in_turns(loaders) for microbatch in step]
    for loader in loaders:
        loader.close()
    return taken


def records_of(run: Run, attempt: int = 1) -> np.ndarray:
    ranks = run.attempts().attempt(attempt).geometry.world_size
    return merge(list(Index(run.layout).records(attempt, num_ranks=ranks)))


def is_low(record: bytes) -> bool:
    return record.startswith(LOW.encode())


def test_a_flag_delivers_and_is_recorded_with_its_signals(tmp_path: Path, web: Corpus) -> None:
    plain = walk(gated(tmp_path / "plain", web, None))
    run = gated(tmp_path / "run", web, rule("flag"))
    flagged = walk(run)
    assert [m.digest for m in flagged] == [m.digest for m in plain]
    texts = [record for m in flagged for record in m.records or ()]
    records = records_of(run)
    assert (records["verdict"] == Verdict.FLAG).tolist() == [is_low(text) for text in texts]
    assert (records["rules"] == 1).tolist() == [is_low(text) for text in texts]
    kept = [is_low(t) or keeps_signals(7, p) for t, p in zip(texts, records["position"].tolist(), strict=True)]
    assert (~np.isnan(records["signal_byte_entropy"])).tolist() == kept
    assert records["headline_byte_entropy"].all()
    assert not records["headline_length_outlier"].any(), "it needs a profile, and there is none"


def test_a_mask_keeps_inputs_and_counts_nothing(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("mask"))
    num_refused = 0
    for m in walk(run):
        assert m.records is not None
        low = [is_low(record) for record in m.records]
        assert m.mask.tolist() == [not each for each in low]
        assert (m.status == SlotStatus.REFUSED).tolist() == low
        num_refused += sum(low)
    records = records_of(run)
    assert num_refused == int((records["status"] == SlotStatus.REFUSED).sum()) > 5
    assert (records["digest"] != np.void(bytes(8))).all(), "what was refused can be told from the record"


def test_a_substitute_is_judged_itself(tmp_path: Path, web: Corpus) -> None:
    plain = walk(gated(tmp_path / "plain", web, None))
    run = gated(tmp_path / "run", web, rule("substitute"))
    for before, after in zip(plain, walk(run), strict=True):
        assert before.records is not None
        assert after.records is not None
        assert after.mask.all()
        for was, now, status in zip(before.records, after.records, after.status.tolist(), strict=True):
            assert (status == SlotStatus.SUBSTITUTED) == is_low(was)
            assert not is_low(now)
            assert was == now or is_low(was)
    records = records_of(run)
    drawn = records["status"] == SlotStatus.SUBSTITUTED
    assert (records["verdict"][drawn] == Verdict.SUBSTITUTE).all()
    assert (records["signal_byte_entropy"][drawn] < 2).all(), "the signals are those the verdict is about"


def test_where_every_draw_is_refused_the_slot_is_masked(tmp_path: Path) -> None:
    corpus = documents(tmp_path / "c", bad=lambda _shard, _row: True)
    run = gated(tmp_path / "run", corpus, rule("substitute"))
    taken = walk(run, steps=3)
    assert all(m.all_masked for m in taken)
    records = records_of(run)
    assert (records["status"] == SlotStatus.REFUSED).all()
    assert (records["verdict"] == Verdict.SUBSTITUTE).all()


def test_only_the_span_is_masked(tmp_path: Path, books: Corpus) -> None:
    run = gated(tmp_path / "run", books, TOKEN_POLICY, form="window", seq_len=64, vocab_size=VOCABULARY)
    seen = 0
    for m in walk(run):
        assert m.ids is not None
        for ids, mask, status in zip(m.ids, m.mask, m.status.tolist(), strict=True):
            assert status == SlotStatus.LIVE
            periodic = ids == 5
            seen += periodic.sum() > 30
            assert mask.tolist() == (~periodic if periodic.sum() > 30 else np.ones(64, bool)).tolist()
    records = records_of(run)
    assert int((records["verdict"] == Verdict.MASK).sum()) == seen > 5


def test_verdicts_do_not_depend_on_topology_or_threads(tmp_path: Path, web: Corpus) -> None:
    answers = []
    for number, (ranks, size, threads) in enumerate([(1, 8, 0), (2, 2, 3), (4, 1, 1), (1, 1, 2)]):
        run = gated(tmp_path / str(number), web, rule("substitute"), lanes=4)
        taken = walk(run, world_size=ranks, microbatch_size=size, num_threads=threads)
        records = records_of(run)
        records = records[np.argsort(records["position"], kind="stable")]
        names = [n for n in records.dtype.names if n not in {"rank", "microbatch", "microbatch_digest"}]
        answers.append((sorted(d for m in taken for d in m.digests), [records[n].tobytes() for n in names]))
    assert all(answer == answers[0] for answer in answers[1:])


def test_padding_is_never_judged(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("flag"), global_batch=7)
    walk(run, steps=None, epochs=1, microbatch_size=7)
    records = records_of(run)
    padding = records["status"] == SlotStatus.ENDED
    assert padding.any()
    assert not records["headline_byte_entropy"][padding].any()
    assert not records["verdict"][padding].any()
    assert np.isnan(records["signal_byte_entropy"][padding]).all()


def halting(tmp_path: Path, at: int = 60) -> Run:
    corpus = tokens(tmp_path / "c", outside=lambda window: window == at)
    facts: dict[str, Any] = {"form": "window", "seq_len": 64, "shuffle": "none", "lanes": 1}
    return gated(tmp_path / "run", corpus, TOKEN_POLICY, vocab_size=VOCABULARY, **facts)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("threads", [0, 2])
def test_halt_stops_all_ranks_at_one_step(tmp_path: Path, ranks: int, threads: int) -> None:
    run = halting(tmp_path)
    loaders = open_loaders(run, world_size=ranks, microbatch_size=2, num_threads=threads)
    taken: list[Microbatch] = []
    for step in range(9):
        for loader in loaders:
            taken += loader.take_step()
            assert loader.next_step == step + 1
    for loader in loaders:
        for _ in range(2):
            with pytest.raises(AnswerNo, match="stops before step 9: the gate says halt"):
                loader.take_step()
        assert loader.state().next_step == 9
    records = records_of(run)
    assert int(records["step"].max()) == 8
    (halted,) = records[records["verdict"] == Verdict.HALT]
    assert (int(halted["row"]), int(halted["step"]), int(halted["status"])) == (60, 7, SlotStatus.REFUSED)
    held = next(m for m in taken if m.step == 7 and 60 in m.row.tolist())
    place = held.row.tolist().index(60)
    assert not held.mask[place].any()
    assert held.ids is not None
    assert not held.ids[place].any(), "an id outside of the vocabulary reaches no embedding"
    (event,) = [entry.event for entry in run.read().entries if isinstance(entry.event, Halted)]
    assert (event.attempt, event.stop_step, event.step, event.row, event.rules) == (1, 9, 7, 60, ("vocabulary",))
    assert event.rank == read_halts(run.layout, 1)[0].rank


def test_a_halt_in_the_last_step_is_no_good_end(tmp_path: Path) -> None:
    run = halting(tmp_path)
    (loader,) = open_loaders(run, microbatch_size=8, steps=8)
    for _ in range(8):
        loader.take_step()
    with pytest.raises(AnswerNo, match="stops before step 9"):
        next(loader)


def test_a_halted_run_goes_on_behind_and_knows_why(tmp_path: Path) -> None:
    run = halting(tmp_path)
    (loader,) = open_loaders(run, microbatch_size=8)
    for _ in range(9):
        loader.take_step()
    with pytest.raises(AnswerNo):
        next(loader)
    (again,) = open_loaders(run, microbatch_size=8, state=loader.state().to_dict(), steps=2)
    assert [m.step for m in again] == [9, 10]
    again.close()


def test_the_run_remembers_its_policy(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("flag"))
    digest = policy(rule("flag")).digest
    assert run.document.policy == digest
    walk(run, steps=2)
    again = Run.open(tmp_path / "run")
    walk(again, steps=2, from_step=2)
    other = Run.open(tmp_path / "run", policy=policy(rule("mask")))
    walk(other, steps=2, from_step=4)
    walk(again, steps=2, from_step=6)
    walk(Run.open(tmp_path / "run", policy="none"), steps=2, from_step=8)
    walk(again, steps=2, from_step=10)
    attempts = [again.attempts().attempt(number) for number in range(1, 7)]
    mask = policy(rule("mask")).digest
    assert [attempt.policy for attempt in attempts] == [digest, digest, mask, mask, None, None]
    kept = policy_of(again, 3)
    assert kept is not None
    assert kept.text == rule("mask")
    assert records_of(again, 5).dtype != records_of(again, 4).dtype


def test_an_attempt_without_a_policy_is_what_it_was(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, None)
    walk(run, steps=2)
    event = run.layout.journal_event(2).read_bytes()
    assert b"policy" not in event
    assert not (run.path / "halts").exists()
    assert records_of(run).dtype.names is not None
    assert not any(name.startswith(("headline", "signal")) for name in records_of(run).dtype.names)


def test_ranks_must_hold_one_policy(tmp_path: Path, web: Corpus) -> None:
    run = gated(tmp_path / "run", web, rule("flag"))
    first, second = open_loaders(run, world_size=2, microbatch_size=2, launch_id="one")
    other = open_loaders(run, world_size=2, microbatch_size=2, launch_id="one", policy=policy(rule("mask")))[1]
    next(first)
    with pytest.raises(RanksDisagree, match=f"policy {policy(rule('mask')).digest}"):
        next(other)
    next(second)
    for loader in (first, second):
        loader.close()


def test_what_cannot_be_is_refused_before_anything_is_begun(tmp_path: Path, web: Corpus) -> None:
    with pytest.raises(PolicyError, match="cod"):
        gated(tmp_path / "a", web, rule("flag", sources=["cod"]))
    assert not Run.exists(tmp_path / "a")
    run = gated(tmp_path / "b", web, None)
    with pytest.raises(UsageError, match="of use to a policy"):
        walk(Run.open(tmp_path / "b", vocab_size=10))
    with pytest.raises(PolicyError):
        walk(run, policy=policy(rule("flag", sources=["cod"])))
    assert not len(run.attempts())


def test_a_policy_may_speak_of_a_source_that_the_plan_leaves_out(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.jsonl": 40}, "code": {"b.jsonl": 40}})
    run = gated(tmp_path / "run", corpus, rule("flag", sources=["code"]), weights={"web": 1, "code": 0})
    walk(run, steps=2)
    assert set(records_of(run)["verdict"].tolist()) == {Verdict.PASS}
    with pytest.raises(PolicyError, match="cod"):
        gated(tmp_path / "other", corpus, rule("flag", sources=["cod"]), weights={"web": 1, "code": 0})


def test_the_policy_says_what_a_withheld_slot_holds(tmp_path: Path, web: Corpus) -> None:
    from dataguard.run.amend import quarantine

    run = gated(tmp_path / "run", web, 'fill = "substitute"\n' + rule("flag"))
    quarantine(run, "web/0.jsonl", reason="test")
    walk(run)
    records = records_of(run)
    assert (records["status"][records["event"] > 0] == SlotStatus.SUBSTITUTED).all()
    assert (records["event"] > 0).any()


@pytest.mark.parametrize("form", ["document", "window"])
def test_microbatches_that_are_read_together_are_each_as_alone(
    form: str, web: Corpus, books: Corpus, tmp_path: Path
) -> None:
    """Their bytes, their records, and what the account is made of."""
    if form == "document":
        run = gated(tmp_path / "run", web, rule("mask"))
    else:
        run = gated(tmp_path / "run", books, TOKEN_POLICY, form="window", seq_len=64, vocab_size=VOCABULARY)
    (loader,) = open_loaders(run, world_size=1, microbatch_size=2, steps=1)
    next(loader)
    walking = loader._walking
    assert walking is not None
    feeding = Feeding(path=str(run.path), attempt=1, roots={}, cache_bytes=1 << 20, on_unreadable=None)
    planned = list(replace(walking.walk, end=End(num_steps=6)))
    alone = [feeding.feeder().feed(each) for each in planned]
    together = [*feeding.feeder().feed_many(planned[:7]), *feeding.feeder().feed_many(planned[7:])]
    loader.close()
    judge = walking.judge
    assert judge is not None
    num_rules = len(judge.policy.rules)
    for one, other in zip(alone, together, strict=True):
        assert one.microbatch.digest == other.microbatch.digest
        assert one.records.tobytes() == other.records.tobytes()
        counted = [account_of(fed.settled.answers.parts, num_rules) for fed in (one, other)]  # type: ignore[union-attr]
        assert counted[0].evaluated.tolist() == counted[1].evaluated.tolist()
        assert counted[0].fired.tolist() == counted[1].fired.tolist()
    assert any((fed.records["verdict"] != 0).any() for fed in together)
