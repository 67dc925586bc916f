"""A run that spikes at a shard of encoded lines, and what investigate.py tells of it."""

from __future__ import annotations

import base64
import random
import runpy
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.corpus import build_manifest_file
from dataguard.errors import UsageError
from dataguard.run.events import Diagnosed, ExperimentDone
from dataguard.run.notes import noted
from tests.architecture.tree import TOP

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed; install dataguard[test]")

EXAMPLES = TOP / "examples"
BATCH = 8
CLEAN, BAD, AFTER = 120, 3, 17
"""Steps before the bad shard, of it, and behind it."""
SHARD = "python/part-1.jsonl"


@pytest.fixture(scope="module")
def modules() -> Iterator[None]:
    """What the examples import of each other can be imported, and is forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == EXAMPLES:
            del sys.modules[name]


@pytest.fixture(scope="module")
def spiked(modules: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Trained by the parts of train.py, in the order in which shards stand, so that the bad one comes at once."""
    import texts
    import torch
    import train

    from dataguard.torch import GuardedLoader, Monitor
    from dataguard.torch.stability import GradientHistory, train_step

    folder = tmp_path_factory.mktemp("spiked")
    pieces = texts.pieces_of_python((CLEAN + AFTER) * BATCH)
    generator = random.Random(7)
    bad = [base64.b64encode(generator.randbytes(48)).decode() for _ in range(BAD * BATCH)]
    for shard, records in enumerate([pieces[: CLEAN * BATCH], bad, pieces[CLEAN * BATCH :]]):
        texts.write_shard(folder / "python" / f"part-{shard}.jsonl", records)
    build_manifest_file([f"python={folder / 'python'}"], folder / "M.parquet")

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    plan = Plan(Corpus.open(folder / "M.parquet"), seed=17, global_batch=BATCH, shuffle="none", lanes=1)
    run = Run.open(folder / "run", plan=plan)
    geometry = Geometry(world_size=1, microbatch_size=BATCH)
    (model, optimizer), history = train.load(None), GradientHistory()
    with GuardedLoader(run, geometry=geometry, transform=train.tokenize, steps=CLEAN + BAD + AFTER) as loader:
        monitor = Monitor(run, loader=loader)
        for microbatch in loader:
            result = train_step(model, optimizer, [microbatch], train.loss_of, history=history)
            monitor.log(microbatch.step, **result.recorded(), lr=train.LEARNING_RATE)
            if loader.next_step in {CLEAN - 24, CLEAN - 8}:
                path = folder / f"step-{loader.next_step}.pt"
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
                monitor.checkpoint(loader.next_step, path)
        monitor.close()
    yield folder / "run"
    torch.set_num_threads(threads)


@pytest.fixture
def investigate(
    spiked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Runs the script with these words; the lines it prints."""

    def run(*words: str) -> list[str]:
        script = EXAMPLES / "investigate.py"
        monkeypatch.setattr(sys, "argv", [str(script), str(spiked), *words])
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def require_found(told: list[str]) -> None:
    """The event, the shard with what is odd about it, and the batch, bit for bit."""
    assert told[0].startswith(f"the event: transient_spike in steps {CLEAN}:{CLEAN + BAD}, highest at ")
    assert "data stand out: yes; ranks: unknown" in told, "there is one rank"
    assert any(line.startswith("  encoded_fraction is high in ") and line.endswith(" before") for line in told)
    (worst,) = [line for line in told if line.startswith("the worst sample: ")]
    assert f"= {SHARD}:" in worst
    row = int(worst.rpartition(":")[2])
    generator = random.Random(7)
    lines = [base64.b64encode(generator.randbytes(48)).decode() for _ in range(BAD * BATCH)]
    assert f"  {lines[row][:60]!r}" in told, "its text is what stands at that address"
    assert f"  its shard was read in {BAD} steps, the first is {CLEAN}, the last {CLEAN + BAD - 1}" in told
    (again,) = [line for line in told if " made again: " in line]
    assert again.partition(" made again: ")[2].startswith("exact ")


def test_what_was_fed_is_told_and_nothing_is_written(spiked: Path, investigate: Callable[..., list[str]]) -> None:
    before = Run.open(spiked).head()
    told = investigate("--step", str(CLEAN + 1), "--trainer", "train")
    require_found(told)
    assert any(line.startswith("the verdict: inconclusive, ") for line in told)
    assert any(line.startswith("the cheapest check to do next: replay, ") for line in told)
    assert not [line for line in told if line.startswith("$")]
    assert Run.open(spiked).head() == before


def test_the_lineage_may_be_named(investigate: Callable[..., list[str]]) -> None:
    """A run that was resumed has no event any more on its newest lineage."""
    require_found(investigate("--attempt", "1", "--trainer", "train"))
    with pytest.raises(UsageError, match="attempt 2 is not in this run"):
        investigate("--attempt", "2")


def test_where_nothing_happened_it_says_so(investigate: Callable[..., list[str]]) -> None:
    told = investigate("--step", "60")
    assert told[0].startswith("data stand out: no; ")
    assert not [line for line in told if "the event" in line.partition(":")[0] or " made again: " in line]
    assert any(line.startswith("the verdict: no_incident, ") for line in told)


def test_with_the_experiment_the_batch_is_convicted_and_the_commands_are_given(
    spiked: Path, investigate: Callable[..., list[str]]
) -> None:
    told = investigate("--trainer", "train", "--experiment")
    require_found(told)
    (done,) = noted(Run.open(spiked).read().entries, ExperimentDone)
    assert f"the experiment of step {done[1].step}: {done[1].outcome}, {done[1].summary}" in told
    assert any(line.startswith("the verdict: bad_data, ") for line in told)
    commands = [line for line in told if line.startswith("$")]
    assert commands[0].startswith(f"$ dataguard skip {spiked} ")
    assert commands[1].startswith(f"$ dataguard quarantine {spiked} {SHARD}")
    assert noted(Run.open(spiked).read().entries, Diagnosed) == [], "the experiment alone is on record"
