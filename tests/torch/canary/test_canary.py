"""Does one microbatch show a device that computes wrongly, in training and between hosts, and change nothing?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from dataguard.cli.main import main
from dataguard.core.evidence import Told
from dataguard.corpus.corpus import Corpus
from dataguard.errors import AnswerNo, RunDamaged, UsageError
from dataguard.run.events import CanaryCompared
from dataguard.run.notes import noted, read_document
from dataguard.torch.canary import CanaryComparison, CanaryRecord, compare, compare_ranks, kept_records, take
from dataguard.torch.canary.keeping import keep_record
from dataguard.torch.microbatch import TensorMicrobatch
from tests.support.corpora import make_corpus
from tests.torch.experiment.planted import SPIKE, Trained, load, loss, noisy, plain, train
from tests.torch.forking import Launch

FUNCTIONS = "tests.torch.experiment.functions"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), {"web": {"a.parquet": 270, "b.jsonl.gz": 100}})


@pytest.fixture(scope="module")
def trained(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("trained"), corpus, noisy, log=False)


def checkpoint_of(trained: Trained) -> str:
    return str(trained.run.path.parent / f"{SPIKE}.pt")


def taken(trained: Trained, **settings: Any) -> CanaryRecord:
    known = {"load": load, "loss": loss, "checkpoint": checkpoint_of(trained), "transform": noisy, "num_repeats": 2}
    return take(trained.run, settings.pop("step", None), **{**known, **settings})


def sick(model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
    """A product that comes out wrong in its last bits, the same every time."""
    model.get_submodule("layers.0.up").register_forward_hook(lambda _module, _inputs, output: output * 1.0000002)
    return loss(model, microbatch)


def test_a_record_has_every_tensor_and_repeats_to_the_bit(trained: Trained) -> None:
    record = taken(trained)
    model, _ = load(checkpoint_of(trained))
    names = [name for name, _ in model.named_parameters()]
    assert [(each.kind, each.name) for each in record.tensors] == [
        ("loss", "loss"), ("logits", "logits"), *(("gradient", n) for n in names), *(("updated", n) for n in names),
    ]  # fmt: skip
    assert all(len(set(each.digests)) == 1 and len(each.sketches) == 2 for each in record.tensors)
    assert (record.step, record.rank, record.device) == (0, None, "cpu")
    again = taken(trained, host="another")
    assert compare([record, again]).differs is Told.NO


def test_the_model_in_hand_is_left_alone(trained: Trained) -> None:
    model, optimizer = load(checkpoint_of(trained))
    state = torch.get_rng_state()
    take(trained.run, 3, model=model, optimizer=optimizer, loss=loss, transform=noisy)
    fresh, _ = load(checkpoint_of(trained))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert len(model.get_submodule("layers.0")._forward_hooks) == 0
    torch.set_rng_state(state)


def test_another_host_that_computes_wrongly(trained: Trained) -> None:
    good, bad = taken(trained, host="a"), taken(trained, host="b", loss=sick)
    two = compare([good, bad])
    assert (two.differs, two.odd) == (Told.YES, ()), "of two nobody can say which is wrong"
    three = compare([good, bad, taken(trained, host="c")])
    assert (three.differs, three.odd) == (Told.YES, ("b/cpu",))
    (member,) = (each for each in three.members if each.member == "b/cpu")
    assert member.tensor in {"loss loss", "logits logits"}


def test_a_loss_that_draws_is_held_against_itself(trained: Trained) -> None:
    """Nondeterministic everywhere: bits differ, and prove nothing; a gradient that is twice as large does."""
    draws = torch.Generator().manual_seed(1)

    def unsteady(model: nn.Module, microbatch: TensorMicrobatch) -> torch.Tensor:
        return loss(model, microbatch) * (1 + 1e-6 * torch.rand((), generator=draws))

    hosts = [taken(trained, host=host, loss=unsteady, num_repeats=3) for host in "abc"]
    assert (compare(hosts).differs, compare(hosts).baseline) == (Told.NO, "magnitude")
    wrong = taken(trained, host="d", loss=lambda model, microbatch: 2 * unsteady(model, microbatch), num_repeats=3)
    assert compare([*hosts, wrong]).odd == ("d/cpu",)


def test_what_cannot_be_taken_is_refused(trained: Trained) -> None:
    with pytest.raises(AnswerNo, match="cannot be made again exactly"):
        taken(trained, transform=plain, step=SPIKE)
    with pytest.raises(UsageError, match="needs weights"):
        taken(trained, checkpoint=None)
    with pytest.raises(UsageError, match="no process group"):
        compare_ranks(trained.run, taken(trained))


def test_a_rank_with_wrong_finite_gradients_is_named(ranks: Launch, trained: Trained, tmp_path: Path) -> None:
    """Story 4 of row C18, the zombie GPU: what it adds to the mean is wrong, finite, and in no loss."""
    words = {"run": str(trained.run.path), "checkpoint": checkpoint_of(trained), "sick": 2}
    answers = [json.loads(out) for out in ranks("tests.torch.canary.canary_ranks", tmp_path, 4, **words)]
    assert all(answer == answers[0] for answer in answers)
    (name,) = answers[0]["odd"]
    assert name.endswith("/cpu (rank 2)")
    _, note = noted(trained.run.read().entries, CanaryCompared)[-1]
    assert (note.differs, note.odd, note.step) == (Told.YES, (name,), 3)
    kept = msgspec.json.decode(read_document(trained.run.layout, "canary", note.results), type=CanaryComparison)
    (member,) = (each for each in kept.members if each.differs is Told.YES)
    assert member.tensor == "gradient layers.1.down.weight", "loss and logits are those of all ranks"


def test_the_command(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained.run.path)
    words = ["--load", f"{FUNCTIONS}:load", "--loss", f"{FUNCTIONS}:loss", "--transform", f"{FUNCTIONS}:transform"]
    one, other = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    assert main(["canary", run, *words, "--host", "a", "--step", "5", "-o", one, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert list(record) == [
        *("version", "run", "attempt", "step", "address", "host", "device", "rank", "time", "plan", "config"),
        *("configuration", "batch", "state", "tensors"),
    ]
    assert list(record["tensors"][0]) == ["name", "kind", "dtype", "shape", "digests", "sketches", "norm"]
    assert main(["canary", run, "--compare", "--step", "5"]) == 1, "nothing was compared"
    assert "nothing to compare" in capsys.readouterr().out
    assert main(["canary", run, *words, "--host", "b", "--step", "5", "-o", other, "--repeats", "2"]) == 0
    assert "reproduces itself" in capsys.readouterr().out
    assert main(["canary", run, "--compare", one, other, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer) == [
        *("version", "step", "batch", "state", "differs", "odd", "members", "not_compared", "baseline", "notes"),
        *("summary", "results"),
    ]
    assert (answer["differs"], answer["step"], len(answer["members"])) == ("no", 5, 2)
    wrong = taken(trained, host="c", loss=sick, step=5)
    keep_record(trained.run, wrong)
    events = len(trained.run.read().entries)
    assert main(["canary", run, "--compare", "--step", "5", "--dry-run"]) == 1
    assert len(trained.run.read().entries) == events
    assert main(["canary", run, "--compare", "--step", "5"]) == 1
    assert "look at c/cpu" in capsys.readouterr().out
    assert noted(trained.run.read().entries, CanaryCompared)[-1][1].odd == ("c/cpu",)
    for refused in (["--compare", *words], [one], ["--load", f"{FUNCTIONS}:load"]):
        assert main(["canary", run, *refused]) == 2
    assert main(["canary", run, "--compare", str(tmp_path / "nothing.json")]) == 3


def test_a_changed_record_is_told(trained: Trained, tmp_path: Path) -> None:
    path = keep_record(trained.run, taken(trained, step=7))
    assert [each.step for each in kept_records(trained.run, 7)] == [7]
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole.replace(b'"step":7', b'"step":8'))
    with pytest.raises(RunDamaged, match="other bytes"):
        kept_records(trained.run, 7)
    path.unlink()
