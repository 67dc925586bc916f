"""Does every file of other people's end as other readers say it should, alone and with all the others?

outcomes.tsv was written by other_readers.py before ours ran. Where ours is right and the table's reader is not, the
last column says why, and the row holds our answer.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli.main import main
from dataguard.corpus.formats import CODES
from tests.corpus.other_readers import ANY, Outcome, read_table

TABLE = read_table()
FOLDERS = sorted({"/".join(row.path.split("/")[:2]) for row in TABLE})
DAMAGED = ("flagged", "excluded")
NOT_ALONE = ("marker", "companion")
"""Reasons for which a file in a folder is no shard, and may be one where it is named."""


def build(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(["manifest", "build", *words, "--json"])
    told = capfd.readouterr()
    assert "Traceback" not in told.err
    return code, json.loads(told.out) if told.out else told.err


def shards(capfd: pytest.CaptureFixture[str], path: str) -> dict[str, Any]:
    assert main(["manifest", "show", path, "--shards", "--json"]) == 0
    listed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return {entry["shard"].split("/", 1)[1]: entry for entry in listed}


def balanced(document: Any) -> None:
    assert document["num_rows"] == document["num_delivered"] + document["num_rejected"]
    counted = document["num_clean"] + document["num_flagged"] + document["num_excluded"]
    assert document["num_shards"] == counted
    for source in document["sources"]:
        assert source["num_rejected"] == sum(source["rejected_by_code"].values())


def alone(capfd: pytest.CaptureFixture[str], shared: Path, folder: Path, row: Outcome) -> Outcome:
    """What becomes of a file that is named on the command line."""
    manifest = str(folder / "M.parquet")
    where = str(shared / "data" / row.path)
    code, document = build(capfd, where, "-o", manifest, "--text-field", row.text_field)
    if code == 2:
        assert "of unknown kind" in document, (row.path, document)
        return row._replace(format="-", delivered="0", rejected="0", effect="ignored", reasons="unknown kind")
    balanced(document)
    assert document["num_shards"] == 1, row.path
    (source,) = document["sources"]
    effect = "excluded" if source["num_excluded"] else "flagged" if source["num_flagged"] else "clean"
    assert code == (3 if effect in DAMAGED else 0), row.path
    reasons = sorted({finding["code"] for finding in document["damaged"]})
    assert (effect == "clean") == (not reasons), row.path
    assert set(reasons) <= set(CODES)
    reasons += [f"{code}:{number}" for code, number in source["rejected_by_code"].items()]
    ((_, shard),) = shards(capfd, manifest).items()
    return row._replace(
        format=shard["format"], delivered=str(source["num_delivered"]), rejected=str(source["num_rejected"]),
        effect=effect, reasons=",".join(sorted(reasons)) or "-",
    )  # fmt: skip


def fits(found: Outcome, expected: Outcome) -> bool:
    """Whether an outcome is the expected one, ``*`` and ``damaged`` being what they stand for."""
    for name in ("format", "delivered", "rejected", "effect", "reasons"):
        ours, told = getattr(found, name), getattr(expected, name)
        if told == "damaged":
            if ours == "clean" or (ours == "ignored" and expected.format != ANY):
                return False
        elif told not in (ANY, ours):
            return False
    return True


def differences(found: Iterable[tuple[Outcome, Outcome]]) -> str:
    told = [
        "\t".join(expected[:7]) + "\n  ours: " + "\t".join(ours[2:7])
        for ours, expected in found
        if not fits(ours, expected)
    ]
    return "\n".join(told)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_file_alone(shared: Path, tmp_path: Path, folder: str, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in TABLE if row.path.startswith(folder) and row.reasons not in NOT_ALONE]
    told = differences((alone(capfd, shared, tmp_path, row), row) for row in rows)
    assert not told, told


def test_every_file_of_the_folder_is_in_the_table(shared: Path) -> None:
    data = shared / "data"
    found = {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()}
    assert found == {row.path for row in TABLE}


def test_all_of_them_at_once(shared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Text and tokens apart, each with ``text`` as its field: one account, exit 3, every file accounted for."""
    data = shared / "data"
    token_folders = {row.path.rsplit("/", 1)[0] for row in TABLE if row.format in ("npy", "megatron")}
    folders = [folder for folder in FOLDERS if folder not in token_folders and (data / folder).is_dir()]
    words = [f"text={data / folder}" for folder in folders]
    words += [f"tokens={data / folder}" for folder in sorted(token_folders)]
    code, document = build(capfd, *words, "-o", str(tmp_path / "M.parquet"), "--list-ignored")
    assert code == 3
    balanced(document)
    read = shards(capfd, str(tmp_path / "M.parquet"))
    counts = collections.Counter(entry["effect"] for entry in read.values())
    assert counts["flagged"] == document["num_flagged"]
    assert counts["excluded"] == document["num_excluded"] > 100
    expected = {row.path: row for row in TABLE if row.path.startswith((*(f"{folder}/" for folder in folders),))}
    met = {name: entry for name, entry in read.items() if f"formats/{name}" not in expected and name in expected}
    ignored = {item["path"]: item["reason"] for item in document["ignored"] if item["source"] == "text"}
    assert set(met) | set(ignored) == set(expected)
    found = [
        (
            row._replace(format="-", delivered="0", rejected="0", effect="ignored", reasons=ignored[path])
            if path in ignored
            else row._replace(
                format=met[path]["format"], delivered=str(met[path]["num_delivered"]),
                rejected=str(met[path]["num_rejected"]), effect=met[path]["effect"],
            ),
            row,
        )
        for path, row in expected.items()
        if row.text_field == "text"
    ]  # fmt: skip
    told = differences(found)
    assert not told, told


def test_the_whole_folder_as_anybody_would_give_it(
    shared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One path, no name: text and tokens become a source each."""
    code, document = build(capfd, str(shared / "data"), "-o", str(tmp_path / "M.parquet"), "--list-ignored")
    assert code == 3
    balanced(document)
    assert [(source["name"], source["kind"]) for source in document["sources"]] == [
        ("data", "text"), ("data-tokens", "tokens"),
    ]  # fmt: skip
    num_companions = sum(row.reasons == "companion" for row in TABLE)
    assert document["num_shards"] + len(document["ignored"]) + num_companions == len(TABLE)
    assert build(capfd, str(shared / "data"), "-o", str(tmp_path / "M.parquet"), "--allow-damaged")[0] == 0
