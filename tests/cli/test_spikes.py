"""``dataguard spikes``: what it prints is frozen, what it ends with is what scripts rely on."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataguard.cli.main import main
from dataguard.cli.spikes import PROFILE_NAMES
from dataguard.triage.detect import PROFILES
from tests.architecture.validation import validate
from tests.triage.detect.curves import curve

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def written(name: str, seed: int, spikes: tuple[int, ...] = (), num: int = 600) -> str:
        losses = curve(num, seed=seed)
        for step in spikes:
            losses[step] += 1.0
        Path(name).write_text("step,loss\n" + "".join(f"{step},{loss:.6f}\n" for step, loss in enumerate(losses)))
        return name

    return written


def asked(capfd: Capture, *words: str, code: int = 0) -> Any:
    capfd.readouterr()
    assert main(["spikes", *words, "--json"]) == code
    answer = json.loads(capfd.readouterr().out)
    validate(answer, "spikes")
    return answer


def test_the_keys_are_those_that_scripts_rely_on(write: Callable[..., str], capfd: Capture) -> None:
    answer = asked(capfd, write("a.csv", 1, (400,)))
    assert list(answer) == ["log", "steps", "events", "profiles", "smallest_spike", "unheard"]
    assert answer["log"] == "a.csv"
    assert answer["steps"] == {"first": 0, "last": 599, "logged": 600}
    (event,) = answer["events"]
    assert list(event) == [
        "class", "start", "stop", "peak", "size_nats", "sigmas", "aftermath_nats", "grad_norm_ratio",
    ]  # fmt: skip
    assert (event["class"], event["start"], event["stop"], event["peak"]) == ("hard_batch", 400, 401, 400)
    assert event["size_nats"] == pytest.approx(1.0, abs=0.1)
    assert event["grad_norm_ratio"] is None
    assert [list(each) for each in answer["profiles"]] == [["profile", "alarms", "per_1000"]] * len(PROFILES)
    assert answer["profiles"][0] == {"profile": "default", "alarms": 1, "per_1000": 1.6667}


def test_every_profile_can_be_asked_for(write: Callable[..., str], capfd: Capture) -> None:
    assert tuple(PROFILES) == PROFILE_NAMES
    name = write("a.csv", 1, (400,))
    for profile in PROFILES:
        asked(capfd, name, "--profile", profile)


def test_fail_ends_with_1_where_there_is_an_event_and_nothing_judged_is_never_0(
    write: Callable[..., str], capfd: Capture
) -> None:
    asked(capfd, write("quiet.csv", 1), "--fail")
    asked(capfd, write("spike.csv", 1, (400,)), "--fail", code=1)
    asked(capfd, write("spike.csv", 1, (400,)))
    asked(capfd, write("short.csv", 1, num=5), code=3)
    Path("none.csv").write_text("step,other\n1,2.0\n2,2.0\n")
    assert main(["spikes", "none.csv"]) == 2
    assert "holds no loss" in capfd.readouterr().err


def test_two_logs_of_one_data_order_are_known_by_their_spikes(write: Callable[..., str], capfd: Capture) -> None:
    steps = (150, 250, 330, 480, 520)
    first, second, other = (
        write("a.csv", 1, steps), write("b.csv", 2, steps), write("c.csv", 3, tuple(step + 3 for step in steps)),
    )  # fmt: skip
    answer = asked(capfd, first, second)
    assert list(answer) == ["logs", "comparison"]
    assert [log["log"] for log in answer["logs"]] == ["a.csv", "b.csv"]
    comparison = answer["comparison"]
    assert list(comparison) == [
        "num_common_steps", "num_spikes", "num_recurring", "expected_by_chance", "log10_chance", "correlation",
        "correlation_sigmas", "one_data_order", "shared",
    ]  # fmt: skip
    assert comparison["one_data_order"] is True
    assert [each["step"] for each in comparison["shared"]] == list(steps)
    assert max(comparison["log10_chance"]) < -6
    assert asked(capfd, first, other)["comparison"]["one_data_order"] is False
    assert main(["spikes", first, second]) == 0
    assert "hard batches, whose loss belongs to the data" in capfd.readouterr().out


def test_what_people_see_holds_the_smallest_shift_and_every_rate(write: Callable[..., str], capfd: Capture) -> None:
    assert main(["spikes", write("a.csv", 1, (400,))]) == 0
    out = capfd.readouterr().out
    assert "1 event: 1 hard_batch" in out
    assert re.search(r"smallest lasting shift that this log can show: 0\.[0-9]+ nats", out)
    for profile in PROFILES:
        assert f"\n{profile} " in out


def test_spikes_that_recur_are_said_to_and_hard_batches_are_not(capfd: Capture, write: Callable[..., str]) -> None:
    assert main(["spikes", write("hard.csv", 1, (200, 300, 400, 500))]) == 0
    assert "recur" not in capfd.readouterr().out
    losses = curve(700, seed=1)
    for place, step in enumerate((200, 330, 460)):
        losses[step : step + 25] += (1 + place) * 0.9 ** np.arange(25)
    Path("a.csv").write_text("step,loss\n" + "".join(f"{step},{loss:.6f}\n" for step, loss in enumerate(losses)))
    assert main(["spikes", "a.csv"]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert "spikes recur: 3 that say something of the model's state" in out
    assert "each of the last three larger than the one before" in out
    assert main(["spikes", "a.csv", "--plot", "a.html"]) == 0
    assert "spikes recur: 3" in Path("a.html").read_text()


def test_a_page_is_whole_in_itself_and_replaces_only_its_own(write: Callable[..., str], capfd: Capture) -> None:
    name = write("<b>&.csv", 1, (400,))
    assert main(["spikes", name, "--plot", "a.html"]) == 0
    page = Path("a.html").read_text()
    assert "<svg" in page
    assert "hard_batch 400:401" in page
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "<b>&" not in page
    assert main(["spikes", name, "--plot", "a.html"]) == 0
    Path("a.html").write_text("somebody's")
    assert main(["spikes", name, "--plot", "a.html"]) == 2
    assert Path("a.html").read_text() == "somebody's"
    assert main(["spikes", name, "--plot", "a.pdf"]) == 2


def test_a_png_needs_the_extra_and_says_so(
    write: Callable[..., str], capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write("a.csv", 1, (400,))
    real = builtins.__import__

    def without(module: str, *args: Any, **kwargs: Any) -> Any:
        if module.startswith("matplotlib"):
            raise ModuleNotFoundError(module)
        return real(module, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", without)
        assert main(["spikes", name, "--plot", "a.png"]) == 2
    assert "pip install 'dataguard[plot]'" in capfd.readouterr().err
    assert not Path("a.png").exists()


def test_a_png_is_drawn(write: Callable[..., str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    name = write("a.csv", 1, (400,))
    for _ in range(2):
        assert main(["spikes", name, "--plot", "a.png"]) == 0
        assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_which_column_is_the_loss_can_be_said(capfd: Capture, write: Callable[..., str]) -> None:
    losses = curve(300, seed=4).tolist()
    Path("two.csv").write_text("step,a - loss,b - loss\n" + "".join(f"{i},{x},{x}\n" for i, x in enumerate(losses)))
    assert main(["spikes", "two.csv"]) == 2
    assert "which of them is it" in capfd.readouterr().err
    assert asked(capfd, "two.csv", "--loss", "b - loss")["steps"]["logged"] == 300
    assert main(["spikes", "two.csv", "--loss", "c"]) == 2
