"""Which training framework is there? Asked of scripts, of requirements, and of what is installed, importing none.

1. What the folder's own scripts import: whoever has a training script wants its framework.
2. What its requirements name.
3. What is installed in this environment.

Of several the one that does most for a trainer comes first: Lightning, then Hugging Face's Trainer, then Accelerate,
then plain PyTorch. transformers alone is no sign of a Trainer (it is installed for its tokenizers as often), so the
class has to be named, or Accelerate, without which it cannot train, has to be there as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

__all__ = ["FRAMEWORKS", "TITLES", "Found", "find_framework", "installed"]

FRAMEWORKS = ("torch", "hf", "lightning", "accelerate", "none")
"""What ``--framework`` takes."""

TITLES = {
    "torch": "plain PyTorch",
    "hf": "Hugging Face Trainer",
    "lightning": "Lightning",
    "accelerate": "Hugging Face Accelerate",
    "none": "no framework of PyTorch",
}
"""What they are called."""

_ORDER = ("lightning", "hf", "accelerate", "torch")
_NAMES = ("lightning", "pytorch_lightning", "transformers", "accelerate", "torch")
_OTHERS = ("jax", "flax", "mlx", "tensorflow")
_IMPORT = re.compile(rf"^[ \t]*(?:import|from)[ \t]+({'|'.join((*_NAMES, *_OTHERS))})\b", re.MULTILINE)
_REQUIRED = re.compile(r"""^[ \t\["'-]*([A-Za-z][A-Za-z0-9._-]*)""", re.MULTILINE)
_TRAINER = re.compile(r"\bTrainer\b")
_REQUIREMENTS = ("requirements*.txt", "pyproject.toml", "environment.y*ml")
_MOST_FILES = 200
_MOST_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A framework, and how it was found."""

    framework: str
    why: str
    """For people, as an end of ``... since``."""
    package: str = ""
    """What is imported, where that goes by several names: ``lightning`` or ``pytorch_lightning``."""


def installed() -> dict[str, str]:
    """Which of the packages are installed, and their versions; ``?`` where one does not say."""
    return {name: _version(name) for name in _NAMES if find_spec(name) is not None}


def find_framework(folder: Path) -> Found:
    r"""The framework that a folder's scripts use, or its requirements name, or that is installed.

    >>> import tempfile
    >>> here = Path(tempfile.mkdtemp())
    >>> _ = (here / "fit.py").write_text("import torch\nfrom transformers import Trainer\n")
    >>> find_framework(here).framework, find_framework(here).why
    ('hf', 'fit.py imports it')
    """
    scripts = [(path.name, _texts(path)) for path in _few(folder.glob("*.py"))]
    for framework in _ORDER:
        for name, text in scripts:
            imported = set(_IMPORT.findall(text))
            if framework in _of(imported, names_trainer=bool(_TRAINER.search(text))):
                return _found(framework, imported, f"{name} imports it")
    for name, text in scripts:
        others = sorted({*_IMPORT.findall(text)} & {*_OTHERS})
        if others:
            return Found(framework="none", why=f"{name} imports {', '.join(others)}")
    for pattern in _REQUIREMENTS:
        for path in _few(folder.glob(pattern)):
            required = {name.lower().replace("-", "_") for name in _REQUIRED.findall(_texts(path))}
            frameworks = _of(required, names_trainer="accelerate" in required)
            if frameworks:
                return _found(frameworks[0], required, f"{path.name} names it")
    there = installed()
    frameworks = _of(set(there), names_trainer="accelerate" in there)
    if frameworks:
        return _found(frameworks[0], set(there), "it is installed")
    return Found(framework="none", why="no framework of PyTorch is installed")


def _of(names: set[str], *, names_trainer: bool) -> list[str]:
    """The frameworks that packages of these names make, the first of `_ORDER` first."""
    signs = {
        "lightning": bool(names & {"lightning", "pytorch_lightning"}),
        "hf": "transformers" in names and names_trainer,
        "accelerate": "accelerate" in names,
        "torch": "torch" in names,
    }
    return [framework for framework in _ORDER if signs[framework]]


def _found(framework: str, names: set[str], why: str) -> Found:
    package = ""
    if framework == "lightning":
        package = "lightning" if "lightning" in names else "pytorch_lightning"
    return Found(framework=framework, why=why, package=package)


def _few(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in islice(paths, _MOST_FILES) if path.is_file())


def _texts(path: Path) -> str:
    """The beginning of a file; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package.replace("_", "-"))
    except metadata.PackageNotFoundError:
        return "?"
