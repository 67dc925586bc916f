"""Looking back at named streams: by path or by name, every evaluation is live, and all of them gave the same set."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dataguard.cli.main import main
from dataguard.core.address import Geometry
from dataguard.corpus.corpus import Corpus
from dataguard.replay.lookup import Lookup
from dataguard.replay.verify import verify_run
from dataguard.replay.where import where_record
from dataguard.run.frames import FramesFile, FramesReader
from dataguard.run.run import Run
from dataguard.run.streams import NamedStream
from tests.corpus.making import flip
from tests.support.corpora import damage, make_corpus, text_of
from tests.support.runs import deliver, make_run

pytestmark = pytest.mark.usefixtures("impatient")


def evaluate(stream: NamedStream, *, steps: int | None = None, **settings: object) -> None:
    """One evaluation on one rank, left after some steps."""
    told = {"geometry": Geometry(world_size=1, microbatch_size=4), "num_threads": 0, "launch_id": None, **settings}
    with stream.loader(**told) as loader:
        for microbatch in loader:
            if steps is not None and microbatch.step + 1 == steps and microbatch.address.microbatch == 1:
                break


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 4 steps with two streams, of which one was evaluated three times; nobody changes it."""
    folder = tmp_path_factory.mktemp("made")
    training = make_corpus(folder / "training", {"web": {"a.jsonl": 40}})
    valid = make_corpus(folder / "valid", {"math": {"m.parquet": 13}, "code": {"c.jsonl": 6}})
    run = make_run(folder / "run", training, first_label=1)
    deliver(run, microbatch_size=4, steps=4)
    stream = run.stream("valid", valid)
    for step in (2, 4):
        evaluate(stream, at_step=step, at_attempt=1)
    evaluate(stream, steps=2)
    run.stream("later", Corpus.open(folder / "valid/M.parquet"), end=2)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it, with the shards where they lay."""
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path


def answered(*words: object, code: int = 0) -> list[dict]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*map(str, words), "--json"]) == code, out.getvalue()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def faults(answer: dict) -> dict[str, list[str]]:
    return {
        check["name"]: [each["message"] for each in check["faults"]] for check in answer["checks"] if check["faults"]
    }


def test_the_journal_tells_of_streams_and_theirs_of_evaluations(made: Path) -> None:
    *_, added, later = answered("log", made / "run")
    assert added["kind"] == "stream-added"
    assert "3 evaluations, the newest" in added["text"]
    assert later["text"].startswith("stream later added: 2 steps, plan ")
    assert later["text"].endswith("not evaluated yet")
    created, *evaluations = answered("log", made / "run", "--stream", "valid")
    assert created["text"].startswith("stream valid of run ")
    assert [line["text"].partition(":")[0] for line in evaluations] == [
        "evaluation 1 at step 2 of attempt 1",
        "evaluation 2 at step 4 of attempt 1",
        "evaluation 3 at step 4 of attempt 1",
    ]


def test_a_step_of_an_evaluation_is_shown_and_rebuilt(made: Path, tmp_path: Path) -> None:
    for asked in ([made / "run", "--stream", "valid"], [made / "run/streams/valid"]):
        (shown,) = answered("inspect", *asked, "--step", 1, "--attempt", 2, "--order", "slot")
        assert (shown["label"], shown["attempt"], shown["lineage"]) == ("live", 2, [2])
        assert [sample["row"] for sample in shown["samples"]] == [2, 3, 4, 5, 6, 7, 8, 9]
        (replayed,) = answered("replay", *asked, "--step", 1, "--attempt", 1, "-o", tmp_path / "out")
        assert replayed["status"] == "exact"
    (last,) = answered("inspect", made / "run", "--stream", "valid", "--step", 2, "--attempt", 1, "--order", "slot")
    assert [sample["status"] for sample in last["samples"]] == ["live"] * 3 + ["ended"] * 5
    (worst,) = answered("inspect", made / "run", "--stream", "valid", "--step", 2, "--attempt", 1, "--limit", 3)
    assert [sample["status"] for sample in worst["samples"]] == ["live"] * 3, "padding is the last that is looked for"


def test_where_names_every_evaluation_and_nothing_beyond_the_end(made: Path) -> None:
    (answer,) = answered("where", made / "run", "math/m.parquet:12", "--stream", "valid")
    assert [(place["attempt"], place["step"], place["label"]) for place in answer["places"]] == [
        (1, 2, "live"), (2, 2, "live"), (3, 2, "planned"),
    ]  # fmt: skip
    stream = Run.open(made / "run").stream("later")
    assert not len(stream.run.attempts())
    assert answered("where", made / "run", "web/a.jsonl:5")[0]["places"]


def test_steps_beyond_the_end_are_planned_nowhere(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "c", {"web": {"a.jsonl": 5}})
    stream = make_run(tmp_path / "run", corpus).stream("some", corpus, end=2, global_batch=4)
    evaluate(stream, steps=1)
    places = [where_record(Lookup(stream.run), "web/a.jsonl", row).places for row in range(5)]
    assert sum(map(len, places)) == 8  # two steps of four, the second of them of another epoch in part
    assert {place.step for each in places for place in each} == {0, 1}


def test_verify_of_the_run_verifies_its_streams(made: Path) -> None:
    (answer,) = answered("verify", made / "run")
    assert answer["ok"]
    checked = {check["name"]: (check["checked"], check["notes"]) for check in answer["checks"]}
    assert checked["data"][0] == 32
    assert checked["stream valid: data"][0] == 24
    assert checked["stream valid: exactly once"][0] == 24 + 24 + 16
    assert checked["stream valid: fixed set"] == (64, ["evaluation 3 holds 2 of 3 steps"])
    assert checked["stream later: index"] == (0, ["no evaluation has begun"])
    (alone,) = answered("verify", made / "run", "--stream", "valid", "--no-data")
    assert [check["name"] for check in alone["checks"]] == ["journal", "index", "exactly once", "plan", "fixed set"]


def test_a_stream_that_is_gone_is_found(folder: Path) -> None:
    shutil.rmtree(folder / "run/streams/later")
    (answer,) = answered("verify", folder / "run", code=1)
    assert list(faults(answer)) == ["stream later"]
    assert "is gone" in faults(answer)["stream later"][0]
    assert "is gone" in answered("log", folder / "run")[-1]["text"]


def test_a_flipped_bit_in_a_streams_index_is_found(folder: Path) -> None:
    (path, *_) = sorted((folder / "run/streams/valid/index").rglob("*.parquet"))
    flip(path, path.stat().st_size // 2)
    (answer,) = answered("verify", folder / "run", code=1)
    assert "stream valid: index" in faults(answer)
    assert not any(name for name in faults(answer) if not name.startswith("stream valid"))


def test_evaluations_of_other_samples_are_found(folder: Path) -> None:
    """What no scan of one evaluation shows: its record is whole, and says another digest than all others have."""
    stream = Run.open(folder / "run").stream("valid")
    geometry = Geometry(world_size=1, microbatch_size=4)
    loader = stream.loader(geometry=geometry, num_threads=0)
    for _ in loader.take_step():
        pass
    hot = stream.run.layout.hot_segment(4, 0, 0)
    with FramesReader(hot, "index") as reader:
        header = reader.header
        frames, good = reader.read(0, reader.num_whole)
    assert good.all()
    assert header is not None
    hot.unlink()
    frames = frames.copy()
    frames["records"]["digest"][1, 2] = np.void(b"another!")
    with FramesFile.create(hot, header, tmp=stream.run.layout.tmp) as file:
        for records in frames["records"]:
            file.append(records)
    (answer,) = answered("verify", folder / "run", "--no-data", code=1)
    (told,) = faults(answer)["stream valid: fixed set"]
    assert "evaluation 4, position 6: digest 616e6f7468657221 recorded, evaluation 2 has " in told


def test_a_row_that_was_missed_is_told_and_no_fault(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "c", {"web": {"a.parquet": 12}})
    stream = make_run(tmp_path / "run", corpus).stream("valid", corpus, global_batch=4)
    evaluate(stream)
    path = tmp_path / "c/web/a.parquet"
    content = path.read_bytes()
    flip(path, content.index(text_of("web/a.parquet", 4)[:10].encode()))
    evaluate(stream)
    path.write_bytes(content)
    answer = verify_run(Lookup(stream.run))
    (check,) = (check for check in answer.checks if check.name == "fixed set")
    assert (answer.ok, check.notes) == (True, ("evaluation 2 missed 3 samples that could not be read",))


def test_shards_that_changed_are_found(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "c", {"web": {"a.jsonl": 12}})
    run = make_run(tmp_path / "run", corpus)
    own = make_corpus(tmp_path / "d", {"math": {"b.jsonl": 12}})
    evaluate(run.stream("valid", own, global_batch=4))
    record = text_of("math/b.jsonl", 3).encode()
    damage(tmp_path / "d/math/b.jsonl", record, record.upper())
    answer = verify_run(Lookup(run))
    assert [check.name for check in answer.checks if check.faults] == ["stream valid: data"]


def test_roots_are_told_to_whom_they_belong(made: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(made / "valid/code", moved)
    (answer,) = answered("verify", made / "run", "--root", f"code={moved}")
    assert answer["ok"]
    assert answered("verify", made / "run", "--root", f"nowhere={moved}", code=2) == []
