"""Which room imports which? The contracts stand in pyproject.toml; here they are held by the test run as well."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.tree import TOP


def test_import_contracts_are_kept() -> None:
    # A process of its own: the linter configures logging and the path of the process it runs in.
    check = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    done = subprocess.run([sys.executable, "-c", check], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_no_contract_was_taken_out() -> None:
    import tomllib

    settings = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert [contract["name"] for contract in settings["contracts"]] == [
        "rooms import downward only",
        "torch is imported in torch/ only",
        "ray is imported in its engine only",
        "numba is imported in compiled kernels only",
        "core, plan and gate know no IO, clock, randomness or logging",
        "polars, which hangs after a fork, stays out of every worker's path",
    ]
    assert settings["contracts"][0]["exhaustive"] is True
