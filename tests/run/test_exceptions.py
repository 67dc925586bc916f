"""What the environment decided comes back as it was written, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataguard.errors import RunDamaged
from dataguard.plan.slots import Exempted
from dataguard.run import frames
from dataguard.run.exceptions import ExceptionReason, exception_record, read_exceptions
from dataguard.run.layout import Layout
from tests.run.recording import open_writer


def record(root: Path, rank: int, positions: list[int], **facts: int) -> None:
    with open_writer(root, rank=rank) as writer:
        for position in positions:
            reason = ExceptionReason.UNREADABLE
            writer.append_exception(exception_record(step=position // 8, position=position, reason=reason, **facts))


def test_exceptions_of_all_ranks_by_position(tmp_path: Path) -> None:
    record(tmp_path, 0, [3, 9])
    record(tmp_path, 2, [4], draw=1, delivered_shard=7, delivered_row=1_000_000)
    nothing = Exempted(reason="unreadable")
    substitute = Exempted(reason="unreadable", draw=1, shard=7, row=1_000_000)
    assert read_exceptions(Layout(tmp_path), 1, range(4)) == {3: nothing, 9: nothing, 4: substitute}
    assert read_exceptions(Layout(tmp_path), 2, range(4)) == {}


def test_position_zero_of_step_zero_is_an_exception_too(tmp_path: Path) -> None:
    record(tmp_path, 0, [0], draw=0, delivered_shard=0, delivered_row=0)
    assert read_exceptions(Layout(tmp_path), 1, [0]) == {0: Exempted(reason="unreadable", draw=0, shard=0, row=0)}


def test_each_is_durable_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_writer(tmp_path) as writer:
        writer.append_exception(exception_record(step=0, position=1, reason=ExceptionReason.CHANGED))
        asked: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(frames.os, "fsync", asked.append)
            writer.append_exception(exception_record(step=0, position=2, reason=ExceptionReason.CHANGED))
        assert len(asked) == 1


def test_a_torn_tail_is_dropped_and_damage_refused(tmp_path: Path) -> None:
    record(tmp_path, 0, [3, 9])
    path = Layout(tmp_path).exceptions(1, 0)
    with path.open("ab") as file:
        file.write(b"torn")
    assert list(read_exceptions(Layout(tmp_path), 1, [0])) == [3, 9]
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\xff", 4096 + 3)
    with pytest.raises(RunDamaged, match="exceptions of attempt 1, rank 0 are damaged"):
        read_exceptions(Layout(tmp_path), 1, [0])


def test_a_file_of_another_rank_is_refused(tmp_path: Path) -> None:
    record(tmp_path, 0, [3])
    Layout(tmp_path).exceptions(1, 0).rename(Layout(tmp_path).exceptions(1, 1))
    with pytest.raises(RunDamaged, match="rank 1 are damaged"):
        read_exceptions(Layout(tmp_path), 1, [1])
