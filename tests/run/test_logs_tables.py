"""CSV, JSON lines and JSON documents: NaN is NaN, nothing is nothing, and every row is accounted for."""

from __future__ import annotations

import gzip
import json
import math
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dataguard.errors import InputError, NotInRun, UsageError
from dataguard.run.logs import TrainingLog, read_log, telemetry_names
from dataguard.run.logs.log import LogRows
from dataguard.run.logs.opening import LogFile

NAN = math.nan


def log_of(tmp_path: Path, text: str | bytes, **asked: Any) -> TrainingLog:
    path = tmp_path / "log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_log(path, **asked)


def told(log: TrainingLog) -> dict[str, tuple[int, int | None]]:
    return {problem.kind: (problem.count, problem.first_line) for problem in log.problems}


def series(log: TrainingLog, name: str) -> list[tuple[int, float]]:
    steps, values = log.series(name)
    return list(zip(steps.tolist(), values.tolist(), strict=True))


def test_nan_is_a_point_and_an_empty_cell_is_none(tmp_path: Path) -> None:
    log = log_of(tmp_path, "step,loss,lr\n1,2.5,0.1\n2,nan,\n3,,0.1\n4,-inf,1e-3\n")
    assert log.format == "csv"
    assert log.missing["loss"].tolist() == [False, False, True, False]
    np.testing.assert_array_equal(log.values["loss"], [2.5, NAN, NAN, -math.inf])
    assert series(log, "lr") == [(1, 0.1), (3, 0.1), (4, 1e-3)]
    assert log.num_points == 6
    assert log.problems == ()


def test_steps_logged_again_are_kept_in_order_and_the_later_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, "step,loss\n1,5\n2,4\n3,3\n2,40\n3,nan\n4,2\n")
    assert log.steps.tolist() == [1, 2, 3, 2, 3, 4]
    assert told(log) == {"duplicate": (2, 5)}
    wide = log.wide()
    assert wide.steps.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(wide.values["loss"], [5, 40, NAN, 2])
    assert not wide.missing["loss"].any()


def test_rows_of_one_step_with_other_columns_are_one_row(tmp_path: Path) -> None:
    """As Lightning's CSVLogger writes training and validation."""
    log = log_of(tmp_path, "epoch,step,train_loss,val_loss\n0,9,2.5,\n0,9,,2.75\n0,19,2.25,\n")
    assert log.steps.tolist() == [9, 9, 19]  # the epoch stands in both rows: it was logged twice
    assert log.wide().values["val_loss"][0] == 2.75
    log = log_of(tmp_path, "step,train_loss,val_loss\n9,2.5,\n9,,2.75\n19,2.25,\n")
    assert log.steps.tolist() == [9, 19]
    assert log.problems == ()


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("_step,_timestamp,train/global_step,loss", "train/global_step"),
        ("Step,loss", "Step"),
        ("iteration,loss", "iteration"),
        ("loss;global_step", "global_step"),
        ('"step"\t"loss"', "step"),
    ],
)
def test_the_step_column_is_found(tmp_path: Path, header: str, name: str) -> None:
    columns = [cell.strip('"') for cell in header.replace(";", ",").replace("\t", ",").split(",")]
    cells = ["7" if column == name else "1700000000" for column in columns]
    delimiter = next(each for each in ",;\t" if each in header)
    log = log_of(tmp_path, f"{header}\n{delimiter.join(cells)}\n")
    assert log.steps.tolist() == [7]
    assert "loss" in log.names
    assert not {name, "_timestamp"} & set(log.names)
    assert log.times.tolist() == [1.7e9 if "_timestamp" in header else pytest.approx(NAN, nan_ok=True)]


def test_the_step_column_can_be_named(tmp_path: Path) -> None:
    text = "round,step,loss\n10,0,2\n20,1,3\n"
    assert log_of(tmp_path, text, step_column="round").steps.tolist() == [10, 20]
    with pytest.raises(InputError, match="no training log"):
        log_of(tmp_path, text, step_column="rounds")
    with pytest.raises(InputError, match="has no column 'round'"):
        log_of(tmp_path, '{"step": 1, "loss": 2}\n', step_column="round")


