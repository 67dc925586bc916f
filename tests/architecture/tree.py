"""The tree as the architecture tests look at it."""

from __future__ import annotations

import subprocess
from pathlib import Path

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "dataguard"


def modules() -> list[Path]:
    """Every module of the package, in order; a script that lies in a folder of data is none."""
    found = sorted(path for path in PACKAGE.rglob("*.py") if (path.parent / "__init__.py").exists())
    assert len(found) > 20
    return found


def tracked() -> list[Path]:
    """Every file that belongs to the project: git's list, or everything that is not hidden where git has none."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = [name.decode() for name in listed.stdout.split(b"\0") if name]
        return [TOP / name for name in names if (TOP / name).is_file()]
    rooms = ("dataguard", "tests", "schemas", "examples", ".ci")
    inside = [path for room in rooms for path in (TOP / room).rglob("*") if path.is_file()]
    return [path for path in (*inside, *TOP.glob("*.*")) if path.is_file() and "__pycache__" not in path.parts]
