"""Readers that hang, die, panic or raise: each costs its shard and nothing else, and the build says so."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import xxhash

from dataguard.cli.main import main
from dataguard.corpus.build import BuildResult, build_manifest
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.formats import ScanOptions
from dataguard.corpus.formats.jsonl import JsonLines
from dataguard.corpus.problems import RowProblem
from dataguard.errors import EnvironmentFailed, UsageError
from tests.corpus.making import jsonl, put

NAMES = ("a.jsonl", "dies.jsonl", "hangs.jsonl", "panics.jsonl", "raises.jsonl", "z.jsonl")

# A reader that misbehaves by the name of its shard, put into every worker before it loads anything else.
SITE = """
import os, signal, sys, time
if "dataguard.corpus.scan_pool" in sys.orig_argv:
    from dataguard.corpus.formats.jsonl import JsonLines
    real = JsonLines.scan
    class Panic(BaseException):
        pass
    def scan(self, shard, options):
        if shard.path == "dies.jsonl":
            os.kill(os.getpid(), signal.SIGKILL)
        if shard.path == "hangs.jsonl":
            time.sleep(600)
        if shard.path == "panics.jsonl":
            raise Panic("index out of bounds: the len is 0 but the index is 3")
        if shard.path == "raises.jsonl":
            raise ValueError("negative shift\\ncount")
        yield from real(self, shard, options)
    JsonLines.scan = scan
"""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Path]:
    for name in NAMES:
        jsonl(tmp_path / "web" / name, [name, "more"])
    site = put(tmp_path / "site/sitecustomize.py", textwrap.dedent(SITE).encode())
    sys.path.insert(0, str(site.parent))
    yield tmp_path
    sys.path.remove(str(site.parent))


def _codes(result: BuildResult) -> dict[str, tuple[str, str]]:
    found = {}
    for number, shard in enumerate(result.manifest.shards):
        for finding in result.details.shard_findings.get(number, ()):
            found[shard.path] = (finding.code, finding.detail)
    return found


@pytest.mark.parametrize("num_workers", [1, 3])
def test_each_bad_reader_costs_its_shard(web: Path, num_workers: int) -> None:
    result = build_manifest([f"{web}/web"], num_workers=num_workers, timeout_seconds=5)
    codes = _codes(result)
    assert codes["dies.jsonl"] == ("reader-died", "the process that read it ended with signal 9")
    assert codes["hangs.jsonl"][0] == "reader-hung"
    assert codes["panics.jsonl"] == ("reader-failed", "Panic: index out of bounds: the len is 0 but the index is 3")
    assert codes["raises.jsonl"] == ("reader-failed", "ValueError: negative shift count")
    assert len(codes) == 4
    (source,) = result.account.sources
    assert (source.num_shards, source.num_clean, source.num_excluded) == (6, 2, 4)
    assert (source.num_rows, source.num_delivered) == (4, 4)
    for shard in result.manifest.shards:  # given up or not, a file is known by its bytes
        content = (web / "web" / shard.path).read_bytes()
        assert (shard.digest, shard.size_bytes) == (xxhash.xxh3_128_hexdigest(content), len(content))


def test_a_file_that_cannot_be_hashed_in_time_either_has_no_digest(web: Path) -> None:
    site = web / "site/sitecustomize.py"
    put(site, site.read_bytes() + textwrap.dedent("""
        if "dataguard.corpus.scan_pool" in sys.orig_argv:
            from dataguard.corpus import scan
            digest = scan.shard_digest
            def hash_or_hang(shard):
                if shard.path == "hangs.jsonl":
                    time.sleep(600)
                return digest(shard)
            scan.shard_digest = hash_or_hang
    """).encode())  # fmt: skip
    (web / "web/dies.jsonl").unlink()
    result = build_manifest([f"{web}/web"], num_workers=2, timeout_seconds=5)
    digests = {shard.path: shard.digest for shard in result.manifest.shards}
    assert _codes(result)["hangs.jsonl"][0] == "reader-hung"
    assert [path for path, digest in digests.items() if not digest] == ["hangs.jsonl"]


def test_the_command_ends_with_3_and_is_not_left_hanging(
    web: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(web)
    asked = ["manifest", "build", "web", "-o", "M.parquet", "--isolate", "--scan-timeout-seconds", "5", "--json"]
    assert main(asked) == 3
    document = json.loads(capfd.readouterr().out)
    assert document["num_excluded"] == 4
    for name in ("hangs", "dies"):
        (web / f"web/{name}.jsonl").unlink()
    assert main([*asked, "--allow-damaged"]) == 0
    assert main(["manifest", "build", "web", "-o", "M.parquet", "--scan-timeout-seconds", "3"]) == 2


def test_without_isolation_a_death_still_ends_the_build(web: Path) -> None:
    (web / "web/hangs.jsonl").unlink()
    with pytest.raises(EnvironmentFailed, match=r"died at shard web/dies\.jsonl"):
        build_manifest([f"{web}/web"], num_workers=2)


def test_isolated_and_trusted_scans_are_the_same(tmp_path: Path) -> None:
    for name in NAMES:
        jsonl(tmp_path / "web" / name, [name, None])
    isolated = build_manifest([f"{tmp_path}/web"], timeout_seconds=60.0)
    assert isolated.manifest == build_manifest([f"{tmp_path}/web"]).manifest
    fsspec.filesystem("memory").pipe("/isolated/a.jsonl", b'{"text":"a"}\n')
    with pytest.raises(UsageError, match="another process"):
        build_manifest(["memory://isolated"], timeout_seconds=60.0)


class _PanicError(BaseException):
    """As Rust's panics come: no `Exception`."""


