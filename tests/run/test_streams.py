"""Adding named streams: names, the same one again, another one refused, many at once, and what ties it to its run."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path

import pytest

from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.errors import PlanError, RunDamaged, UsageError
from dataguard.plan.plan import Plan
from dataguard.run.amend import quarantine, skip
from dataguard.run.begin import AttemptRequest, begin_attempt
from dataguard.run.events import EvaluatedAt, StreamAdded
from dataguard.run.run import Run
from dataguard.run.streams import added_streams
from tests.support.corpora import make_corpus


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Corpus]:
    """Three corpora."""
    folder = tmp_path_factory.mktemp("corpora")
    return {
        name: make_corpus(folder / name, {name: {"a.jsonl": 10 + place}})
        for place, name in enumerate(("web", "math", "code"))
    }


@pytest.fixture
def run(tmp_path: Path, corpora: dict[str, Corpus]) -> Run:
    return Run.create(tmp_path / "run", Plan(corpora["web"], seed=7, global_batch=8), by="ada@host")


def test_a_fixed_set_for_each_domain_is_one_line(run: Run, corpora: dict[str, Corpus]) -> None:
    streams = {name: run.stream(f"valid-{name}", corpus) for name, corpus in corpora.items()}
    assert run.streams == ("valid-web", "valid-math", "valid-code")
    assert Run.open(run.path).stream("valid-math").digest == streams["math"].digest
    assert len({stream.digest for stream in streams.values()}) == 3
    for name, stream in streams.items():
        assert stream.run.path == run.path / "streams" / f"valid-{name}"
        assert stream.plan.global_batch == 8
        assert stream.plan.root.shuffle == "none"
        identity = stream.run.stream_identity
        assert identity is not None
        assert (identity.name, identity.run, identity.num_steps) == (f"valid-{name}", run.run_id, None)


def test_the_same_stream_again_is_the_same_and_writes_nothing(run: Run, corpora: dict[str, Corpus]) -> None:
    first = run.stream("valid", corpora["math"], seed=3)
    files = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    again = run.stream("valid", corpora["math"], seed=3)
    assert again.run.run_id == first.run.run_id
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()} == files


def test_another_corpus_under_the_same_name_is_refused_with_both_digests(run: Run, corpora: dict[str, Corpus]) -> None:
    run.stream("valid", corpora["math"])
    with pytest.raises(UsageError) as caught:
        run.stream("valid", corpora["code"])
    assert corpora["math"].manifest.digest in str(caught.value)
    assert corpora["code"].manifest.digest in str(caught.value)


@pytest.mark.parametrize("other", [{"seed": 4}, {"global_batch": 4}, {"end": 2}, {"shuffle": "all"}])
def test_another_plan_of_the_same_corpus_is_refused(run: Run, corpora: dict[str, Corpus], other: dict) -> None:
    stream = run.stream("valid", corpora["math"])
    with pytest.raises(UsageError, match=stream.digest):
        run.stream("valid", corpora["math"], **other)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "x" * 65, "ä"])
def test_names_that_are_no_folder_names_are_refused(run: Run, corpora: dict[str, Corpus], name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        run.stream(name, corpora["math"])
    assert not run.layout.streams.exists()


def test_names_that_differ_in_case_alone_are_refused(run: Run, corpora: dict[str, Corpus]) -> None:
    run.stream("Valid", corpora["math"])
    with pytest.raises(UsageError, match="differ in case"):
        run.stream("valid", corpora["math"])


@pytest.mark.parametrize(
    ("plan", "says"),
    [({"end": 0}, "cannot end at 0"), ({"end": "twice"}, "once"), ({"weights": {"math": 1}}, "no weights")],
)
def test_ends_that_cannot_be_are_refused(run: Run, corpora: dict[str, Corpus], plan: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run.stream("valid", corpora["math"], **plan)
    with pytest.raises(PlanError):
        run.stream("valid", corpora["math"], form="window", seq_len=4)
    assert run.streams == ()


def test_what_is_not_there_is_told_with_what_is(run: Run, corpora: dict[str, Corpus]) -> None:
    with pytest.raises(UsageError, match="no streams"):
        run.stream("valid")
    run.stream("valid-math", corpora["math"])
    with pytest.raises(UsageError, match="valid-math"):
        run.stream("valid")
    with pytest.raises(UsageError, match="streams have none of their own"):
        run.stream("valid-math").run.stream("inner", corpora["math"])


def _add(path: str, manifest: str, places: list[str]) -> None:
    stream = Run.open(path).stream("valid", Corpus.open(manifest))
    Path(places[0], f"{multiprocessing.current_process().pid}.json").write_text(json.dumps(stream.run.run_id))


def test_many_ranks_at_once_make_one_stream(run: Run, corpora: dict[str, Corpus], tmp_path: Path) -> None:
    manifest = next(iter(run.path.glob("manifest/*.parquet")))
    answers = tmp_path / "answers"
    answers.mkdir()
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_add, args=(str(run.path), str(manifest), [str(answers)])) for _ in range(6)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0
    told = {json.loads(path.read_text()) for path in answers.iterdir()}
    events = [entry.event for entry in run.read().entries if isinstance(entry.event, StreamAdded)]
    assert told == {events[0].stream}
    assert len(events) == 1
    assert len(list(answers.iterdir())) == 6
    assert Run.open(run.layout.stream("valid")).read().head.number == 1


def test_a_creation_that_was_interrupted_is_finished(run: Run, corpora: dict[str, Corpus]) -> None:
    stream = run.stream("valid", corpora["math"])
    run.journal.layout.journal_event(2).unlink()  # killed before the run was told
    assert Run.open(run.path).streams == ()
    assert Run.open(run.path).stream("valid", corpora["math"]).run.run_id == stream.run.run_id
    assert set(added_streams(run.read())) == {"valid"}


def test_a_folder_that_is_gone_or_another_is_told(run: Run, corpora: dict[str, Corpus]) -> None:
    run.stream("valid", corpora["math"])
    run.stream("other", corpora["code"])
    kept = run.path / "kept"
    shutil.move(run.layout.stream("valid"), kept)
    with pytest.raises(RunDamaged, match="is gone"):
        run.stream("valid")
    shutil.copytree(run.layout.stream("other"), run.layout.stream("valid"))
    with pytest.raises(RunDamaged, match="another folder in that one's place"):
        run.stream("valid", corpora["math"])


def test_nothing_amends_a_stream(run: Run, corpora: dict[str, Corpus]) -> None:
    stream = run.stream("valid", corpora["math"])
    with pytest.raises(UsageError, match="nothing amends stream 'valid'"):
        quarantine(stream.run, "math/a.jsonl", reason="spike")
    with pytest.raises(UsageError, match="nothing amends stream 'valid'"):
        skip(stream.run, 0, 1, reason="spike", dry_run=True)
    assert stream.run.read().head.number == 1


def test_evaluations_are_numbered_in_their_order(run: Run, corpora: dict[str, Corpus]) -> None:
    """Each begins anew at step 0, whatever launch it is of."""
    stream = run.stream("valid", corpora["math"])
    geometry = Geometry(world_size=1, microbatch_size=8)
    for step in range(40):
        request = AttemptRequest(
            launch_id="one launch", geometry=geometry, epochs=1, evaluation=EvaluatedAt(attempt=1, step=step)
        )
        attempt = begin_attempt(stream.run, request)
        assert (attempt.number, attempt.parent, attempt.fork_step, attempt.start_position) == (step + 1, None, 0, 0)
    assert [evaluation.at.step for evaluation in run.stream("valid").evaluations()] == list(range(40))
    digests = {stream.run.begun(number).attempt_digest for number in (1, 40)}
    assert len(digests) == 1


def test_steps_of_the_training_are_told_in_its_own_labels(tmp_path: Path, corpora: dict[str, Corpus]) -> None:
    run = Run.create(tmp_path / "labelled", Plan(corpora["web"], seed=7, global_batch=8, first_label=1))
    stream = run.stream("valid", corpora["math"])
    assert stream.at(300) == EvaluatedAt(step=299)
    assert stream.at(None) == EvaluatedAt()
    assert stream.run.first_label == 0
