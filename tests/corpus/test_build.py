"""Building a manifest: the same digest however it is built, an account that balances, and builds that go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.corpus import partial, scan
from dataguard.corpus.account import take_account
from dataguard.corpus.build import BuildProgress, build_manifest, build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.corpus.manifest_read import read_findings, read_manifest
from dataguard.errors import EnvironmentFailed, UsageError, WriteFailed, WriterConflict
from tests.corpus.making import flip, jsonl, lines, npy, parquet, put


@pytest.fixture
def web(tmp_path: Path) -> Path:
    jsonl(tmp_path / "web/a.jsonl", ["one", None, "two", 7, ""])
    jsonl(tmp_path / "web/sub/b.jsonl.gz", ["three"])
    parquet(tmp_path / "web/c.parquet", ["four", None, "five"])
    put(tmp_path / "web/bad.jsonl.gz", b"not gzip at all\n" * 4)
    packed = jsonl(tmp_path / "web/trailing.jsonl.gz", ["six"])
    put(packed, packed.read_bytes() + b"this is not gzip data\n")
    jsonl(tmp_path / "web/null.jsonl", [None, None])
    jsonl(tmp_path / "web/none.jsonl", [])
    put(tmp_path / "web/page.html", b"<html></html>")
    return tmp_path


def test_the_account_balances_and_names_what_delivers_nothing(web: Path) -> None:
    result = build_manifest([f"{web}/web"])
    (source,) = result.account.sources
    assert (source.num_rows, source.num_delivered, source.num_rejected) == (12, 7, 5)
    assert dict(source.rejected_by_code) == {"not-a-string": 1, "null-text": 4}
    assert dict(source.rejected_by_shard) == {"a.jsonl": 2, "c.parquet": 1, "null.jsonl": 2}
    assert (source.num_shards, source.num_clean, source.num_flagged, source.num_excluded) == (7, 5, 1, 1)
    assert source.empty_shards == ("none.jsonl", "null.jsonl")
    assert result.ignored_files == {"unknown kind": 1}
    assert result.num_damaged == 2
    assert source.content_bytes == sum(len(text) for text in ("one", "two", "", "three", "four", "five", "six"))
    excluded = result.manifest.shards[result.manifest.find_shard("web/bad.jsonl.gz")]
    assert (excluded.effect, excluded.num_rows) == ("excluded", 0)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from(["x", "", None, 3, "\u00e9" * 40]), max_size=12), min_size=1, max_size=4),
    st.sampled_from([1, 60, 1 << 20]),
)
def test_any_account_balances(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[Any]], block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("w")
    for number, texts in enumerate(shards):
        jsonl(folder / f"{number}.jsonl{['', '.gz', '.zst'][number % 3]}", texts)
    result = build_manifest([f"w={folder}"], options=ScanOptions(block_bytes=block_bytes))
    every = [text for texts in shards for text in texts]
    good = [text for text in every if isinstance(text, str)]
    (source,) = result.account.sources
    assert source.num_rows == len(every)
    assert source.num_delivered == len(good)
    assert source.content_bytes == sum(len(text.encode()) for text in good)
    assert take_account(result.manifest) == result.account
    blocks = result.manifest.blocks
    for i, shard in enumerate(result.manifest.shards):  # rows of a shard are numbered without a gap
        mine = blocks[blocks["shard"] == i]
        assert mine["first_row"].tolist() == [0, *np.cumsum(mine["num_rows"])[:-1].tolist()]
        assert mine["num_rows"].sum() == shard.num_rows == len(shards[i])


def test_order_of_sources_and_number_of_workers_change_nothing(web: Path) -> None:
    npy(web / "ids/t.npy", range(100))
    one = build_manifest([f"{web}/web", f"{web}/ids"], num_workers=1)
    two = build_manifest([f"{web}/ids", f"{web}/web"], num_workers=2)
    assert one.manifest == two.manifest
    assert one.details.details == two.details.details
    assert one.details.shard_findings == two.details.shard_findings
    assert one.manifest.sources[0].text_field == ""


def test_equal_data_elsewhere_gives_an_equal_digest(web: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(web / "web", other / "web")
    assert build_manifest([f"{web}/web"]).manifest == build_manifest([f"{other}/web"]).manifest
    flip(other / "web/a.jsonl", 11)
    assert build_manifest([f"{web}/web"]).manifest != build_manifest([f"{other}/web"]).manifest


def test_progress_tells_every_shard(web: Path) -> None:
    told: list[BuildProgress] = []
    build_manifest([f"{web}/web"], progress=told.append)
    assert [step.num_done for step in told] == list(range(1, 8))
    assert {step.shard for step in told} == {
        f"web/{name}"
        for name in (
            "a.jsonl",
            "sub/b.jsonl.gz",
            "c.parquet",
            "bad.jsonl.gz",
            "trailing.jsonl.gz",
            "null.jsonl",
            "none.jsonl",
        )
    }
    assert told[-1].done_bytes == told[-1].total_bytes


def test_a_text_field_that_no_shard_has_is_answered_with_those_there_are(tmp_path: Path) -> None:
    put(tmp_path / "j/a.jsonl.gz", b"")
    put(tmp_path / "j/a.jsonl", b'{"url": "u", "content": "x"}\n' * 3)
    jsonl(tmp_path / "j/b.jsonl.gz", [])
    parquet(tmp_path / "p/a.parquet", ["x"], column="content")
    jsonl(tmp_path / "ok/a.jsonl", ["x"])
    (tmp_path / "j/a.jsonl.gz").unlink()
    result = build_manifest([f"{tmp_path}/{name}" for name in ("j", "p", "ok")])
    assert result.hints["j"] == "no field 'text'; there are: content, url"
    assert "content" in result.hints["p"]
    assert set(result.hints) == {"j", "p"}
    again = build_manifest([f"{tmp_path}/j"], options=ScanOptions(text_field="content"))
    assert again.account.total("num_delivered") == 3
    assert not again.hints


def test_shards_that_lack_the_field_are_named(tmp_path: Path) -> None:
    put(tmp_path / "web/a.jsonl", b'{"meta": {"body": "one"}}\n{"meta": {"body": null}}\n')
    put(tmp_path / "web/b.jsonl", b'{"text": "two"}\n{"meta": 7}\n')
    parquet(tmp_path / "web/c.parquet", ["three"])
    parquet(tmp_path / "web/d.parquet", ["four"], column="meta.body")
    result = build_manifest([f"{tmp_path}/web"], options=ScanOptions(text_field="meta.body"))
    assert result.account.total("num_delivered") == 2
    assert result.hints == {"web": "no field 'meta.body' in 2 of 4 shards: web/b.jsonl, web/c.parquet"}


def test_a_shard_that_cannot_be_read_is_excluded_and_the_rest_goes_on(
    web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataguard.corpus.storage import LocalRoot

    opened = LocalRoot.open

    def failing(self: LocalRoot, path: str) -> Any:
        if path == "c.parquet":
            raise OSError(5, "Input/output error")
        return opened(self, path)

    monkeypatch.setattr(LocalRoot, "open", failing)
    result = build_manifest([f"{web}/web"])
    number = result.manifest.find_shard("web/c.parquet")
    assert result.manifest.shards[number].effect == "excluded"
    assert [finding.code for finding in result.details.shard_findings[number]] == ["unreadable"]
    assert "Input/output error" in result.details.shard_findings[number][0].detail
    assert result.account.total("num_delivered") == 5


def test_a_shard_written_to_while_it_is_scanned_is_told(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = scan.shard_digest

    def and_then_changed(shard: Any) -> tuple[str, int]:
        found = digest(shard)
        if shard.path == "a.jsonl":
            with (web / "web/a.jsonl").open("ab") as file:
                file.write(lines(["late"]))
        return found

    monkeypatch.setattr(scan, "shard_digest", and_then_changed)
    result = build_manifest([f"{web}/web"])
    findings = result.details.shard_findings[result.manifest.find_shard("web/a.jsonl")]
    assert [finding.code for finding in findings] == ["changed-while-scanned"]


# ---- files, interruption, processes ---------------------------------------------------------------------------------


def test_a_build_leaves_its_manifest_and_nothing_else(web: Path) -> None:
    result, header = build_manifest_file([f"{web}/web"], web / "out/M.parquet")
    assert [path.name for path in (web / "out").iterdir()] == ["M.parquet"]
    assert header.digest == result.manifest.digest == read_manifest(web / "out/M.parquet").manifest.digest
    assert header.ignored_files == {"unknown kind": 1}


def test_its_own_output_is_no_shard(web: Path) -> None:
    first, _ = build_manifest_file([f"{web}/web"], web / "web/M.parquet")
    again, _ = build_manifest_file([f"{web}/web"], web / "web/M.parquet")
    assert first.manifest == again.manifest
    assert {item.path: item.reason for item in again.ignored}["M.parquet"] == "output of this command"


def test_an_interrupted_build_goes_on_where_it_stopped(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = build_manifest([f"{web}/web"])
    scanned: list[str] = []
    scan_shard = partial.scan_shard

    def counted(job: scan.ScanJob) -> scan.ShardScan:
        scanned.append(job.path)
        return scan_shard(job)

    monkeypatch.setattr(partial, "scan_shard", counted)

    def stop(progress: BuildProgress) -> None:
        if progress.num_done == 4:
            raise KeyboardInterrupt

    target = web / "M.parquet"
    with pytest.raises(KeyboardInterrupt):
        build_manifest_file([f"{web}/web"], target, progress=stop)
    assert not target.exists()
    assert len(scanned) == 4
    done = scanned[:]
    scanned.clear()
    # Of the four, one is changed behind the back of its size and mtime, one only touched, one kept file is torn.
    changed, touched, torn = (web / "web" / path for path in done[:3])
    status = changed.stat()
    flip(changed, 3)
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(touched, ns=(5, 5))
    kept = next(
        path for path in (web / "M.parquet.building").iterdir()
        if str(torn.relative_to(web / "web")).encode() in path.read_bytes()
    )  # fmt: skip
    os.truncate(kept, kept.stat().st_size - 3)
    result, _ = build_manifest_file([f"{web}/web"], target)
    assert set(done) - set(scanned) == {done[1], done[3]}
    flip(changed, 3)
    assert build_manifest([f"{web}/web"]).manifest == expected.manifest
    assert result.manifest != expected.manifest
    assert not (web / "M.parquet.building").exists()


def test_kept_scans_are_of_this_version_and_these_options(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = web / "kept"
    folder.mkdir()
    build_manifest([f"{web}/web"], partial_dir=folder)
    calls: list[str] = []
    scan_shard = partial.scan_shard
    monkeypatch.setattr(partial, "scan_shard", lambda job: calls.append(job.path) or scan_shard(job))
    build_manifest([f"{web}/web"], partial_dir=folder)
    assert calls == []
    build_manifest([f"{web}/web"], partial_dir=folder, options=ScanOptions(block_bytes=7))
    assert len(calls) == 7
    monkeypatch.setattr(partial, "__version__", "another")
    build_manifest([f"{web}/web"], partial_dir=folder, options=ScanOptions(block_bytes=7))
    assert len(calls) == 14


def test_a_full_disk_is_told_and_nothing_is_lost(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(WriteFailed, match="could not be kept") as caught:
            build_manifest_file([f"{web}/web"], web / "M.parquet")
        assert caught.value.exit_code == 4
    assert not (web / "M.parquet").exists()


def test_two_builds_of_one_output_do_not_meet(web: Path) -> None:
    def second(progress: BuildProgress) -> None:
        with pytest.raises(WriterConflict, match="another process is building"):
            build_manifest_file([f"{web}/web"], web / "M.parquet")

    build_manifest_file([f"{web}/web"], web / "M.parquet", progress=second)
    assert read_manifest(web / "M.parquet")


def test_an_output_that_cannot_be_is_refused_at_once(web: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        build_manifest_file([f"{web}/web"], web)
    put(web / "file", b"")
    with pytest.raises(WriteFailed):
        build_manifest_file([f"{web}/web"], web / "file/M.parquet")
    with pytest.raises(UsageError, match="0 workers"):
        build_manifest([f"{web}/web"], num_workers=0)


def test_a_dying_worker_names_its_shard_and_the_rest_is_kept(web: Path) -> None:
    """The worker that meets the poisoned shard is killed by the kernel's way: a signal."""
    site = put(
        web / "site/sitecustomize.py",
        textwrap.dedent(
            """
            import os, signal, sys
            if "dataguard.corpus.scan_pool" in sys.orig_argv:
                import dataguard.corpus.scan as scan
                real = scan.scan_shard
                def dies(job):
                    if job.path == "none.jsonl":
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(job)
                scan.scan_shard = dies
            """
        ).encode(),
    )
    sys.path.insert(0, str(site.parent))
    try:
        with pytest.raises(EnvironmentFailed, match=r"died at shard web/none\.jsonl") as caught:
            build_manifest_file([f"{web}/web"], web / "M.parquet", num_workers=2)
    finally:
        sys.path.remove(str(site.parent))
    assert "signal 9" in str(caught.value)
    assert len(list((web / "M.parquet.building").glob("*.scan"))) >= 5  # the smallest comes last
    result, _ = build_manifest_file([f"{web}/web"], web / "M.parquet", num_workers=2)
    assert result.manifest == build_manifest([f"{web}/web"]).manifest


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue
            if int(status.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path: Path, number: int) -> None:
    for shard in range(4):
        jsonl(tmp_path / f"web/{shard}.jsonl.gz", ["x" * 40] * 60_000)
    code = f"from dataguard.corpus import build_manifest; build_manifest([{str(tmp_path / 'web')!r}], num_workers=2)"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(workers := children_of(parent.pid)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.send_signal(number)
    _, told = parent.communicate(timeout=30)
    assert told.count(b"Traceback") == (1 if number == signal.SIGINT else 0)
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.05)


