"""The commands of the first issue, as typed, through the real command line, on real files: one story in one folder."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import xxhash

from dataguard.cli.main import main
from tests.support.commands import dataguard
from tests.support.processes import environment

BUILT = "manifest build ../shared/data/corpora/web ../shared/data/corpora/multilingual -o M.parquet"
PLANNED = "plan M.parquet --seed 7 --global-batch 16 --world-size 4 --microbatch-size 2 --step 5 --json"
REHEARSED = (
    "rehearse M.parquet --run RUN --seed 7 --global-batch 16 --world-size 4 --microbatch-size 2 --steps 60 --json"
)

TYPED: dict[str, tuple[str, int]] = {
    "build": (BUILT, 0),
    "show": ("manifest show M.parquet", 0),
    "plan": (PLANNED, 0),
    "rehearse": (REHEARSED, 0),
    "inspect 5": ("inspect RUN --step 5 --json", 0),
    "inspect 17": ("inspect RUN --step 17 --rank 1", 0),
    "replay 17": ("replay RUN --step 17 -o OUT --json", 0),
    "skip dry": ('skip RUN 40:45 --reason "spike" --dry-run --json', 0),
    "skip": ('skip RUN 40:45 --reason "spike" --json', 0),
    "quarantine": ('quarantine RUN multilingual/SHARD --reason "damaged" --json', 0),
    "second": ("rehearse --run RUN --from-step 35 --steps 30 --world-size 2 --json", 0),
    "inspect 42": ("inspect RUN --step 42 --json", 0),
    "inspect 42 of 1": ("inspect RUN --step 42 --attempt 1 --json", 0),
    "inspect batch 42": ("inspect RUN --batch 42", 0),
    "replay 42": ("replay RUN --step 42 --json", 0),
    "replay batch 42": ("replay RUN --batch 42 --json", 1),
    "seen": ("seen RUN --step 60 --rows SEEN.parquet --json", 0),
    "release": ("release RUN multilingual/SHARD --json", 0),
    "revoke": ("revoke RUN 3 --json", 0),
    "seal": ("seal RUN --json", 0),
    "compact": ("compact RUN --json", 0),
    "log": ("log RUN", 0),
    "verify": ("verify RUN --json", 0),
    "schema": ("schema manifest", 0),
    "spikes": ("spikes ../shared/data/training_logs/megatron_mixtral_8x7b.json.gz --json", 0),
}


class Told:
    """What each command said."""

    def __init__(self, folder: Path, done: dict[str, subprocess.CompletedProcess[str]], shard: str) -> None:
        self.folder = folder
        self.done = done
        self.shard = shard

    def json(self, name: str) -> Any:
        """The one document that a command answered with."""
        (line,) = self.done[name].stdout.splitlines()
        return json.loads(line)


@pytest.fixture(scope="module")
def told(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    base = tmp_path_factory.mktemp("typed")
    folder = base / "work"
    folder.mkdir()
    (base / "shared").symlink_to(shared)
    done: dict[str, subprocess.CompletedProcess[str]] = {}
    shard = ""
    for name, (words, code) in TYPED.items():
        done[name] = dataguard(*shlex.split(words.replace("SHARD", shard)), cwd=folder, code=code, fresh=True)
        if name == "plan":
            listed = pq.read_metadata(folder / "M.parquet")
            assert listed.num_rows > 0
            from dataguard.corpus.corpus import Corpus

            manifest = Corpus.open(folder / "M.parquet").manifest
            names = [manifest.shard_name(i) for i in range(len(manifest.shards))]
            shard = next(each for each in names if each.startswith("multilingual/")).partition("/")[2]
    return Told(folder, done, f"multilingual/{shard}")


def test_the_account_of_the_build_balances(told) -> None:
    text = told.done["build"].stdout
    assert "rows read 1,196 = delivered 1,166 + rejected 30" in text
    assert "rejected in web: 30 missing-text" in text


def test_what_is_planned_is_what_is_delivered(told) -> None:
    planned = told.json("plan")
    assert {(s["step"], s["rank"], s["microbatch"]) for s in planned["samples"]} == {
        (5, rank, microbatch) for rank in range(4) for microbatch in range(2)
    }
    answer = told.json("inspect 5")
    held = {s["slot"]: (s["shard"], s["row"], s["position"]) for s in answer["samples"]}
    assert held == {s["slot"]: (s["shard"], s["row"], s["position"]) for s in planned["samples"]}


def test_the_first_rehearsal(told) -> None:
    answer = told.json("rehearse")
    assert (answer["attempt"], answer["parent"], answer["steps"], answer["num_steps"]) == (1, None, [0, 60], 60)
    assert (answer["num_samples"], answer["num_withheld"], answer["num_padding"]) == (960, 0, 0)
    assert answer["storage_bytes"] > 0


def test_inspect_for_people(told) -> None:
    lines = told.done["inspect 17"].stdout.splitlines()
    assert lines[0] == "step 17, attempt 1 (live): batch 17; positions 272:288, global batch 16 over 4 ranks"
    assert lines[1].split()[:3] == ["rank", "microbatch", "slot"]
    assert [line.split()[:3] for line in lines[2:6]] == [["1", str(i // 2), str(4 + i)] for i in range(4)]
    assert lines[6] == ""
    assert lines[7::2] == [f"slot {4 + i}" for i in range(4)], "each with a line of what it holds"
    assert all(line.startswith("  ") and line.strip() for line in lines[8::2])


REPLAY_KEYS = ["step", "batch", "attempt", "status", "origin", "microbatches", "skips", "damage", "notes"]
MICROBATCH_KEYS = [
    *("rank", "microbatch", "status", "digest", "recorded", "made_of", "origin", "problem", "samples"),
]
SAMPLE_KEYS = [
    *("slot", "position", "source", "shard", "row", "delivered", "status", "digest", "recorded", "length", "problem"),
    *("verdict", "rules", "why", "signals"),
]


def test_the_document_of_replay_is_frozen(told) -> None:
    """The issue's keys in the issue's order, with ours beside them."""
    answer = told.json("replay 17")
    assert list(answer) == REPLAY_KEYS
    assert (answer["step"], answer["attempt"], answer["status"]) == (17, 1, "exact")
    assert [(m["rank"], m["microbatch"]) for m in answer["microbatches"]] == [
        (r, m) for r in range(4) for m in range(2)
    ]
    for microbatch in answer["microbatches"]:
        assert list(microbatch) == MICROBATCH_KEYS
        assert (microbatch["status"], microbatch["digest"]) == ("exact", microbatch["recorded"])
        assert len(bytes.fromhex(microbatch["digest"])) == 16
        for sample in microbatch["samples"]:
            assert list(sample) == SAMPLE_KEYS
            assert (sample["status"], sample["delivered"], sample["problem"]) == ("exact", None, None)
            assert sample["digest"] == sample["recorded"]


def test_the_document_of_spikes_is_frozen(told) -> None:
    answer = told.json("spikes")
    assert list(answer) == ["log", "steps", "events", "profiles", "smallest_spike", "unheard"]
    assert list(answer["steps"]) == ["first", "last", "logged"]
    assert answer["events"]
    for event in answer["events"]:
        assert list(event) == [
            *("class", "start", "stop", "peak", "size_nats", "sigmas", "aftermath_nats", "grad_norm_ratio"),
        ]
        assert event["start"] <= event["peak"] < event["stop"]
    assert [list(each) for each in answer["profiles"]] == [["profile", "alarms", "per_1000"]] * len(answer["profiles"])
    assert answer["profiles"][0]["alarms"] == len(answer["events"])


def test_what_replay_writes_is_what_the_digests_say(told) -> None:
    table = pq.read_table(io.BytesIO((told.folder / "OUT" / "samples.parquet").read_bytes())).to_pylist()
    samples = [sample for each in told.json("replay 17")["microbatches"] for sample in each["samples"]]
    assert len(table) == len(samples) == 16
    for row, sample in zip(table, samples, strict=True):
        assert xxhash.xxh3_128_hexdigest(row["text"])[:16] == sample["digest"]
        assert len(row["text"]) == sample["length"]
        assert (row["shard"], row["row"]) == (sample["shard"], sample["row"])


def test_a_dry_run_writes_nothing_and_says_the_same(told) -> None:
    dry, written = told.json("skip dry"), told.json("skip")
    assert (dry.pop("event"), dry.pop("dry_run")) == (None, True)
    assert (written.pop("event"), written.pop("dry_run")) == (3, False)
    assert dry == written
    assert (written["steps"], written["batches"], written["positions"]) == ([40, 45], [40, 45], [640, 720])


def test_the_second_attempt(told) -> None:
    answer = told.json("second")
    assert (answer["attempt"], answer["parent"], answer["steps"]) == (2, 1, [35, 65])
    assert (answer["world_size"], answer["microbatch_size"], answer["num_microbatches"]) == (2, 2, 4)


def test_step_42_of_either_attempt_and_batch_42_of_neither(told) -> None:
    second, first = told.json("inspect 42"), told.json("inspect 42 of 1")
    assert (second["attempt"], second["batch"], second["label"], second["positions"]) == (2, 47, "live", [752, 768])
    assert [(skip["event"], skip["batches"], skip["reason"]) for skip in second["skips"]] == [(3, [40, 45], "spike")]
    assert (first["attempt"], first["batch"], first["label"]) == (1, 42, "live")
    lines = told.done["inspect batch 42"].stdout.splitlines()
    assert lines[0] == "batch 42 of attempt 2 was skipped:"
    assert lines[1].startswith("  skipped by event 3 (")
    assert lines[1].endswith("positions 640:720: spike")


def test_replay_after_a_skip(told) -> None:
    answer = told.json("replay 42")
    assert (answer["step"], answer["batch"], answer["attempt"], answer["status"]) == (42, 47, 2, "exact")
    skipped = told.json("replay batch 42")
    assert list(skipped) == REPLAY_KEYS
    assert (skipped["step"], skipped["batch"], skipped["status"], skipped["microbatches"]) == (None, 42, "skipped", [])
    assert skipped["skips"][0]["reason"] == "spike"


def test_what_was_seen(told) -> None:
    answer = told.json("seen")
    assert (answer["attempt"], answer["lineage"], answer["unit"]) == (2, [1, 2], "bytes")
    assert answer["num_samples"] + answer["num_withheld"] == 60 * 16
    table = pq.read_table(io.BytesIO((told.folder / "SEEN.parquet").read_bytes()))
    assert table.num_rows == answer["num_samples"] == sum(each["num_samples"] for each in answer["sources"])
    lengths = sum(table.column("length").to_pylist())
    assert lengths == answer["length"]


def test_amendments_are_taken_back(told) -> None:
    assert told.json("quarantine")["shard"] == told.shard
    assert told.json("release")["withheld_less"] == [told.shard]
    assert (told.json("revoke")["revokes"], told.json("revoke")["num_positions_skipped"]) == (3, -80)


def test_the_log(told) -> None:
    lines = told.done["log"].stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert sum("attempt 2 from attempt 1: steps 35:65" in line for line in lines) == 1
    assert sum(line.endswith("[revoked]") for line in lines) == 1


def test_everything_agrees_after_sealing_and_compacting(told) -> None:
    answer = told.json("verify")
    assert answer["ok"] is True
    assert answer["lineage"] == [1, 2]
    checked = {check["name"]: check["checked"] for check in answer["checks"]}
    assert checked == {
        "journal": len(told.done["log"].stdout.splitlines()),
        "index": 60 * 16 + 30 * 16,
        "exactly once": 65 * 16,
        "plan": 65 * 16,
        "data": 65 * 16,
    }
    assert [path.name for path in told.folder.joinpath("RUN", "hot").rglob("*.frames")] == []


def test_a_record_and_all_its_places(told) -> None:
    sample = told.json("replay 42")["microbatches"][0]["samples"][0]
    done = dataguard("where", "RUN", f"{sample['shard']}:{sample['row']}", "--json", cwd=told.folder)
    places = [place for place in json.loads(done.stdout)["places"] if place["position"] == sample["position"]]
    found = {(place["attempt"], place["step"], place["label"]) for place in places}
    assert found == {(1, 47, "abandoned"), (2, 42, "live")}


def test_one_byte_of_a_shard_changed(told, tmp_path) -> None:
    """On a copy of the shards, since the real files are everybody's."""
    import shutil

    shutil.copytree(told.folder / "RUN", tmp_path / "RUN")
    roots = []
    for name in ("web", "multilingual"):
        shutil.copytree(told.folder / ".." / "shared" / "data" / "corpora" / name, tmp_path / name)
        roots += ["--root", f"{name}={tmp_path / name}"]
    dataguard("replay", "RUN", "--step", "17", *roots, cwd=tmp_path)
    samples = [s for each in told.json("replay 17")["microbatches"] for s in each["samples"]]
    shard = tmp_path / samples[0]["shard"]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))
    done = dataguard("replay", "RUN", "--step", "17", *roots, cwd=tmp_path, code=1)
    wrong = [line for line in done.stdout.splitlines() if ": differs: " in line]
    assert wrong
    for line in wrong:
        named = next(s for s in samples if f"{s['shard']} row {s['row']:,}," in line)
        assert f"digest {named['recorded']} recorded, " in line
    assert "shard digest" in done.stdout
    shard.unlink()
    assert dataguard("replay", "RUN", "--step", "17", *roots, "--json", cwd=tmp_path, code=3).stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("inspect RUN --step 70", 2, "step 70 was not delivered on the lineage of attempt 2"),
        ("inspect RUN --step 17 --rank 9", 2, "rank 9 did not take part in attempt 1"),
        ("inspect RUN", 2, "which step?"),
        ("where RUN web", 2, "which row of web?"),
        ("seen RUN", 2, "a checkpoint of which step?"),
        ("rehearse --run NOWHERE --steps 3", 2, "no run stands at NOWHERE"),
        ("rehearse --run RUN --steps 3 --lanes 8", 2, "--lanes cannot be changed"),
        ("rehearse --run RUN --steps 3 --world-size 3", 2, "cannot be cut into 3 ranks"),
        ("plan M.parquet --step 1", 2, "give --seed N and --global-batch N"),
    ],
)
def test_what_cannot_be_asked_for_is_a_usage_error_with_the_way_out(
    told, words, code, says, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(told.folder)
    assert main(shlex.split(words)) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err


@pytest.mark.parametrize("words", ["log RUN", "inspect RUN --step 0:40 --json"])
def test_a_reader_that_leaves_early_is_no_failure(told, words) -> None:
    command = f"{shlex.quote(sys.executable)} -m dataguard {words} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=told.folder,
        env=environment(PYTHONUNBUFFERED="1"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.returncode in {0, 141}
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
