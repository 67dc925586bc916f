"""How does a look-up do without a library that another one imports for nothing?

Where pandas is installed (the `datasets` library brings it), pyarrow imports it once an array is made of Python values,
only to ask whether one of them is of pandas. That takes as long as a whole look-up. A command that needs none of it
says so, in a process of its own: pyarrow then takes pandas for not installed.
"""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["without_pandas"]


class _NoPandas:
    """Finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        """Raise for pandas; None, which leaves it to the finders behind, for everything else."""
        if name == "pandas":
            raise ModuleNotFoundError("this command does without pandas", name=name)


def without_pandas(command: str) -> None:
    """Let nothing import pandas from here on, if this process was started as `command` and for nothing else."""
    if sys.argv[1:2] == [command] and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
