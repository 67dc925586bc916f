"""PATH and NAME=PATH: what is meant, and what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataguard.corpus.spelling import Pattern, understand
from dataguard.errors import UsageError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("a/web/x.jsonl", "b/web/x.jsonl", "c4.00001.json.gz", "odd=name/x.jsonl", "[1]/x.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def names(*sources: str) -> list[str]:
    return [spec.name for spec in understand(sources)]


def test_a_source_is_called_by_its_folder_or_file_stem(data: Path) -> None:
    assert names(f"{data}/a/web") == ["web"]
    assert names(f"{data}/a/web/") == ["web"]
    assert names(f"{data}/a/web/../web/.") == ["web"]
    assert names(f"{data}/c4.00001.json.gz") == ["c4.00001"]
    assert names(f"{data}/a/web/*.jsonl") == ["web"]
    assert names(f"file://{data}/a/web") == ["web"]


def test_names_are_made_unique_in_the_order_given_and_listed_in_byte_order(data: Path) -> None:
    specs = understand([f"{data}/b/web", f"{data}/a/web", f"Zed={data}/c4.00001.json.gz"])
    assert [(spec.name, spec.root) for spec in specs] == [
        ("Zed", str(data)), ("web", f"{data}/b/web"), ("web-2", f"{data}/a/web"),
    ]  # fmt: skip


def test_a_derived_name_gives_way_to_a_given_one(data: Path) -> None:
    assert names(f"{data}/a/web", f"web={data}/b/web") == ["web", "web-2"]


def test_a_link_to_a_folder_is_called_by_the_folder(data: Path) -> None:
    (data / "current").symlink_to(data / "a" / "web")
    assert names(f"{data}/current") == ["web"]


def test_the_folder_above_everything_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names("/") == ["root"]


def test_an_equals_sign_in_a_path_is_no_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(f"{data}/odd=name") == ["odd-name"]
    monkeypatch.chdir(data)
    assert names("odd=name") == ["odd-name"]  # it exists, so it is the path
    assert names("other=a/web") == ["other"]


def test_a_path_with_brackets_that_exists_is_no_pattern(data: Path) -> None:
    (spec,) = understand([f"{data}/[1]"])
    assert spec.picks[0].pattern == ""


def test_several_paths_of_one_name_have_the_deepest_common_folder_as_root(data: Path) -> None:
    (spec,) = understand([f"w={data}/a/web", f"w={data}/b/web/x.jsonl", f"w={data}/b/we?/*.jsonl"])
    assert spec.root == str(data)
    assert [(pick.under, pick.path, pick.pattern) for pick in spec.picks] == [
        ("a/web", "", ""), ("", "b/web/x.jsonl", ""), ("", "", "b/we?/*.jsonl"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([], "no source"),
        (["nowhere"], "no such file or folder: nowhere"),
        (["a/web", "./a/web/"], "is the same as a/web"),
        (["web=", "a/web"], "has no path"),
        (["=a/web"], "name '' cannot be"),
        (["b ad=a/web", " bad=a/web"], "name ' bad' cannot be"),
        (["x\ny=a/web"], "cannot be"),
        (["w=a/web", "w=/dev/null"], "no folder in common"),
        ([""], "empty path"),
        (["gone/*.jsonl"], "matches nothing"),
        (["a/[z-a]*"], "cannot be"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, sources: list[str], words: str
) -> None:
    monkeypatch.chdir(data)
    with pytest.raises(UsageError, match=words):
        understand(sources)


def test_the_same_folder_may_be_two_named_sources(data: Path) -> None:
    assert names(f"one={data}/a/web", f"two={data}/a/web") == ["one", "two"]


def test_urls_are_left_to_the_storage() -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    system.pipe_file("/spell/web/date=1/x.jsonl", b"{}\n")
    specs = understand(["memory://spell/web/", "n=memory://spell/web/*/x.jsonl", "memory://spell/web/date=1/x.jsonl"])
    assert [(spec.name, spec.root, spec.picks[0].path, spec.picks[0].pattern) for spec in specs] == [
        ("n", "memory://spell/web", "", "*/x.jsonl"),
        ("web", "memory://spell/web", "", ""),
        ("x", "memory://spell/web/date=1", "x.jsonl", ""),
    ]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.jsonl", ["a.jsonl", ".jsonl"], ["a.json", "b/a.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "b/a.jsonl", "b/c/a.jsonl"], ["a.txt"]),
        ("a/**", ["a/x", "a/b/x"], ["b/a/x"]),
        ("a/**/b", ["a/b", "a/x/y/b", "a/b/x"], ["b", "a/bb"]),
        ("part-[0-2]?.x", ["part-1a.x"], ["part-3a.x", "part-1/.x", "part-1.x"]),
        ("part-[!0].x", ["part-1.x"], ["part-0.x", "part-/.x"]),
        ("cc-*", ["cc-1/a/b", "cc-2"], ["a/cc-1"]),
        ("a+(b).x", ["a+(b).x"], ["aab.x"]),
        ("[[]1]/*", ["[1]/x"], ["1/x"]),
        ("[", ["["], ["x"]),
        ("a\n*", ["a\nb"], ["ab"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not Pattern(pattern).matches(path)] == []
    assert [path for path in no if Pattern(pattern).matches(path)] == []
    for path in yes:  # what matches lies in folders that are entered
        for folder in Path(path).parents[:-1]:
            assert Pattern(pattern).may_hold(str(folder)), folder


def test_folders_that_cannot_match_are_not_entered() -> None:
    assert not Pattern("a/*.x").may_hold("b")
    assert not Pattern("a/*.x").may_hold("a/b")
    assert not Pattern("*.x").may_hold("b")
    assert Pattern("**/*.x").may_hold("b/c")
