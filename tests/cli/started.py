"""What ``dataguard init`` wrote, run as it is in one process: ``python -m tests.cli.started ROOT NAME STEPS ...``.

Each NAME is a folder under ROOT whose script's ``main`` is called with each of the STEPS. They are imported as modules,
so that workers find their functions, and one after the other, so that torch is imported once.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

from tests.architecture.tree import TOP
from tests.examples.running import ENVIRONMENT, EXPECTED_WARNINGS


def run_all(root: Path, names: list[str], steps: list[int]) -> str:
    """Run them in a process of their own; its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.started", str(root), ",".join(names), *map(str, steps)],
        env=ENVIRONMENT,
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def main(root: str, names: list[str], steps: list[int]) -> None:
    """Import each script and call it."""
    warnings.simplefilter("error")
    for message in EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", message)
    sys.path.insert(0, root)
    for name in names:
        script = import_module(f"{name}.train_with_dataguard")
        # Each worker of these imports the framework again; that workers do as this process does, the others show.
        workers = () if name in ("in_torch", "in_none", "in_none_tokens") else (0,)
        for stop in steps:
            script.main(stop, *workers)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), [int(word) for word in sys.argv[3:]])
