"""What may not be trained on counts for nothing in the tensors: refused, withheld, skipped and padding slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dataguard.corpus.corpus import Corpus
from dataguard.errors import AnswerNo
from dataguard.gate.policy import read_policy
from dataguard.plan.plan import Plan
from dataguard.plan.slots import SlotStatus
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run import amend
from dataguard.run.index import Index, merge
from dataguard.run.run import Run
from dataguard.torch import ByteTransform, TensorMicrobatch
from tests.support import gated
from tests.support.corpora import make_corpus
from tests.support.runs import make_run, open_loaders
from tests.torch.making import SEQ_LEN, a_run, loader_of, told

IGNORED = [-100] * SEQ_LEN


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return gated.documents(tmp_path_factory.mktemp("web"))


def judged(path: Path, corpus: Corpus, text: str, **plan: Any) -> Run:
    policy = read_policy(text, name="test")
    vocab_size = plan.pop("vocab_size", None)
    made = Plan(corpus, **{"seed": 7, "global_batch": 8, **plan})
    return Run.create(path, made, policy=policy, vocab_size=vocab_size)


def walk(run: Run, **settings: Any) -> list[TensorMicrobatch]:
    with loader_of(run, **settings) as loader:
        return list(loader)


def is_low(ids: torch.Tensor) -> bool:
    return bytes(ids[:8].tolist()) == b"z" * 8


def padding(microbatch: TensorMicrobatch, i: int) -> bool:
    """Whether slot i is a padding slot: it attends to its first place, and nothing of it counts."""
    attention = microbatch["attention_mask"][i].tolist()
    ids, labels = microbatch["input_ids"][i].tolist(), microbatch["labels"][i].tolist()
    return attention == [1] + [0] * (SEQ_LEN - 1) and ids == [ByteTransform.END] * SEQ_LEN and labels == IGNORED


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_masked_sample_keeps_its_inputs(tmp_path: Path, web: Corpus, num_workers: int) -> None:
    num_low = 0
    run = judged(tmp_path / "run", web, gated.rule("mask"))
    for microbatch in walk(run, steps=8, num_workers=num_workers):
        low = [is_low(ids) for ids in microbatch["input_ids"]]
        assert (microbatch.status == SlotStatus.REFUSED).tolist() == low
        assert [labels == IGNORED for labels in microbatch["labels"].tolist()] == low
        assert microbatch.num_loss_tokens == 31 * low.count(False)
        assert microbatch.all_masked is all(low)
        num_low += sum(low)
    assert num_low > 4
    assert verify_run(Lookup(run)).ok


def test_a_halt_stops_two_steps_on(tmp_path: Path, web: Corpus) -> None:
    delivered = []
    loader = loader_of(judged(tmp_path / "run", web, gated.rule("halt")), num_workers=2, start_method="fork")
    with pytest.raises(AnswerNo, match="low"):
        delivered.extend(loader)
    halting = next(m for m in delivered if (m.status == SlotStatus.REFUSED).any())
    assert delivered[-1].step == halting.step + 1
    assert delivered[-1].address.microbatch == 3
    slot = int((halting.status == SlotStatus.REFUSED).argmax())
    assert padding(halting, slot)


def test_a_substitute_is_a_record_like_any_other(tmp_path: Path, web: Corpus) -> None:
    run = judged(tmp_path / "run", web, gated.rule("substitute"))
    microbatches = walk(run, steps=8, num_workers=1, start_method="fork")
    statuses = {SlotStatus(status) for m in microbatches for status in m.status.tolist()}
    assert statuses == {SlotStatus.LIVE, SlotStatus.SUBSTITUTED}
    assert not any(is_low(ids) for m in microbatches for ids in m["input_ids"])
    assert all(m.num_loss_tokens == 62 for m in microbatches)


def test_spans_of_windows_are_masked_at_their_places(tmp_path: Path) -> None:
    books = gated.tokens(tmp_path)
    run = judged(tmp_path / "run", books, gated.TOKEN_POLICY, form="window", seq_len=64, vocab_size=gated.VOCABULARY)
    num_spans = 0
    for microbatch in walk(run, steps=6):
        for i, ids in enumerate(microbatch["input_ids"].tolist()):
            labels = microbatch["labels"][i].tolist()
            periodic = int(microbatch.rows[i]) % 5 == 1
            expected = [-100, *(-100 if periodic and ids[p] == 5 and 10 <= p < 50 else ids[p] for p in range(1, 64))]
            assert labels == expected
            num_spans += periodic
        assert microbatch.num_loss_tokens == int((microbatch["labels"] != -100).sum())
    assert num_spans > 3


def test_quarantined_and_ended_slots_are_padding(documents: Corpus, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", documents)
    amend.quarantine(run, "web/a.parquet", reason="damaged")
    kinds = set()
    for microbatch in walk(run, epochs=1):
        for i, status in enumerate(microbatch.status.tolist()):
            assert padding(microbatch, i) is (status != SlotStatus.LIVE)
            kinds.add(SlotStatus(status))
        assert microbatch.all_masked is (not (microbatch.status == SlotStatus.LIVE).any())
    assert kinds >= {SlotStatus.LIVE, SlotStatus.QUARANTINED}
    assert verify_run(Lookup(run)).ok


def test_an_unreadable_row_is_padding_and_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make_corpus(tmp_path, {"web": {"a.parquet": 20, "b.parquet": 12}})
    run = make_run(tmp_path / "run", corpus)
    (tmp_path / "web" / "b.parquet").write_bytes(b"gone")
    microbatches = walk(run, steps=4, microbatch_size=8)
    statuses = [status for m in microbatches for status in m.status.tolist()]
    assert set(statuses) == {SlotStatus.LIVE, SlotStatus.UNREADABLE}
    for m in microbatches:
        assert [padding(m, i) for i in range(8)] == (m.status == SlotStatus.UNREADABLE).tolist()


def test_empty_documents_are_no_padding(tmp_path: Path) -> None:
    from tests.corpus.making import jsonl
    from tests.support.corpora import manifest_of

    jsonl(tmp_path / "web" / "a.jsonl", ["", "one", "", "two"])
    run = make_run(tmp_path / "run", Corpus.open(manifest_of(tmp_path, ["web"])), global_batch=4)
    (microbatch,) = walk(run, steps=1, microbatch_size=4)
    assert microbatch.status.tolist() == [SlotStatus.LIVE] * 4
    lengths = microbatch["attention_mask"].sum(dim=1).tolist()
    assert sorted(lengths) == [1, 1, 4, 4]
    assert microbatch.num_loss_tokens == 6


def test_records_are_those_of_the_loader_without_torch(tmp_path: Path, web: Corpus) -> None:
    """Verdicts, signals, digests of samples: all but the digest of the microbatch."""
    found = []
    for name, settings in (
        ("plain", None),
        ("here", {"num_workers": 0}),
        ("workers", {"num_workers": 2, "start_method": "fork"}),
    ):
        run = judged(tmp_path / name, web, gated.rule("mask"))
        if settings is None:
            (loader,) = open_loaders(run, microbatch_size=2, steps=6)
            with loader:
                assert len(list(loader)) == 24
            rules = loader.account.fired.tolist()
        else:
            with loader_of(run, steps=6, **settings) as guarded:
                assert len([told(m) for m in guarded]) == 24
            rules = guarded.account.fired.tolist()
        records = merge(list(Index(run.layout).records(1, num_ranks=1)))
        own = records["microbatch_digest"].tobytes()
        records["microbatch_digest"] = b""
        found.append((records.tobytes(), own, rules))
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[0][1] != found[1][1] == found[2][1]
    assert found[0][2] == found[1][2] == found[2][2] != [0]
