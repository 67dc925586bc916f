"""A file stands under its name whole or not at all, whatever fails and however many write it."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from dataguard.errors import RunDamaged, WriteFailed
from dataguard.run import atomic
from dataguard.run.atomic import make_folders, publish, publish_new, remove_durably, sweep_temporaries

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


def left_over(folder: Path) -> list[Path]:
    return list((folder / "tmp").iterdir())


def test_publish_writes_replaces_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "c.json"
    publish(target, b"one", tmp=tmp_path / "tmp")
    publish(target, lambda file: file.writelines([b"t", b"wo"]), tmp=tmp_path / "tmp")
    assert target.read_bytes() == b"two"
    assert left_over(tmp_path) == []


def test_the_first_wins_with_publish_new(tmp_path: Path) -> None:
    target = tmp_path / "journal" / "000001.json"
    assert publish_new(target, b"one", tmp=tmp_path / "tmp") is True
    assert publish_new(target, b"two", tmp=tmp_path / "tmp") is False
    assert target.read_bytes() == b"one"
    assert target.stat().st_nlink == 1
    assert left_over(tmp_path) == []


def test_a_lost_answer_of_link_is_no_lost_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link_then_forget(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(atomic.os, "link", link_then_forget)
    assert publish_new(tmp_path / "x", b"one", tmp=tmp_path / "tmp") is True
    assert (tmp_path / "x").read_bytes() == b"one"


@pytest.mark.parametrize("call", ["fsync", "write", "rename", "link", "folder"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_failed_call_changes_nothing_and_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    make_folders(tmp_path / "tmp")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    content: atomic.Content = b"new"
    publisher = publish
    if call == "fsync":
        monkeypatch.setattr(atomic.os, "fsync", fail)
    elif call == "write":

        def content(file: BinaryIO) -> None:
            file.write(b"ne")
            fail()

    elif call == "rename":
        monkeypatch.setattr(atomic.Path, "rename", fail)
    elif call == "link":
        publisher, target = publish_new, tmp_path / "new"
        monkeypatch.setattr(atomic.os, "link", fail)
    else:
        target = tmp_path / "deep" / "x"
        monkeypatch.setattr(atomic.Path, "mkdir", fail)
    with pytest.raises(WriteFailed) as caught:
        publisher(target, content, tmp=tmp_path / "tmp")
    monkeypatch.undo()
    assert caught.value.exit_code == 4
    assert caught.value.errno == number
    assert os.strerror(number) in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.todo
    assert (tmp_path / "x").read_bytes() == b"old"
    assert left_over(tmp_path) == []
    assert not target.exists() or target.read_bytes() == b"old"


def test_close_is_checked_too(tmp_path: Path) -> None:
    def close_behind_the_back(file: BinaryIO) -> None:
        file.write(b"new")
        file.flush()
        os.close(file.fileno())

    with pytest.raises(WriteFailed, match="Bad file descriptor"):
        publish(tmp_path / "x", close_behind_the_back, tmp=tmp_path / "tmp")
    assert left_over(tmp_path) == []


def test_what_check_refuses_gets_no_name(tmp_path: Path) -> None:
    def refuse(temporary: Path) -> None:
        assert temporary.read_bytes() == b"new"
        raise RunDamaged("reads back differently")

    with pytest.raises(RunDamaged):
        publish(tmp_path / "x", b"new", tmp=tmp_path / "tmp", check=refuse)
    assert not (tmp_path / "x").exists()
    assert left_over(tmp_path) == []


def test_an_error_of_the_writer_itself_passes_and_cleans_up(tmp_path: Path) -> None:
    def wrong(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyError("no such field")

    with pytest.raises(KeyError):
        publish(tmp_path / "x", wrong, tmp=tmp_path / "tmp")
    assert not (tmp_path / "x").exists()
    assert left_over(tmp_path) == []


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(WriteFailed, match="cannot make the folder"):
        make_folders(tmp_path / "a" / "b")
    with pytest.raises(WriteFailed, match="cannot make the folder"):
        make_folders(tmp_path / "a")


def test_remove_durably(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert remove_durably(tmp_path / "a") is True
    assert remove_durably(tmp_path / "a") is False


def test_old_temporaries_are_swept_and_young_ones_left(tmp_path: Path) -> None:
    for name, age in (("old", 1_000), ("young", 3_000)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, ns=(age, age))
    assert sweep_temporaries(tmp_path, before_ns=2_000) == [tmp_path / "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["young"]
    assert sweep_temporaries(tmp_path / "missing", before_ns=2_000) == []


def _at_once(barrier: object, root: Path, rounds: int, worker: int, errors: object) -> None:
    for number in range(rounds):
        barrier.wait()  # type: ignore[attr-defined]
        try:
            make_folders(root / str(number) / "b" / "c")
        except BaseException as error:  # noqa: BLE001
            errors.put(f"worker {worker}, round {number}: {error!r}")  # type: ignore[attr-defined]


def test_eight_processes_make_three_missing_levels_at_once(tmp_path: Path) -> None:
    barrier, errors = FORK.Barrier(8), FORK.SimpleQueue()
    workers = [FORK.Process(target=_at_once, args=(barrier, tmp_path, 25, w, errors)) for w in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert errors.empty()
    assert all((tmp_path / str(number) / "b" / "c").is_dir() for number in range(25))
