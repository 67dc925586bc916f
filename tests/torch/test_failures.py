"""What does a trainer see when a transform or a worker fails, and what is on record then?"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.errors import AttemptError, DataguardError, TransformFailed, UsageError, WorkerDied
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.run.run import Run
from tests.support.runs import deliver, make_run
from tests.torch.making import Delivered, Odd, Raises, a_run, loader_of, told
from tests.torch.test_workers import gone, worker_pids

STEP = 4


@pytest.fixture(scope="module")
def word(documents: Corpus, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Stands in slot 5 of step 4 and nowhere before it."""
    batches = deliver(make_run(tmp_path_factory.mktemp("word") / "run", documents, lanes=4), microbatch_size=8, steps=5)
    record = batches[STEP][5]
    assert isinstance(record, bytes)
    found = record.decode().split(" ")[0] + " "
    assert sum(found.encode() in each for batch in batches.values() for each in batch) == 1
    return found


def fail(run: Run, kind: type[DataguardError], **settings: object) -> tuple[str, DataguardError]:
    """Walk until it raises: all before the microbatch of slot 5 was handed over, and it is on record."""
    delivered: list[Delivered] = []
    loader = loader_of(run, **settings)
    with pytest.raises(kind) as caught:
        delivered.extend(map(told, loader))
    pids = worker_pids(loader) if settings.get("num_workers") else []
    with pytest.raises(AttemptError, match="has failed on rank 0"):
        next(iter(loader))
    loader.close()
    assert not pids or gone(pids)
    lookup = Lookup(Run.open(run.path))
    assert verify_run(lookup).ok
    records = [lookup.index.step(1, step, num_ranks=1).records for step in range(STEP + 1)]
    assert sum(map(len, records)) == 2 * len(delivered)
    return delivered[-1][0], caught.value


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_in_a_transform(documents: Corpus, run_folder: Path, word: str, num_workers: int) -> None:
    last, error = fail(a_run(run_folder, documents), TransformFailed, transform=Raises(word), num_workers=num_workers)
    assert last == "step 4, rank 0, microbatch 1"
    told = str(error)
    assert "step 4, rank 0, microbatch 2, slot 5: tests.torch.making:Raises failed on " in told
    assert "ValueError: cannot be tokenized: " + word.strip() in told
    assert 'raise self.kind(f"cannot be tokenized' in "".join(error.__notes__)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_exception_that_cannot_be_pickled(documents: Corpus, run_folder: Path, word: str, num_workers: int) -> None:
    transform = Odd(word, "unpicklable")
    _, error = fail(a_run(run_folder, documents), TransformFailed, transform=transform, num_workers=num_workers)
    assert "UnpicklableError: code 7: " + word.strip() in str(error)


def test_a_transform_that_ends_its_process(documents: Corpus, run_folder: Path, word: str) -> None:
    _, error = fail(a_run(run_folder, documents), DataguardError, transform=Odd(word, "exit"), num_workers=1)
    assert "SystemExit: enough" in str(error)
    assert "step 4, rank 0, microbatch 2" in str(error)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("_exit", "ended by itself, with exit code 3"),
        ("kill", "was ended by SIGKILL"),
    ],
)
def test_a_worker_that_dies(documents: Corpus, run_folder: Path, word: str, what: str, said: str) -> None:
    _, error = fail(a_run(run_folder, documents), WorkerDied, transform=Odd(word, what), num_workers=3)
    assert said in str(error)
    assert "worker 0 of 3" in str(error)  # the 19th microbatch
    assert "step 4, rank 0, microbatch 2; " in str(error) or "step 4, rank 0, microbatch 2 and " in str(error)
    assert str(error).count("was due next") == 1