def test_what_cannot_be_taken_is_counted_and_the_first_named(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        'step,loss,name,lr\n1,2.5,run,0.1\n2,2.5\n\n,2.5,run,0.1\n3,oops,run,0.1\n-4,1,run,1\n5.0,"1,234.5",run,0.1\n',
    )
    assert log.steps.tolist() == [1, 3, 5]
    assert log.names == ("loss", "lr")
    assert told(log) == {"unparsed": (1, 3), "without_step": (2, 5), "value": (1, 6), "left_out": (1, None)}
    assert series(log, "loss") == [(1, 2.5), (5, 1234.5)]
    texts = {problem.kind: str(problem) for problem in log.problems}
    assert texts["value"] == "a value is no number (line 6): loss is 'oops'"
    assert texts["left_out"] == "a column holds no numbers: name"
    assert texts["without_step"].startswith("2 rows name no step (first: line 5): ")


def test_a_header_in_the_midst_begins_a_new_table(tmp_path: Path) -> None:
    log = log_of(tmp_path, "step,loss\n1,5\nstep,loss\n2,4\nstep,lr,loss\n3,0.1,3\n")
    assert series(log, "loss") == [(1, 5.0), (2, 4.0), (3, 3.0)]
    assert series(log, "lr") == [(3, 0.1)]
    assert log.problems == ()


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two columns 'loss'"):
        log_of(tmp_path, "step,loss,loss\n1,2,3\n")


def test_json_lines_with_nested_names_and_nan_in_every_spelling(tmp_path: Path) -> None:
    rows = [
        '{"_step": 0, "train": {"loss": 2.5, "deep": {"er": 1}}, "_timestamp": 1700000000.5, "tag": "a"}',
        '{"_step": 1, "train": {"loss": NaN}, "ok": true}',
        '{"_step": 2, "train": {"loss": "NaN"}}',
        '{"_step": 3, "train": {"loss": null}}',
        '{"_step": 4, "train": {"loss": "-Infinity"}}',
        '{"_step": 5, "train": {"loss": 2.0',
        "[1]",
        '{"other": 5}',
    ]
    log = log_of(tmp_path, "\n".join(rows))
    assert log.format == "jsonl"
    assert log.names == ("train/loss", "train/deep/er")
    np.testing.assert_array_equal(log.series("train/loss")[1], [2.5, NAN, NAN, -math.inf])
    assert log.series("train/loss")[0].tolist() == [0, 1, 2, 4]
    assert log.times[0] == 1700000000.5
    assert told(log) == {"unparsed": (2, 6), "without_step": (1, 8), "left_out": (2, None)}


def test_a_row_without_a_step_column_anywhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column of .* counts the steps") as error:
        log_of(tmp_path, '{"loss": 2, "epoch": 1}\n')
    assert "--step-column" in str(error.value)


def test_the_string_nan_of_golden_values_is_a_point_that_was_not_logged(tmp_path: Path) -> None:
    golden = {
        "lm loss": {"start_step": 1, "end_step": 15, "step_interval": 5, "values": {"1": 9.5, "5": "nan", "10": 8.0}},
        "time": {"start_step": 1, "end_step": 15, "step_interval": 5, "values": {"1": "nan", "5": "nan", "10": NAN}},
    }
    log = log_of(tmp_path, json.dumps(golden))
    assert log.format == "megatron-golden"
    assert series(log, "lm loss") == [(1, 9.5), (10, 8.0)]
    assert log.missing["time"].tolist() == [True, False]
    assert math.isnan(log.values["time"][1])
    older = {"lm loss": {"start_step": 0, "end_step": 15, "step_interval": 5, "values": [9.5, 9.0, "nan"]}}
    assert series(log_of(tmp_path, json.dumps(older)), "lm loss") == [(0, 9.5), (5, 9.0)]
    with pytest.raises(InputError, match="belong to no steps"):
        log_of(tmp_path, json.dumps({"lm loss": {"step_interval": 5, "values": [9.5]}}))


