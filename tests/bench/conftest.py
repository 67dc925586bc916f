"""What the benchmarks share: interleaved rounds, and the table of claims at the end of a run.

The files are called ``bench_*.py``, so that the ordinary test line does not collect them: run them by name, as the
README beside them says. Without ``--benchmark-enable`` everything runs once, as a smoke test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from tests.bench.ratio import Claim, Turns, rounds_of

_CLAIMS = pytest.StashKey[list[Claim]]()


class Claims:
    """Takes down what a benchmark has seen."""

    def __init__(self, taken: list[Claim]) -> None:
        self._taken = taken

    def __call__(self, name: str, seen: float, unit: str = "x", **facts: Any) -> None:
        """Add one row; see `tests.bench.ratio.Claim`."""
        self._taken.append(Claim(name=name, seen=seen, unit=unit, **facts))


class Interleaved(Protocol):
    def __call__(self, contenders: dict[str, Callable[[], object]], *, rounds: int, **how: Any) -> Turns: ...


def is_measured(config: pytest.Config) -> bool:
    return bool(config.getoption("benchmark_enable"))


@pytest.fixture
def claims(request: pytest.FixtureRequest) -> Claims:
    return Claims(request.config.stash.setdefault(_CLAIMS, []))


@pytest.fixture
def interleaved(request: pytest.FixtureRequest) -> Interleaved:
    def run(contenders: dict[str, Callable[[], object]], *, rounds: int, **how: Any) -> Turns:
        return rounds_of(contenders, rounds=rounds if is_measured(request.config) else 0, **how)

    return run


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> bool:
    """False in a smoke test, where sizes should be small."""
    return is_measured(request.config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    taken = config.stash.get(_CLAIMS, [])
    if not taken:
        return
    terminalreporter.section("claims" if is_measured(config) else "claims (smoke test: times mean nothing)")
    terminalreporter.write_line(f"{'claim':<72} {'seen':>12} {'target':>14}")
    for line in lines(taken):
        terminalreporter.write_line(line)


def lines(taken: list[Claim]) -> Iterator[str]:
    for claim in taken:
        bound = "" if claim.target is None else f"{'>=' if claim.at_least else '<='} {claim.target:g} {claim.unit}"
        mark = {None: "", True: "met", False: "NOT MET"}[claim.met]
        yield f"{claim.name:<72} {claim.seen:>9,.3g} {claim.unit:<3} {bound:>14} {mark:<8}{claim.detail}".rstrip()
