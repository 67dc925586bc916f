"""What the Ray engine decides and says before there is any cluster."""

from __future__ import annotations

import io
import socket
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.audit.engines import ray as engine
from dataguard.audit.engines.ray import RayEngine
from dataguard.audit.engines.sharing import share_streams
from dataguard.audit.tasks import Task, plan_tasks
from dataguard.cli.main import main
from dataguard.core.manifest import BLOCK_DTYPE, REJECTED_DTYPE, Manifest, Shard, Source
from dataguard.errors import EnvironmentFailed, UsageError
from tests.audit.making import PROSE
from tests.corpus.making import jsonl


def manifest_of(shards: list[tuple[str, int]], *, block_bytes: int = 1000) -> Manifest:
    """Shards by compression and number of blocks."""
    blocks = np.zeros(sum(count for _, count in shards), BLOCK_DTYPE)
    blocks["shard"] = np.repeat(np.arange(len(shards)), [count for _, count in shards])
    blocks["num_rows"], blocks["content_bytes"] = 1, block_bytes
    return Manifest(
        sources=(Source(name="web", kind="text", text_field="text"),),
        shards=tuple(
            Shard(
                source=0, path=f"{i:04d}", format="jsonl", compression=compression, item_type="", size_bytes=1,
                digest="", num_rows=count, effect="clean",
            )
            for i, (compression, count) in enumerate(shards)
        ),
        blocks=blocks,
        rejected=np.zeros(0, REJECTED_DTYPE),
        codes=(),
    )  # fmt: skip


def decoded_blocks(manifest: Manifest, run: tuple[Task, ...]) -> int:
    """Blocks that a process decodes for a run: a stream from its beginning."""
    wanted: dict[int, list[int]] = {}
    for task in run:
        for block in range(task.start, task.stop):
            wanted.setdefault(int(manifest.blocks["shard"][block]), []).append(block)
    total = 0
    for shard, blocks in wanted.items():
        is_stream = manifest.shards[shard].compression != "none"
        total += max(blocks) + 1 - int(manifest.block_starts[shard]) if is_stream else len(blocks)
    return total


@given(
    shards=st.lists(st.tuples(st.sampled_from(["none", "zstd", "gzip"]), st.integers(1, 40)), min_size=1, max_size=12),
    task_bytes=st.integers(500, 20_000),
    gone=st.sets(st.integers(0, 60)),
)
def test_every_task_is_in_one_run_and_little_is_decoded_twice(
    shards: list[tuple[str, int]], task_bytes: int, gone: set[int]
) -> None:
    manifest = manifest_of(shards)
    every = plan_tasks(manifest, task_bytes=task_bytes)
    left = [task for task in every if task.number not in gone]
    runs = share_streams(manifest, left)
    assert [task for run in runs for task in run] == left
    assert all(runs)
    if not gone:
        # what is decoded again at the end of each run is a quarter of it at most
        decoded = sum(decoded_blocks(manifest, run) for run in runs)
        assert decoded <= len(manifest.blocks) * 5 / 4


def test_one_stream_is_one_run_and_many_small_ones_are_many() -> None:
    one = manifest_of([("zstd", 400)])
    assert len(share_streams(one, plan_tasks(one, task_bytes=8000))) == 1
    many = manifest_of([("zstd", 20)] * 20)
    runs = share_streams(many, plan_tasks(many, task_bytes=8000))
    assert len(runs) >= 10


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    jsonl(tmp_path / "web/a.jsonl", PROSE[:5])
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["audit", str(tmp_path / "web"), "-o", str(tmp_path / "out"), "--engine", "ray"]
    assert main(words) == 2
    assert "pip install 'dataguard[ray]'" in capfd.readouterr().err
    assert not (tmp_path / "out").exists(), "it says so before any work is done"


def test_an_address_needs_the_engine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["audit", str(tmp_path), "-o", str(tmp_path / "out"), "--ray-address", "127.0.0.1:1"]
    assert main(words) == 2
    assert "--engine ray" in capfd.readouterr().err


def test_what_cannot_be_asked_for() -> None:
    pytest.importorskip("ray", reason="ray is not installed; it comes with dataguard[ray]")
    with pytest.raises(UsageError, match="0 workers"):
        RayEngine(0)
    with pytest.raises(UsageError, match="client"):
        RayEngine(address="ray://127.0.0.1:10001")


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="ray is not installed; it comes with dataguard[ray]")
    jsonl(tmp_path / "web/a.jsonl", PROSE[:5])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    words = ["audit", str(tmp_path / "web"), "-o", str(tmp_path / "out"), "--engine", "ray", "--ray-address", address]
    assert main(words) == 4
    told = capfd.readouterr()
    assert f"no Ray cluster answers at {address}" in told.err
    assert "--resume" in told.err
    assert told.out == ""
    assert main([*words[:4], "--resume"]) == 0, "the scan is kept, and threads go on"


def test_a_worker_of_another_version_or_without_the_data_refuses(tmp_path: Path) -> None:
    from dataguard.version import __version__

    engine._Told(version=__version__, folders=(str(tmp_path),)).check()
    with pytest.raises(EnvironmentFailed, match=f"has dataguard {__version__}") as raised:
        engine._Told(version="0.0.0", folders=()).check()
    assert "0.0.0" in str(raised.value.allowed)
    with pytest.raises(EnvironmentFailed, match=r"does not see .*nowhere"):
        engine._Told(version=__version__, folders=(str(tmp_path), str(tmp_path / "nowhere"))).check()


def test_only_what_ray_says_is_kept_from_standard_output() -> None:
    def say(name: str) -> None:
        thread = threading.Thread(target=lambda: print(name, flush=True), name=name)
        thread.start()
        thread.join()

    heard = io.StringIO()
    with redirect_stdout(heard):
        with engine._silenced():
            say("ray_listen_error_messages")
            say("worker")
            print("main")
            with engine._silenced(own=True):
                print("what Ray held back")
                say("other")
        print("after")
    assert heard.getvalue().split() == ["worker", "main", "other", "after"]