def test_the_state_of_a_trainer_and_an_array_of_rows(tmp_path: Path) -> None:
    rows = [{"step": 10, "loss": 2.5, "epoch": 0.5}, {"step": 10, "eval_loss": 2.75}, {"step": 20, "loss": 2.25}]
    state = log_of(tmp_path, json.dumps({"log_history": rows, "global_step": 20}, indent=2))
    assert state.format == "trainer-state"
    assert state.steps.tolist() == [10, 20]
    assert telemetry_names(state.names).names == {"eval_loss": "val_loss"}
    array = log_of(tmp_path, json.dumps(rows))
    assert array.format == "json"
    assert series(array, "loss") == series(state, "loss") == [(10, 2.5), (20, 2.25)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, lambda content: content])
def test_compressed_alike_and_torn_ends_are_told(tmp_path: Path, pack: Any) -> None:
    text = "step,loss\n" + "".join(f"{step},{step / 7}\n" for step in range(20_000))
    content = pack(text.encode())
    log = log_of(tmp_path, content)
    assert len(log.steps) == 20_000
    assert log.problems == ()
    log = log_of(tmp_path, content[: len(content) // 2])
    kinds = {problem.kind for problem in log.problems}
    assert 100 < len(log.steps) < 19_999
    assert "torn" in kinds or content == text.encode()
    two = log_of(tmp_path, pack(b"step,loss\n1,2\n") + pack(b"2,3\n"))
    assert two.steps.tolist() == [1, 2]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
def test_damaged_compression_is_damage(tmp_path: Path, pack: Any) -> None:
    content = bytearray(pack(b"step,loss\n" + b"".join(b"%d,%d\n" % (n, n * n % 91) for n in range(5000))))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(InputError, match="damaged"):
        log_of(tmp_path, bytes(content))


def test_utf16_and_byte_order_marks(tmp_path: Path) -> None:
    for encoding in ("utf-8-sig", "utf-16"):
        log = log_of(tmp_path, "step,loss\r\n1,2\r\n".encode(encoding))
        assert series(log, "loss") == [(1, 2.0)]


@pytest.mark.parametrize(
    "text", ["", " \n\n", "hello\nworld\n", "a,b\n1,2\n", '{"a": [1, 2', "[]", "{}", "\x00\x01\x02" * 50, "step,loss\n"]
)
def test_what_is_nothing_known_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        log_of(tmp_path, text)


def test_the_refusal_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        log_of(tmp_path, "hello\n")
    shown = str(error.value)
    for name in ("tensorboard", "jsonl", "csv", "losses", "megatron", "llm-c", "modded-nanogpt", "torchtitan"):
        assert name in shown
    with pytest.raises(UsageError, match="there is no"):
        read_log(tmp_path / "absent.csv")


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.floats(-9, 9)), max_size=60))
def test_rows_keep_the_order_of_every_name_and_lose_nothing(entries: list[tuple[int, str, float]]) -> None:
    rows = LogRows()
    for line, (step, name, value) in enumerate(entries, start=1):
        rows.add(step, {name: value}, line=line)
    log = rows.finish("s", "csv")
    num_again = 0
    for name in log.names:
        given_points = [(step, value) for step, each, value in entries if each == name]
        assert series(log, name) == given_points
        last = dict(given_points)
        assert dict(series(log.wide(), name)) == last
        num_again += len(given_points) - len(last)
    assert log.num_duplicates == num_again
    assert log.num_points == len(entries)


WHOLE = (
    b"step,loss,lr\n" + b"".join(b"%d,%f,1e-3\n" % (n, 5 - n / 9) for n in range(8)),
    b"".join(b'{"_step": %d, "train": {"loss": %f}}\n' % (n, 5 - n / 9) for n in range(8)),
    json.dumps({"lm loss": {"start_step": 1, "step_interval": 1, "values": {"1": 9.5, "2": "nan"}}}).encode(),
    json.dumps({"log_history": [{"step": n, "loss": n / 3} for n in range(5)]}).encode(),
    b"".join(b"s:%d trl:%f lr:0.1 norm:1.5\n" % (n, n / 7) for n in range(8)),
    b"".join(b" iteration %d/ 99 | lm loss: %f | grad norm: 1.5 |\n" % (n, n / 7) for n in range(8)),
    gzip.compress(b"step,loss\n1,2\n2,3\n", mtime=0),
    zstandard.compress(b"step,loss\n1,2\n2,3\n"),
)
PIECES = (*b'\n\r,"{[-9\x00\x1f', b"nan", b"1e999", b"9" * 30, b"step", b"\xff\xfe", b"\x1f\x8b")


