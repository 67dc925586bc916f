"""Faults that users of other tools reported: file discovery and identity, and what a manifest says of bad shards.

G07, G08 (columns), G13 (listing order), G14 (size and mtime as identity), G21 (hash order), G30 (a swallowed error),
and other instances of their kinds. Each makes its own input.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataguard.cli.main import main
from dataguard.corpus.build import build_manifest, build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.problems import RowProblem
from tests.corpus.making import jsonl, lines, put

G13 = ["part-10.jsonl", "part-2.jsonl", "a/part-1.jsonl", "part-1.jsonl", "Part-3.jsonl"]
G13_ORDER = ["Part-3.jsonl", "a/part-1.jsonl", "part-1.jsonl", "part-10.jsonl", "part-2.jsonl"]


def delivered(corpus: Corpus, **settings: Any) -> list[bytes]:
    """Every deliverable record in manifest order."""
    manifest = corpus.manifest
    blocks = np.repeat(np.arange(len(manifest.blocks)), manifest.blocks["num_rows"])
    rows = np.concatenate([np.arange(b["num_rows"]) + b["first_row"] for b in manifest.blocks])
    return [answer for answer in corpus.reader(**settings).read(blocks, rows) if isinstance(answer, bytes)]


def built(tmp_path: Path, folder: Path) -> Corpus:
    build_manifest_file([f"x={folder}"], tmp_path / "M.parquet")
    return Corpus.open(tmp_path / "M.parquet")


# ---- G07, G08: columnar shards at the level of the manifest ---------------------------------------------------------


def test_g07_shards_without_row_groups_and_empty_row_groups(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    schema = pa.schema([("text", pa.string())])
    for number, groups in enumerate([[["r0", "r1", "r2"]], [], [[], ["m"], []], [["r3", "r4"]]]):
        with pq.ParquetWriter(folder / f"part-{number}.parquet", schema) as writer:
            for texts in groups:
                writer.write_table(pa.table({"text": texts}, schema=schema))
    result = build_manifest([f"x={folder}"])
    assert result.num_damaged == 0
    assert result.account.sources[0].empty_shards == ("part-1.parquet",)
    corpus = built(tmp_path, folder)
    assert delivered(corpus) == [b"r0", b"r1", b"r2", b"m", b"r3", b"r4"]
    manifest = corpus.manifest
    for shard, text in ((2, b"m"), (3, b"r3")):
        assert corpus.reader().read([manifest.block_of(shard, 0)], [0]) == [text]


@pytest.mark.parametrize("first", [0, 3])
def test_g08_the_arrow_type_of_the_text_column_does_not_matter(tmp_path: Path, first: int) -> None:
    columns: list[dict[str, Any]] = [
        {"text": pa.array(["a", "b"], pa.string())}, {"text": pa.array(["c", "d"], pa.large_string())},
        {"text": pa.array(["e", "f", "e"]).dictionary_encode()}, {"text": pa.nulls(3)},
        {"text": pa.array(["g", None, "h"], pa.string())},
        {"extra": pa.array([1, 2]), "text": pa.array(["i", "None"], pa.large_string())},
    ]  # fmt: skip
    columns = [columns[first], *columns[:first], *columns[first + 1 :]]
    for number, column in enumerate(columns):
        path = tmp_path / f"x/s{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(column), path)
    corpus = built(tmp_path, tmp_path / "x")
    assert delivered(corpus) == [text.encode() for text in (*"abcdefeghi", "None")]
    manifest = corpus.manifest
    nulls = 0 if first == 3 else 3
    owners = manifest.blocks["shard"][manifest.rejected["block"]].tolist()
    assert list(zip(owners, manifest.rejected["row"].tolist(), strict=True)) == [
        (nulls, 0), (nulls, 1), (nulls, 2), (4, 1),
    ]  # fmt: skip
    assert manifest.codes == ("null-text",)


def test_g08_the_digest_of_a_block_does_not_depend_on_its_container(tmp_path: Path) -> None:
    texts = ["a", None, "", "\u00fc"]
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()]
    folder = tmp_path / "x"
    folder.mkdir()
    for number, kind in enumerate(kinds):
        pq.write_table(pa.table({"text": pa.array(texts, pa.string()).cast(kind)}), folder / f"{number}.parquet")
    jsonl(folder / "9.jsonl", texts)
    digests = {bytes(block["digest"]) for block in build_manifest([f"x={folder}"]).manifest.blocks}
    assert len(digests) == 1


# ---- G13: order -----------------------------------------------------------------------------------------------------


def g13(folder: Path, names: list[str]) -> Path:
    for name in names:
        put(folder / name, json.dumps({"text": name}).encode() + b"\n")
    return folder


def test_g13_one_order_and_one_digest_however_files_were_made_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for number in range(6):
        names = G13[:]
        random.Random(number).shuffle(names)
        folder = g13(tmp_path / str(number) / "x", names)
        corpus = built(folder.parent, folder)
        assert [shard.path for shard in corpus.manifest.shards] == G13_ORDER
        assert delivered(corpus) == [name.encode() for name in G13_ORDER]
        digests.add(corpus.manifest.digest)
    scandir, listdir = os.scandir, os.listdir

    class Reversed:
        def __init__(self, path: Any = ".") -> None:
            with scandir(path) as listing:
                self.entries = list(listing)[::-1]

        def __enter__(self) -> Any:
            return iter(self.entries)

        def __exit__(self, *exc: object) -> None:
            pass

        def __iter__(self) -> Any:
            return iter(self.entries)

    monkeypatch.setattr(os, "scandir", Reversed)
    monkeypatch.setattr(os, "listdir", lambda path=".": listdir(path)[::-1])
    digests.add(build_manifest([f"x={tmp_path / '0' / 'x'}"]).manifest.digest)
    monkeypatch.undo()
    assert len(digests) == 1


def test_g13_the_spelling_of_the_root_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = g13(tmp_path / "data/G13", G13)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "linked-parent").symlink_to(folder.parent)
    shutil.copytree(folder, tmp_path / "elsewhere/G13")
    monkeypatch.chdir(tmp_path / "data")
    spellings = [
        str(folder), f"{folder}/", f"{folder}//", f"{folder}/.", f"{folder}/a/..", "G13", "./G13/", "../data/G13",
        str(tmp_path / "link"), str(tmp_path / "linked-parent/G13"), str(tmp_path / "elsewhere/G13"), f"file://{folder}",
        f"{folder}/**", f"{folder}/**/*.jsonl",
    ]  # fmt: skip
    assert len({build_manifest([spelled]).manifest.digest for spelled in spellings}) == 1


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_g13_the_locale_does_not_matter(tmp_path: Path, locale: str) -> None:
    names = [*G13, "\u00e9t\u00e9.jsonl", "Z.jsonl", "\u4e2d.jsonl"]
    folder = g13(tmp_path / "G13", names)
    expected = build_manifest([str(folder)]).manifest
    assert [shard.path for shard in expected.shards] == sorted(names, key=lambda name: name.encode())
    assert in_fresh_process(folder, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") == expected.digest


# ---- G14: identity --------------------------------------------------------------------------------------------------


@pytest.fixture
def g14(tmp_path: Path) -> tuple[Path, Path]:
    path = put(tmp_path / "x/v1.jsonl", b'{"id":0,"text":"aaaa"}\n{"id":1,"text":"bbbb"}\n')
    build_manifest_file([f"x={path.parent}"], tmp_path / "M.parquet")
    return tmp_path / "M.parquet", path


def test_g14a_same_size_and_mtime_do_not_hide_a_change(
    g14: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    manifest, path = g14
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"bbbc"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    answers = Corpus.open(manifest).reader().read([0, 0], [0, 1])
    assert all(isinstance(answer, RowProblem) and answer.kind == "changed" for answer in answers)
    assert main(["manifest", "verify", str(manifest), "--json"]) == 1
    (finding,) = json.loads(capfd.readouterr().out)["findings"]
    assert (finding["shard"], finding["state"]) == ("x/v1.jsonl", "changed")
    assert finding["expected_digest"] != finding["found_digest"]
    assert main(["manifest", "verify", str(manifest)]) == 1
    told = capfd.readouterr().out
    assert finding["expected_digest"] in told
    assert finding["found_digest"] in told


def test_g14bc_a_touch_and_a_copy_are_no_finding(g14: tuple[Path, Path]) -> None:
    manifest, path = g14
    path.touch()
    assert main(["manifest", "verify", str(manifest)]) == 0
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    assert main(["manifest", "verify", str(manifest)]) == 0
    assert Corpus.open(manifest).reader().read([0, 0], [0, 1]) == [b"aaaa", b"bbbb"]


def test_g14_a_swap_of_two_shards_is_two_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, two = jsonl(tmp_path / "x/1.jsonl", ["aa"]), jsonl(tmp_path / "x/2.jsonl", ["bb"])
    build_manifest_file([f"x={tmp_path}/x"], tmp_path / "M.parquet")
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    assert main(["manifest", "verify", str(tmp_path / "M.parquet"), "--json"]) == 1
    assert [entry["shard"] for entry in json.loads(capfd.readouterr().out)["findings"]] == ["x/1.jsonl", "x/2.jsonl"]


def test_g14_a_change_outside_the_text_is_told_by_verify_and_changes_no_sample(g14: tuple[Path, Path]) -> None:
    manifest, path = g14
    path.write_bytes(path.read_bytes().replace(b'"id":1', b'"id":2'))
    assert main(["manifest", "verify", str(manifest)]) == 1
    assert Corpus.open(manifest).reader().read([0, 0], [0, 1]) == [b"aaaa", b"bbbb"]


# ---- G21: hash order ------------------------------------------------------------------------------------------------

_BUILD = "import sys; from dataguard.corpus import build_manifest; print(build_manifest(sys.argv[1:]).manifest.digest)"


def in_fresh_process(*folders: Path, **changes: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, *map(str, folders)], capture_output=True, text=True, check=True,
        env={**os.environ, **changes},
    )  # fmt: skip
    return done.stdout.strip()


def _digest_of(folder: str) -> str:
    return build_manifest([folder]).manifest.digest


def test_g21_the_manifest_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    folder = g13(tmp_path / "G13", G13)
    jsonl(folder / "bad.jsonl", [None, 7, "x", ["y"]])
    put(folder / "odd.jsonl", lines(["x"]) + b"[1]\n{bad\n" + lines(["y"]))
    digests = {in_fresh_process(folder, PYTHONHASHSEED=seed) for seed in ("0", "1", "12345", "random")}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        digests.add(pool.apply(_digest_of, (str(folder),)))
    assert digests == {_digest_of(str(folder))}


# ---- G30: one bad part ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--json"], ["--workers", "2"]])
def test_g30_one_unreadable_shard_is_named_and_the_exit_code_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], more: list[str]
) -> None:
    jsonl(tmp_path / "x/good.jsonl", [f"row {i}" for i in range(10)])
    put(tmp_path / "x/bad.jsonl.gz", b"not gzip at all\n" * 4)
    out = tmp_path / "M.parquet"
    assert main(["manifest", "build", str(tmp_path / "x"), "-o", str(out), *more]) == 3
    told = capfd.readouterr()
    if "--json" in more:
        answer = json.loads(told.out)
        assert (answer["num_excluded"], answer["num_clean"], answer["num_delivered"]) == (1, 1, 10)
        (finding,) = answer["damaged"]
        assert (finding["shard"], finding["effect"]) == ("x/bad.jsonl.gz", "excluded")
        assert "not a gzip file" in finding["detail"]
    else:
        assert "x/bad.jsonl.gz" in told.out
        assert "not a gzip file" in told.out
    assert "1 of 2 shards are damaged" in told.err
    assert delivered(Corpus.open(out)) == [f"row {i}".encode() for i in range(10)]
    assert main(["manifest", "build", str(tmp_path / "x"), "-o", str(out), "--allow-damaged"]) == 0


# ---- other instances of these kinds ---------------------------------------------------------------------------------


def test_k7_a_download_that_goes_on_and_its_check_sums_are_no_shards(tmp_path: Path) -> None:
    jsonl(tmp_path / "x/a.jsonl", ["x"])
    for name in (
        "b.jsonl.part",
        "b.jsonl.crdownload",
        ".b.jsonl.swp",
        "a.jsonl.sha256",
        "_SUCCESS",
        "a.jsonl~",
        "README.md",
    ):
        put(tmp_path / "x" / name, lines(["must not be trained on"]))
    result = build_manifest([f"x={tmp_path}/x"])
    assert [shard.path for shard in result.manifest.shards] == ["a.jsonl"]
    assert result.ignored_files == {"hidden": 1, "marker": 3, "temporary": 3}


def test_k7_names_that_differ_only_in_case_or_normal_form_are_two_shards(tmp_path: Path) -> None:
    names = ["A.jsonl", "a.jsonl", "\u00e9.jsonl", "e\u0301.jsonl"]
    for name in names:
        jsonl(tmp_path / "x" / name, [name])
    if len(list((tmp_path / "x").iterdir())) < 4:
        pytest.skip("this file system folds names")
    assert delivered(built(tmp_path, tmp_path / "x")) == [
        name.encode() for name in sorted(names, key=lambda name: name.encode())
    ]


def test_k7_odd_names_are_shards_like_any_other(tmp_path: Path) -> None:
    names = [
        "a b.jsonl",
        "a\nb.jsonl",
        "a'b\".jsonl",
        "[1]*.jsonl",
        "a=b/c.jsonl",
        "a:3.jsonl",
        "%20.jsonl",
        "-o.jsonl",
    ]
    for name in names:
        jsonl(tmp_path / "x" / name, [name])
    corpus = built(tmp_path, tmp_path / "x")
    assert delivered(corpus) == [name.encode() for name in sorted(names)]
    for name in names:
        assert corpus.manifest.shards[corpus.manifest.find_shard(f"x/{name}")].path == name


def test_k7_a_shard_that_appears_later_is_not_part_of_an_older_manifest(tmp_path: Path) -> None:
    jsonl(tmp_path / "x/b.jsonl", ["b"])
    corpus = built(tmp_path, tmp_path / "x")
    jsonl(tmp_path / "x/a.jsonl", ["a"])
    assert delivered(corpus) == [b"b"]
    assert main(["manifest", "verify", str(tmp_path / "M.parquet")]) == 0


def test_k7_a_deleted_shard_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jsonl(tmp_path / "x/a.jsonl", ["a"])
    gone = jsonl(tmp_path / "x/b.jsonl", ["b"])
    built(tmp_path, tmp_path / "x")
    gone.unlink()
    assert main(["manifest", "verify", str(tmp_path / "M.parquet")]) == 1
    told = capfd.readouterr().out
    assert "x/b.jsonl is missing" in told
    assert str(gone) in told


def test_k7_data_that_moved_is_found_by_its_new_root(tmp_path: Path) -> None:
    jsonl(tmp_path / "x/a.jsonl", ["a"])
    built(tmp_path, tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / "y")
    manifest = str(tmp_path / "M.parquet")
    assert main(["manifest", "verify", manifest]) == 1
    assert main(["manifest", "verify", manifest, "--root", f"x={tmp_path / 'y'}"]) == 0
    assert delivered(Corpus.open(manifest, {"x": str(tmp_path / "y")})) == [b"a"]