def test_a_worker_killed_from_outside(documents: Corpus, run_folder: Path) -> None:
    with loader_of(a_run(run_folder, documents), num_workers=2, start_method="fork") as loader:
        iterator = iter(loader)
        delivered = [told(next(iterator)) for _ in range(3)]
        os.kill(worker_pids(loader)[1], signal.SIGKILL)
        time.sleep(0.2)  # nothing is raised here, in the trainer's own code
        with pytest.raises(WorkerDied, match=r"worker 1 of 2 .* was ended by SIGKILL"):
            delivered.extend(map(told, iterator))
    records = sum(len(Lookup(loader.run).index.step(1, step, num_ranks=1).records) for step in range(3))
    assert records == 2 * len(delivered)


def test_a_worker_that_hangs(documents: Corpus, run_folder: Path, word: str) -> None:
    settings = {"transform": Odd(word, "hang"), "num_workers": 1, "worker_timeout_seconds": 2.0}
    last, error = fail(a_run(run_folder, documents), WorkerDied, **settings)
    assert last == "step 4, rank 0, microbatch 1"
    assert "worker 0 of 1" in str(error)
    assert "has not answered for" in str(error)
    assert "step 4, rank 0, microbatch 2 was due next" in str(error)


def test_a_worker_that_is_stopped_after_it_answered(documents: Corpus, run_folder: Path) -> None:
    settings = {"num_workers": 2, "start_method": "fork", "worker_timeout_seconds": 2.0}
    with loader_of(a_run(run_folder, documents), **settings) as loader:
        iterator = iter(loader)
        for _ in range(8):
            next(iterator)
        time.sleep(0.5)  # answers of both lie ready
        pids = worker_pids(loader)
        os.kill(pids[0], signal.SIGSTOP)
        with pytest.raises(WorkerDied, match=r"has not answered for \d+ seconds"):
            list(iterator)
        assert gone(pids)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", "gave no tensors"),
        ("text", "gave 'input_ids' as str"),
        ("short", r"slot 4: int64 \(32,\); slot 5: int64 \(5,\)"),
        ("names", "gave other names in slot 5 than in slot 4"),
        ("sparse", "cannot be recorded"),
    ],
)
def test_what_is_no_microbatch_of_tensors(documents: Corpus, run_folder: Path, word: str, what: str, said: str) -> None:
    with (
        loader_of(a_run(run_folder, documents), transform=Odd(word, what)) as loader,
        pytest.raises(UsageError, match=said) as caught,
    ):
        for _ in loader:
            pass
    assert "step 4, rank 0, microbatch 2" in str(caught.value)


def test_labels_are_asked_for_before_one_has_to_be_masked(documents: Corpus, run_folder: Path) -> None:
    with (
        loader_of(a_run(run_folder, documents), transform=Odd("", "no labels")) as loader,
        pytest.raises(UsageError, match="gave no labels"),
    ):
        next(iter(loader))


def test_a_transform_that_cannot_be_pickled(documents: Corpus, run_folder: Path) -> None:
    def local(record: object) -> None:
        raise AssertionError

    run = a_run(run_folder, documents)
    for start_method in ("forkserver", "spawn"):
        with pytest.raises(UsageError, match=r"<locals>.local cannot be brought to worker processes"):
            loader_of(run, transform=local, num_workers=1, start_method=start_method)
    loader_of(run, transform=local, num_workers=1, start_method="fork").close()
    loader_of(run, transform=local).close()
    assert len(run.attempts()) == 0


@pytest.mark.parametrize(("num_workers", "what"), [(0, "raise"), (1, "raise"), (1, "exit"), (1, "kill")])
def test_failures_are_told_in_the_labels_of_the_trainer(
    documents: Corpus, run_folder: Path, word: str, num_workers: int, what: str
) -> None:
    run = a_run(run_folder, documents, first_label=1)
    transform = Raises(word) if what == "raise" else Odd(word, what)
    with loader_of(run, transform=transform, num_workers=num_workers) as loader, pytest.raises(DataguardError) as found:
        list(loader)
    assert "step 5, rank 0, microbatch 2" in str(found.value)
    assert "step 4," not in str(found.value).splitlines()[0]