@pytest.mark.parametrize(
    "error", [_PanicError("boom"), OSError("Unexpected end of stream"), RecursionError("deep"), MemoryError()]
)
def test_foreign_exceptions_are_findings_in_this_process_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    jsonl(tmp_path / "web/b.jsonl", ["two"])
    real = JsonLines.scan

    def scan(self: JsonLines, shard: object, options: ScanOptions) -> object:
        if getattr(shard, "path", "") == "a.jsonl":
            raise error
        return real(self, shard, options)  # type: ignore[arg-type]

    monkeypatch.setattr(JsonLines, "scan", scan)
    result = build_manifest([f"{tmp_path}/web"])
    (code, detail) = _codes(result)["a.jsonl"]
    assert code == "reader-failed"
    assert detail.startswith(type(error).__name__)
    assert result.account.total("num_delivered") == 1
    assert all(shard.digest for shard in result.manifest.shards)


def test_storage_that_fails_and_interruptions_are_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    errors: list[BaseException] = [KeyboardInterrupt(), OSError(5, os.strerror(5))]

    def scan(self: JsonLines, shard: object, options: ScanOptions) -> object:
        raise errors[0]

    monkeypatch.setattr(JsonLines, "scan", scan)
    with pytest.raises(KeyboardInterrupt):
        build_manifest([f"{tmp_path}/web"])
    del errors[0]
    assert _codes(build_manifest([f"{tmp_path}/web"]))["a.jsonl"][0] == "unreadable"


def test_a_foreign_exception_while_a_row_is_read_is_a_problem_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jsonl(tmp_path / "web/a.jsonl", ["one"])
    built = build_manifest([f"{tmp_path}/web"])
    corpus = Corpus(manifest=built.manifest, roots=built.roots, options={"web": built.options})

    def read(self: JsonLines, *args: object, **kwargs: object) -> object:
        raise _PanicError("boom")

    monkeypatch.setattr(JsonLines, "read", read)
    with corpus.reader() as reader:
        (problem,) = reader.read([0], [0])
    assert isinstance(problem, RowProblem)
    assert (problem.kind, "_PanicError: boom" in problem.detail) == ("damaged", True)
