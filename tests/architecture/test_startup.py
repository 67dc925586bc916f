"""What does starting cost? Counted in imports, which are the same on a busy machine; the times are benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"datasets", "fsspec", "numba", "numpy", "pandas", "polars", "pyarrow", "ray", "torch", "transformers"}


def imported_after(code: str, cwd: Path | None = None) -> set[str]:
    """Top-level packages in a fresh process after `code`."""
    show = "import sys\nfor name in sorted({m.partition('.')[0] for m in sys.modules}): print(name, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True, cwd=cwd
    )
    names = set(done.stderr.split())
    assert "dataguard" in names
    return names


def test_the_probe_sees_what_is_imported() -> None:
    assert imported_after("import dataguard, numpy") & HEAVY == {"numpy"}


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import dataguard", set()),
        ("import dataguard.errors", set()),
        ("from dataguard.cli.main import main; assert main(['--help']) == 0", set()),
        ("from dataguard.cli.main import main; assert main(['--version']) == 0", set()),
        ("from dataguard.cli.main import main; assert main(['no-such-command']) == 2", set()),
        ("from dataguard import Geometry", set()),
        ("from dataguard import Manifest", {"numpy"}),
        ("from dataguard.cli.main import main; assert main(['schema']) == 0", set()),
    ],
)
def test_starting_imports_nothing_heavy(code: str, allowed: set[str]) -> None:
    assert imported_after(code) & HEAVY <= allowed


@pytest.mark.parametrize(
    "command", ["log", "inspect", "where", "seen", "plan", "replay", "verify", "rehearse", "watch"]
)
def test_the_help_of_a_lookup_imports_neither_compiler_nor_engine(command: str) -> None:
    names = imported_after(f"from dataguard.cli.main import main; assert main([{command!r}, '--help']) == 0")
    assert names & {"numba", "polars", "datasets", "pandas", "torch", "ray"} == set()


@pytest.mark.parametrize("name", ["Corpus", "Plan", "Run", "Loader"])
def test_no_public_name_pulls_in_the_optional_libraries(name: str) -> None:
    names = imported_after(f"from dataguard import {name}")
    assert names & {"datasets", "polars", "torch", "ray", "pandas"} == set()
