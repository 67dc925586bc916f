"""What people see of samples through the real command line: worst first, marked, harmless; with and without shards."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers.implementations import ByteLevelBPETokenizer

from dataguard.corpus.build import build_manifest_file
from tests.corpus.making import megatron_files
from tests.support.commands import dataguard, lines_of
from tests.support.gated import LOW, TOKEN_POLICY, VOCABULARY, documents, rule, tokens
from tests.support.processes import environment

POLICY = (
    rule("mask")
    + """
[[rules]]
name = "periods"
all = [
  { signal = "byte_periodic_repeats", at_least = 32 },
  { signal = "byte_periodic_fraction", at_least = 0.2 },
]
action = "mask"

[[rules]]
name = "long"
signal = "length_bytes"
above = 130
action = "flag"
"""
)
MADE = ("--seed", "7", "--global-batch", "8", "--lanes", "4", "--world-size", "2", "--microbatch-size", "2")
GRAVITY = ["halt", "substitute", "mask", "flag", "pass"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looking")
    documents(folder, num_rows=60)
    (folder / "p.toml").write_text(POLICY)
    dataguard("rehearse", "M.parquet", "--run", "RUN", *MADE, "--policy", "p.toml", "--steps", "8", cwd=folder)
    return folder


def told(*words: str, cwd: Path, code: int = 0) -> Any:
    return json.loads(dataguard(*words, "--json", cwd=cwd, code=code).stdout)


def worst_step(folder: Path) -> Any:
    """A step with samples of several verdicts, as inspected."""
    answers = lines_of(dataguard("inspect", "RUN", "--step", "0:8", "--json", cwd=folder))
    return max(answers, key=lambda each: len({sample["verdict"] for sample in each["samples"]}))


def test_worst_first_and_by_slot(folder: Path) -> None:
    answer = worst_step(folder)
    step = str(answer["step"])
    keys = [(GRAVITY.index(s["verdict"]), -len(s["rules"])) for s in answer["samples"]]
    assert keys == sorted(keys)
    assert {key[0] for key in keys} >= {2, 4}
    assert answer["num_samples"] == 8
    worst = answer["samples"][0]
    assert worst["rules"] == ["low", "periods", "long"]
    assert worst["why"][0] == "byte_entropy below 2"
    assert worst["signals"]["byte_periodic_repeats"] > 300
    assert answer["resolutions"]["byte_entropy"] == "steps of 0.0315 bits"
    assert all(sample["preview"] is None for sample in answer["samples"])
    by_slot = told("inspect", "RUN", "--step", step, "--order", "slot", "--limit", "5", cwd=folder)
    assert [sample["slot"] for sample in by_slot["samples"]] == [0, 1, 2, 3, 4]
    assert by_slot["num_samples"] == 8
    one = told("inspect", "RUN", "--step", step, "--limit", "1", "--rank", str(worst["rank"]), cwd=folder)
    assert (one["samples"], one["num_samples"]) == ([worst], 4)


def test_previews_show_what_was_fed_and_mark_what_fired(folder: Path) -> None:
    step = str(worst_step(folder)["step"])
    samples = told("inspect", "RUN", "--step", step, "--preview", cwd=folder)["samples"]
    for sample in samples:
        preview = sample["preview"]
        assert (preview["shard"], preview["row"], preview["size"]) == (sample["shard"], sample["row"], sample["length"])
        assert preview["problem"] is None
        if sample["verdict"] == "mask":
            assert preview["signal"] == "byte_periodic_repeats"
            assert preview["spans"] == [[0, len(LOW)]]
            assert preview["text"].startswith("zzzz")
        else:
            assert ("⟪" in preview["text"]) is False, "marks are told as ranges"
            shard = sample["shard"].removeprefix("web/").removesuffix(".jsonl")
            assert preview["text"].startswith(f"web {shard} {sample['row']} the quick brown fox")
            assert (preview["signal"], preview["spans"]) == (
                (None, []) if sample["verdict"] == "pass" else ("dup_5gram_char_fraction", preview["spans"])
            )
    text = dataguard("inspect", "RUN", "--step", step, cwd=folder).stdout
    assert "mask by low (byte_entropy below 2), periods (byte_periodic_repeats at least 32 and" in text
    assert re.search(r"marked byte_periodic_repeats: ⟪z{50,}⟫", text)
    assert len(re.findall("  (?:marked .*)?web \\d \\d+ ⟪?the quick brown fox", text)) == sum(
        sample["verdict"] != "mask" for sample in samples
    )
    plain = dataguard("inspect", "RUN", "--step", step, "--no-preview", cwd=folder).stdout
    assert "quick brown" not in plain
    assert "mask by low" in plain


def test_a_look_at_what_was_fed_starts_light(folder: Path) -> None:
    """Neither the compiler nor what pyarrow would import for nothing, where a process does nothing else."""
    heavy = {"numba", "llvmlite", "pandas", "polars", "datasets", "torch", "ray", "tokenizers", "sentencepiece"}
    words = [sys.executable, "-X", "importtime", "-m", "dataguard", "inspect", "RUN", "--step", "0", "--preview"]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    assert "quick brown" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow.lib" in imported
    # An import that is refused is listed, too; of a library that was imported there are parts.
    assert {name.partition(".")[0] for name in imported if "." in name} & heavy == set()


def test_shards_that_are_gone_leave_the_record(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    step = str(worst_step(folder)["step"])
    (tmp_path / "copy" / "web" / "1.jsonl").unlink()
    root = ("--root", f"web={tmp_path / 'copy' / 'web'}")
    text = dataguard("inspect", "RUN", "--step", step, *root, cwd=tmp_path / "copy").stdout
    assert "no preview: row" in text
    assert "web/1.jsonl is missing" in text
    assert "quick brown" in text
    answer = told("inspect", "RUN", "--step", step, *root, "--preview", cwd=tmp_path / "copy", code=3)
    for sample in answer["samples"]:
        assert (sample["preview"]["text"] == "") == (sample["shard"] == "web/1.jsonl")
        assert ("is missing" in (sample["preview"]["problem"] or "")) == (sample["shard"] == "web/1.jsonl")
    dataguard("inspect", "RUN", "--step", step, "--root", "nowhere=x", cwd=tmp_path / "copy", code=2)
    # A changed shard holds something else than what was fed: nothing of it is shown as if it were that.
    shard = tmp_path / "copy" / "web" / "0.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"quick", b"QUICK"))
    shown = told("inspect", "RUN", "--step", step, *root, "--preview", cwd=tmp_path / "copy", code=3)
    assert "QUICK" not in str(shown)
    assert "is changed" in str(shown)
    differs = dataguard("replay", "RUN", "--step", step, *root, cwd=tmp_path / "copy", code=3).stdout
    assert "QUICK" in differs
    assert ", differs" in differs
    assert ", unreadable" in differs


def test_a_replay_says_what_the_gate_says_and_writes_every_signal(folder: Path, tmp_path: Path) -> None:
    inspected = worst_step(folder)
    step = str(inspected["step"])
    out = tmp_path / "OUT"
    answer = told("replay", "RUN", "--step", step, "-o", str(out), cwd=folder)
    rows = pq.read_table(out / "samples.parquet").to_pylist()
    samples = {sample["slot"]: sample for m in answer["microbatches"] for sample in m["samples"]}
    for was in inspected["samples"]:
        now, row = samples[was["slot"]], rows[was["slot"]]
        assert (now["verdict"], now["rules"], now["why"]) == (was["verdict"], was["rules"], was["why"])
        assert (row["verdict"], row["rules"], row["slot"]) == (was["verdict"], was["rules"], was["slot"])
        assert {name: row[name] for name in now["signals"]} == now["signals"]
        assert row["length_bytes"] == len(row["text"]) == was["length"]
        for name, kept in (was["signals"] or {}).items():
            assert kept == pytest.approx(row[name], rel=2**-10)
    assert set(samples[0]["signals"]) >= {"byte_periodic_repeats", "byte_periodic_fraction", "dup_5gram_char_fraction"}
    text = dataguard("replay", "RUN", "--step", step, cwd=folder).stdout
    shown = {int(slot) for slot in re.findall(r"^slot (\d+): ", text, re.MULTILINE)}
    assert shown == {slot for slot, sample in samples.items() if sample["verdict"] != "pass"}
    assert text.count("marked byte_periodic_repeats: ⟪zzz") == sum(s["verdict"] == "mask" for s in samples.values())


ACTS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + (
    "\u200b\u200e\u202a\u202e\u2066\u2069\u2028\u2029\ufeff\ufff9\u00ad\u180e\U000e0041\ue000\u3164\ufe0f"
)


def acting(row: int) -> str:
    """A record that would do something to a terminal."""
    return f"\x1b]0;owned\x07\x1b[2J\x9b31m{ACTS}\u202egnirts{ACTS[row % len(ACTS)]}\r\x08 row {row}"


def test_no_record_acts_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    lines = [json.dumps({"text": acting(row)}, ensure_ascii=row % 2 == 0) for row in range(64)]
    (tmp_path / "web" / "a.jsonl").write_bytes("".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass"))
    build_manifest_file([f"web={tmp_path / 'web'}"], tmp_path / "M.parquet", num_workers=1)
    dataguard("rehearse", "M.parquet", "--run", "RUN", *MADE, "--policy", "default", "--steps", "8", cwd=tmp_path)
    shard = tmp_path / "web" / "a.jsonl"
    for words in (["inspect", "RUN", "--step", "0:8"], ["inspect", "RUN", "--step", "0:8", "--preview", "--json"]):
        shown = dataguard(*words, cwd=tmp_path).stdout
        assert "owned" in shown
        assert harmless(shown)
    told = dataguard("replay", "RUN", "--step", "0:8", cwd=tmp_path, code=1)  # all of it is masked, none compared
    assert "owned" in told.stdout
    assert harmless(told.stdout)
    shard.write_bytes(shard.read_bytes().replace(b"owned", b"taken"))
    shown = dataguard("replay", "RUN", "--step", "0:8", cwd=tmp_path, code=1)
    assert "taken" in shown.stdout
    assert harmless(shown.stdout)
    assert harmless(shown.stderr)


def harmless(shown: str) -> bool:
    """Whether nothing but plainly visible characters, blanks and line ends is in it."""
    kinds = {unicodedata.category(char) for char in shown.replace("\n", "")}
    return not kinds & {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"} and not set(ACTS) & set(shown.replace("\n", ""))


WINDOWS = ("--form", "window", "--seq-len", "64", "--shuffle", "none", "--lanes", "1", "--seed", "7")


def spoken(path: Path, words: int) -> Path:
    """Ranks of a tokenizer of that many words, and of a part of a character behind them."""
    ranks = [*(f"w{each} ".encode() for each in range(words)), b"\xe2\x82"]
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(ranks)))
    return path


def test_tokens_as_text_with_marks_documents_and_ids_outside(tmp_path: Path) -> None:
    tokens(tmp_path, periodic=lambda window: window == 1, outside=lambda window: window == 2)
    (tmp_path / "p.toml").write_text(TOKEN_POLICY.replace("halt", "flag"))
    geometry = ("--global-batch", "4", "--world-size", "1", "--microbatch-size", "4", "--steps", "1")
    gate = ("--policy", "p.toml", "--vocab-size", str(VOCABULARY))
    dataguard("rehearse", "M.parquet", "--run", "RUN", *WINDOWS, *geometry, *gate, cwd=tmp_path)
    spoken(tmp_path / "words.tiktoken", VOCABULARY + 50)
    shown = told("inspect", "RUN", "--step", "0", "--tokenizer", "words.tiktoken", "--preview", cwd=tmp_path)
    mask, flag, *plain = (sample["preview"] for sample in shown["samples"])
    assert (mask["signal"], mask["spans"], mask["size"]) == ("token_periodic_repeats", [[10, 50]], 64)
    assert mask["text"].startswith("w7 w10 w13 w16 w19 w22 w25 w28 w31 w34 w5 w5 w5")
    assert (flag["signal"], flag["spans"]) == ("out_of_vocabulary", [[20, 21]])
    assert f"w71 ⟦id {VOCABULARY + 2}⟧w77" in flag["text"], "whatever the tokenizer says of it"
    assert [each["signal"] for each in plain] == [None, None]
    numbers = told("inspect", "RUN", "--step", "0", "--preview", cwd=tmp_path)["samples"][1]["preview"]
    assert f" 71 ⟦id {VOCABULARY + 2}⟧ 77 " in numbers["text"]
    text = dataguard("replay", "RUN", "--step", "0", "--tokenizer", "words.tiktoken", "-o", "OUT", cwd=tmp_path).stdout
    assert f"w71 ⟪⟦id {VOCABULARY + 2}⟧⟫w77" in text
    row = pq.read_table(tmp_path / "OUT" / "samples.parquet").to_pylist()[3]
    assert row["text"] == b"".join(b"w%d " % each for each in row["ids"])
    assert row["token_periodic_repeats"] == 0
    dataguard("inspect", "RUN", "--step", "0", "--tokenizer", "words.tiktoken", "--no-preview", cwd=tmp_path, code=2)
    missing = dataguard("inspect", "RUN", "--step", "0", "--tokenizer", "none.json", cwd=tmp_path, code=2)
    assert "the tokenizer none.json cannot be read" in missing.stderr


def test_a_tokenizer_has_nothing_to_say_of_documents(folder: Path) -> None:
    spoken(folder / "words.tiktoken", 10)
    for command in ("inspect", "replay"):
        done = dataguard(command, "RUN", "--step", "0", "--tokenizer", "words.tiktoken", cwd=folder, code=2)
        assert "samples of this run are documents" in done.stderr


def test_boundaries_of_documents_in_a_window(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    sequences = [np.arange(length, dtype=np.uint16) + 100 * i for i, length in enumerate([5, 3, 0, 40, 200])]
    content, index = megatron_files(sequences)
    (tmp_path / "books" / "x.bin").write_bytes(content)
    (tmp_path / "books" / "x.idx").write_bytes(index)
    build_manifest_file([f"books={tmp_path / 'books'}"], tmp_path / "M.parquet", num_workers=1)
    geometry = ("--global-batch", "1", "--world-size", "1", "--microbatch-size", "1", "--steps", "1")
    words = tuple(word if word != "64" else "16" for word in WINDOWS)
    dataguard("rehearse", "M.parquet", "--run", "RUN", *words, *geometry, cwd=tmp_path)
    spoken(tmp_path / "words.tiktoken", 1_000)
    (sample,) = told("inspect", "RUN", "--step", "0", "--tokenizer", "words.tiktoken", "--preview", cwd=tmp_path)[
        "samples"
    ]
    assert sample["preview"]["text"] == (
        "⟦document 0⟧w0 w1 w2 w3 w4 ⟦document 1⟧w100 w101 w102 ⟦documents 2:4⟧w300 w301 w302 w303 w304 w305 w306 w307 "
    )


def test_real_tokens_with_their_real_tokenizer(shared: Path, tmp_path: Path) -> None:
    found = sorted((shared / "data" / "formats").rglob("*.bin"))
    (path,) = [path for path in found if path.stat().st_size == 2_723_690]
    (tmp_path / "books").mkdir()
    for ending in (".bin", ".idx"):
        shutil.copy(path.with_suffix(ending), tmp_path / "books" / f"x{ending}")
    gpt2 = shared / "data" / "tokenizers" / "gpt2_tiny"
    made = ByteLevelBPETokenizer(str(gpt2 / "gpt2-tiny-vocab.json"), str(gpt2 / "gpt2-tiny-merges.txt"))
    made.save(str(tmp_path / "tokenizer.json"))
    build_manifest_file([f"books={tmp_path / 'books'}"], tmp_path / "M.parquet", num_workers=1)
    geometry = ("--global-batch", "4", "--world-size", "1", "--microbatch-size", "4", "--steps", "2")
    dataguard("rehearse", "M.parquet", "--run", "RUN", *WINDOWS, *geometry, cwd=tmp_path)
    answers = lines_of(
        dataguard(
            "inspect", "RUN", "--step", "0:2", "--tokenizer", "tokenizer.json", "--preview", "--json", cwd=tmp_path
        )
    )
    texts = [sample["preview"]["text"] for answer in answers for sample in answer["samples"]]
    dataguard("replay", "RUN", "--step", "0", "--tokenizer", "tokenizer.json", "-o", "OUT", cwd=tmp_path)
    rows = pq.read_table(tmp_path / "OUT" / "samples.parquet").to_pylist()
    assert [row["text"].decode("utf-8", "replace") for row in rows] == [made.decode(row["ids"]) for row in rows]
    assert all(harmless(text) for text in texts)
    assert texts[0].startswith("⟦document 0⟧")
