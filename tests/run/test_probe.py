"""File systems that cannot keep a run are told by what they lack, before anything is written there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataguard.errors import UnfitFileSystem, WriteFailed
from dataguard.run import probe as probe_module
from dataguard.run.probe import probe
from tests.run.small import make_plan, make_run

really_link, really_rename = os.link, Path.rename


def copying_link(source: Path, target: Path) -> None:
    """What some network file systems do: another file of the same content."""
    if Path(target).exists():
        raise FileExistsError(errno.EEXIST, "File exists")
    shutil.copy(source, target)


def replacing_link(source: Path, target: Path) -> None:
    Path(target).unlink(missing_ok=True)
    really_link(source, target)


def no_link(source: Path, target: Path) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def copying_rename(self: Path, target: Path) -> Path:
    shutil.copy(self, target)
    return Path(target)


def no_rename(self: Path, target: Path) -> Path:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def idle_rename(self: Path, target: Path) -> Path:
    self.unlink()
    return Path(target)


@pytest.mark.parametrize(
    ("link", "rename", "operation", "found"),
    [
        (no_link, None, "link", "EPERM"),
        (copying_link, None, "link", "link count 1, not 2"),
        (replacing_link, None, "link", "it succeeds where the name is taken"),
        (None, no_rename, "rename", "EXDEV"),
        (None, copying_rename, "rename", "does not put the new file in the place of the old"),
        (None, idle_rename, "rename", "does not put the new file in the place of the old"),
    ],
)
def test_what_is_missing_is_named_with_what_to_use_instead(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    link: Callable[..., Any] | None,
    rename: Callable[..., Any] | None,
    operation: str,
    found: str,
) -> None:
    if link is not None:
        monkeypatch.setattr(probe_module.os, "link", link)
    if rename is not None:
        monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(UnfitFileSystem, match=f"no working {operation}") as caught:
        probe(tmp_path / "run" / "tmp")
    message = str(caught.value)
    assert found in message
    assert str(tmp_path / "run") in message
    assert "spool" in message
    assert "object store with create-if-absent" in message
    assert list((tmp_path / "run" / "tmp").iterdir()) == []


def test_an_exclusive_create_that_is_not_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = Path.open

    def careless(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        return really_open(self, mode.replace("x", "w"), *args, **options)

    monkeypatch.setattr(Path, "open", careless)
    with pytest.raises(UnfitFileSystem, match="no working exclusive create"):
        probe(tmp_path / "tmp")


def test_no_permission_is_no_question_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's refusal is played, since root, as whom tests may run, may write anywhere."""

    def refused(path: Path, *_args: Any, **_options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(WriteFailed, match="permission"):
        probe(tmp_path / "tmp")


def test_a_run_is_not_created_where_it_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module.os, "link", no_link)
    with pytest.raises(UnfitFileSystem):
        make_run(tmp_path)
    assert not (tmp_path / "run" / "journal").exists()
    assert not (tmp_path / "run" / "manifest").exists()


def test_a_run_can_be_looked_at_where_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataguard.run.run import Run

    run = make_run(tmp_path)
    monkeypatch.setattr(probe_module.os, "link", no_link)
    assert Run.open(tmp_path / "run").run_id == run.run_id
    with pytest.raises(UnfitFileSystem):
        Run.open(tmp_path / "run", make_plan())
