"""What tests over real processes share: a launcher, and a corpus whose unbroken run is known."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.corpus import Corpus
from dataguard.run.run import Run
from tests.architecture.tree import TOP
from tests.support.corpora import make_corpus
from tests.support.processes import environment
from tests.support.runs import make_run

SECONDS = 90
"""No launch takes longer: whatever is still there then has hung."""

_NUMBERS = itertools.count()

Launch = Callable[..., list[list[dict[str, Any]]]]


@pytest.fixture(scope="session")
def launcher() -> Iterator[subprocess.Popen[str]]:
    env = environment(
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
        RANK=None,
        WORLD_SIZE=None,
        SLURM_JOB_ID=None,
        TORCHELASTIC_RUN_ID=None,
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.torch.distributed.launcher"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TOP,
        env=env,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.stdout.close()
    assert process.wait(SECONDS) == 0


def begin(
    launcher: subprocess.Popen[str],
    folder: Path,
    jobs: list[dict[str, Any]],
    world_size: int,
    *,
    die: tuple[int, ...] = (),
) -> Any:
    """Do jobs on so many processes: the answers to each job, by process. Those in `die` are to die by a kill."""
    folder = folder / f"launch {next(_NUMBERS)}"
    folder.mkdir()
    order = {
        "folder": str(folder),
        "world_size": world_size,
        "store": f"file://{folder}/store",
        "jobs": jobs,
        "seconds": SECONDS,
    }
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    launcher.stdin.write(json.dumps(order) + "\n")
    launcher.stdin.flush()
    codes = json.loads(launcher.stdout.readline())
    said = {path.stem: path.read_text() for path in sorted(folder.glob("*.err"))}
    assert None not in codes, ("a process hung", codes, said)
    if die:
        # Those that meet the dead end by the process group that was torn.
        assert [codes[rank] for rank in die] == [-9] * len(die), said
    else:
        assert codes == [0] * world_size, said
    files = [folder / f"{rank}.json" for rank in range(world_size)]
    answers = [json.loads(path.read_text()) if path.exists() else [None] * len(jobs) for path in files]
    return [[each[job] if job < len(each) else None for each in answers] for job in range(len(jobs))]


@pytest.fixture
def launch(launcher: subprocess.Popen[str], tmp_path: Path) -> Launch:
    """`begin`, in a folder of the test's own."""
    return lambda jobs, world_size, **settings: begin(launcher, tmp_path, jobs, world_size, **settings)


@pytest.fixture(scope="session")
def manifest(corpus: Corpus, corpus_folder: Path) -> Path:
    """Where the corpus's manifest lies."""
    path = corpus_folder / "M.parquet"
    assert path.is_file()
    return path


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpus")


@pytest.fixture(scope="session")
def corpus(corpus_folder: Path) -> Corpus:
    """96 records in three formats; nobody changes it."""
    return make_corpus(corpus_folder, {"web": {"a.parquet": 41, "b.jsonl.gz": 23}, "code": {"c.parquet": 32}})


@pytest.fixture
def run(tmp_path: Path, corpus: Corpus) -> Run:
    """A run of global batch 8 in 4 lanes."""
    return make_run(tmp_path / "run", corpus, lanes=4)


Batches = dict[int, list[tuple[str, str]]]


def batches_of(answers: list[dict[str, Any]]) -> Batches:
    """What each global batch held (text and digest of tensors), put together from all ranks in order of slot."""
    batches: dict[int, list[tuple[int, str, str]]] = {}
    for answer in answers:
        if answer.get("absent"):
            continue
        assert "error" not in answer, answer["error"]
        for step, slots in answer["slots"].items():
            batches.setdefault(int(step), []).extend((slot, text, digest) for slot, text, digest in slots)
    joined = {}
    for step, held in sorted(batches.items()):
        assert [slot for slot, _, _ in sorted(held)] == list(range(len(held))), "every slot once"
        joined[step] = [(text, digest) for _, text, digest in sorted(held)]
    return joined
