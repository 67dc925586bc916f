"""The demo without training: every command runs, and what it shows is so."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard

from dataguard.cli.demo.damaged import DamagedCorpus, write_damaged_corpus
from dataguard.cli.main import main
from tests.architecture.test_startup import HEAVY, imported_after
from tests.architecture.validation import validate


def dataguard(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "dataguard", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def answers_of(told, monkeypatch, capsys):
    """JSON answers of a command in the demo's folder, asked in this process."""
    monkeypatch.chdir(told[0])

    def ask(*words: str) -> list[Any]:
        capsys.readouterr()
        code = main([*words, "--json"])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return [json.loads(line) for line in shown.out.splitlines()]

    return ask


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "kept"
    return folder, dataguard("demo", "--fast", "--keep", str(folder), "--json", cwd=folder.parent)


def test_every_command_ends_as_it_should(told) -> None:
    _, done = told
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    validate(document, "demo")
    assert document["all_as_expected"] is True
    assert (document["story"], document["checks"], document["verdict"]) == ("fast", [], None)
    ended = [(each["command"].split()[1], each["exit_code"]) for each in document["commands"]]
    assert ended[0] == ("manifest", 3), "build finds the damage, and says so"
    assert {code for _, code in ended[1:]} == {0}
    shown = {"manifest", "rehearse", "inspect", "replay", "where", "seen", "skip", "quarantine", "log", "verify"}
    assert {name for name, _ in ended} == shown
    for each in document["commands"]:
        assert f"$ {each['command']}\n" in done.stderr


def test_the_damaged_shard_is_named(told) -> None:
    _, done = told
    first = done.stderr.partition("$ dataguard manifest show")[0].partition("$ dataguard manifest build")[2]
    assert "code/part-3.jsonl.zst" in first


def positions(document) -> list[int]:
    return sorted(sample["position"] for each in document["microbatches"] for sample in each["samples"])


def test_the_rewound_step_holds_the_batch_behind_the_skip(answers_of) -> None:
    before = answers_of("replay", "RUN", "--step", "42", "--attempt", "1", "-o", "A")[0]
    after = answers_of("replay", "RUN", "--step", "42", "-o", "B")[0]
    assert (before["attempt"], before["status"]) == (1, "exact")
    assert (after["attempt"], after["status"]) == (2, "exact")
    assert positions(before) == list(range(42 * 16, 43 * 16))
    assert positions(after) == list(range(47 * 16, 48 * 16))
    assert [len(before["microbatches"]), len(after["microbatches"])] == [8, 8]
    assert {each["rank"] for each in before["microbatches"]} == {0, 1, 2, 3}
    assert {each["rank"] for each in after["microbatches"]} == {0, 1}


def test_every_document_of_the_run_obeys_its_schema(told) -> None:
    run = told[0] / "RUN"
    events = sorted((run / "journal").glob("*.json"))
    assert len(events) >= 5  # created, two attempts, a skip, a quarantine
    for path in events:
        validate(json.loads(path.read_bytes()), "journal-event")
    plans = sorted((run / "plan").glob("*.json"))
    assert plans
    for path in plans:
        validate(json.loads(path.read_bytes()), "plan")
    frames = sorted(run.rglob("*.frames"))
    assert frames
    for path in frames:
        text = path.read_bytes()[:4096].decode("ascii", "replace")
        validate(json.JSONDecoder().raw_decode(text)[0], "frames-header")


ANSWERS = [
    ("inspect", ["inspect", "RUN", "--step", "17"]),
    ("inspect", ["inspect", "RUN", "--step", "41:43"]),
    ("inspect", ["inspect", "RUN", "--step", "42", "--attempt", "1", "--rank", "1"]),
    ("inspect", ["inspect", "RUN", "--batch", "42"]),
    ("replay", ["replay", "RUN", "--step", "17", "-o", "C"]),
    ("where", ["where", "RUN", "docs/part-0.parquet:3"]),
    ("seen", ["seen", "RUN", "--step", "17", "--rows", "SEEN.parquet"]),
    ("log", ["log", "RUN"]),
    ("verify", ["verify", "RUN"]),
    ("manifest-show", ["manifest", "show", "M.parquet"]),
    ("manifest-shard", ["manifest", "show", "M.parquet", "--shards"]),
    ("manifest-verify", ["manifest", "verify", "M.parquet"]),
    ("amended", ["skip", "RUN", "70:72", "--reason", "x", "--dry-run"]),
    ("amended", ["quarantine", "RUN", "docs/part-0.parquet", "--reason", "x", "--dry-run"]),
    ("amended", ["revoke", "RUN", "3", "--dry-run"]),
    ("planned", ["plan", "M.parquet", "--seed", "7", "--global-batch", "16", "--step", "5"]),
    (
        "rehearse",
        [
            "rehearse",
            "M.parquet",
            "--run",
            "OTHER",
            "--seed",
            "7",
            "--global-batch",
            "4",
            "--world-size",
            "1",
            "--microbatch-size",
            "4",
            "--steps",
            "3",
        ],
    ),
    ("tidied", ["seal", "RUN"]),
    ("tidied", ["compact", "RUN"]),
]