@given(
    st.sampled_from(WHOLE),
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(PIECES) | st.integers(0, 255)), max_size=5
    ),
)
@settings(max_examples=300)
def test_whatever_happens_to_a_log_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, edits: list[tuple[int, int, int | bytes]]
) -> None:
    damaged = bytearray(content)
    for at, num_cut, piece in edits:
        place = at % (len(damaged) + 1)
        damaged[place : place + num_cut] = bytes([piece]) if isinstance(piece, int) else piece
    path = tmp_path_factory.getbasetemp() / "damaged.log"
    path.write_bytes(damaged)
    try:
        log = read_log(path)
    except (InputError, UsageError):
        return
    for name in log.names:
        assert np.isnan(log.values[name][log.missing[name]]).all()
    assert log.wide().num_points + log.num_duplicates == log.num_points > 0


def test_names_are_known_by_their_usual_spellings_and_never_guessed(tmp_path: Path) -> None:
    assert telemetry_names(["Train/Loss", "train.grad_norm", "learning-rate", "epoch"]).names == {
        "Train/Loss": "loss",
        "train.grad_norm": "grad_norm",
        "learning-rate": "lr",
    }
    assert telemetry_names(["loss", "train_loss"]).names == {}
    two = telemetry_names(["a - train/loss", "b - train/loss", "lr"])
    assert (two.names, dict(two.undecided)) == ({}, {"loss": ("a - train/loss", "b - train/loss")})
    assert telemetry_names(["a - train/loss", "b"], {"b": "loss"}).names == {"b": "loss"}
    assert telemetry_names(["loss", "trl"], {"loss": "other"}).names == {"loss": "other", "trl": "loss"}
    with pytest.raises(NotInRun, match="no 'x'"):
        telemetry_names(["loss"], {"x": "loss"})
    with pytest.raises(UsageError, match="would both be 'loss'"):
        telemetry_names(["loss", "b"], {"b": "loss"})
    log = log_of(tmp_path, "step,trl,norm\n1,2,3\n")
    assert log.renamed(telemetry_names(log.names).names).names == ("loss", "grad_norm")
    with pytest.raises(ValueError, match="would be 'norm'"):
        log.renamed({"trl": "norm"})
    with pytest.raises(NotInRun, match="has no 'loss'"):
        log.series("loss")


def test_a_column_may_be_called_as_a_number_is_written(tmp_path: Path) -> None:
    log = log_of(tmp_path, "step,NaN,1e3,loss\n1,2,3,4\n2,3,4,5\n")
    assert log.names == ("NaN", "1e3", "loss")
    assert series(log, "NaN") == [(1, 2), (2, 3)]


def test_what_can_be_read_only_once_is_refused_as_that(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file"):
        read_log(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file"):
        read_log("/dev/zero")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_little_that_unpacks_to_much_is_never_held_as_a_whole(tmp_path: Path, kind: str) -> None:
    packer = zlib.compressobj(wbits=31) if kind == "gzip" else zstandard.ZstdCompressor().compressobj()
    content = packer.compress(b"step,loss\n1,2\n")
    zeros = bytes(1 << 24)
    for _ in range(8):
        content += packer.compress(zeros)
    (tmp_path / "log").write_bytes(content + packer.flush())
    sizes = [len(chunk) for chunk in LogFile(tmp_path / "log").chunks()]
    assert sum(sizes) == 14 + (8 << 24)
    assert max(sizes) <= 1 << 25
    assert [(number, len(line)) for number, line in LogFile(tmp_path / "log").lines()] == [(1, 9), (2, 3), (3, 1 << 24)]


def test_a_log_of_many_names_takes_room_for_its_points_alone(tmp_path: Path) -> None:
    num_names, num_rows = 300, 6_000
    text = "".join(f'{{"_step": {row}, "name{row % num_names}": {row}}}\n' for row in range(num_rows))
    (tmp_path / "log").write_text(text)
    tracemalloc.start()
    log = read_log(tmp_path / "log").wide()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(log.names), log.num_points, len(log.steps)) == (num_names, num_rows, num_rows)
    assert most < num_names * num_rows * 2, "a column of all rows for each name would be nine bytes a cell, twice"
    assert series(log, "name7")[:2] == [(7, 7), (307, 307)]
