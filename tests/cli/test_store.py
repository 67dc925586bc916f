"""``dataguard store list | show | prune`` and ``rehearse --store``, as people and scripts use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataguard.cli.main import main
from dataguard.replay.fetch import StoreShown
from dataguard.run.layout import Layout
from dataguard.run.store_account import StoreList
from dataguard.run.store_prune import StorePruned
from tests.support.corpora import make_corpus


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Two ranks, two microbatches a step, steps 1:6 in the trainer's labels, all of it kept."""
    make_corpus(tmp_path, {"web": {"a.parquet": 60, "b.jsonl": 30}})
    words = ["--seed", "7", "--global-batch", "8", "--world-size", "2", "--microbatch-size", "2", "--steps", "5"]
    made = ["rehearse", str(tmp_path / "M.parquet"), "--run", str(tmp_path / "run"), *words, "--first-label", "1"]
    assert main([*made, "--store", "all"]) == 0
    capfd.readouterr()
    return str(tmp_path / "run")


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command: its exit code, standard output, standard error."""

    def asked(*words: str) -> tuple[int, str, str]:
        code = main(["store", *words])
        out, err = capfd.readouterr()
        return code, out, err

    return asked


def test_list(run: str, ask: Any) -> None:
    code, out, _ = ask("list", run, "--json")
    assert code == 0
    answer = msgspec.json.decode(out, type=StoreList)
    assert [(each.attempt, each.rank, each.keep, each.steps) for each in answer.ranks] == [
        (1, 0, "all", ((1, 6),)),
        (1, 1, "all", ((1, 6),)),
    ]
    assert (answer.num_steps, answer.num_let_go, answer.num_lost) == (10, 0, 0)
    code, out, _ = ask("list", run, "--rank", "1")
    assert code == 0
    assert "10 files" not in out
    assert "5 files" in out
    assert "1:6" in out


def test_list_ends_with_1_where_something_was_lost(run: str, ask: Any) -> None:
    Layout(Path(run)).store(1, 2, 1).unlink()
    code, out, _ = ask("list", run)
    assert code == 1
    assert "1:3, 4:6" in out
    Layout(Path(run)).store_settings(1, 0).write_text("{")
    assert ask("list", run)[0] == 3


def test_show(run: str, ask: Any) -> None:
    code, out, _ = ask("show", run, "--step", "3", "--json")
    assert code == 0
    answer = msgspec.json.decode(out, type=StoreShown)
    assert [(each.rank, each.microbatch, each.slots) for each in answer.microbatches] == [
        (0, 0, (0, 2)),
        (0, 1, (2, 4)),
        (1, 0, (4, 6)),
        (1, 1, (6, 8)),
    ]
    assert all(each.recorded == each.digest for each in answer.microbatches)
    assert {tensor.name for tensor in answer.microbatches[0].tensors} == {"bytes", "offsets", "mask", "delivered"}
    code, out, _ = ask("show", run, "--step", "1:3", "--rank", "0")
    assert code == 0
    assert out.count("microbatches kept") == 2
    assert "yes" in out


def test_show_of_what_is_damaged_or_not_there(run: str, ask: Any) -> None:
    path = Layout(Path(run)).store(1, 2, 1)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)
    code, out, _ = ask("show", run, "--step", "3")
    assert code == 3
    assert "damaged" in out
    assert path.name in out
    Layout(Path(run)).store(1, 1, 0).unlink()
    code, _, err = ask("show", run, "--step", "2", "--rank", "0")
    assert code == 2
    assert "nothing of step 2 of attempt 1 is kept by rank 0" in err
    assert "steps 1, 3, 4, 5 are" in err
    assert ask("show", run)[0] == 2
    assert ask("show", run, "--step", "99")[0] == 2


def test_show_of_several_steps_shows_those_that_are_kept(run: str, ask: Any) -> None:
    assert ask("prune", run, "--step", "2:4")[0] == 0
    code, out, err = ask("show", run, "--step", "1:6", "--json")
    assert code == 0
    assert [json.loads(line)["step"] for line in out.splitlines()] == [1, 4, 5]
    assert "nothing of step 2 of attempt 1 is kept" in err
    code, out, err = ask("show", run, "--step", "2:4", "--json")
    assert (code, out) == (2, "")
    assert ask("show", run, "--step", "5:1000000")[0] == 2, "what nobody delivered is refused at once"


@pytest.mark.parametrize("budget", ["nan", "inf", "-inf", "0", "-1", "1e400"])
def test_a_budget_must_bound_something(run: str, budget: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--world-size", "1", "--microbatch-size", "8", "--steps", "1", "--store", "all"]
    assert main(["rehearse", "--run", run, *words, "--store-budget-mb", budget]) == 2
    assert "--store-budget-mb" in capfd.readouterr().err
    assert not (Path(run) / "journal" / "000003.json").exists(), "no attempt was begun"


def test_show_of_what_is_another_delivery(run: str, ask: Any) -> None:
    """A whole file of another step under this one's name is damage; a file whose record differs is told as such."""
    layout = Layout(Path(run))
    layout.store(1, 2, 0).write_bytes(layout.store(1, 3, 0).read_bytes())
    code, out, _ = ask("show", run, "--step", "3", "--json")
    assert code == 3
    assert "another file in this one's place" in json.loads(out)["damage"][0]


def test_prune(run: str, ask: Any) -> None:
    code, out, _ = ask("prune", run, "--step", "1:3", "--dry-run", "--json")
    assert code == 0
    told = msgspec.json.decode(out, type=StorePruned)
    assert (told.dry_run, told.num_steps) == (True, 4)
    assert ask("prune", run, "--step", "1:3")[:2] != (0, "")
    code, out, _ = ask("list", run, "--json")
    assert code == 0, "what was pruned is not lost"
    assert {(each.num_steps, each.num_pruned) for each in msgspec.json.decode(out, type=StoreList).ranks} == {(3, 2)}
    code, _, err = ask("prune", run)
    assert code == 2
    assert "--keep-last" in err


def test_a_run_without_a_store_says_how_to_have_one(tmp_path: Path, run: str, ask: Any) -> None:
    assert ask("prune", run, "--attempt", "1")[0] == 0
    assert main(["rehearse", "--run", run, "--steps", "1", "--store", "last:0"]) == 2
    code, out, err = ask("list", run, "--attempt", "7")
    assert (code, out) == (2, "")
    assert "attempt 7" in err