@pytest.mark.parametrize(("name", "words"), ANSWERS, ids=[" ".join(words) for _, words in ANSWERS])
def test_every_answer_obeys_its_schema(answers_of, name, words) -> None:
    answers = answers_of(*words)
    assert answers
    for each in answers:
        validate(each, name)


@pytest.mark.parametrize(
    "words",
    [
        ["log", "RUN"],
        ["inspect", "RUN", "--step", "17"],
        ["where", "RUN", "docs/part-0.parquet:3"],
        ["seen", "RUN", "--step", "17"],
    ],
    ids=" ".join,
)
def test_a_lookup_imports_neither_compiler_nor_engine(told, words) -> None:
    names = imported_after(f"from dataguard.cli.main import main; assert main({words!r}) == 0", cwd=told[0])
    assert names & HEAVY - {"numpy", "pyarrow", "fsspec"} - ({"polars"} if words[0] == "seen" else set()) == set()


def texts_of(folder: Path, shard: str) -> list[str]:
    """The records of a demo shard, read without dataguard."""
    if shard.endswith(".parquet"):
        return pq.read_table(folder / shard).column("text").to_pylist()
    with zstandard.ZstdDecompressor().stream_reader((folder / shard).read_bytes()) as stream:
        return [json.loads(line)["text"] for line in io.TextIOWrapper(stream, encoding="utf-8")]


def test_what_was_fed_is_what_stands_in_the_shards(told, answers_of) -> None:
    folder, _ = told
    document = answers_of("replay", "RUN", "--step", "17", "-o", "D")[0]
    samples = [sample for each in document["microbatches"] for sample in each["samples"]]
    assert len(samples) == 16
    assert len({(sample["shard"], sample["row"]) for sample in samples}) == 16
    for sample in samples:
        assert (sample["status"], sample["delivered"]) == ("exact", None)
        text = texts_of(folder, sample["shard"])[sample["row"]].encode()
        assert sample["length"] == len(text)
        assert xxhash.xxh3_128_hexdigest(text).startswith(sample["digest"][:16])


def test_nothing_of_the_quarantined_shard_is_delivered_any_more(told, answers_of) -> None:
    _, done = told
    shard = done.stderr.partition("$ dataguard quarantine RUN ")[2].split()[0]
    replayed = [answers_of("replay", "RUN", "--step", str(step), "-o", f"E{step}")[0] for step in (36, 46, 56)]
    samples = [sample for document in replayed for each in document["microbatches"] for sample in each["samples"]]
    planned = [sample for sample in samples if sample["shard"] == shard]
    assert planned, "three steps of 16 samples from seven shards hold the shard somewhere"
    assert {sample["status"] for sample in planned} == {"withheld"}


def test_a_folder_in_use_is_left_alone(tmp_path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    done = dataguard("demo", "--fast", "--keep", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_went_otherwise_is_told_and_ends_the_story(tmp_path, monkeypatch, capfd) -> None:
    def undamaged(folder: Path) -> DamagedCorpus:
        corpus = write_damaged_corpus(folder)
        (folder / corpus.damaged).unlink()
        return corpus

    monkeypatch.setattr("dataguard.cli.demo.damaged.write_damaged_corpus", undamaged)
    assert main(["demo", "--fast", "--keep", str(tmp_path / "kept"), "--json"]) == 1
    shown = capfd.readouterr()
    document = json.loads(shown.out)
    assert document["all_as_expected"] is False
    assert [(each["exit_code"], each["expected_exit_code"]) for each in document["commands"]] == [(0, 3)]
    assert "[exit code 0, and 3 was expected]" in shown.err
    assert "error: dataguard manifest build code docs -o M.parquet did not end as it should" in shown.err
    assert "found: 0" in shown.err


def test_without_torch_two_ways_on_are_told(tmp_path) -> None:
    code = "import sys; sys.modules['torch'] = None; from dataguard.cli.main import main; sys.exit(main(['demo']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install 'dataguard[torch]'" in done.stderr
    assert "dataguard demo --fast" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_clean_trains_and_fast_does_not(capsys) -> None:
    assert main(["demo", "--fast", "--clean"]) == 2
    assert "leave one of them out" in capsys.readouterr().err
