"""Telemetry as a table: a row a step and rank, a column a name."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from dataguard.run.layout import Layout
from dataguard.run.telemetry import telemetry_records
from dataguard.run.telemetry_reading import read_telemetry
from dataguard.run.telemetry_table import telemetry_table
from tests.run.recording import open_telemetry_writer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for rank in (1, 0):
        with open_telemetry_writer(tmp_path, rank=rank) as writer:
            writer.append(telemetry_records(1, ["loss", "lr"], [math.nan, 0.5], time_ns=1))
            writer.append(telemetry_records(1, "loss", [7.0, 8.0], time_ns=1, slots=[0, 1]))
            writer.append(telemetry_records(0, ["loss"], [math.inf], time_ns=1))
            writer.append(telemetry_records(0, ["loss"], [rank + 0.25], time_ns=2))
    return tmp_path


def test_nan_is_nan_and_what_was_not_logged_is_null(root: Path) -> None:
    table = telemetry_table(read_telemetry(Layout(root), 1))
    assert table.column_names == ["step", "rank", "attempt", "loss", "lr"]
    assert table["step"].to_pylist() == [0, 0, 1, 1]
    assert table["rank"].to_pylist() == [0, 1, 0, 1]
    assert table["lr"].to_pylist() == [None, None, 0.5, 0.5]
    assert table["loss"].null_count == 0
    loss = table["loss"].to_pylist()
    assert all(math.isnan(value) for value in loss[2:])


def test_of_two_values_for_one_place_the_later_counts(root: Path) -> None:
    assert telemetry_table(read_telemetry(Layout(root), 1))["loss"].to_pylist()[:2] == [0.25, 1.25]


def test_columns_and_labels_as_asked(root: Path) -> None:
    table = telemetry_table(read_telemetry(Layout(root), 1, [0]), names=["grad_norm", "loss"], first_label=1)
    assert table.column_names == ["step", "rank", "attempt", "grad_norm", "loss"]
    assert table["step"].to_pylist() == [1, 2]
    assert table["grad_norm"].null_count == 2


def test_polars_takes_it_as_it_is(root: Path) -> None:
    frame = pl.from_arrow(telemetry_table(read_telemetry(Layout(root), 1)))
    assert isinstance(frame, pl.DataFrame)
    assert frame["lr"].null_count() == 2
    assert frame["loss"].is_nan().to_list() == [False, False, True, True]


def test_nothing_logged_is_an_empty_table(tmp_path: Path) -> None:
    table = telemetry_table(read_telemetry(Layout(tmp_path), 1))
    assert table.num_rows == 0
    assert table.column_names == ["step", "rank", "attempt"]
