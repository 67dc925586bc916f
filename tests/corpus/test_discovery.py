"""What is a shard, what is not, and in which order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.discovery import Discovery, discover
from dataguard.corpus.hub import HubDataset
from dataguard.corpus.ignoring import why_ignored
from dataguard.errors import InputError, UsageError
from tests.corpus.making import jsonl, lines, npy, parquet, put


def shards(found: Discovery) -> list[str]:
    return [f"{source.name}/{shard.path}" for source in found.sources for shard in source.shards]


def reasons(found: Discovery) -> dict[str, str]:
    return {item.path: item.reason for item in found.ignored}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".hidden.jsonl", "hidden"), (".git/objects/a.jsonl", "hidden"), ("a/.b/c.jsonl", "hidden"),
        ("a.jsonl.tmp", "temporary"), ("a.jsonl.tmp.1234", "temporary"), ("a.jsonl~", "temporary"),
        ("a.jsonl.part", "temporary"), ("a.jsonl.crdownload", "temporary"), ("a.TMP", "temporary"),
        ("_temporary/0/part.jsonl", "temporary"), ("x.tmp/a.jsonl", "temporary"), ("a.jsonl.incomplete", "temporary"),
        ("_SUCCESS", "marker"), ("a.parquet.crc", "marker"), ("_metadata", "marker"), ("_delta_log/0.json", "marker"),
        ("README", "marker"), ("readme.MD", "marker"), ("LICENSE.txt", "marker"), ("notes.md", "marker"),
        ("dataset_info.json", "marker"), ("a.sha256", "marker"), ("SHA256SUMS", "marker"), ("_committed_77", "marker"),
        ("part.jsonl", ""), ("_part.jsonl", ""), ("tmp/a.jsonl", ""), ("temporary.jsonl", ""), ("partial/a.jsonl", ""),
        ("readme_corpus.jsonl", ""), ("x.part.0001.jsonl", ""), ("state.json", ""), ("license/a.jsonl", ""),
        ("date=2024-01-01/a.jsonl", ""),
    ],
)  # fmt: skip
def test_names_that_are_no_shards(path: str, reason: str) -> None:
    assert why_ignored(path) == reason


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    jsonl(tmp_path / "w/lines.parquet", ["a"])
    jsonl(tmp_path / "w/gzipped.jsonl.gz", ["a"]).rename(tmp_path / "w/gzipped.jsonl")
    jsonl(tmp_path / "w/plain.jsonl", ["a"]).rename(tmp_path / "w/plain.jsonl.zst")
    parquet(tmp_path / "w/columns.parquet", ["a"]).rename(tmp_path / "w/columns.data")
    put(tmp_path / "w/page.html", b"<html><body>no</body></html>")
    put(tmp_path / "w/image.png", b"\x89PNG\r\n\x1a\n" + bytes(100))
    found = discover([f"{tmp_path}/w"])
    assert [(shard.path, shard.format, shard.compression) for shard in found.sources[0].shards] == [
        ("columns.data", "parquet", "none"),
        ("gzipped.jsonl", "jsonl", "gzip"),
        ("lines.parquet", "jsonl", "none"),
        ("plain.jsonl.zst", "jsonl", "none"),
    ]
    assert reasons(found) == {"page.html": "unknown kind", "image.png": "unknown kind"}


def test_a_compressed_name_without_a_compressed_stream_stays_a_shard(tmp_path: Path) -> None:
    put(tmp_path / "w/bad.jsonl.gz", b"not gzip at all\n")
    jsonl(tmp_path / "w/good.jsonl", ["a"])
    (source,) = discover([f"{tmp_path}/w"]).sources
    assert [(shard.path, shard.compression) for shard in source.shards] == [
        ("bad.jsonl.gz", "gzip"),
        ("good.jsonl", "none"),
    ]


def test_order_is_the_byte_order_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b.jsonl", "a/z.jsonl", "a.jsonl", "a-b.jsonl", "B.jsonl", "é.jsonl", "z.jsonl", "\U0001f600.jsonl", "a b"]
    for name in names:
        jsonl(tmp_path / "w" / name, ["x"])
    expected = [f"w/{name}" for name in sorted(names, key=lambda name: name.encode())]
    assert shards(discover([f"{tmp_path}/w"])) == expected
    scandir = os.scandir

    class Backwards:
        def __init__(self, path: Any) -> None:
            with scandir(path) as listing:
                self.entries = sorted(listing, key=lambda entry: entry.name, reverse=True)

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.entries

        def __exit__(self, *exc: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Backwards)
    assert shards(discover([f"{tmp_path}/w"])) == expected


def test_two_spellings_of_one_file_count_once(tmp_path: Path) -> None:
    jsonl(tmp_path / "w/b/real.jsonl", ["x"])
    (tmp_path / "w/a.jsonl").symlink_to("b/real.jsonl")
    (tmp_path / "w/c").symlink_to("b")
    (tmp_path / "w/outside1.jsonl").symlink_to(jsonl(tmp_path / "elsewhere.jsonl", ["y"]))
    (tmp_path / "w/outside2.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    found = discover([f"{tmp_path}/w"])
    assert shards(found) == ["w/b/real.jsonl", "w/outside1.jsonl"]
    assert reasons(found) == {
        "a.jsonl": "the same file as b/real.jsonl",
        "c/real.jsonl": "the same file as b/real.jsonl",
        "outside2.jsonl": "the same file as outside1.jsonl",
    }
    again = discover([f"w={tmp_path}/w/b/real.jsonl", f"w={tmp_path}/w/b", f"w={tmp_path}/./w/b/*.jsonl"])
    assert shards(again) == ["w/real.jsonl"]


def test_a_copy_and_a_hard_link_are_files_of_their_own(tmp_path: Path) -> None:
    first = jsonl(tmp_path / "w/a.jsonl", ["x"])
    (tmp_path / "w/b.jsonl").hardlink_to(first)
    (tmp_path / "w/c.jsonl").write_bytes(first.read_bytes())
    assert shards(discover([f"{tmp_path}/w"])) == ["w/a.jsonl", "w/b.jsonl", "w/c.jsonl"]


def test_what_cannot_be_a_shard_is_told(tmp_path: Path) -> None:
    jsonl(tmp_path / "w/good.jsonl", ["x"])
    (tmp_path / "w/broken.jsonl").symlink_to("gone.jsonl")
    (tmp_path / "w/self.jsonl").symlink_to("self.jsonl")
    (tmp_path / "w/.hidden.jsonl").symlink_to("gone.jsonl")
    (tmp_path / "w/sub").mkdir()
    (tmp_path / "w/sub/loop").symlink_to("..")
    os.mkfifo(tmp_path / "w/pipe.jsonl")
    put(tmp_path / "w" / os.fsdecode(b"latin-\xe9.jsonl"), lines(["x"]))
    found = discover([f"{tmp_path}/w"])
    assert shards(found) == ["w/good.jsonl"]
    assert {item.path: (item.reason, item.is_serious) for item in found.ignored} == {
        ".hidden.jsonl": ("hidden", False),
        "broken.jsonl": ("broken symbolic link", True),
        "self.jsonl": ("broken symbolic link", True),
        "latin-\\xe9.jsonl": ("its name is not valid UTF-8", True),
        "pipe.jsonl": ("no regular file but a fifo", False),
        "sub/loop": ("a link to a folder above it", False),
    }


def test_an_unreadable_folder_is_told_also_behind_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(tmp_path / "w/good.jsonl", ["x"])
    jsonl(tmp_path / "w/locked/x.jsonl", ["x"])
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if path.rstrip("/").endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    for spelled in ("w", "w/**/*.jsonl"):
        found = discover([f"{tmp_path}/{spelled}"])
        assert shards(found) == ["w/good.jsonl"]
        assert reasons(found) == {"locked": "unreadable folder (Permission denied)"}
    assert reasons(discover([f"{tmp_path}/w/*.jsonl"])) == {}
    with pytest.raises(InputError, match="matches nothing") as caught:
        discover([f"{tmp_path}/w/locked/*.jsonl"])
    assert caught.value.exit_code == 3


def test_an_unreadable_file_is_a_shard_with_its_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataguard.corpus.storage import LocalRoot

    jsonl(tmp_path / "w/a.jsonl", ["x"])
    jsonl(tmp_path / "w/b.jsonl", ["x"])
    opened = LocalRoot.open

    def refusing(self: LocalRoot, path: str) -> Any:
        if path == "b.jsonl":
            raise PermissionError(13, "Permission denied", path)
        return opened(self, path)

    monkeypatch.setattr(LocalRoot, "open", refusing)
    (source,) = discover([f"{tmp_path}/w"]).sources
    assert [(shard.path, shard.format, shard.trouble) for shard in source.shards] == [
        ("a.jsonl", "jsonl", ""),
        ("b.jsonl", "", "Permission denied"),
    ]


def test_unknown_kinds_are_refused_when_named(tmp_path: Path) -> None:
    page = put(tmp_path / "page.html", b"<html></html>")
    with pytest.raises(UsageError, match=r"page\.html is of unknown kind"):
        discover([str(page)])
    with pytest.raises(UsageError, match=r"matches nothing that could be a shard") as caught:
        discover([f"{tmp_path}/*.html"])
    assert "1 unknown kind" in str(caught.value)
    with pytest.raises(UsageError, match="holds no shard"):
        discover([str(tmp_path)])


def test_a_named_file_is_taken_at_its_word(tmp_path: Path) -> None:
    for name in (".hidden.jsonl", "a.jsonl.tmp", "README.jsonl"):
        path = jsonl(tmp_path / name, ["x"])
        assert [shard.path for shard in discover([f"n={path}"]).sources[0].shards] == [name]


def test_a_pattern_may_ask_for_hidden_files(tmp_path: Path) -> None:
    jsonl(tmp_path / "w/.a.jsonl", ["x"])
    assert shards(discover([f"{tmp_path}/w/.*.jsonl"])) == ["w/.a.jsonl"]


@pytest.mark.parametrize("pattern", ["*.parquet", "sub/*.jsonl", "**/*.npy", "[xyz].jsonl"])
def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    jsonl(tmp_path / "w/a.jsonl", ["x"])
    with pytest.raises(UsageError, match="matches nothing"):
        discover([f"{tmp_path}/w/{pattern}"])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with pytest.raises(UsageError, match="holds no shard") as caught:
        discover([f"{tmp_path}/w"])
    assert "no files" in str(caught.value)


def test_a_source_holds_text_or_tokens(tmp_path: Path) -> None:
    jsonl(tmp_path / "w/a.jsonl", ["x"])
    npy(tmp_path / "w/b.npy", [1, 2])
    with pytest.raises(UsageError, match="mixes text and tokens") as caught:
        discover([f"x={tmp_path}/w"])
    assert "a.jsonl holds text" in str(caught.value)
    assert "b.npy holds tokens" in str(caught.value)
    found = discover([f"{tmp_path}/w"])
    assert [(source.name, source.kind, [shard.path for shard in source.shards]) for source in found.sources] == [
        ("w", "text", ["a.jsonl"]), ("w-tokens", "tokens", ["b.npy"]),
    ]  # fmt: skip
    jsonl(tmp_path / "w-a/c.jsonl", ["x"])
    jsonl(tmp_path / "w-tokens/c.jsonl", ["x"])
    names = [source.name for source in discover([f"{tmp_path}/{name}" for name in ("w-tokens", "w-a", "w")]).sources]
    assert names == ["w", "w-a", "w-tokens", "w-tokens-2"]
    found = discover([f"{tmp_path}/w/*.jsonl", f"{tmp_path}/w/*.npy"])
    assert [(source.name, source.kind) for source in found.sources] == [("w", "text"), ("w-2", "tokens")]


def test_special_files_are_never_opened_when_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match="no regular file"):
        discover([f"{tmp_path}/pipe.jsonl"])


def test_remote_folders_and_patterns(tmp_path: Path) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    for name in ("b.jsonl", "a/x.jsonl", "a/.hidden.jsonl", "page.html", "B.jsonl"):
        system.pipe_file(f"/found/{name}", b"<html>" if name == "page.html" else lines([name]))
    found = discover(["r=memory://found", "p=memory://found/a/*.jsonl"])
    assert shards(found) == ["p/x.jsonl", "r/B.jsonl", "r/a/x.jsonl", "r/b.jsonl"]
    assert [(item.source, item.path, item.reason) for item in found.ignored] == [
        ("p", ".hidden.jsonl", "hidden"),
        ("r", "a/.hidden.jsonl", "hidden"),
        ("r", "page.html", "unknown kind"),
    ]


def test_files_that_a_dataset_names_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(tmp_path / "en/train.jsonl", ["a"])
    jsonl(tmp_path / "en/test.jsonl", ["b"])
    put(tmp_path / "en/page.html", b"<html>")
    files = ["en/train.jsonl", "en/gone.jsonl"]
    where = "hf://datasets/org/web#en"
    monkeypatch.setattr(
        "dataguard.corpus.spelling.find_dataset", lambda _: HubDataset(root=str(tmp_path), files=tuple(files))
    )
    found = discover([where])
    assert [shard.path for shard in found.sources[0].shards] == ["en/train.jsonl"]
    (missing,) = found.ignored
    assert (missing.path, missing.is_serious) == ("en/gone.jsonl", True)
    files[:] = ["en/page.html", "en/train.jsonl"]
    with pytest.raises(UsageError, match=r"en/page\.html of hf://datasets/org/web#en is of unknown kind"):
        discover([where])
