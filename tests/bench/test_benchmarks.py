"""Do the benchmarks still import? They are run by name only, so nothing else of the ordinary test line would notice."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.bench.ratio import Claim, rounds_of

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_import(name: str) -> None:
    module = importlib.import_module(f"tests.bench.{name}")
    assert [each for each in vars(module) if each.startswith("test_")], "a benchmark file holds benchmarks"


def test_every_benchmark_has_its_row_in_the_readme() -> None:
    told = (Path(__file__).parent / "README.md").read_text()
    assert [name for name in NAMES if f"{name}.py" not in told] == []


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    ran: list[str] = []
    clock = iter(range(100))
    turns = rounds_of(
        {"a": lambda: ran.append("a"), "b": lambda: ran.append("b")},
        rounds=2,
        clock=lambda: float(next(clock)),
        after=lambda made: ran.append("after") if made is None else None,
    )
    assert [name for name in ran if name != "after"] == ["a", "b", "b", "a", "a", "b"]
    assert ran.count("after") == 6
    assert {name: len(times) for name, times in turns.seconds.items()} == {"a": 2, "b": 2}
    assert turns.ratio("a", "b") == 1.0


def test_a_claim_is_met_or_not() -> None:
    assert Claim(name="x", seen=1.3, unit="x", target=1.3).met
    assert not Claim(name="x", seen=1.31, unit="x", target=1.3).met
    assert Claim(name="x", seen=80, unit="x", target=80, at_least=True).met
    assert Claim(name="x", seen=1, unit="x").met is None
