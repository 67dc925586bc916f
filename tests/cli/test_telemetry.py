"""``dataguard telemetry``: what another tool logged becomes the telemetry of the attempts that delivered it, once."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.cli.main import main
from dataguard.errors import NotInRun
from dataguard.run.logs import read_log
from dataguard.run.logs.recorded import log_of_run
from dataguard.run.run import Run
from dataguard.run.telemetry import open_telemetry, telemetry_records
from dataguard.run.telemetry_reading import read_telemetry, telemetry_of_lineage, telemetry_ranks
from tests.architecture.validation import validate
from tests.run import event_files
from tests.support.story import tell_story

Capture = pytest.CaptureFixture[str]
FIRST_LABEL = 1


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attempt 1: steps 0:60 on 2 ranks; 2, from 1: 35:70 on 4 ranks; 3, from 1: 30:33 on 2. The first label is 1."""
    folder = tmp_path_factory.mktemp("story")
    tell_story(folder, first_label=FIRST_LABEL)
    return folder / "run"


@pytest.fixture
def run(told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(told, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "run"
    assert main(["verify", "run", "--no-data"]) == 0


def asked(capfd: Capture, *words: str, code: int = 0) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert main(["telemetry", *words, "--json"]) == code
    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    for answer in answers:
        validate(answer, f"telemetry-{words[0]}")
    return answers


def text(capfd: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    capfd.readouterr()
    assert main(["telemetry", *words]) == code
    found = capfd.readouterr()
    return found.out, found.err


def csv(path: str, labels: range, *, shift: float = 0.0) -> None:
    rows = [f"{label},{'nan' if label == 7 else label / 4 + shift},{label if label % 2 else ''}" for label in labels]
    Path(path).write_text("\n".join(["Step,Train/Loss,other", *rows]) + "\n")


def held(run: Path, name: str, leaf: int | None = None) -> dict[int, tuple[int, float]]:
    """Label -> attempt and value, of a lineage."""
    rows = telemetry_of_lineage(Run.open(run), leaf, names=[name])
    return {
        step + FIRST_LABEL: (attempt, value) for step, attempt, value in rows[["step", "attempt", "value"]].tolist()
    }


def test_each_step_goes_to_the_attempt_that_delivered_it(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(1, 80))
    (answer,) = asked(capfd, "import", "run", "log.csv", "--attempt", "2")
    assert (answer["format"], answer["rank"], answer["first_label"]) == ("csv", 0, 1)
    assert answer["names"] == {"Train/Loss": "loss", "other": "other"}
    assert [(each["attempt"], each["steps"]) for each in answer["attempts"]] == [(1, [1, 36]), (2, [36, 71])]
    assert answer["num_points"] == 79 + 40
    assert answer["num_new"] == 70 + 35
    assert answer["num_not_delivered"] == 9 + 5
    assert answer["steps_not_delivered"] == [71, 80]
    loss = held(run, "loss", 2)
    assert {label: attempt for label, (attempt, _) in loss.items()} == {
        label: 1 if label < 36 else 2 for label in range(1, 71)
    }
    for label, (_, value) in loss.items():
        assert math.isnan(value) if label == 7 else value == label / 4
    assert list(held(run, "other", 2)) == list(range(1, 71, 2))


def test_importing_twice_changes_nothing_and_a_longer_log_adds_what_is_new(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(1, 20))
    (first,) = asked(capfd, "import", "run", "log.csv")
    files = sorted(path for path in (run / "telemetry").rglob("*") if path.is_file())
    before = [path.read_bytes() for path in files]
    (again,) = asked(capfd, "import", "run", "log.csv")
    assert (again["num_new"], again["num_present"]) == (0, first["num_new"])
    assert sorted(path for path in (run / "telemetry").rglob("*") if path.is_file()) == files
    assert [path.read_bytes() for path in files] == before
    assert "nothing new: all of it is there already" in text(capfd, "import", "run", "log.csv")[0]
    csv("log.csv", range(1, 31))
    (longer,) = asked(capfd, "import", "run", "log.csv")
    assert (longer["num_present"], longer["num_new"]) == (first["num_new"], 11 + 5)
    csv("log.csv", range(1, 4), shift=100.0)
    (changed,) = asked(capfd, "import", "run", "log.csv")
    assert (changed["num_new"], changed["num_present"]) == (3, 2)
    assert [value for _, value in list(held(run, "loss").values())[:4]] == [100.25, 100.5, 100.75, 1.0]


def test_a_live_writer_is_never_touched_and_its_values_stand(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(1, 20))
    with open_telemetry(Run.open(run), 1, 0, fenced=False) as writer:
        writer.append(telemetry_records([1, 2], "loss", [0.5, 42.0], time_ns=5))
        (answer,) = asked(capfd, "import", "run", "log.csv")
        assert (answer["num_present"], answer["num_overruled"]) == (1, 1)
        writer.append(telemetry_records([3], "loss", [43.0], time_ns=5))
    assert [value for _, value in list(held(run, "loss").values())[:5]] == [0.25, 0.5, 42.0, 43.0, 1.25]
    assert "rank itself logged another value, which stands" in text(capfd, "import", "run", "log.csv")[0]


def test_a_dry_run_writes_nothing(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(1, 20))
    (dry,) = asked(capfd, "import", "run", "log.csv", "--dry-run")
    assert dry["num_new"] == 19 + 10
    assert dry["attempts"][0]["file"] is None
    assert not (run / "telemetry").exists()
    assert "29 would be new" in text(capfd, "import", "run", "log.csv", "--dry-run")[0]
    (wet,) = asked(capfd, "import", "run", "log.csv")
    assert {**wet, "dry_run": True, "attempts": []} == {**dry, "attempts": []}
    assert (run / wet["attempts"][0]["file"]).is_file()


def test_labels_ranks_and_names(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(10))
    (answer,) = asked(
        capfd, "import", "run", "log.csv", "--first-label", "0", "--rank", "1", "--map", "Train/Loss=my loss"
    )
    assert answer["num_not_delivered"] == 0
    assert answer["attempts"][0]["steps"] == [1, 11]
    assert held(run, "my loss")[1] == (1, 0.0)
    assert telemetry_ranks(Run.open(run).layout, 1) == [1]
    (answer,) = asked(capfd, "import", "run", "log.csv")
    assert answer["steps_not_delivered"] == [0, 1]
    assert text(capfd, "import", "run", "log.csv", "--rank", "2", code=2)[1]
    assert "no 'x'" in text(capfd, "import", "run", "log.csv", "--map", "x=y", code=2)[1]
    assert "no NAME=KEPT" in text(capfd, "import", "run", "log.csv", "--map", "x", code=2)[1]
    assert "reserved" in text(capfd, "import", "run", "log.csv", "--map", "other=step", code=2)[1]


def test_names_that_cannot_be_kept_are_told(run: Path, capfd: Capture) -> None:
    Path("iter.txt").write_text("iter 1: loss 2.5, time 3.5ms, mfu 1.0%\n")
    (answer,) = asked(capfd, "import", "run", "iter.txt")
    (left,) = answer["left_out"]
    assert (left["name"], left["num_points"]) == ("time", 1)
    assert answer["num_points"] == 3
    assert answer["num_new"] == 2
    (answer,) = asked(capfd, "import", "run", "iter.txt", "--map", "time=iteration_ms")
    assert (answer["left_out"], answer["num_new"], answer["num_present"]) == ([], 1, 2)


def test_what_is_refused_is_refused_before_anything_is_written(run: Path, capfd: Capture) -> None:
    csv("a.csv", range(1, 71))
    csv("b.csv", range(1, 5))
    # Attempt 1 has 2 ranks, attempt 2 (from label 36 on) has 4, attempt 3 has 2.
    text(capfd, "import", "run", "a.csv", "--attempt", "2", "--rank", "3", code=2)
    text(capfd, "import", "run", "a.csv", "b.csv", "--map", "typo=x", code=2)
    damaged = open_telemetry(Run.open(run), 3, 0, fenced=False)
    damaged.append(telemetry_records(30, ["loss"], [1.0], time_ns=1))
    damaged.close()
    path = Run.open(run).layout.telemetry(3, 0)
    good = path.read_bytes()
    path.write_bytes(good[:4200] + bytes([good[4200] ^ 1]) + good[4201:])
    text(capfd, "import", "run", "a.csv", code=3)
    path.write_bytes(good)
    assert [telemetry_ranks(Run.open(run).layout, attempt) for attempt in (1, 2, 3)] == [[], [], [0]]


def test_a_rank_that_only_some_attempts_have_can_be_imported_where_it_was(run: Path, capfd: Capture) -> None:
    csv("late.csv", range(36, 71))
    (answer,) = asked(capfd, "import", "run", "late.csv", "--attempt", "2", "--rank", "3")
    assert [each["attempt"] for each in answer["attempts"]] == [2]
    csv("none.csv", range(900, 910))
    text(capfd, "import", "run", "none.csv", "--attempt", "2", "--rank", "9", code=2)


def test_what_brings_nothing_ends_with_1_and_what_cannot_be_read_with_3(run: Path, capfd: Capture) -> None:
    csv("late.csv", range(1000, 1010))
    csv("good.csv", range(1, 5))
    (late,) = asked(capfd, "import", "run", "late.csv", code=1)
    assert (late["num_new"], late["num_not_delivered"], late["attempts"]) == (0, 15, [])
    good, late = asked(capfd, "import", "run", "good.csv", "late.csv", code=1)
    assert (good["num_new"], late["num_new"]) == (6, 0)
    Path("what.txt").write_text("hello\n")
    assert "no training log" in text(capfd, "import", "run", "what.txt", code=3)[1]
    assert "there is no" in text(capfd, "import", "run", "absent", code=2)[1]
    assert "attempt 9" in text(capfd, "import", "run", "good.csv", "--attempt", "9", code=2)[1]


def test_event_files_keep_their_times_and_exports_of_two_runs_are_not_guessed(run: Path, capfd: Capture) -> None:
    Path("tb").mkdir()
    event_files.write(
        Path("tb/events.out.tfevents.1.h.1.0"),
        *(event_files.event(step, event_files.simple("loss", 0.1 * step), time=1e9 + step) for step in range(1, 6)),
    )
    asked(capfd, "import", "run", "tb")
    rows = read_telemetry(Run.open(run).layout, 1)
    assert rows["time"].tolist() == [(10**9 + step) * 10**9 for step in range(1, 6)]
    np.testing.assert_array_equal(rows["value"], np.float32(0.1 * np.arange(1, 6)).astype(np.float64))
    Path("tb.csv").write_text("Step,loss\n" + "".join(f"{step},{0.1 * step}\n" for step in range(1, 6)))
    (same,) = asked(capfd, "import", "run", "tb.csv")
    assert (same["num_new"], same["num_present"]) == (0, 5), "TensorBoard keeps float32: it is the same value"
    Path("two.csv").write_text("Step,a - loss,b - loss\n1,2,3\n")
    (two,) = asked(capfd, "import", "run", "two.csv")
    assert two["undecided"] == {"loss": ["a - loss", "b - loss"]}
    assert "which one is loss?" in text(capfd, "import", "run", "two.csv")[0]


def test_show_lists_names_and_values_with_nan_as_a_word(run: Path, capfd: Capture) -> None:
    assert asked(capfd, "show", "run", code=1)[0]["names"] == []
    csv("log.csv", range(1, 31))
    asked(capfd, "import", "run", "log.csv")
    with open_telemetry(Run.open(run), 1, 1, fenced=False) as writer:
        writer.append(telemetry_records(4, "loss", [math.inf], time_ns=5))
        writer.append(telemetry_records(4, "loss", [1.0, 2.0], time_ns=5, slots=[2, 3]))
    (answer,) = asked(capfd, "show", "run")
    assert answer["values"] is None
    loss, other = answer["names"]
    assert loss == {
        "name": "loss", "num_values": 31, "num_sample_values": 2, "num_nan": 1, "num_infinite": 1, "num_ranks": 2,
        "steps": [1, 31], "first": 0.25, "last": 7.5, "least": 0.25, "greatest": 7.5,
    }  # fmt: skip
    assert (other["name"], other["num_values"], other["steps"], other["last"]) == ("other", 15, [1, 30], 29.0)
    (answer,) = asked(capfd, "show", "run", "--name", "loss", "--step", "5:8")
    assert [(each["step"], each["rank"], each["value"]) for each in answer["values"]] == [
        (5, 0, 1.25), (5, 1, "Infinity"), (6, 0, 1.5), (7, 0, "NaN"),
    ]  # fmt: skip
    (answer,) = asked(capfd, "show", "run", "--step", "5", "--rank", "0")
    assert [(each["name"], each["value"]) for each in answer["values"]] == [("loss", 1.25), ("other", 5.0)]
    out, err = text(capfd, "show", "run", "--name", "loss", "--name", "other", "--step", "6:8")
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["6", "0", "1", "1.5", "-"],
        ["7", "0", "1", "nan", "7"],
    ]
    assert err == ""
    assert "nothing called 'lr' was logged" in text(capfd, "show", "run", "--name", "lr", code=2)[1]
    text(capfd, "show", "run", "--step", "0", code=2)


def test_show_tells_torn_tails_and_damage(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(1, 31))
    asked(capfd, "import", "run", "log.csv")
    (path,) = (run / "telemetry").rglob("*.frames")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[5000:5100])
    (answer,) = asked(capfd, "show", "run")
    assert (len(answer["torn"]), answer["names"][0]["num_values"]) == (1, 30)
    damaged = bytearray(whole)
    damaged[5000] ^= 1
    path.write_bytes(damaged)
    (answer,) = asked(capfd, "show", "run", code=3)
    assert answer["damage"]
    path.write_bytes(whole)


def test_a_log_of_which_no_name_can_be_kept_brings_nothing(run: Path, capfd: Capture) -> None:
    Path("a.csv").write_text(f"step,{'x' * 65},time\n1,2,3\n2,3,4\n")
    (answer,) = asked(capfd, "import", "run", "a.csv", code=1)
    assert (answer["num_points"], answer["names"], answer["attempts"]) == (4, {}, [])
    assert [each["num_points"] for each in answer["left_out"]] == [2, 2]


def test_a_run_is_a_log_like_any_other(run: Path, capfd: Capture) -> None:
    csv("log.csv", range(1, 31))
    asked(capfd, "import", "run", "log.csv")
    opened = Run.open(run)
    mine, theirs = log_of_run(opened), read_log("log.csv").renamed({"Train/Loss": "loss"})
    assert (mine.format, mine.names, mine.problems) == ("dataguard", ("loss", "other"), ())
    for name in theirs.names:
        np.testing.assert_array_equal(mine.series(name), theirs.series(name))
        np.testing.assert_array_equal(mine.missing[name], theirs.missing[name])
    assert log_of_run(opened, names=["other"]).names == ("other",)
    with pytest.raises(NotInRun, match=r"rank 1 of .* logged nothing"):
        log_of_run(opened, rank=1)