def test_a_script_without_a_guard_may_build_with_workers(web: Path) -> None:
    script = put(
        web / "script.py",
        f"from dataguard.corpus import build_manifest\n"
        f"print(build_manifest([{str(web / 'web')!r}], num_workers=2).manifest.digest)\n".encode(),
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [build_manifest([f"{web}/web"]).manifest.digest]


def test_findings_are_read_back_from_the_file(web: Path) -> None:
    build_manifest_file([f"{web}/web"], web / "M.parquet")
    named = {(entry.shard, entry.finding.code, entry.finding.row) for entry in read_findings(web / "M.parquet")}
    assert named == {
        ("web/a.jsonl", "null-text", 1), ("web/a.jsonl", "not-a-string", 3),
        ("web/bad.jsonl.gz", "bad-stream-header", None),
        ("web/c.parquet", "null-text", 1), ("web/null.jsonl", "null-text", 0), ("web/null.jsonl", "null-text", 1),
        ("web/trailing.jsonl.gz", "trailing-bytes", None),
    }  # fmt: skip


def test_real_files_are_scanned_and_read_back(shared: Path, tmp_path: Path) -> None:
    folders = [f"{shared}/data/corpora/web", f"{shared}/data/corpora/multilingual"]
    result, _ = build_manifest_file(folders, tmp_path / "M.parquet")
    assert result.num_damaged == 0
    assert result.account.total("num_rows") == 1196
    assert result.account.total("num_delivered") == 1166
    corpus = Corpus.open(tmp_path / "M.parquet")
    manifest = corpus.manifest
    blocks = np.repeat(np.arange(len(manifest.blocks)), manifest.blocks["num_rows"])
    rows = np.concatenate([np.arange(b["num_rows"]) + b["first_row"] for b in manifest.blocks])
    answers = corpus.reader(cache_folder=str(tmp_path / "cache")).read(blocks, rows)
    texts = [answer for answer in answers if isinstance(answer, bytes)]
    assert len(texts) == 1166
    plain = (shared / "data/corpora/web/dolma_cc_en_head-0091.jsonl").read_bytes().splitlines()
    assert {json.loads(line)["text"].encode() for line in plain} <= set(texts)
