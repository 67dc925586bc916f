"""``dataguard manifest``: exit codes, one JSON document on standard output, facts for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataguard.cli.main import main
from dataguard.corpus.storage import LocalRoot
from tests.corpus.making import jsonl, lines, npy, parquet, put

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "web/a.jsonl", ["one", None, "two"])
    jsonl(tmp_path / "web/b.jsonl.gz", [7])
    put(tmp_path / "web/page.html", b"<html></html>")
    put(tmp_path / "web/.hidden", b"")
    npy(tmp_path / "ids/t.npy", range(50))
    return tmp_path


def run(capfd: Capture, *words: str) -> tuple[int, str, str]:
    code = main(["manifest", *words])
    told = capfd.readouterr()
    return code, told.out, told.err


def asked(capfd: Capture, *words: str) -> tuple[int, Any]:
    code, out, _ = run(capfd, *words, "--json")
    return code, json.loads(out)


def test_build_show_and_verify_as_typed(web: Path, capfd: Capture) -> None:
    code, out, err = run(capfd, "build", "web", "ids", "-o", "M.parquet")
    assert (code, err) == (0, "")
    assert "rows read 54 = delivered 52 + rejected 2" in out
    assert "shards 3 = clean 3 + flagged 0 + excluded 0" in out
    assert "rejected in web: 1 not-a-string, 1 null-text" in out
    assert "web/b.jsonl.gz" in out  # it delivers nothing
    assert "ignored files: 1 hidden, 1 unknown kind" in out
    code, shown, err = run(capfd, "show", "M.parquet")
    assert (code, err) == (0, "")
    assert "rows read 54 = delivered 52 + rejected 2" in shown
    assert f"web lay at {web / 'web'}" in shown
    code, out, err = run(capfd, "verify", "M.parquet")
    assert (code, err) == (0, "")
    assert "3 of 3 shards hold the bytes they held" in out


def test_the_answers_of_build_and_show_are_one_document_each_and_agree(web: Path, capfd: Capture) -> None:
    code, built = asked(capfd, "build", "web", "ids", "-o", "M.parquet")
    assert code == 0
    code, shown = asked(capfd, "show", "M.parquet")
    assert code == 0
    shared_keys = set(built) & set(shown)
    assert shared_keys >= {"digest", "num_rows", "num_delivered", "num_rejected", "sources", "damaged", "ignored_files"}
    assert {key: built[key] for key in shared_keys} == {key: shown[key] for key in shared_keys}
    assert built["num_rows"] == built["num_delivered"] + built["num_rejected"] == 54
    assert [source["name"] for source in built["sources"]] == ["ids", "web"]
    assert built["ignored"] is None


def test_ignored_files_are_listed_on_request(web: Path, capfd: Capture) -> None:
    code, built = asked(capfd, "build", "web", "-o", "M.parquet", "--list-ignored")
    assert code == 0
    assert built["ignored"] == [
        {"source": "web", "path": ".hidden", "reason": "hidden"},
        {"source": "web", "path": "page.html", "reason": "unknown kind"},
    ]
    _, out, _ = run(capfd, "build", "web", "-o", "M.parquet", "--list-ignored")
    assert "web/page.html: unknown kind" in out


def test_findings_and_shards_are_lists_of_lines(web: Path, capfd: Capture) -> None:
    run(capfd, "build", "web", "ids", "-o", "M.parquet")
    code, out, _ = run(capfd, "show", "M.parquet", "--rejected", "--json")
    assert code == 0
    findings = [json.loads(line) for line in out.splitlines()]
    keys = ("shard", "row", "line", "offset_bytes", "code")
    assert [tuple(entry[key] for key in keys) for entry in findings] == [
        ("web/a.jsonl", 1, 2, len(lines(["one"])), "null-text"), ("web/b.jsonl.gz", 0, 1, 0, "not-a-string"),
    ]  # fmt: skip
    code, out, _ = run(capfd, "show", "M.parquet", "--rejected")
    assert out.splitlines()[0].startswith(f"web/a.jsonl:1  line 2, byte {len(lines(['one']))}  rejected: null-text")
    code, out, _ = run(capfd, "show", "M.parquet", "--shards", "--json")
    shards = [json.loads(line) for line in out.splitlines()]
    assert [(entry["shard"], entry["num_delivered"]) for entry in shards] == [
        ("ids/t.npy", 50), ("web/a.jsonl", 2), ("web/b.jsonl.gz", 0),
    ]  # fmt: skip
    _, out, _ = run(capfd, "show", "M.parquet", "--shards")
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["build", "-o", "M.parquet"], 2, "PATHS"),
        (["build", "web"], 2, "'-o'"),
        (["build", "nowhere", "-o", "M.parquet"], 2, "no such file or folder: nowhere"),
        (["build", "web/*.parquet", "-o", "M.parquet"], 2, "matches nothing"),
        (["build", "web/page.html", "-o", "M.parquet"], 2, "unknown kind"),
        (["build", "web", "-o", "web"], 2, "is a folder"),
        (["build", "web", "-o", "web/a.jsonl/M.parquet"], 4, "cannot be written"),
        (["build", "x=web", "x=ids", "-o", "M.parquet"], 2, "mixes text and tokens"),
        (["show", "gone.parquet"], 2, "no manifest at"),
        (["show", "web/a.jsonl"], 3, "no manifest, or a damaged one"),
        (["verify", "web/a.jsonl"], 3, "no manifest, or a damaged one"),
    ],
)
def test_what_cannot_be_is_refused_with_its_code(
    web: Path, capfd: Capture, words: list[str], code: int, told: str
) -> None:
    found, out, err = run(capfd, *words)
    assert (found, out) == (code, "")
    assert told in err
    assert "Traceback" not in err
    assert not (web / "M.parquet").exists()


def test_the_text_field_can_be_named_and_is_suggested(web: Path, capfd: Capture) -> None:
    parquet(web / "p/a.parquet", ["x", "y"], column="content")
    put(web / "j/a.jsonl", b'{"body": "x"}\n')
    code, out, _ = run(capfd, "build", "j", "-o", "M.parquet")
    assert code == 0
    assert "no field 'text'; there are: body" in out
    assert "--text-field" in out
    code, out, _ = run(capfd, "build", "p", "-o", "M.parquet")
    assert code == 3
    assert "content" in out
    code, built = asked(capfd, "build", "p", "-o", "M.parquet", "--text-field", "content")
    assert (code, built["num_delivered"], built["sources"][0]["text_field"]) == (0, 2, "content")


def test_what_was_not_reached_is_told_and_ends_with_3(web: Path, capfd: Capture) -> None:
    (web / "web/broken.jsonl").symlink_to("gone.jsonl")
    code, out, err = run(capfd, "build", "web", "-o", "M.parquet")
    assert code == 3
    assert "web/broken.jsonl: broken symbolic link" in out
    assert "1 paths were not reached" in err
    assert (web / "M.parquet").exists()
    assert run(capfd, "build", "web", "-o", "M.parquet", "--allow-damaged")[0] == 0


def test_verify_without_an_answer_is_never_0(web: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run(capfd, "build", "web", "-o", "M.parquet")
    opened = LocalRoot.open

    def failing(self: LocalRoot, path: str) -> Any:
        if path == "a.jsonl":
            raise PermissionError(13, "Permission denied")
        return opened(self, path)

    monkeypatch.setattr(LocalRoot, "open", failing)
    code, verified = asked(capfd, "verify", "M.parquet")
    assert code == 3
    assert (verified["num_unreadable"], verified["num_same"]) == (1, 1)
    assert verified["findings"][0]["detail"] == "Permission denied"
    Path("web/b.jsonl.gz").unlink()
    code, verified = asked(capfd, "verify", "M.parquet")
    assert code == 1
    assert (verified["num_missing"], verified["num_unreadable"]) == (1, 1)


def test_a_shard_unreadable_at_the_build_has_no_digest_to_verify(
    web: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def failing(self: LocalRoot, path: str) -> Any:
            raise PermissionError(13, "Permission denied")

        patched.setattr(LocalRoot, "open", failing)
        code, built = asked(capfd, "build", "web", "-o", "M.parquet")
    assert (code, built["num_excluded"]) == (3, len(built["damaged"]))
    code, verified = asked(capfd, "verify", "M.parquet")
    assert (code, verified["num_without_digest"], verified["num_same"]) == (3, built["num_shards"], 0)


def test_control_characters_of_names_never_reach_the_terminal(web: Path, capfd: Capture) -> None:
    jsonl(web / "web/\x1b[31mred\n.jsonl", [None])
    code, out, _ = run(capfd, "build", "web", "-o", "M.parquet")
    assert code == 0
    assert "\x1b" not in out
    _, out, _ = run(capfd, "show", "M.parquet", "--rejected")
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3


def test_a_manifest_named_on_the_way_is_built_from_real_files(shared: Path, tmp_path: Path, capfd: Capture) -> None:
    folders = [f"{shared}/data/corpora/web", f"{shared}/data/corpora/multilingual"]
    code, built = asked(capfd, "build", *folders, "-o", f"{tmp_path}/M.parquet")
    assert code == 0
    assert (built["num_rows"], built["num_delivered"], built["num_rejected"]) == (1196, 1166, 30)
    assert built["empty_shards"] == [
        f"web/dolma_attributes_{name}_000.json.gz" for name in ("duplicate_paragraphs", "sample", "toxicity")
    ]
    assert asked(capfd, "verify", f"{tmp_path}/M.parquet")[0] == 0
