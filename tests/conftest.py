"""What all tests share: reproducible Hypothesis runs, and the folder of real files where it is present."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.torch.forking import Launch

settings.register_profile(
    "house",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("house")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A width that whoever starts the tests asks for (pytest-xdist does) is not one that a test asked for.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The developers' folder of real files and reported cases; users do not have it."""
    root = Path(os.environ.get("DATAGUARD_SHARED", Path(__file__).parents[2] / "shared"))
    if not (root / "data" / "PROVENANCE.md").is_file():
        pytest.skip(f"real files are not on this machine (looked in {root}); set DATAGUARD_SHARED")
    return root


@pytest.fixture(scope="session")
def ranks() -> Iterator[Launch]:
    """Real ranks, forked from one process: ``ranks("tests.torch....", folder, world_size, **words)``."""
    from tests.torch.forking import forked_ranks

    with forked_ranks() as launch:
        yield launch


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What incidents came to: told here, since with several processes the first one loads no other conftest."""
    from tests.incidents.table import print_table

    print_table(terminalreporter)
